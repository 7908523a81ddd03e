"""A scan of a store is read by libraries that hold the GIL while they ask for the next batch, and by others; requests need it too."""

from __future__ import annotations

from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pytest

import fletchlog as fl
from tests.support.s3_server import S3Server

ROWS = 24_000


@pytest.mark.parametrize("threads", [1, 2])
def test_every_consumer_of_a_stream_reads_it(s3: S3Server, bucket: str, tmp_path: Path, threads: int) -> None:
    with fl.Broker(tmp_path / "log", create=True) as broker:
        broker.create_topic("orders", config={"segment.bytes": 6 << 20, "retention.ms": "-1"})
        with fl.Producer(broker) as producer:
            producer.send_arrow("orders", pa.table({"value": [b"%01000d" % number for number in range(ROWS)]}))
    s3.upload(tmp_path / "log", bucket)
    with fl.Broker(f"s3://{bucket}", read_only=True, storage_options=s3.options) as broker:
        scan = broker.scan("orders", threads=threads)
        assert len(pl.DataFrame(scan)) == ROWS
        assert len(scan.to_polars()) == ROWS
        assert duckdb.sql("select count(*) from scan").fetchall() == [(ROWS,)]
        # left in the middle: its threads end
        begun = pa.RecordBatchReader.from_stream(scan)
        assert begun.read_next_batch().num_rows > 0
        del begun


def test_a_stream_that_is_released_without_the_gil_drops_its_store(s3: S3Server, bucket: str, tmp_path: Path) -> None:
    """Inside a callback, which runs in a thread of the engine; pyarrow releases a stream without the GIL."""
    with fl.Broker(tmp_path / "log", create=True) as broker:
        broker.create_topic("orders")
        s3.upload(tmp_path / "log", bucket)
        # the scan has the last reference to the store
        held = [pa.RecordBatchReader.from_stream(fl.Broker(f"s3://{bucket}", read_only=True, storage_options=s3.options).scan("orders"))]
        with fl.Producer(broker) as producer:
            producer.send("orders", b"v", callback=lambda *_: held.clear())
        assert not held
