"""A log on an object store reads as the directory that it is a copy of."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import fletchlog as fl
from tests.support.s3_server import S3Server

MIB = 1 << 20


def opened(s3: S3Server, prefix: str) -> fl.Broker:
    return fl.Broker(f"s3://{prefix}", read_only=True, storage_options=s3.options)


def fill(directory: Path, records: int, size: int, **config: object) -> None:
    values = pa.array([b"%0*d" % (size, number) for number in range(records)], pa.binary())
    with fl.Broker(directory, create=True) as broker:
        broker.create_topic("orders", config={"retention.ms": "-1", **config})
        with fl.Producer(broker) as producer:
            producer.send_arrow("orders", pa.table({"value": values}))


def test_a_topic_is_scanned(s3: S3Server, bucket: str, tmp_path: Path) -> None:
    fill(tmp_path / "log", 10_000, 100, **{"segment.bytes": 300_000})
    s3.upload(tmp_path / "log", f"{bucket}/some/prefix")
    with fl.Broker(tmp_path / "log", read_only=True) as local, opened(s3, f"{bucket}/some/prefix") as remote:
        assert remote.topics() == ["orders"]
        assert remote.describe_topic("orders") == local.describe_topic("orders")
        assert remote.scan("orders").to_pyarrow() == local.scan("orders").to_pyarrow()


@pytest.mark.parametrize("threads", [1, 2])
def test_a_segment_of_64_mib_is_read_in_pieces_of_4_mib(s3: S3Server, bucket: str, tmp_path: Path, threads: int) -> None:
    fill(tmp_path / "log", 64_000, 1000)
    s3.upload(tmp_path / "log", bucket)
    size = (tmp_path / "log" / "orders-0" / f"{0:020}.log").stat().st_size
    assert size > 61 * MIB
    with s3.counted() as opening:
        remote = opened(s3, bucket)
        assert remote.describe_topic("orders").partitions[0].high_watermark == 64_000
    with s3.counted() as scanning:
        rows = remote.scan("orders", threads=threads).to_pyarrow()
    assert rows.num_rows == 64_000
    # the metadata, and of the partition its files at the end of the log
    assert opening["LIST"] == 1
    assert opening["GET"] <= 12
    # A thread that begins a part of 4 MiB, where no other has read yet, fetches the pages of its first read, those up to the next
    # multiple of 4 MiB, and those behind it.
    assert scanning["GET"] <= (1 if threads == 1 else 3) * 64 // 4 + 4
    assert scanning["HEAD"] <= scanning["GET"] + 2
    assert scanning["LIST"] == 0
