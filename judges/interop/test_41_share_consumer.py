"""Part 41: `fl.ShareConsumer` on a real broker: what it sends in which order, redeliveries; and members of fletchlog, Java and librdkafka in one group, on a
real broker and on our listener, that are killed.

Every record is accepted at least once, none is delivered more often than the group's limit, and none is held for ever.
"""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import fletchlog as fl
from fletchlog.errors import IllegalStateError, KafkaError
from pytest_fletchlog.kafka import Kafka
from tests.support.members import ShareMember

from . import kafka
from .conftest import CASES, SEED
from .kraft import Kraft, format_directory
from .share_steps import SCENARIOS, Java, Ours, Run

PART = "41 share consumer"
# the fixture starts a broker
pytestmark = pytest.mark.timeout(300)
TOPIC, PARTITIONS, GROUP, LIMIT, LOCK_MS = "t", 4, "s", 10, 5_000
KILLS = max(4, CASES // 20)
CONFIG = {
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.min.session.timeout.ms": "100",
    "group.share.min.heartbeat.interval.ms": "50",
    "group.share.assignment.interval.ms": "0",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
}
EXPLICIT = {"share.acknowledgement.mode": "explicit"}
# a member in a process of its own, which notes what it gets and what is accepted
MEMBER = """
import sys
import fletchlog as fl
def note(kind, tp, offsets):
    for offset in offsets:
        print(kind, tp.partition, offset, flush=True)
def done(tp, offsets, error):
    if error is None:
        note("accepted", tp, offsets)
config = {"share.acknowledgement.mode": "explicit", "max.poll.records": 20}
with fl.ShareConsumer(sys.argv[1], config, group=sys.argv[2], topics=[sys.argv[3]], on_acknowledgement=done) as consumer:
    while True:
        records = consumer.poll(500)
        for record in records:
            print("delivered", record.partition, record.offset, flush=True)
        if records:
            consumer.acknowledge(records)
            consumer.commit(10_000)
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    scratch = tmp_path_factory.mktemp("share")
    with Kraft(kafka.NEWEST, format_directory(scratch / "data"), scratch, config=CONFIG) as broker:
        yield f"kafka://{broker.address}"


def topic(place: str, name: str, count: int, *, partitions: int = 1, **group: str) -> None:
    """A topic with records, and a group that begins at its beginning."""
    with fl.Cluster(place) as cluster, fl.Producer(place) as producer:
        cluster.create_topic(name, partitions=partitions)
        cluster.alter_group_config(name, {"share.auto.offset.reset": "earliest", **group})
        for number in range(count):
            producer.send(name, value=b"%d" % number, partition=number % partitions)


def polled(consumer: fl.ShareConsumer[Any, Any], count: int) -> list[Any]:
    """The next records."""
    records: list[Any] = []
    end = time.monotonic() + 30
    while len(records) < count:
        assert time.monotonic() < end, f"{len(records)} of {count} records"
        records += consumer.poll(1000)
    return records


def test_acknowledgements_of_each_kind(place: str, count: Callable[..., None]) -> None:
    topic(place, "kinds", 4)
    results: list[tuple[int, KafkaError | None]] = []
    with fl.ShareConsumer(
        place, EXPLICIT, group="kinds", topics=["kinds"], on_acknowledgement=lambda _tp, offsets, error: results.extend((at, error) for at in offsets)
    ) as consumer:
        records = polled(consumer, 4)
        assert [(record.value, record.delivery_count) for record in records] == [(b"%d" % number, 1) for number in range(4)]
        with pytest.raises(IllegalStateError, match="not acknowledged"):
            consumer.poll(0)
        for record, kind in zip(records, ("accept", "release", "reject", "renew"), strict=True):
            consumer.acknowledge(record, kind)
        again = polled(consumer, 1)
        assert [(record.value, record.delivery_count) for record in again] == [(b"3", 1)], "renewed"
        consumer.acknowledge(("kinds", 0, 3))
        released = polled(consumer, 1)
        assert [(record.value, record.delivery_count) for record in released] == [(b"1", 2)]
        consumer.acknowledge(released[0])
        assert consumer.commit() == {("kinds", 0): None}
        assert len(consumer.poll(1000)) == 0
        assert consumer.acquisition_lock_timeout == 30_000
    assert sorted(at for at, error in results if error is None) == [0, 1, 1, 2, 3, 3]
    count(PART, kinds=4)


def test_the_requests_are_those_of_javas_consumer_in_their_order(place: str, count: Callable[..., None]) -> None:
    topic(place, "order", 4)
    plan = fl.testing.FaultPlan()
    with fl.ShareConsumer(place, group="order", topics=["order"], faults=plan) as consumer:
        polled(consumer, 4)
        consumer.commit()
    apis = [request.api for request in plan.requests() if request.api != "Metadata"]
    joins = apis.index("ShareFetch")
    assert apis[:2] == ["FindCoordinator", "ShareGroupHeartbeat"]
    assert set(apis[1:joins]) == {"ShareGroupHeartbeat"}, "until it has its partitions"
    rest = [api for api in apis[joins:] if api != "ShareGroupHeartbeat"]
    assert rest[-2:] == ["ShareAcknowledge", "ShareAcknowledge"], "the commit, the end of the session"
    assert set(rest[:-2]) == {"ShareFetch"}
    assert apis[-1] == "ShareGroupHeartbeat", "it leaves last"
    assert all(not request.errors for request in plan.requests(group="order"))
    count(PART, orders=1)


@pytest.fixture(scope="module")
def listener() -> Iterator[str]:
    with Kafka(config={name: value for name, value in CONFIG.items() if name.startswith("group.")}) as opened:
        yield opened.bootstrap


@pytest.mark.parametrize("of", ["kafka", "listener"])
def test_calls_do_what_those_of_javas_consumer_do(of: str, place: str, listener: str, count: Callable[..., None]) -> None:
    """Not compared: what Java's poll with renewals returns only at the next one; offsets of markers in callbacks; what is polled and not acknowledged when a
    subscription ends, which Java keeps."""
    address = place.removeprefix("kafka://") if of == "kafka" else listener
    java, ours, different = Java(address), Ours(address), {}
    try:
        for number, (scenario, words) in enumerate(SCENARIOS.items()):
            unique = f"{of}{number}-{time.time_ns():x}"
            wanted = Run(java, f"kafka://{address}", f"java{unique}")(words)
            got = Run(ours, f"kafka://{address}", f"fl{unique}")(words)
            # tuples are lists there
            both = json.loads(json.dumps([wanted, got]))
            rows = [rows for rows in zip(*both, strict=True) if rows[0] != rows[1]]
            if rows:
                different[scenario] = rows
    finally:
        java.end()
    assert not different
    count(PART, **{f"scenarios_of_{of}": len(SCENARIOS)})


def test_an_ended_lock_is_reported_and_the_record_comes_again(place: str, count: Callable[..., None]) -> None:
    topic(place, "locks", 2, **{"share.record.lock.duration.ms": "1000"})
    with fl.ShareConsumer(place, EXPLICIT, group="locks", topics=["locks"]) as consumer:
        records = polled(consumer, 2)
        time.sleep(1.5)
        for record in records:
            consumer.acknowledge(record)
        (late,) = consumer.commit().values()
        assert late is not None
        assert late.code == 121
        again = polled(consumer, 2)
        assert [record.delivery_count for record in again] == [2, 2]
        for record in again:
            consumer.acknowledge(record)
        assert list(consumer.commit().values()) == [None]
    count(PART, locks=2)


def test_what_a_closed_or_killed_member_had_comes_again(place: str, count: Callable[..., None]) -> None:
    topic(place, "closed", 10)
    with fl.ShareConsumer(place, group="closed", topics=["closed"]) as first:
        assert len(polled(first, 10)) == 10
    second = fl.ShareConsumer(place, group="closed", topics=["closed"])
    assert {record.delivery_count for record in polled(second, 10)} == {2}
    del second  # its connections end
    with fl.ShareConsumer(place, group="closed", topics=["closed"]) as third:
        assert {record.delivery_count for record in polled(third, 10)} == {3}
        third.commit()
    with fl.ShareConsumer(place, group="closed", topics=["closed"]) as last:
        assert len(last.poll(3000)) == 0
    count(PART, members=4)


def test_control_records_and_compressed_batches(place: str, count: Callable[..., None]) -> None:
    topic(place, "markers", 0)
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        with fl.Producer(place, {"compression.type": codec, "transactional.id": codec}) as producer:
            producer.init_transactions()
            with producer.transaction():
                for number in range(10):
                    producer.send("markers", value=b"%d" % number)
    with fl.ShareConsumer(place, group="markers", topics=["markers"]) as consumer:
        assert len(polled(consumer, 40)) == 40
        consumer.commit()
        assert len(consumer.poll(1500)) == 0
        consumer.commit()
    with fl.ShareConsumer(place, group="markers", topics=["markers"]) as consumer:
        assert len(consumer.poll(3000)) == 0, "the markers were acknowledged too"
    count(PART, markers=4)


def test_under_asyncio_the_loop_goes_on(place: str, count: Callable[..., None]) -> None:
    topic(place, "loop", 100, partitions=2)

    async def main() -> set[bytes]:
        turns, seen = 0, set()

        async def turn() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0.01)
                turns += 1

        beside = asyncio.create_task(turn())
        async with fl.AsyncShareConsumer(place, group="loop", topics=["loop"]) as consumer:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    while True:
                        seen |= {record.value for record in await consumer.poll(60_000)}
            while len(seen) < 100:
                seen.add((await anext(consumer)).value)
            await consumer.commit()
        beside.cancel()
        assert turns > 10
        return seen

    assert len(asyncio.run(main())) == 100
    count(PART, asyncio=1)


class Member:
    """`fl.ShareConsumer` in a process of its own."""

    def __init__(self, place: str, log: Path) -> None:
        self.log = log
        with log.open("wb") as out:
            self._process = subprocess.Popen([sys.executable, "-c", MEMBER, place, GROUP, TOPIC], stdout=out)

    def noted(self, kind: str) -> list[tuple[int, int]]:
        """Partition and offset of what was noted."""
        whole = self.log.read_bytes().rpartition(b"\n")[0].decode()
        rows = [line.split() for line in whole.splitlines()]
        return [(int(row[1]), int(row[2])) for row in rows if row[0] == kind]

    def kill(self) -> None:
        """Signal 9."""
        self._process.kill()
        self._process.wait()


class JavaMember(Member):
    """Kafka's verifiable share consumer."""

    def __init__(self, place: str, log: Path) -> None:
        self.log = log
        words = ["--bootstrap-server", place.removeprefix("kafka://"), "--topic", TOPIC, "--group-id", GROUP, "--acknowledgement-mode", "sync", "--verbose"]
        command = [*kafka.JVM, "-cp", kafka.classpath("server", kafka.server(kafka.NEWEST)), "org.apache.kafka.tools.VerifiableShareConsumer", *words]
        with log.open("wb") as out:
            self._process = subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL)

    def noted(self, kind: str) -> list[tuple[int, int]]:
        """Partition and offset of what was noted."""
        notes = [json.loads(line) for line in self.log.read_bytes().rpartition(b"\n")[0].splitlines()]
        if kind == "delivered":
            return [(note["partition"], note["offset"]) for note in notes if note["name"] == "record_data"]
        parts = [part for note in notes if note["name"] == "offsets_acknowledged" and note["success"] for part in note["partitions"]]
        return [(part["partition"], offset) for part in parts for offset in part["offsets"]]


class ConfluentMember(Member):
    """confluent-kafka's share consumer, which releases one record of ten when it first gets it."""

    def __init__(self, place: str, log: Path) -> None:
        self._member = ShareMember(TOPIC, log, bootstrap_servers=place.removeprefix("kafka://"), group_id=GROUP, max_poll_records=20)

    def noted(self, kind: str) -> list[tuple[int, int]]:
        """Partition and offset of what was noted."""
        return self._member.delivered() if kind == "delivered" else list(self._member.accepted())

    def kill(self) -> None:
        """Signal 9."""
        self._member.kill()


KINDS: tuple[type[Member], ...] = (Member, JavaMember, ConfluentMember)


def mixed(place: str, scratch: Path, rng: random.Random) -> dict[str, int]:
    """Members of each kind in one group, of which one is killed again and again while records are written, until everything is done."""
    with fl.Cluster(place) as cluster:
        cluster.create_topic(TOPIC, partitions=PARTITIONS)
        given = {"share.auto.offset.reset": "earliest", "share.delivery.count.limit": str(LIMIT), "share.record.lock.duration.ms": str(LOCK_MS)}
        cluster.alter_group_config(GROUP, given)
    members = [kind(place, scratch / f"member-{number}") for number, kind in enumerate(KINDS)]
    running = dict(enumerate(range(len(KINDS))))
    records: set[tuple[int, int]] = set()

    def accepted() -> set[tuple[int, int]]:
        return {at for member in members for at in member.noted("accepted")}

    try:
        with fl.Producer(place) as producer:

            def write(count: int) -> None:
                sent = [producer.send(TOPIC, value=b"%d" % number, partition=number % PARTITIONS) for number in range(count)]
                records.update((at.partition, at.offset) for at in (future.result(60) for future in sent))

            def has_work() -> bool:
                write(40)
                return all(member.noted("accepted") for member in members)

            # a JVM takes its time
            until(has_work, "a member gets nothing")
            for _ in range(KILLS):
                write(400)
                time.sleep(rng.uniform(0.2, 2))
                place_of = rng.choice(list(running))
                members[running[place_of]].kill()
                running[place_of] = len(members)
                members.append(KINDS[place_of](place, scratch / f"member-{len(members)}"))
        until(lambda: records <= {at for member in members for at in member.noted("delivered")}, "records are not delivered")
    finally:
        for number in running.values():
            members[number].kill()
    deliveries = Counter(at for member in members for at in member.noted("delivered"))
    confirmed = accepted() | rest(place, deliveries)
    assert max(deliveries.values()) <= LIMIT, deliveries.most_common(3)
    # an acceptance that a killed member has not lived to note is the broker's alone
    assert len(confirmed & records) >= 0.95 * len(records)
    return {"kills": KILLS, "records": len(records), "deliveries": sum(deliveries.values()), "confirmed": len(confirmed & records)}


def rest(place: str, deliveries: Counter[tuple[int, int]]) -> set[tuple[int, int]]:
    """What a last member still gets, until nothing has come for longer than a lock lasts: then nothing is held."""
    accepted: set[tuple[int, int]] = set()
    with fl.ShareConsumer(place, EXPLICIT, group=GROUP, topics=[TOPIC]) as consumer:
        last = time.monotonic()
        while time.monotonic() - last < 1.5 * LOCK_MS / 1000:
            records = consumer.poll(500)
            for record in records:
                deliveries[record.partition, record.offset] += 1
                accepted.add((record.partition, record.offset))
                last = time.monotonic()
            consumer.acknowledge(records)
            assert all(error is None for error in consumer.commit().values())
    return accepted


def until(reached: Callable[[], bool], what: str, seconds: float = 240) -> None:
    """Returns once it is so."""
    end = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < end, what
        time.sleep(0.5)


@pytest.mark.timeout(900)
def test_members_of_three_makes_share_a_group_of_kafka_over_kills(place: str, scratch: Path, count: Callable[..., None]) -> None:
    count(PART, **{f"kafka_{name}": value for name, value in mixed(place, scratch, random.Random(SEED)).items()})


@pytest.mark.timeout(900)
def test_members_of_three_makes_share_a_group_of_our_listener_over_kills(scratch: Path, count: Callable[..., None]) -> None:
    with Kafka(config={name: value for name, value in CONFIG.items() if name.startswith("group.")}) as opened:
        done = mixed(f"kafka://{opened.bootstrap}", scratch, random.Random(SEED + 1))

        def in_flight() -> bool:
            return bool(opened.broker.share_state(GROUP, TOPIC).to_pyarrow().num_rows)

        until(lambda: not in_flight(), "records are held though every member is gone")
    count(PART, **{f"listener_{name}": value for name, value in done.items()})
