"""A wrapper of message format v0 whose offset is below those of its records: every reader shows the records once, and `verify` finds it."""

from __future__ import annotations

import gzip
import struct
import zlib
from pathlib import Path

import pytest

import fletchlog as fl

# A reader that begins anew shows this many.
MOST = 50


def message(offset: int, value: bytes, attributes: int = 0) -> bytes:
    """An entry of format v0."""
    body = struct.pack(">bbii", 0, attributes, -1, len(value)) + value
    data = struct.pack(">I", zlib.crc32(body)) + body
    return struct.pack(">qi", offset, len(data)) + data


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    with fl.Broker(tmp_path) as broker, fl.Producer(broker) as producer:
        broker.create_topic("old")
        producer.send("old", b"x").result(timeout=30)
    for path in (tmp_path / "old-0").iterdir():
        if path.suffix in {".log", ".index", ".timeindex", ".snapshot"}:
            path.unlink()
    inner = b"".join(message(offset, b"%d" % offset) for offset in range(4))
    (tmp_path / "old-0" / f"{0:020}.log").write_bytes(message(0, gzip.compress(inner), 1))
    return tmp_path


@pytest.mark.parametrize("most", [1, 3, 500])
def test_a_consumer_is_behind_the_batch_after_its_last_record(directory: Path, most: int) -> None:
    with fl.Broker(directory, read_only=True) as broker, fl.Consumer(broker, {"auto.offset.reset": "earliest", "max.poll.records": most}) as consumer:
        consumer.assign([("old", 0)])
        seen: list[bytes | None] = []
        while len(seen) < MOST and (polled := consumer.poll(timeout_ms=300)):
            seen += [record.value for record in polled]
        assert seen == [b"0", b"1", b"2", b"3"]
        assert consumer.position(("old", 0)) == consumer.end_offsets([("old", 0)])["old", 0] == 1


def test_a_scan_shows_the_records_of_a_whole_batch(directory: Path) -> None:
    with fl.Broker(directory, read_only=True) as broker:
        for order in ("offset", "timestamp"):
            assert broker.scan("old", order=order).to_pyarrow()["value"].to_pylist() == [b"0", b"1", b"2", b"3"]


def test_verify_finds_it(directory: Path) -> None:
    (report,) = fl.files.verify(directory)
    assert [problem.reason for problem in report.damaged if "a record has offset 1, beyond the last one of its batch, 0" in problem.reason]
