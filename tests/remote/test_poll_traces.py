"""The recorded polls of four Java clients by our consumer over sockets. Time passes after each poll, in which every answer arrives, as it
did when they were recorded."""

import pytest

import fletchlog as fl
from acceptance.test_poll_traces import fill, recording, replay, scenarios

# seconds after each poll: an answer that comes later, on a busy machine, is read by another poll
SETTLE = [0.03, 0.1, 0.4]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("client", "number"), scenarios())
def test_every_poll_over_sockets_returns_what_the_java_client_returned(client, number):
    scenario, polls, positions = recording(client, number)
    for settle in SETTLE:
        with fl.Broker.in_memory() as broker:
            fill(broker, scenario["topics"])
            with broker.listen() as listener:
                shown = replay(f"kafka://{listener.bootstrap}", scenario, client, settle)
        if shown == (polls, positions):
            return
    assert shown[0][: len(polls)] == polls
    assert shown == (polls, positions)
