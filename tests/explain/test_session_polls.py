"""The polls of consumers, derived from recorded sessions: those that the program saw, or a reason why not."""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import fletchlog as fl
from fletchlog.explain.session import Polls
from fletchlog.explain.session.finding import clock
from tests.acceptance.test_poll_traces import fill, java_runs, recording, replay
from tests.support.batches import crc32c
from tests.support.waiting import until

# subscribe(), rotation, sizes of every kind
SCENARIOS = [("4.3.1", "013"), ("2.6.3", "029"), ("2.6.3", "085"), ("4.3.1", "045"), ("3.9.1", "145")]
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
    assert in_order(derived, seen)
    assert len(derived.polls) > len(seen) // 2


def test_max_poll_records_is_the_default_or_what_agrees_with_the_fetches(tmp_path: Path) -> None:
    scenario, *_ = recording("2.6.3", "001")
    few = {**scenario, "client": {**scenario["client"], "max.poll.records": 7}}
    explained, seen = recorded(tmp_path, few, "2.6.3")
    given = explained.polls("reader", 7, release="2.6.3")
    assert given.max_poll_records_from == "given"
    assert in_order(given, seen)
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
        with fl.Producer(broker, {"batch.size": 200, "linger.ms": 10_000}) as producer:
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
    assert derived.parted is None, derived
    assert in_order(derived, seen)
    # commits confirm the polls of which no fetch was sent
    assert sum(poll.decided for poll in derived.polls[:before]) >= before - 1
    assert sum(poll.decided for poll in derived.polls[before:]) >= 4


def test_a_client_without_the_rules_of_java_has_none(tmp_path: Path) -> None:
    scenario, *_ = recording("2.6.3", "001")
    explained, _ = recorded(tmp_path, scenario, "2.6.3")
    assert "the order of arrival" in explained.polls("reader").why_not
    with pytest.raises(fl.errors.InvalidArgumentError, match="max_poll_records is 0"):
        explained.polls("reader", 0, release="2.6")
    for release in ("1.0", "9.9", "new"):
        with pytest.raises(fl.errors.InvalidArgumentError, match=f"`{release}` is no release of Kafka's clients from 2.4 to 4.4"):
            explained.polls("reader", release=release)


CONFIG = {"client.id": "reader", "auto.offset.reset": "earliest", "fetch.max.wait.ms": 20, "max.poll.records": 4, "fletchlog.consumer.version": "3.9"}
SELECTOR = {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}


class Program:
    """A consumer over a listener that is recorded, and what its polls returned."""

    def __init__(self, tmp_path: Path, listener: Callable[..., Any], config: dict[str, Any]) -> None:
        self.path = tmp_path / "session.fltrace"
        self.listener = listener(record=self.path)
        self.consumer = fl.Consumer(f"kafka://{self.listener.bootstrap}", CONFIG | config)
        self.seen: list[Any] = []

    def poll(self, times: int) -> None:
        """Until so many polls had records."""
        goal = len(self.seen) + times
        while len(self.seen) < goal:
            if len(batch := self.consumer.poll(1000)):
                self.seen.append(java_runs(batch))

    def end(self) -> Polls:
        """What its session shows."""
        self.consumer.close()
        self.listener.close()
        return fl.explain.clients(self.path).polls("reader", 4, release="3.9")


def in_order(polls: Polls, seen: list[Any]) -> bool:
    """Whether every poll that is decided was seen, in this order: up to the first one that is not decided, nothing is between them."""
    decided = [poll.decided for poll in polls.polls]
    certain = decided.index(False) if False in decided else len(decided)
    behind = iter(seen[certain:])
    later = [row for row, poll in zip(rows(polls), polls.polls, strict=True) if poll.decided][certain:]
    return rows(polls)[:certain] == seen[:certain] and all(any(row == one for one in behind) for row in later)


def fill_numbers(broker: fl.Broker, topic: str, records: int, **create: Any) -> None:
    """Small batches in each partition."""
    broker.create_topic(topic, **create)
    with fl.Producer(broker, {"batch.size": 200, "linger.ms": 10_000}) as producer:
        for number in range(records):
            producer.send(topic, value=b"%20d" % number, partition=number % create["partitions"])


def changed(path: Path, old: bytes, new: bytes) -> None:
    """Replaces bytes in the blocks of a session, and packs them again."""
    packed = path.read_bytes()
    at = 20
    for _ in range(2):
        at += 2 + int.from_bytes(packed[at : at + 2], "big")
    found = bytearray(packed[: at + 4])
    at += 4
    while at < len(packed):
        length, size, _ = struct.unpack(">III", packed[at : at + 12])
        raw = pa.decompress(packed[at + 12 : at + 12 + length], size, "zstd", asbytes=True)
        frame = pa.compress(raw.replace(old, new), "zstd", asbytes=True)
        sizes = struct.pack(">II", len(frame), size)
        found += sizes + struct.pack(">I", crc32c(sizes + struct.pack(">I", crc32c(frame)))) + frame
        at += 12 + length
    path.write_bytes(found)


@pytest.mark.parametrize(
    ("new", "why"),
    [
        (b"\x02\x7f\xff\xff\xf0", "it names partition 2,147,483,632 of a topic: no topic has as many"),
        (b"", "its first fetch is not known: its response is not known: the session does not have the name of a topic, only its id"),
    ],
)
def test_what_a_damaged_session_does_not_have_is_said(tmp_path: Path, new: bytes, why: str) -> None:
    with fl.Broker.in_memory() as broker:
        fill_numbers(broker, "orders", 20, partitions=1)
        program = Program(tmp_path, broker.listen, {})
        program.consumer.assign([("orders", 0)])
        program.poll(2)
        program.end()
    (name,) = fl.explain.session.Session(program.path).topic_names
    topic_id = base64.urlsafe_b64decode(f"{name}==")
    # a topic with one partition, in a Fetch or its response
    begin = b"\x02" + bytes(4)
    changed(program.path, topic_id + begin, topic_id + new if new else b"\xff" * 16 + begin)
    explained = fl.explain.clients(program.path)
    assert explained.polls("reader", release="3.9").why_not == why
    assert clock(2**63 - 1) == "9,223,372,036,854,775,807 us since 1970"


def test_polls_are_followed_past_an_assignment_of_other_partitions(tmp_path: Path) -> None:
    with fl.Broker.in_memory() as broker:
        fill_numbers(broker, "orders", 60, partitions=3)
        fill_numbers(broker, "payments", 60, partitions=3)
        program = Program(tmp_path, broker.listen, {"max.partition.fetch.bytes": 300})
        program.consumer.assign([("orders", 0), ("orders", 1)])
        program.poll(6)
        program.consumer.assign([("orders", 1), ("payments", 0), ("payments", 2)])
        program.poll(14)
        polls = program.end()
    # it ended at the first fetch of other partitions
    assert polls.parted is None, polls
    assert {str(call.lane) for call in polls.calls if call.method == "assign"} >= {"payments-0", "payments-2"}
    assert in_order(polls, program.seen)


def test_polls_are_followed_to_another_leader(tmp_path: Path) -> None:
    with fl.Broker.in_memory(nodes=2) as broker:
        fill_numbers(broker, "orders", 100, partitions=1)
        program = Program(tmp_path, broker.listen, {"max.partition.fetch.bytes": 300})
        program.consumer.assign([("orders", 0)])
        program.poll(8)
        broker.move_leader("orders", 0, to=3 - broker.describe_topic("orders").partitions[0].leader)
        program.poll(12)
        polls = program.end()
    assert polls.parted is None, polls
    assert rows(polls) == program.seen[: len(polls.polls)]
    assert len(polls.polls) > 15
    assert all(poll.decided for poll in polls.polls)
    assert not polls.calls


def test_which_of_two_nodes_was_read_first_is_not_decided(tmp_path: Path) -> None:
    with fl.Broker.in_memory(nodes=2) as broker:
        fill_numbers(broker, "orders", 80, partitions=2)
        assert len({partition.leader for partition in broker.describe_topic("orders").partitions}) == 2
        program = Program(tmp_path, broker.listen, {"max.partition.fetch.bytes": 300})
        program.consumer.assign([("orders", 0), ("orders", 1)])
        program.poll(12)
        polls = program.end()
    assert polls.parted is None, polls
    assert in_order(polls, program.seen)
    # Where the order is open, the polls that are shown are one of the ways. Each of them reads a partition without a gap.
    derived = {partition: [run for poll in polls.polls for run in poll.runs if run.lane.partition == partition] for partition in (0, 1)}
    for runs in derived.values():
        assert [run.first for run in runs] == [0, *(run.last + 1 for run in runs[:-1])]


def test_polls_are_followed_to_a_follower(tmp_path: Path) -> None:
    with fl.Broker.in_memory(nodes={0: "r0", 1: "r1"}, config=SELECTOR) as broker:
        fill_numbers(broker, "orders", 100, partitions=1)
        leader = broker.describe_topic("orders").partitions[0].leader
        program = Program(tmp_path, broker.listen, {"max.partition.fetch.bytes": 300, "client.rack": f"r{1 - leader}"})
        program.consumer.assign([("orders", 0)])
        program.poll(20)
        polls = program.end()
    assert polls.parted is None, polls
    assert rows(polls) == program.seen[: len(polls.polls)]
    assert len(polls.polls) > 15
    assert all(poll.decided for poll in polls.polls)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_commits_show_polls_behind_the_last_fetch(protocol: str, tmp_path: Path) -> None:
    with fl.Broker.in_memory() as broker:
        fill_numbers(broker, "orders", 60, partitions=2)
        program = Program(tmp_path, broker.listen, {"group.id": "shop", "group.protocol": protocol, "enable.auto.commit": False})
        program.consumer.subscribe(["orders"])
        for _ in range(10):
            program.poll(1)
            program.consumer.commit()
        polls = program.end()
    # one fetch has all, and another one is sent when all of it was returned: no later fetch confirms these polls
    assert polls.fetches <= 3
    assert polls.parted is None, polls
    assert len(polls.polls) >= 10
    assert in_order(polls, program.seen)
    assert sum(poll.decided for poll in polls.polls) >= 9
    assert polls.polls[-1].fetch is None


def test_commits_of_other_offsets_than_positions_decide_nothing(tmp_path: Path) -> None:
    with fl.Broker.in_memory() as broker:
        fill_numbers(broker, "orders", 60, partitions=1)
        program = Program(tmp_path, broker.listen, {"group.id": "shop", "enable.auto.commit": False, "max.partition.fetch.bytes": 300})
        program.consumer.subscribe(["orders"])
        for _ in range(8):
            program.poll(1)
            *_, last, _ = program.seen[-1][-1]
            program.consumer.commit({("orders", 0): last})
        polls = program.end()
    assert polls.parted is None, polls
    assert rows(polls) == program.seen[: len(polls.polls)]
    assert len(polls.polls) >= 6


def test_aborted_records_are_in_no_poll(tmp_path: Path) -> None:
    with fl.Broker.in_memory() as broker:
        broker.create_topic("orders", partitions=2)
        with fl.Producer(broker, {"transactional.id": "shop", "batch.size": 200}) as producer:
            producer.init_transactions()
            for transaction in range(6):
                producer.begin_transaction()
                for number in range(12):
                    producer.send("orders", value=b"%20d" % number, partition=number % 2)
                producer.flush()
                if transaction % 2:
                    producer.abort_transaction()
                else:
                    producer.commit_transaction()
        program = Program(tmp_path, broker.listen, {"isolation.level": "read_committed", "max.partition.fetch.bytes": 300})
        program.consumer.assign([("orders", 0), ("orders", 1)])
        program.poll(9)
        polls = program.end()
    assert polls.parted is None, polls
    assert in_order(polls, program.seen)
    decided = [poll for poll in polls.polls if poll.decided]
    assert len(decided) >= 4
    assert sum(run.records for poll in polls.polls for run in poll.runs) <= 36


def test_offsets_in_a_compacted_batch_are_not_exact(tmp_path: Path) -> None:
    with fl.Broker.in_memory() as broker:
        broker.create_topic("orders", config={"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.0, "segment.bytes": 2000})
        with fl.Producer(broker, {"linger.ms": 1000, "enable.idempotence": False}) as producer:
            for _ in range(5):
                for number in range(40):
                    producer.send("orders", key=b"%d" % (number % (7 if number % 2 else 40)), value=b"%20d" % number)
                producer.flush()
            # the last segment is not cleaned
            for number in range(100):
                producer.send("orders", key=b"last %d" % number, value=b"%20d" % number)
        broker.clean_topic("orders", force=True)
        program = Program(tmp_path, broker.listen, {"max.partition.fetch.bytes": 2000})
        program.consumer.assign([("orders", 0)])
        while len(batch := program.consumer.poll(100)):
            program.seen.append(java_runs(batch))
        polls = program.end()
    assert polls.parted is None, polls
    counts = [[run.records for run in poll.runs] for poll in polls.polls]
    assert counts == [[run[4] for run in poll] for poll in program.seen[: len(counts)]]
    assert any(not run.exact for poll in polls.polls for run in poll.runs)
    exact = [(run.last, seen[0][3]) for poll, seen in zip(polls.polls, program.seen, strict=False) for run in poll.runs if run.exact]
    assert all(ours == theirs for ours, theirs in exact)


def test_a_part_of_a_batch_has_not_arrived(tmp_path: Path) -> None:
    with fl.Broker.in_memory() as broker:
        fill_numbers(broker, "orders", 20, partitions=1)
        program = Program(tmp_path, broker.listen, {"max.partition.fetch.bytes": 300})
        program.consumer.assign([("orders", 0)])
        program.poll(1)
        program.end()
    explained = fl.explain.clients(program.path)
    fetch = next(fetch for fetch in explained.facts.fetches if fetch.got)
    batches = fl.explain.session.Session(program.path).exchange(fetch.number).response["responses"][0]["partitions"][0]["records"]
    assert len(batches) == 2
    assert sum(batch["size"] for batch in batches) > 300
    arrival = explained.order("reader").arrivals[0]
    assert (arrival.first, arrival.last, arrival.records, arrival.size) == (0, batches[0]["last_offset"], batches[0]["records"], batches[0]["size"])
