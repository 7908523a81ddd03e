"""A record without a timestamp has null in Spark, push-down of filters or not; one beyond microseconds is refused with its place."""

from __future__ import annotations

from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import fletchlog as fl
from tests.support.batches import batch, record

pytestmark = pytest.mark.spark


def fill(path: Path, times: list[int]) -> None:
    with fl.Broker(path) as broker:
        broker.create_topic("t", config={"message.timestamp.after.max.ms": str(2**63 - 1)})
        for time in times:
            broker.append_batches("t", 0, batch([record(0, b"v")], timestamp=time, max_timestamp=time))


@pytest.mark.parametrize("push_down", ["true", "false"])
def test_filters_see_which_records_have_no_timestamp(spark: SparkSession, source: str, tmp_path: Path, push_down: str) -> None:
    fill(tmp_path, [-1, 1_700_000_000_000, -1, 5, -2])
    spark.conf.set("spark.sql.python.filterPushdown.enabled", push_down)
    try:
        frame = spark.read.format(source).option("path", str(tmp_path)).option("subscribe", "t").load()
        found = {
            where: sorted(row.offset for row in frame.where(where).select("offset").collect())
            for where in ("timestamp is null", "timestamp is not null", "not (timestamp is null)", "timestamp < timestamp_millis(6)")
        }
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
    assert list(found.values()) == [[0, 2], [1, 3, 4], [1, 3, 4], [3, 4]]


def test_a_timestamp_beyond_microseconds_is_refused_with_its_place(spark: SparkSession, source: str, tmp_path: Path) -> None:
    fill(tmp_path, [5, 1_700_000_000_000_000_000, 7])
    frame = spark.read.format(source).option("path", str(tmp_path)).option("subscribe", "t").load()
    with pytest.raises((PySparkException, Py4JJavaError), match=r"t-0 at offset [01]: the timestamp 1700000000000000000 .* at offset 1 "):
        frame.select("offset", "timestamp").collect()
