"""The recorded polls of four Java clients, and of KIP-387, by our consumer over sockets. Time passes after each poll, in which every
answer arrives, as it did when they were recorded."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import fletchlog as fl
from tests.acceptance.test_poll_traces import fill, recorded, recording, replay

# seconds after each poll: an answer that comes later, on a busy machine, is read by another poll
SETTLE = [0.03, 0.1, 0.4]


def over_sockets(scenario: dict[str, Any], client: str, settle: float) -> tuple[list[Any], list[Any]]:
    """What each poll returned, and the final positions."""
    with fl.Broker.in_memory() as broker:
        fill(broker, scenario["topics"])
        with broker.listen() as listener:
            return replay(f"kafka://{listener.bootstrap}", scenario, client, settle)


def as_recorded(client: str, number: str) -> None:
    scenario, polls, positions = recording(client, number)
    for settle in SETTLE:
        shown = over_sockets(scenario, client, settle)
        if shown == (polls, positions):
            return
    assert shown[0][: len(polls)] == polls, client
    assert shown == (polls, positions), client


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("number", "clients"), recorded().items())
def test_every_poll_over_sockets_returns_what_the_java_clients_returned(number: str, clients: list[str]) -> None:
    # all at a time: most of it is waiting for answers to arrive
    with ThreadPoolExecutor(len(clients)) as pool:
        list(pool.map(as_recorded, clients, [number] * len(clients)))
