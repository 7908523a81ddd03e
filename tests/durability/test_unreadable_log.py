"""A log that cannot be read: its consumers get an error at once that names the file and the reason, and other partitions are read on."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

import fletchlog as fl

BROKEN, SOUND = fl.TopicPartition("t", 0), fl.TopicPartition("t", 1)
# No call waits so long; the time is only compared with half of it.
PATIENCE_MS = 60_000
CALLS: dict[str, Callable[[fl.Consumer], object]] = {
    "poll": lambda consumer: consumer.poll(timeout_ms=PATIENCE_MS),
    "position": lambda consumer: consumer.position(BROKEN, timeout_ms=PATIENCE_MS),
    "beginning_offsets": lambda consumer: consumer.beginning_offsets([BROKEN, SOUND], timeout_ms=PATIENCE_MS),
    "end_offsets": lambda consumer: consumer.end_offsets([BROKEN], timeout_ms=PATIENCE_MS),
    "offsets_for_times": lambda consumer: consumer.offsets_for_times({BROKEN: 0}, timeout_ms=PATIENCE_MS),
}


@pytest.fixture(params=["leader-epoch-checkpoint"])
def broken_file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A file of a partition that is no file any more."""
    with fl.Broker(tmp_path / "log", create=True) as broker:
        broker.create_topic("t", partitions=2)
        with fl.Producer(broker) as producer:
            for partition in (0, 1):
                producer.send("t", b"%d" % partition, partition=partition)
    path = tmp_path / "log" / "t-0" / str(request.param)
    path.rename(tmp_path / "kept")
    path.mkdir()
    return path


@pytest.mark.parametrize("call", CALLS.values(), ids=list(CALLS))
def test_a_call_names_the_file_and_the_reason_instead_of_waiting(broken_file: Path, call: Callable[[fl.Consumer], object]) -> None:
    with fl.Broker(broken_file.parents[1], read_only=True) as broker, fl.Consumer(broker) as consumer:
        consumer.assign([BROKEN])
        consumer.seek_to_beginning()
        began = time.monotonic()
        with pytest.raises(fl.errors.StorageError, match=f"t-0 cannot be read: .*{broken_file.name}: it is not a regular file"):
            call(consumer)
        # Not a measure: the call would have waited until its time-out.
        assert time.monotonic() - began < PATIENCE_MS / 2000


# A segment is opened by the first fetch that wants its bytes.
@pytest.mark.parametrize("broken_file", ["00000000000000000000.log", "leader-epoch-checkpoint"], indirect=True)
def test_other_partitions_are_read_on_and_the_broken_one_once_it_is_mended(broken_file: Path) -> None:
    with (
        fl.Broker(broken_file.parents[1], read_only=True) as broker,
        fl.Consumer(broker, {"auto.offset.reset": "earliest"}) as consumer,
    ):
        consumer.assign([BROKEN, SOUND])
        for partition in (BROKEN, SOUND):
            consumer.seek(partition, 0)
        assert [record.value for record in consumer.poll(timeout_ms=PATIENCE_MS)] == [b"1"]
        for _ in range(3):
            with pytest.raises(fl.errors.StorageError):
                consumer.poll(timeout_ms=PATIENCE_MS)
        consumer.pause([BROKEN])
        assert len(consumer.poll(timeout_ms=10)) == 0
        consumer.resume([BROKEN])
        broken_file.rmdir()
        (broken_file.parents[2] / "kept").rename(broken_file)
        assert [record.value for record in consumer.poll(timeout_ms=PATIENCE_MS)] == [b"0"]
