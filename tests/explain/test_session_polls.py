"""The polls of consumers, derived from recorded sessions: those that the program saw, or a reason why not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fletchlog as fl
from fletchlog.explain.session import Polls
from tests.acceptance.test_poll_traces import fill, java_runs, recording, replay
from tests.support.waiting import until

# subscribe(), rotation, sizes of every kind
SCENARIOS = [("4.3.1", "013"), ("2.6.3", "029"), ("4.3.1", "045"), ("3.9.1", "145")]
SETTLE_S = 0.03


def recorded(tmp_path: Path, scenario: dict[str, Any], client: str) -> tuple[fl.explain.Explained, list[Any]]:
    """The session of a scenario with a consumer of this release, and what each poll with records returned."""
    path = tmp_path / "session.fltrace"
    with fl.Broker.in_memory() as broker:
        fill(broker, scenario["topics"])
        with broker.listen(record=path) as listener:
            same = {**scenario, "client": {"client.id": "reader", "retry.backoff.ms": 10, **scenario["client"]}}
            polls, _ = replay(f"kafka://{listener.bootstrap}", same, client, SETTLE_S)
    return fl.explain.clients(path), [runs for runs, _ in polls if runs]


def rows(polls: Polls) -> list[Any]:
    """In the words of the recordings."""
    return [[[run.lane.topic, run.lane.partition, run.first, run.last, run.records] for run in poll.runs] for poll in polls.polls]


@pytest.mark.parametrize(("client", "number"), SCENARIOS)
def test_the_polls_of_a_session_are_those_that_the_program_saw(client: str, number: str, tmp_path: Path) -> None:
    scenario, *_ = recording(client, number)
    explained, seen = recorded(tmp_path, scenario, client)
    derived = explained.polls("reader", scenario["client"].get("max.poll.records", 500), release=client)
    assert not derived.why_not
    assert derived.parted is None, derived
    assert derived.agreeing == derived.fetches
    assert rows(derived) == seen[: len(derived.polls)]
    assert len(derived.polls) > len(seen) // 2


def test_max_poll_records_is_the_default_or_what_agrees_with_the_fetches(tmp_path: Path) -> None:
    scenario, *_ = recording("2.6.3", "001")
    few = {**scenario, "client": {**scenario["client"], "max.poll.records": 7}}
    explained, seen = recorded(tmp_path, few, "2.6.3")
    given = explained.polls("reader", 7, release="2.6.3")
    assert given.max_poll_records_from == "given"
    assert rows(given) == seen[: len(given.polls)]
    inferred = explained.polls("reader", release="2.6.3")
    assert inferred.parted is None
    if inferred.max_poll_records_between is not None:
        low, high = inferred.max_poll_records_between
        assert low <= 7 <= high


def test_a_rebalance_is_followed(tmp_path: Path) -> None:
    path = tmp_path / "session.fltrace"
    config = {
        "group.id": "shop", "auto.offset.reset": "earliest", "fetch.max.wait.ms": 20, "max.poll.records": 4, "max.partition.fetch.bytes": 300,
        "heartbeat.interval.ms": 50, "enable.auto.commit": False, "fletchlog.consumer.version": "3.9",
    }  # fmt: skip
    seen: list[Any] = []
    with fl.Broker.in_memory() as broker:
        broker.create_topic("orders", partitions=4)
        with fl.Producer(broker, {"batch.size": 200}) as producer:
            for number in range(400):
                producer.send("orders", value=b"%20d" % number, partition=number % 4)
        with broker.listen(record=path) as listener:
            address = f"kafka://{listener.bootstrap}"
            one = fl.Consumer(address, config | {"client.id": "one"})
            two = fl.Consumer(address, config | {"client.id": "two"})
            one.subscribe(["orders"])

            def step() -> bool:
                batch = one.poll(100)
                if len(batch):
                    seen.append(java_runs(batch))
                    one.commit()
                return len(seen) >= 8

            assert until(step)
            two.subscribe(["orders"])
            before = len(seen)

            def joined() -> bool:
                step()
                two.poll(10)
                return len(one.assignment()) == 2 and len(seen) >= before + 8

            assert until(joined)
            one.close()
            two.close()
    derived = fl.explain.clients(path).polls("one", 4, release="3.9")
    assert not derived.why_not
    # of the last polls before the rebalance no fetch was sent
    sure = before // 2
    assert all(poll.decided for poll in derived.polls[:sure])
    assert rows(derived)[:sure] == seen[:sure]
    assert derived.agreeing > derived.fetches // 2, derived.parted


def test_a_client_without_the_rules_of_java_has_none(tmp_path: Path) -> None:
    scenario, *_ = recording("2.6.3", "001")
    explained, _ = recorded(tmp_path, scenario, "2.6.3")
    assert "the order of arrival" in explained.polls("reader").why_not
    with pytest.raises(fl.errors.InvalidArgumentError, match="max_poll_records is 0"):
        explained.polls("reader", 0, release="2.6")
    assert "is no release" in explained.polls("reader", release="1.0").why_not
