"""Compaction from Python: of each key the newest record stays."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

import fletchlog as fl
from fletchlog import errors

if TYPE_CHECKING:
    from pathlib import Path

COMPACT = {"cleanup.policy": "compact", "segment.bytes": 300}


def fill(broker: fl.Broker, records: list[tuple[bytes, bytes | None]]) -> None:
    with fl.Producer(broker, {"batch.size": 1}) as producer:
        for key, value in records:
            producer.send("t", key=key, value=value, partition=0)


def pairs(broker: fl.Broker) -> list[tuple[int, bytes, bytes | None]]:
    table = broker.scan("t").to_pyarrow()
    return list(zip(*(table[name].to_pylist() for name in ("offset", "key", "value")), strict=True))


def test_the_newest_value_of_each_key_stays_at_its_offset(tmp_path: Path) -> None:
    with fl.Broker(tmp_path) as broker:
        broker.create_topic("t", config=COMPACT)
        fill(broker, [(b"k%d" % (i % 3), b"v%d" % i) for i in range(20)])
        (done,) = broker.clean_topic("t", force=True)
        assert isinstance(done, fl.admin.CleanedPartition)
        assert (done.partition, done.first_dirty_offset, done.end_offset) == (0, 0, 20)
        assert done.messages_read == 20
        assert done.messages_written == 3
        expected = [(i, b"k%d" % (i % 3), b"v%d" % i) for i in (17, 18, 19)]
        assert pairs(broker) == expected
        (again,) = broker.clean_topic("t")
        assert again.rounds == 0
    with fl.Broker(tmp_path) as broker:
        assert pairs(broker) == expected
    assert all(report.ok for report in fl.files.verify(tmp_path))


def test_a_consumer_in_the_middle_goes_on(tmp_path: Path) -> None:
    with fl.Broker(tmp_path) as broker:
        broker.create_topic("t", config=COMPACT)
        fill(broker, [(b"k", b"v%d" % i) for i in range(30)])
        with fl.Consumer(broker, {"auto.offset.reset": "earliest", "max.poll.records": 5}) as consumer:
            consumer.assign([fl.TopicPartition("t", 0)])
            seen = [record.offset for record in consumer.poll(timeout_ms=1000)]
            broker.clean_topic("t", force=True)
            while not seen or seen[-1] < 29:
                seen += [record.offset for record in consumer.poll(timeout_ms=1000)]
        assert seen == sorted(set(seen))
        assert seen[-1] == 29


def test_a_tombstone_goes_after_its_time(tmp_path: Path) -> None:
    with fl.Broker(tmp_path) as broker:
        broker.create_topic("t", config={**COMPACT, "delete.retention.ms": 0})
        fill(broker, [(b"a", b"0"), (b"b", b"1"), (b"a", None)])
        broker.clean_topic("t", force=True)
        assert pairs(broker) == [(1, b"b", b"1"), (2, b"a", None)]
        broker.clean_topic("t", force=True)
        assert pairs(broker) == [(1, b"b", b"1")]


def test_only_compacted_topics_are_cleaned(tmp_path: Path) -> None:
    with fl.Broker(tmp_path) as broker:
        broker.create_topic("t")
        with pytest.raises(errors.KafkaError, match=r"cleanup\.policy lacks `compact`") as caught:
            broker.clean_topic("t")
        assert caught.value.code == 44
        with pytest.raises(errors.UnknownTopicOrPartitionError):
            broker.clean_topic("unknown")


def test_no_thread_starts_unless_it_is_asked_for(tmp_path: Path) -> None:
    program = f"""
import os, fletchlog as fl
def threads():
    return sorted(open(f"/proc/self/task/{{t}}/comm").read().strip() for t in os.listdir("/proc/self/task"))
with fl.Broker({str(tmp_path)!r}):
    assert not any(name.startswith("fletchlog") for name in threads()), threads()
with fl.Broker({str(tmp_path)!r}, config={{"log.cleaner.enable": True}}):
    while "fletchlog-clean" not in threads():  # the thread names itself
        pass
assert not any(name.startswith("fletchlog") for name in threads()), threads()
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_the_background_thread_cleans(tmp_path: Path) -> None:
    cleaned = threading.Event()
    with fl.Broker(tmp_path, config={"log.cleaner.enable": True, "log.cleaner.backoff.ms": 1}) as broker:
        broker.create_topic("t", config={**COMPACT, "min.cleanable.dirty.ratio": 0.0})
        fill(broker, [(b"k", b"v%d" % i) for i in range(30)])
        for _ in range(2000):
            if len(pairs(broker)) < 10:
                cleaned.set()
                break
            cleaned.wait(0.005)
    assert cleaned.is_set()


def test_committed_offsets_survive_the_cleaning_of_their_topic(tmp_path: Path) -> None:
    config = {"offsets.topic.num.partitions": 1, "offsets.topic.segment.bytes": 500}
    partition = fl.TopicPartition("t", 0)
    with fl.Broker(tmp_path, config=config) as broker:
        broker.create_topic("t")
        fill(broker, [(b"k", b"v%d" % i) for i in range(30)])
        with fl.Consumer(broker, {"group.id": "g", "auto.offset.reset": "earliest", "max.poll.records": 1, "enable.auto.commit": False}) as consumer:
            consumer.subscribe(["t"])
            while consumer.assignment() == [] or consumer.position(partition) < 20:
                consumer.poll(timeout_ms=1000)
                consumer.commit()
        (done,) = broker.clean_topic("__consumer_offsets", force=True)
        assert done.messages_written < done.messages_read
    with fl.Broker(tmp_path, config=config) as broker, fl.Consumer(broker, {"group.id": "g"}) as consumer:
        committed = consumer.committed(partition)
        assert committed is not None
        assert committed.offset == 20
        consumer.subscribe(["t"])
        assert next(iter(consumer.poll(timeout_ms=5000))).offset == 20


def test_a_compacted_log_whose_leader_epochs_come_from_its_batches_is_sound(tmp_path: Path) -> None:
    with fl.Broker(tmp_path) as broker:
        broker.create_topic("t", config=COMPACT)
        fill(broker, [(b"k", b"v%d" % i) for i in range(30)])
        broker.clean_topic("t", force=True)
    # As a power loss may leave it.
    (tmp_path / "t-0" / "leader-epoch-checkpoint").unlink()
    (tmp_path / ".kafka_cleanshutdown").unlink()
    (tmp_path / "recovery-point-offset-checkpoint").unlink()
    with fl.Broker(tmp_path) as broker:
        assert pairs(broker) == [(29, b"k", b"v29")]
    assert [report.index_problems for report in fl.files.verify(tmp_path)] == [[]]
