"""Part 22: the recorded scenarios by our consumer against real brokers: the polls, fetches and answers of the Java client that was recorded."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import fletchlog as fl
from tests.acceptance.test_poll_traces import replay

from .fetches import Proxies
from .kraft import Kraft, cluster_of
from .test_13_wire_polls import Outcome, Scenario, difference, events_of, fill, scenarios

PART = "22 recorded scenarios on real brokers"
# the release of the broker, and of the client that ours is
PAIRS = [("3.9.1", "2.6.3"), ("3.9.1", "3.9.1"), ("4.3.1", "3.7.2"), ("4.3.1", "4.3.1"), ("4.4.0", "4.4.0")]
THREADS = 8
# seconds after each poll, in which every answer arrives; what a busy machine has kept waiting is run again
SETTLE = [0.06, 0.12, 0.25, 0.5]
# as the recorded clients had them, but for `retry.backoff.ms`: see `Poll`'s runs in part 13
BACKOFF = 10


class Served(NamedTuple):
    """A real broker behind a proxy."""

    address: str
    topics: dict[str, Any]


def shelves(of: dict[str, Scenario]) -> list[dict[str, Any]]:
    """Topics of all scenarios, in as few directories as names allow: some scenarios give one name to different topics."""
    found: list[dict[str, Any]] = []
    for scenario in of.values():
        topics = scenario["topics"]
        fitting = (shelf for shelf in found if all(shelf.get(name, topic) == topic for name, topic in topics.items()))
        shelf = next(fitting, None)
        if shelf is None:
            found.append(shelf := {})
        shelf.update(topics)
    return found


@pytest.fixture(scope="module")
def proxies() -> Iterator[Proxies]:
    opened = Proxies()
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def served(request: pytest.FixtureRequest, proxies: Proxies, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Served]]:
    """Brokers of a release on directories of ours, a directory each."""
    logging.getLogger("fletchlog").setLevel(logging.ERROR)
    scratch: Path = tmp_path_factory.mktemp("recorded")
    every = {number: scenario for _, client in PAIRS for number, scenario in scenarios(client).items()}
    running: list[Kraft] = []
    brokers = []
    try:
        for number, topics in enumerate(shelves(every)):
            directory = scratch / f"data-{number}"
            target: dict[str, Any] = {}
            with fl.Broker(directory, create=True) as broker:
                target["names"] = fill(broker, topics)
            address = proxies.open(target)
            real = Kraft(request.param, directory, scratch, cluster_of(directory), config={"advertised.listeners": f"PLAINTEXT://{address}"})
            target["address"] = real.address
            running.append(real.__enter__())
            brokers.append(Served(address, topics))
        yield brokers
    finally:
        for real in running:
            real.kill()


def run(served: list[Served], proxies: Proxies, client: str, number: str, scenario: Scenario, tries: int) -> Outcome:
    """One scenario, over the proxy."""
    name = f"{client}-{number}-{tries}"
    at = next(of for of in served if all(of.topics.get(topic) == what for topic, what in scenario["topics"].items()))
    config = {"client.id": name, "retry.backoff.ms": BACKOFF, **scenario["client"]}
    if scenario["group"]:
        config["group.id"] = name
    starts: list[int] = []
    begins = lambda: starts.append(time.time_ns() // 1000)  # noqa: E731
    polls, positions = replay(f"kafka://{at.address}", {**scenario, "client": config}, client, SETTLE[tries], begins)
    return Outcome([runs for runs, _ in polls], [failed for _, failed in polls], events_of(proxies.events[name], starts), positions)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("served", "client"), PAIRS, indirect=["served"])
def test_polls_and_fetches_are_the_recorded_ones(client: str, served: list[Served], proxies: Proxies, count: Callable[..., None]) -> None:
    left = scenarios(client)
    assert len(left) > 80, "the recordings are gone"
    for tries in range(len(SETTLE)):
        with ThreadPoolExecutor(THREADS) as pool:
            outcomes = dict(zip(left, pool.map(lambda of, tries=tries: run(served, proxies, client, *of, tries), left.items()), strict=True))
        found = {number: difference(client, number, outcome) for number, outcome in outcomes.items()}
        for number, why in found.items():
            if why is None:
                fetches = sum(event[0] == "req" for net in outcomes[number].net for event in net)
                count(PART, equal_scenarios=1, equal_polls=len(outcomes[number].polls), fetches=fetches)
        left = {number: scenario for number, scenario in left.items() if found[number] is not None}
        if not left:
            return
    pytest.fail(f"{len(left)} scenarios differ from their recordings:\n" + "\n".join(f"{number}: {found[number]}" for number in left))
