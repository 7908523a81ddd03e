"""Spark reads logs on object stores; executors open them themselves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fletchlog as fl
from fletchlog.spark import range_calculator
from fletchlog.spark.errors import OptionError
from fletchlog.spark.options import SourceOptions
from fletchlog.spark.range_calculator import OffsetRange, at_segments
from fletchlog.spark.sink_options import SinkOptions
from fletchlog.transfer import export
from tests.support.s3_server import S3Server

SECRET = "hunter2-of-the-reader"


@pytest.fixture
def options(s3: S3Server, bucket: str) -> dict[str, str]:
    """A place for a log, and how to reach it."""
    return {"path": f"s3://{bucket}/logs", "subscribe": "orders", **{f"store.{name}": value for name, value in s3.options.items()}}


@pytest.fixture
def grow(s3: S3Server, bucket: str, tmp_path: Path) -> Callable[[int], None]:
    """Appends records to a directory and brings it to the store as it is then."""

    def append(records: int) -> None:
        with fl.Broker(tmp_path / "log", create=True) as broker:
            if not broker.topics():
                broker.create_topic("orders", partitions=2, config={"retention.ms": "-1", "segment.bytes": 20_000})
            with fl.Producer(broker) as producer:
                producer.send_arrow("orders", pa.table({"value": [b"%050d" % number for number in range(records)]}))
        s3.upload(tmp_path / "log", f"{bucket}/logs")

    return append


@pytest.mark.spark
def test_a_batch_reads_what_is_there_when_it_is_planned(spark, options: dict[str, str], grow: Callable[[int], None], s3: S3Server) -> None:
    grow(2_000)
    frame = spark.read.format("fletchlog").options(**options).load()
    rows = [(r.partition, r.offset, bytes(r.value)) for r in frame.select("partition", "offset", "value").collect()]
    with fl.Broker(options["path"], read_only=True, storage_options=s3.options) as broker:
        expected = broker.scan("orders", columns=["partition", "offset", "value"]).to_pyarrow().to_pylist()
    assert sorted(rows) == sorted((row["partition"], row["offset"], row["value"]) for row in expected)
    # the workers are the same, and have opened the store before
    grow(1_000)
    assert spark.read.format("fletchlog").options(**options).load().count() == 3_000
    assert spark.read.format("fletchlog").options(**options, minPartitions="7").load().count() == 3_000
    plan = frame._jdf.queryExecution().toString()
    assert SECRET not in plan


@pytest.mark.spark
def test_a_stream_sees_what_is_added(spark, options: dict[str, str], grow: Callable[[int], None], tmp_path: Path) -> None:
    def run() -> int:
        counts: list[int] = []
        stream = spark.readStream.format("fletchlog").options(**options, startingOffsets="earliest").load()
        query = stream.writeStream.foreachBatch(lambda frame, _: counts.append(frame.count()))
        query = query.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        query.awaitTermination()
        return sum(counts)

    grow(500)
    assert run() == 500
    grow(700)
    assert run() == 700


@pytest.mark.spark
def test_errors_name_the_store_and_no_secret(spark, options: dict[str, str]) -> None:
    for path, what in (("s3://no-such-bucket/x", "there is no such bucket"), (options["path"], "there is no object with this prefix")):
        with pytest.raises(Exception) as caught:
            spark.read.format("fletchlog").options(**{**options, "path": path}).load().count()
        assert what in str(caught.value)
        assert SECRET not in str(caught.value)


def test_options_are_checked_and_shown_without_secrets(options: dict[str, str]) -> None:
    parsed = SourceOptions.parse({**options, "path": f"s3://me:{SECRET}@bucket/logs?scheme=http"})
    assert SECRET not in repr(parsed)
    assert parsed.source == "s3://bucket/logs"
    with pytest.raises(OptionError, match=r"options store\.\* are for an object store"):
        SourceOptions.parse({**options, "path": "/data"})
    with pytest.raises(OptionError, match="object stores are read-only"):
        SinkOptions.parse({**options, "topic": "orders"})


@given(sizes=st.lists(st.tuples(st.integers(1, 100), st.integers(1, 60)), min_size=1, max_size=20), start=st.integers(0, 900), length=st.integers(1, 900))
def test_tasks_are_whole_segments_and_every_offset_is_in_one(sizes: list[tuple[int, int]], start: int, length: int) -> None:
    bases = [sum(count for count, _ in sizes[:place]) for place in range(len(sizes))]
    segments = [(base, size) for base, (_, size) in zip(bases, sizes, strict=True)]
    wanted = OffsetRange("t", 0, start, start + length)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(range_calculator, "TASK_BYTES", 100)
        parts = at_segments([wanted], lambda _: segments)
    assert [part.start for part in parts[1:]] == [part.end for part in parts[:-1]]
    assert (parts[0].start, parts[-1].end) == (wanted.start, wanted.end)
    assert {part.start for part in parts[1:]} <= set(bases)
    for part in parts[:-1]:
        held = sum(size for place, (base, size) in enumerate(segments) if base < part.end and [*bases, 10**9][place + 1] > part.start)
        assert 100 <= held < 100 + 60


@pytest.mark.spark
def test_an_export_is_read(spark, options: dict[str, str], s3: S3Server, tmp_path: Path) -> None:
    with fl.Broker(tmp_path / "log", create=True) as broker:
        broker.create_topic("orders", partitions=3)
        with fl.Producer(broker) as producer:
            producer.send_arrow("orders", pa.table({"value": [b"v"] * 300}))
    export(tmp_path / "log", options["path"], storage_options=s3.options)
    assert spark.read.format("fletchlog").options(**options).load().count() == 300
