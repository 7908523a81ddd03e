"""What a directory keeps, who may write it, and what happens to damage."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

import fletchlog as fl
from tests.support.batches import batch_of

CHILD = """
import sys
import fletchlog as fl
path, mode = sys.argv[1:]
try:
    with fl.Broker(path, read_only=mode == "read") as broker:
        print("rows", broker.scan("t").to_pyarrow().num_rows)
except fl.errors.KafkaError as error:
    print(type(error).__name__)
"""


def child(path: Path, mode: str) -> str:
    """Opens the directory in another process and says what happened."""
    done = subprocess.run([sys.executable, "-c", CHILD, str(path), mode], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def fill(broker: fl.Broker, batches: int = 10) -> None:
    broker.create_topic("t", partitions=1)
    for _ in range(batches):
        broker.append_batches("t", 0, batch_of(7, 180))


def offsets(broker: fl.Broker) -> list[int]:
    return broker.scan("t").to_pyarrow().column("offset").to_pylist()


def test_what_was_written_is_there_after_reopening(tmp_path: Path) -> None:
    with fl.Broker(tmp_path / "log", create=True) as broker:
        fill(broker)
        before = broker.scan("t").to_pyarrow()
        described = broker.describe_topic("t")
    with fl.Broker(tmp_path / "log") as broker:
        assert broker.scan("t").to_pyarrow().equals(before)
        assert broker.describe_topic("t").topic_id == described.topic_id
        assert broker.append_batches("t", 0, batch_of(7, 180))[0] == 70


def test_a_broker_that_was_killed_keeps_everything_acknowledged(tmp_path: Path) -> None:
    script = """
import os, sys
sys.path.insert(0, sys.argv[2])
import fletchlog as fl
broker = fl.Broker(sys.argv[1], create=True)
broker.create_topic("t", partitions=1)
producer = fl.Producer(broker, {"acks": "all"})
for i in range(100):
    producer.send("t", value=b"%d" % i).result(10)
os._exit(1)
"""
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "log"), str(Path(__file__).parents[2])], check=False)
    with fl.Broker(tmp_path / "log", create=True) as broker:
        assert [int(v) for v in broker.scan("t").to_pyarrow().column("value").to_pylist()] == list(range(100))


@pytest.mark.parametrize("cut", [1, 17, 61, 179])
def test_a_torn_tail_is_cut_to_the_last_whole_batch(tmp_path: Path, cut: int) -> None:
    with fl.Broker(tmp_path / "log", create=True) as broker:
        fill(broker)
    segment = tmp_path / "log" / "t-0" / "00000000000000000000.log"
    (tmp_path / "log" / ".kafka_cleanshutdown").unlink()
    os.truncate(segment, segment.stat().st_size - cut)
    with fl.Broker(tmp_path / "log") as broker:
        assert offsets(broker) == list(range(63))
        assert broker.append_batches("t", 0, batch_of(7, 180))[0] == 63


def test_deleted_records_stay_deleted_after_a_kill(tmp_path: Path) -> None:
    with fl.Broker(tmp_path / "log", create=True) as broker:
        fill(broker)
        assert broker.delete_records("t", 0, 14) == 14
        # What a killed process leaves.
        shutil.copytree(tmp_path / "log", tmp_path / "killed")
    with fl.Broker(tmp_path / "killed", create=True) as broker:
        assert offsets(broker)[0] == 14


def test_a_second_writer_is_refused_and_a_reader_is_not(tmp_path: Path) -> None:
    with fl.Broker(tmp_path / "log", create=True) as broker:
        fill(broker)
        assert child(tmp_path / "log", "write") == "DirectoryLockedError"
        assert child(tmp_path / "log", "read") == "rows 70"
        with pytest.raises(fl.errors.DirectoryLockedError) as caught:
            fl.Broker(tmp_path / "log")
        assert caught.value.retriable
    assert child(tmp_path / "log", "write") == "rows 70"


def test_a_reader_sees_what_a_live_writer_adds(tmp_path: Path) -> None:
    with fl.Broker(tmp_path / "log", create=True) as writer:
        fill(writer, batches=1)
        with fl.Broker(tmp_path / "log", read_only=True) as reader:
            assert len(offsets(reader)) == 7
            with fl.Consumer(reader, {"auto.offset.reset": "earliest"}) as consumer:
                consumer.assign([fl.TopicPartition("t", 0)])
                assert len(consumer.poll(timeout_ms=200)) == 7
                writer.append_batches("t", 0, batch_of(7, 180))
                assert len(offsets(reader)) == 14
                assert [r.offset for r in consumer.poll(timeout_ms=1000)] == list(range(7, 14))


WRITER = """
import sys
import fletchlog as fl
with fl.Broker(sys.argv[1], create=True) as writer:
    print("open", flush=True)
    for line in sys.stdin:
        print(writer.delete_records("t", 0, int(line)), flush=True)
"""


def test_an_open_reader_follows_records_that_another_process_deletes(tmp_path: Path) -> None:
    with fl.Broker(tmp_path / "log", create=True) as broker:
        fill(broker)
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path / "log")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert writer.stdin is not None
    assert writer.stdout is not None
    assert writer.stdout.readline() == "open\n"
    partition = fl.TopicPartition("t", 0)
    config = {"auto.offset.reset": "earliest", "max.poll.records": 7}
    with writer, fl.Broker(tmp_path / "log", read_only=True) as reader, fl.Consumer(reader, config) as consumer:
        consumer.assign([partition])
        assert [r.offset for r in consumer.poll(timeout_ms=1000)] == list(range(7))
        # The checkpoint keeps its length, and may be replaced twice within a tick of the clock.
        for before in [*range(31, 45), 65]:
            print(before, file=writer.stdin, flush=True)
            assert writer.stdout.readline() == f"{before}\n"
            assert offsets(reader) == list(range(before, 70))
            assert consumer.beginning_offsets([partition]) == {partition: before}
            assert reader.describe_topic("t").partitions[0].log_start_offset == before
            with pytest.raises(fl.errors.OffsetOutOfRangeError, match=f"starts at {before}"):
                reader.scan("t", partition=0, start_offset=before - 1)
        # What was fetched before is still delivered; the next position is out of range and reset.
        consumer.seek(partition, 8)
        assert [r.offset for r in consumer.poll(timeout_ms=10_000)] == list(range(65, 70))
        writer.stdin.close()


def test_a_reader_writes_nothing_and_refuses_to(tmp_path: Path) -> None:
    with fl.Broker(tmp_path / "log", create=True) as broker:
        fill(broker)
    before = {p: (p.stat().st_size, p.stat().st_mtime_ns) for p in (tmp_path / "log").rglob("*")}
    with fl.Broker(tmp_path / "log", read_only=True) as reader:
        assert reader.read_only
        for call in (
            lambda: reader.create_topic("u"),
            lambda: reader.delete_topic("t"),
            lambda: reader.append_batches("t", 0, batch_of(7, 180)),
            lambda: reader.delete_records("t", 0, 3),
        ):
            with pytest.raises(fl.errors.ReadOnlyError):
                call()
        with fl.Consumer(reader, {"group.id": "g", "auto.offset.reset": "earliest"}) as consumer:
            consumer.assign([fl.TopicPartition("t", 0)])
            assert len(consumer.poll(timeout_ms=200)) == 70
            with pytest.raises(fl.errors.ReadOnlyError):
                consumer.commit()
        for make in (fl.Producer, fl.AsyncProducer):
            with pytest.raises(fl.errors.ReadOnlyError, match="open a directory on a disk without read_only"):
                make(reader)
    assert before == {p: (p.stat().st_size, p.stat().st_mtime_ns) for p in (tmp_path / "log").rglob("*")}


def test_a_damaged_batch_is_an_error_for_a_reader_and_not_the_end_of_the_log(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with fl.Broker(path, create=True) as broker:
        broker.create_topic("t")
        with fl.Producer(broker) as producer:
            for value in (b"one", b"two", b"six"):
                producer.send("t", value).result()
    segment = path / "t-0" / "00000000000000000000.log"
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)
    with pytest.raises(fl.errors.CorruptRecordError, match="t-0 at offset 1"):
        fl.scan(path, "t").to_pyarrow()
    with fl.Broker(path, read_only=True) as reader, fl.Consumer(reader, {"auto.offset.reset": "earliest"}) as consumer:
        assert reader.describe_topic("t").partitions[0].high_watermark == 3
        consumer.assign(("t", 0))
        assert [record.value for record in consumer.poll()] == [b"one"]
        with pytest.raises(fl.errors.CorruptRecordError):
            consumer.poll()
        consumer.seek(("t", 0), 2)
        assert [record.value for record in consumer.poll()] == [b"six"]
    with fl.Broker.in_memory() as other, pytest.raises(fl.errors.CorruptRecordError, match="t-0 at offset 1"):
        fl.transfer.copy(path, other, topics=["t"])


def test_a_missing_directory_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(fl.errors.DirectoryError, match="nowhere"):
        fl.Broker(tmp_path / "nowhere", read_only=True)
    assert not (tmp_path / "nowhere").exists()


def test_a_mistyped_path_makes_no_directory(tmp_path: Path) -> None:
    with pytest.raises(fl.errors.DirectoryError, match="typo: does not exist; check the name, or give create=True"):
        fl.Broker(tmp_path / "typo")
    for client in (fl.Producer, partial(fl.Consumer, group="g"), fl.AsyncProducer):
        with pytest.raises(fl.errors.DirectoryError, match=r"typo: does not exist; check the name, or make it with fl\.Broker\('.*typo', create=True\)$"):
            client(tmp_path / "typo")
    assert not (tmp_path / "typo").exists()
    for _ in range(2):
        with fl.Broker(tmp_path / "new", create=True) as broker:
            assert broker.topics() == []
    fl.Broker(tmp_path / "new", create=True).close()
    (tmp_path / "empty").mkdir()
    fl.Broker(tmp_path / "empty").close()
    with pytest.raises(fl.errors.InvalidArgumentError, match="read_only never writes"):
        fl.Broker(tmp_path / "other", create=True, read_only=True)


def test_a_file_is_not_a_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(fl.errors.StorageError):
        fl.Broker(tmp_path / "file", create=True)


def test_a_foreign_directory_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.txt").write_text("important")
    with pytest.raises(fl.errors.DirectoryError):
        fl.Broker(tmp_path / "home", create=True)
    assert sorted(p.name for p in (tmp_path / "home").iterdir()) == ["thesis.txt"]


def test_another_number_of_nodes_is_refused(tmp_path: Path) -> None:
    with fl.Broker(tmp_path / "log", create=True, nodes=3) as broker:
        broker.create_topic("t", partitions=6)
        assert len(broker.nodes) == 3
    with pytest.raises(fl.errors.DirectoryError):
        fl.Broker(tmp_path / "log", nodes=2)
    with fl.Broker(tmp_path / "log") as broker:
        assert len(broker.nodes) == 3


def test_damage_in_the_middle_is_named_with_its_place(tmp_path: Path) -> None:
    with fl.Broker(tmp_path / "log", create=True) as broker:
        broker.create_topic("t")
        for _ in range(10):
            broker.append_batches("t", 0, batch_of(910, 16_377))
    segment = tmp_path / "log" / "t-0" / "00000000000000000000.log"
    data = bytearray(segment.read_bytes())
    data[3 * 16_377 + 100] ^= 1
    segment.write_bytes(data)
    with fl.Broker(tmp_path / "log", read_only=True) as broker:
        scan = broker.scan("t")
        for read in (scan.to_pyarrow, scan.to_polars, lambda: list(scan)):
            with pytest.raises(fl.errors.CorruptRecordError) as caught:
                read()
            assert (caught.value.topic_partition, caught.value.offset) == (fl.TopicPartition("t", 0), 2730)
        assert broker.scan("t", partition=0, end_offset=2730).to_pyarrow().num_rows == 2730
        with fl.Consumer(broker, {"auto.offset.reset": "earliest", "max.poll.records": 5000}) as consumer:
            consumer.assign([fl.TopicPartition("t", 0)])
            assert len(consumer.poll(timeout_ms=200)) == 2730
            with pytest.raises(fl.errors.CorruptRecordError) as caught:
                consumer.poll(timeout_ms=200)
            assert caught.value.offset == 2730
            assert consumer.position(fl.TopicPartition("t", 0)) == 2730
            consumer.seek(fl.TopicPartition("t", 0), 3640)
            assert len(consumer.poll(timeout_ms=200)) == 5000


def test_retention_by_size_removes_the_oldest_segments(tmp_path: Path) -> None:
    with fl.Broker(tmp_path / "log", create=True) as broker:
        broker.create_topic("t", partitions=1, config={"segment.bytes": 1024 * 1024, "retention.bytes": 1024 * 1024})
        for _ in range(200):
            broker.append_batches("t", 0, batch_of(910, 16377))
        before = broker.describe_topic("t").partitions[0]
        assert before.segments > 2
        assert broker.run_retention() > 0
        after = broker.describe_topic("t").partitions[0]
        assert after.log_start_offset > 0
        assert after.high_watermark == before.high_watermark
        with pytest.raises(fl.errors.OffsetOutOfRangeError):
            broker.scan("t", start_offset=0)


def test_deleted_records_stay_deleted(tmp_path: Path) -> None:
    with fl.Broker(tmp_path / "log", create=True) as broker:
        fill(broker)
        assert broker.delete_records("t", 0, 10) == 10
        assert offsets(broker) == list(range(10, 70))
    with fl.Broker(tmp_path / "log") as broker:
        assert offsets(broker) == list(range(10, 70))
        assert broker.delete_records("t", 0, -1) == 70


def test_a_deleted_topic_is_gone_after_reopening(tmp_path: Path) -> None:
    with fl.Broker(tmp_path / "log", create=True) as broker:
        fill(broker)
        broker.create_topic("u")
        broker.delete_topic("t")
        assert broker.topics() == ["u"]
    with fl.Broker(tmp_path / "log") as broker:
        assert broker.topics() == ["u"]
        with pytest.raises(fl.errors.UnknownTopicOrPartitionError):
            broker.describe_topic("t")


def test_the_files_are_kafkas(tmp_path: Path) -> None:
    with fl.Broker(tmp_path / "log", create=True) as broker:
        fill(broker)
        broker.flush()
    names = {p.name for p in (tmp_path / "log" / "t-0").iterdir()}
    assert {"00000000000000000000.log", "00000000000000000000.index", "00000000000000000000.timeindex"} <= names
    assert "partition.metadata" in names
    top = {p.name for p in (tmp_path / "log").iterdir()}
    assert {"meta.properties", ".kafka_cleanshutdown", "recovery-point-offset-checkpoint"} <= top
    assert json.dumps(sorted(top))


def test_one_brokers_part_of_a_cluster_is_read_without_the_partitions_of_others(tmp_path: Path) -> None:
    with fl.Broker(tmp_path / "log", create=True) as broker:
        broker.create_topic("t", partitions=3)
        for partition in range(3):
            broker.append_batches("t", partition, batch_of(7, 180))
    shutil.rmtree(tmp_path / "log" / "t-1")
    (tmp_path / "log" / "fletchlog.metadata").unlink()
    with fl.Broker(tmp_path / "log", read_only=True) as broker:
        assert [p.partition for p in broker.describe_topic("t").partitions] == [0, 2]
        assert broker.scan("t").to_pyarrow()["partition"].to_pylist() == [0] * 7 + [2] * 7
        with pytest.raises(fl.errors.UnknownTopicOrPartitionError):
            broker.scan("t", partition=1)


def test_a_partition_whose_directory_is_not_made_yet_counts_and_is_empty(tmp_path: Path) -> None:
    with fl.Broker(tmp_path / "log", create=True) as broker:
        broker.create_topic("t", partitions=3)
        broker.append_batches("t", 0, batch_of(7, 180))
    shutil.rmtree(tmp_path / "log" / "t-1")
    with fl.Broker(tmp_path / "log", read_only=True) as broker:
        assert [p.partition for p in broker.describe_topic("t").partitions] == [0, 1, 2]
        assert broker.scan("t").to_pyarrow().num_rows == 7


@pytest.mark.parametrize("cut", ["to a batch", "to nothing", "away"])
def test_a_copy_that_was_cut_short_is_read_with_a_warning(tmp_path, caplog, cut):
    with fl.Broker(tmp_path / "log", create=True) as broker:
        broker.create_topic("t")
        for _ in range(2):
            with fl.Producer(broker, {"linger.ms": 1000}) as producer:
                producer.send_many("t", [b"x"] * 50)
    log = next((tmp_path / "log" / "t-0").glob("*.log"))
    data = log.read_bytes()
    if cut == "away":
        log.unlink()
    else:
        # the first batch: base offset, length, and as many bytes
        log.write_bytes(data[: 12 + int.from_bytes(data[8:12], "big")] if cut == "to a batch" else b"")
    with caplog.at_level("WARNING"):
        rows = fl.scan(tmp_path / "log", "t").to_pyarrow().num_rows
    assert rows == (50 if cut == "to a batch" else 0)
    assert any(f"the log ends at offset {rows}, but everything up to offset 100 was on disk" in record.getMessage() for record in caplog.records)
    assert not all(report.ok for report in fl.files.verify(tmp_path / "log"))
