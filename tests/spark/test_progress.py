"""`fletchlog.spark.lag`: how far a query is behind."""

import json

import pytest
from pyspark.sql import functions as F

from fletchlog.spark import lag

pytestmark = [pytest.mark.spark, pytest.mark.timeout(120)]


def test_what_a_limit_leaves_for_later_is_the_lag(log, run):
    log.topic("t", 2).append("t", 0, 60).append("t", 1, 30)
    _, progress = run(subscribe="t", startingOffsets="earliest", maxOffsetsPerTrigger=30)
    batches = [each for each in progress if each.numInputRows]
    assert [lag(each).total for each in batches] == [60, 30, 0]
    first = lag(batches[0])
    assert first.partitions == {("t", 0): 40, ("t", 1): 20}
    assert (first.max, first.min, first.avg) == (40, 20, 30.0)
    assert lag(json.loads(batches[0].json)) == first


def test_other_sources_and_a_query_without_progress_are_not_behind(spark, tmp_path):
    stream = spark.readStream.format("rate").load().select(F.col("value"))
    query = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    query.awaitTermination()
    assert lag(query.lastProgress).partitions == lag(None).partitions == {}
    assert (lag(None).total, lag(None).max, lag(None).avg) == (0, 0, 0.0)


def test_a_partition_of_two_sources_counts_with_the_greater_lag():
    sources = [
        {"endOffset": '{"t":{"0":5}}', "latestOffset": '{"t":{"0":9}}'},
        {"endOffset": '{"t":{"0":7,"1":1}}', "latestOffset": '{"t":{"0":9,"1":1}}'},
        {"endOffset": 5, "latestOffset": "not JSON"},
    ]
    assert lag({"sources": sources}).partitions == {("t", 0): 4, ("t", 1): 0}
