"""A base offset that was changed on the disk: no checksum covers it, but the offsets of a log must follow each other
(docs/reliability.md, C7)."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import fletchlog as fl
from tests.support.batches import batch, record

BATCHES = 10
RECORDS = 3
END = BATCHES * RECORDS
TP = fl.TopicPartition("t", 0)
CLEAN = ".kafka_cleanshutdown"
# Of batch 5 (offsets 15 to 17): back by one, ahead within the log, beyond its end, beyond any segment, below 0.
BITS = [0, 3, 4, 20, 40, 63]
# Of the last batch (offsets 27 to 29): those that no segment can hold, and those that are set and so go back.
BITS_OF_THE_LAST = [0, 1, 3, 4, 31, 40, 63]


def value(offset: int) -> bytes:
    return b"%02d" % offset + bytes(2000)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A closed log of ten batches, so large that an opening looks at the last ones only."""
    root = tmp_path / "log"
    with fl.Broker(root, create=True) as broker:
        broker.create_topic("t")
        for i in range(BATCHES):
            broker.append_batches("t", 0, batch([record(j, value(i * RECORDS + j)) for j in range(RECORDS)]))
    return root


def flip(root: Path, which: int, bit: int) -> None:
    """Flips one bit of the base offset of a batch."""
    path = root / "t-0" / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    data[which * (len(data) // BATCHES) + 7 - bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


@pytest.mark.parametrize("bit", BITS)
@pytest.mark.parametrize("order", ["offset", "timestamp"])
def test_a_scan_gives_what_is_before_and_says_what_is_wrong(root: Path, bit: int, order: str) -> None:
    flip(root, 5, bit)
    with fl.Broker(root, read_only=True) as broker:
        offsets: list[int] = []
        with pytest.raises(fl.errors.CorruptRecordError, match=r"t-0 at offset 15.*000\.log is damaged at position") as caught:
            for rows in broker.scan("t", batch_rows=2, order=order):
                offsets += rows.column("offset").to_pylist()
        assert (caught.value.topic_partition, caught.value.offset) == (TP, 15)
        assert offsets == [*range(15)]
        assert broker.scan("t", end_offset=15).to_pyarrow().num_rows == 15
        assert broker.scan("t", start_offset=21).to_pyarrow().column("offset").to_pylist() == [*range(21, END)]


@pytest.mark.parametrize("bit", BITS)
@pytest.mark.parametrize("fetch_bytes", [1, 1 << 20])
def test_a_poll_gives_what_is_before_and_then_fails_without_moving(root: Path, bit: int, fetch_bytes: int) -> None:
    flip(root, 5, bit)
    config = {"auto.offset.reset": "earliest", "max.partition.fetch.bytes": fetch_bytes}
    with fl.Broker(root, read_only=True) as broker, fl.Consumer(broker, config) as consumer:
        consumer.assign([TP])
        values: list[bytes | None] = []
        with pytest.raises(fl.errors.CorruptRecordError, match="t-0 at offset 15"):
            for _ in range(100):
                values += [r.value for r in consumer.poll(timeout_ms=1000)]
        assert values == [value(offset) for offset in range(15)]
        for _ in range(3):
            with pytest.raises(fl.errors.CorruptRecordError, match="t-0 at offset 15"):
                consumer.poll(timeout_ms=1000)
            assert consumer.position(TP) == 15
        consumer.seek(TP, 21)
        assert next(iter(consumer.poll(timeout_ms=1000))).offset == 21


@pytest.mark.parametrize("bit", BITS_OF_THE_LAST)
def test_a_wrong_end_is_named_by_every_call_that_asks_for_it(root: Path, bit: int, caplog: pytest.LogCaptureFixture) -> None:
    flip(root, BATCHES - 1, bit)
    with fl.Broker(root, read_only=True) as broker:
        [described] = broker.describe_topic("t").partitions
        assert (described.log_start_offset, described.high_watermark, described.last_stable_offset) == (-1, -1, -1)
        [line] = [record.getMessage() for record in caplog.records]
        assert re.match(r"t-0: cannot be described: .*000\.log is damaged at position", line)
        with pytest.raises(fl.errors.DamagedFileError, match=r"000\.log is damaged at position"):
            broker.scan("t")
        with fl.Consumer(broker, {"auto.offset.reset": "earliest"}) as consumer:
            consumer.assign([TP])
            asks: list[Callable[[], object]] = [
                lambda: consumer.end_offsets([TP]),
                lambda: consumer.beginning_offsets([TP]),
                lambda: consumer.offsets_for_times({TP: 0}),
                lambda: consumer.position(TP),
                lambda: consumer.poll(timeout_ms=5000),
                lambda: consumer.poll(timeout_ms=5000),
            ]
            for ask in asks:
                with pytest.raises(fl.errors.CorruptRecordError, match="t-0"):
                    ask()


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("bit", [*range(0, 31, 3), 31, 40, 63])
def test_a_writer_is_refused_and_nothing_is_changed(root: Path, bit: int, clean: bool) -> None:
    flip(root, BATCHES - 1, bit)
    if not clean:
        (root / CLEAN).unlink()
    logs = shutil.copytree(root / "t-0", root.parent / "before")
    with pytest.raises(fl.errors.DamagedFileError, match=r"000\.log is damaged .*nothing was changed"), fl.Broker(root, create=True) as broker:
        broker.append_batches("t", 0, batch([record(0, b"new")]))
    assert {p.name: p.read_bytes() for p in (root / "t-0").iterdir()} == {p.name: p.read_bytes() for p in logs.iterdir()}


def test_batches_that_overlap_are_neither_read_twice_nor_written_behind(root: Path) -> None:
    one = batch([record(j, b"%d" % j) for j in range(5)])
    whole = b"".join(base.to_bytes(8, "big") + one[8:] for base in (0, 3, 2))
    (root / "t-0" / f"{0:020}.log").write_bytes(whole)
    with fl.Broker(root, read_only=True) as broker, pytest.raises(fl.errors.DamagedFileError):
        broker.scan("t")
    with fl.Broker(root, create=True) as broker, pytest.raises(fl.errors.DamagedFileError, match="is damaged"):
        broker.append_batches("t", 0, batch([record(0, b"new")]))
