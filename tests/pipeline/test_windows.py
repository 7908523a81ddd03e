"""Event-time windows: the same function on a batch and on a stream."""

import datetime as dt
import json

import pytest
from pyspark.sql import functions as F

from fletchlog.pipeline import event_time_windows, parse_json

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]

SCHEMA = "value binary, topic string, partition int, offset bigint, timestamp timestamp"
START = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)


def rows(*minutes):
    return [
        (json.dumps({"carrier": "AA" if i % 2 else "UA", "delay": float(i)}).encode(), "t", 0, i, START + dt.timedelta(minutes=m))
        for i, m in enumerate(minutes)
    ]


def test_a_batch_keeps_every_record_however_late(spark):
    frame = parse_json(spark.createDataFrame(rows(0, 10, 300, 5, 65), SCHEMA), "carrier string, delay double")
    result = event_time_windows(frame, window="1 hour", watermark="1 minute", by=["carrier"], aggregate=[F.avg("delay").alias("mean")])
    assert result.columns == ["window_start", "window_end", "carrier", "records", "mean"]
    got = {(row.window_start.hour, row.carrier): (row.records, row.mean) for row in result.collect()}
    assert got == {(0, "UA"): (1, 0.0), (0, "AA"): (2, 2.0), (5, "UA"): (1, 2.0), (1, "UA"): (1, 4.0)}


@pytest.mark.slow
def test_a_stream_writes_windows_that_the_watermark_has_passed_and_drops_what_comes_later(spark, tmp_path):
    source, out = tmp_path / "in", tmp_path / "out"
    for part, minutes in enumerate([(0, 10, 70), (130, 140), (200,), (5, 300)]):  # minute 5 comes when hour 0 is final
        spark.createDataFrame(rows(*minutes), SCHEMA).coalesce(1).write.parquet(str(source / f"b{part}"))
    stream = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(source / "*"))
    windows = event_time_windows(stream, window="1 hour", watermark="30 minutes")
    query = (
        windows.writeStream.format("parquet")
        .option("path", str(out))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    got = {row.window_start.hour: row.records for row in spark.read.parquet(str(out)).collect()}
    assert got == {0: 2, 1: 1, 2: 2, 3: 1}  # hour 5 waits for later records
    assert sum(op["numRowsDroppedByWatermark"] for p in query.recentProgress for op in p["stateOperators"]) == 1


def test_sliding_windows_count_a_record_once_per_window(spark):
    result = event_time_windows(spark.createDataFrame(rows(0), SCHEMA), window="1 hour", watermark="0 seconds", slide="20 minutes")
    assert result.count() == 3


def test_values_that_are_no_json_give_nulls(spark):
    frame = spark.createDataFrame([(b"{}", "t", 0, 0, START), (b"oops", "t", 0, 1, START), (None, "t", 0, 2, START)], SCHEMA)
    assert [row.carrier for row in parse_json(frame, "carrier string").collect()] == [None, None, None]


def test_a_field_that_hides_a_column_is_refused(spark):
    frame = spark.createDataFrame(rows(0), SCHEMA)
    with pytest.raises(ValueError, match="already has the column offset"):
        parse_json(frame, "offset bigint")
    with pytest.raises(ValueError, match="no column when"):
        event_time_windows(frame, window="1 hour", watermark="1 hour", event_time="when")
