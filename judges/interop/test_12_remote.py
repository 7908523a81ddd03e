"""Part 12: our clients against real brokers, and beside another client."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

import fletchlog as fl

from . import kafka
from .kraft import Kraft, format_directory

PART = "12 our clients, real brokers"
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
LIMIT = 60.0


class Cluster:
    """A running broker, and what makes topics on it."""

    def __init__(self, broker: Kraft) -> None:
        self.broker = broker
        self.url = f"kafka://{broker.address}"
        self._admin = AdminClient({"bootstrap.servers": broker.address})

    def create(self, name: str, partitions: int, config: dict[str, str] | None = None) -> list[fl.TopicPartition]:
        """A new topic; its partitions. Nobody waits until the broker leads them."""
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=config or {})
        self._admin.create_topics([topic])[name].result(30)
        return [fl.TopicPartition(name, p) for p in range(partitions)]


@pytest.fixture(scope="module", params=kafka.SERVERS)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One broker of each release."""
    scratch: Path = tmp_path_factory.mktemp("remote")
    with Kraft(request.param, format_directory(scratch / "data"), scratch, config={"group.min.session.timeout.ms": "500"}) as broker:
        yield Cluster(broker)


def read_all(consumer: fl.Consumer, count: int) -> list[fl.types.Record]:
    """The first so many records."""
    records: list[fl.types.Record] = []
    end = time.monotonic() + LIMIT
    while len(records) < count:
        assert time.monotonic() < end, f"{len(records)} of {count} after {LIMIT} s"
        records += list(consumer.poll(timeout_ms=500))
    return records


@pytest.mark.parametrize("codec", CODECS)
def test_what_our_producer_sends_both_clients_read_alike(cluster: Cluster, codec: str, count: Callable[..., None]) -> None:
    name = f"codec-{codec}"
    partitions = cluster.create(name, 3)
    with fl.Producer(cluster.url, {"compression.type": codec, "enable.idempotence": True, "linger.ms": 5}) as producer:
        futures = [producer.send(name, key=b"k%d" % i, value=b"value %d" % i, headers=[("n", b"%d" % i)], partition=i % 3) for i in range(3_000)]
        assert [f.result().offset for f in futures] == [i // 3 for i in range(3_000)]
    with fl.Consumer(cluster.url, {"auto.offset.reset": "earliest"}) as consumer:
        consumer.assign(partitions)
        ours = sorted((r.partition, r.offset, r.key, r.value) for r in read_all(consumer, 3_000))
        assert consumer.end_offsets(partitions) == dict.fromkeys(partitions, 1_000)
    theirs = ck.Consumer({"bootstrap.servers": cluster.broker.address, "group.id": "x", "enable.auto.commit": False})
    theirs.assign([ck.TopicPartition(name, p, 0) for p in range(3)])
    read: list[tuple[object, ...]] = []
    while len(read) < 3_000:
        read += [(m.partition(), m.offset(), m.key(), m.value()) for m in theirs.consume(500, 5)]
    theirs.close()
    assert ours == sorted(read)  # type: ignore[type-var]
    count(PART, records=3_000)


def test_an_idempotent_producer_is_ahead_of_the_topic(cluster: Cluster) -> None:
    config = {"enable.idempotence": True, "batch.size": 1, "retry.backoff.ms": 1, "retry.backoff.max.ms": 1, "delivery.timeout.ms": 60_000}
    with fl.Producer(cluster.url, config) as producer:
        for round_ in range(20):
            name = f"new-{round_}"
            cluster.create(name, 8)
            futures = [producer.send(name, value=b"%d" % i, partition=i % 8) for i in range(40)]
            assert [f.result(20).offset for f in futures] == [i // 8 for i in range(40)], name


def test_groups_of_both_clients_share_their_partitions(cluster: Cluster) -> None:
    partitions = cluster.create("mixed", 6)
    config = {"group.id": "mixed", "partition.assignment.strategy": "range", "session.timeout.ms": "6000", "auto.offset.reset": "earliest"}
    with fl.Producer(cluster.url) as producer:
        for i in range(600):
            producer.send("mixed", value=b"%d" % i, partition=i % 6)
    theirs = ck.Consumer({"bootstrap.servers": cluster.broker.address, **config})
    theirs.subscribe(["mixed"])
    seen: set[bytes] = set()
    with fl.Consumer(cluster.url, {**config, "heartbeat.interval.ms": 200}) as ours:
        ours.subscribe(["mixed"])
        end = time.monotonic() + LIMIT
        while len(seen) < 600 or not (len(ours.assignment()) == len(theirs.assignment()) == 3):
            assert time.monotonic() < end, (len(seen), ours.assignment(), theirs.assignment())
            seen |= {r.value for r in ours.poll(timeout_ms=100) if r.value}
            seen |= {m.value() for m in theirs.consume(100, 0.1) if m.value()}
        ours.commit()
        committed = ours.committed(ours.assignment())
        assert all(offset is not None and offset.offset == 100 for offset in committed.values())
    theirs.close()
    with fl.Consumer(cluster.url, {"group.id": "mixed"}) as later:
        assert all(offset is not None and offset.offset == 100 for offset in later.committed(partitions).values())


def epoch(producer: fl.Producer) -> int:
    at = producer.producer_id
    assert at is not None
    return at[1]


@pytest.mark.parametrize("release", ["2.6", "4.4"])
def test_transactions_are_all_or_nothing_and_fence(cluster: Cluster, release: str) -> None:
    name = f"txn-{release}"
    partitions = cluster.create(name, 3)
    source = cluster.create(f"{name}-source", 1)[0]
    config = {"transactional.id": name, "fletchlog.producer.version": release}
    first = fl.Producer(cluster.url, config)
    first.init_transactions()
    began = epoch(first)
    first.begin_transaction()
    first.send(name, value=b"aborted", partition=0).result()
    first.abort_transaction()
    first.begin_transaction()
    for i in range(30):
        first.send(name, value=b"%d" % i, partition=i % 3)
    with fl.Consumer(cluster.url, {"group.id": f"{name}-group"}) as group:
        first.send_offsets_to_transaction({source: 7}, group.group_metadata())
    first.commit_transaction()
    # transaction.version 2: a new cluster's from 4.0 on
    is_version_2 = release == "4.4" and not cluster.broker.release.startswith("3.")
    assert epoch(first) - began == (2 if is_version_2 else 0)
    with fl.Producer(cluster.url, config) as second:
        second.init_transactions()
        first.begin_transaction()
        with pytest.raises(fl.errors.KafkaError):
            first.send(name, value=b"fenced", partition=1).result()
            first.commit_transaction()
        first.close(0)
    with fl.Consumer(cluster.url, {"isolation.level": "read_committed", "auto.offset.reset": "earliest", "group.id": f"{name}-group"}) as consumer:
        consumer.assign(partitions)
        assert sorted(int(r.value or b"-1") for r in read_all(consumer, 30)) == list(range(30))
        committed = consumer.committed([source])[source]
        assert committed is not None
        assert committed.offset == 7


def test_topics_and_groups_of_a_cluster(cluster: Cluster) -> None:
    with fl.Cluster(cluster.url) as ours:
        ours.create_topic("described", partitions=3, config={"retention.ms": 3_600_000})
        assert "described" in ours.topics()
        with fl.Producer(cluster.url, {"transactional.id": "describer"}) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            for i in range(9):
                producer.send("described", value=b"v", partition=i % 2)
            producer.flush()
            open_ends = [(p.log_start_offset, p.high_watermark, p.last_stable_offset) for p in ours.describe_topic("described").partitions]
            producer.commit_transaction()
        assert open_ends == [(0, 5, 0), (0, 4, 0), (0, 0, 0)]
        topic = ours.describe_topic("described")
        assert topic.config["retention.ms"] == "3600000"
        with fl.Consumer(cluster.url, {"group.id": "described", "client.id": "me"}) as consumer:
            consumer.subscribe(["described"])
            end = time.monotonic() + LIMIT
            while not consumer.assignment():
                assert time.monotonic() < end
                consumer.poll(timeout_ms=100)
            group = ours.describe_group("described")
            assert (group.state, group.protocol, [m.client_id for m in group.members]) == ("Stable", "range", ["me"])
            assert sorted(group.members[0].partitions) == sorted(consumer.assignment())
            assert "described" in [g.group_id for g in ours.groups()]
        with pytest.raises(fl.errors.TopicAlreadyExistsError):
            ours.create_topic("described")
        ours.delete_topic("described")
        with pytest.raises(fl.errors.GroupIdNotFoundError):
            ours.describe_group("nobody")


def test_a_member_stays_in_its_group_between_polls(cluster: Cluster) -> None:
    cluster.create("beats", 1)
    config = {"group.id": "beats", "session.timeout.ms": 600, "heartbeat.interval.ms": 100, "auto.offset.reset": "earliest"}
    with fl.Consumer(cluster.url, config) as consumer:
        consumer.subscribe(["beats"])
        end = time.monotonic() + LIMIT
        while not consumer.assignment():
            assert time.monotonic() < end
            consumer.poll(timeout_ms=100)
        before = consumer.group_metadata()
        time.sleep(2.5)
        consumer.poll(timeout_ms=100)
        consumer.commit({fl.TopicPartition("beats", 0): 0})
        assert consumer.group_metadata() == before


def test_clients_go_on_over_a_kill_and_a_restart(cluster: Cluster, count: Callable[..., None]) -> None:
    partitions = cluster.create("killed", 2)
    stop = threading.Event()
    futures: list[fl.types.RecordFuture] = []
    config = {"enable.idempotence": True, "retry.backoff.ms": 50, "linger.ms": 2, "delivery.timeout.ms": 90_000, "request.timeout.ms": 5_000}
    # a node of 3.9.1 that was killed takes 14 s to come back, and counts the sessions of its groups from the first seconds on
    member = {"group.id": "killed", "auto.offset.reset": "earliest", "session.timeout.ms": 45_000}
    with fl.Producer(cluster.url, config) as producer, fl.Consumer(cluster.url, member) as consumer:
        consumer.subscribe(["killed"])

        def produce() -> None:
            while not stop.is_set():
                futures.append(producer.send("killed", value=b"%d" % len(futures), partition=len(futures) % 2))
                time.sleep(0.001)

        thread = threading.Thread(target=produce)
        thread.start()
        read = read_all(consumer, 100)
        cluster.broker.kill()
        read += list(consumer.poll(timeout_ms=500))  # what has arrived before the kill
        with cluster.broker:
            time.sleep(1)
            stop.set()
            thread.join()
            acknowledged = [future.result() for future in futures]
            read += read_all(consumer, len(futures) - len(read))
            consumer.commit()
            for partition in range(2):
                mine = [r for r in read if r.partition == partition]
                assert [r.offset for r in mine] == list(range(len(mine)))
                assert [int(r.value or b"") for r in mine] == list(range(partition, len(futures), 2))
                assert [a.offset for a in acknowledged[partition::2]] == list(range(len(mine)))
            assert consumer.end_offsets(partitions) == {tp: len(futures[tp.partition :: 2]) for tp in partitions}
            consumer.close()
            producer.close()
    count(PART, records_over_a_kill=len(futures))
