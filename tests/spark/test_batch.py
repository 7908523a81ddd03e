"""`spark.read.format("fletchlog")`: the rows that a scan gives, with the options of Spark's kafka source."""

import datetime as dt
import json
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

import fletchlog as fl
from fletchlog.spark.options import SourceOptions
from fletchlog.spark.range_calculator import OffsetRange
from fletchlog.spark.scan import read_ranges
from fletchlog.spark.schema import kafka_schema

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]

START_MS = 1_700_000_000_000


def values(frame):
    return [int(row.value) for row in frame.select("value").collect()]


def test_the_columns_are_those_of_sparks_kafka_source(log, read):
    log.topic("t")
    assert read(subscribe="t").schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int>"
    )
    assert read(subscribe="t", includeHeaders="true").schema["headers"].dataType.simpleString() == "array<struct<key:string,value:binary>>"


def test_a_batch_read_equals_a_scan_while_the_writer_has_the_directory_open(log, read):
    log.topic("t", partitions=3).append("t", 0, 100).append("t", 2, 50)
    with fl.Producer(log.broker, {}) as producer:
        producer.send("t", value=None, key=b"", partition=2, timestamp_ms=START_MS)
        producer.send("t", value=b"\x00\xff", key=None, partition=2, timestamp_ms=START_MS + 1)
    expected = [
        (r["key"], r["value"], r["topic"], r["partition"], r["offset"], r["timestamp"], r["timestampType"])
        for r in log.broker.scan("t").to_pyarrow().to_pylist()
    ]
    rows = read(subscribe="t").collect()
    found = [(row.key, row.value, row.topic, row.partition, row.offset, row.timestamp.astimezone(dt.UTC), row.timestampType) for row in rows]
    key = lambda row: (row[3], row[4])  # noqa: E731
    assert len(found) == 152
    assert sorted(found, key=key) == sorted(expected, key=key)


def test_several_nodes_are_one_directory(spark, tmp_path):
    with fl.Broker(tmp_path / "nodes", create=True, nodes=3) as broker:
        broker.create_topic("t", partitions=5)
        with fl.Producer(broker, {}) as producer:
            for i in range(500):
                producer.send("t", value=str(i).encode(), partition=i % 5)
        frame = spark.read.format("fletchlog").option("subscribe", "t").load(str(tmp_path / "nodes"))
        assert sorted(values(frame)) == list(range(500))


def test_a_directory_is_named_by_its_uri(spark, tmp_path):
    path = tmp_path / "100% of it"
    with fl.Broker(path, create=True) as broker, fl.Producer(broker) as producer:
        broker.create_topic("t")
        producer.send("t", value=b"1")
    reader = spark.read.format("fletchlog").option("subscribe", "t")
    frame = reader.load(path.as_uri())
    assert values(frame) == [1]
    frame.select("value").write.format("fletchlog").option("topic", "t").mode("append").save(path.as_uri())
    assert values(reader.load(path.as_uri())) == [1, 1]


def test_max_partitions_packs_small_ranges_into_one_task(log, read):
    log.topic("t", partitions=9)
    for partition in range(9):
        log.append("t", partition, 5)
    packed = read(subscribe="t", maxPartitions=2)
    assert packed.rdd.getNumPartitions() == 2
    assert values(packed) == list(range(45))
    with pytest.raises(PySparkException, match=r"minPartitions .4. is higher than maxPartitions .2."):
        read(subscribe="t", minPartitions=4, maxPartitions=2)


def test_rows_of_a_partition_come_in_offset_order_and_min_partitions_cuts_it_into_ordered_pieces(log, read):
    log.topic("t").append("t", 0, 1000)
    assert values(read(subscribe="t")) == list(range(1000))
    cut = read(subscribe="t", minPartitions=4)
    assert cut.rdd.getNumPartitions() == 4
    assert values(cut) == list(range(1000))
    assert read(subscribe="t", maxRecordsPerPartition=100).rdd.getNumPartitions() == 10


def test_headers_are_null_when_there_are_none_and_keep_order_and_repetition(log, read):
    log.topic("t")
    with fl.Producer(log.broker, {}) as producer:
        producer.send("t", value=b"1", headers=[("a", b"x"), ("a", None), ("", b"")])
        producer.send("t", value=b"2")
    first, second = read(subscribe="t", includeHeaders="true").select("headers").collect()
    assert [(h.key, h.value) for h in first.headers] == [("a", b"x"), ("a", None), ("", b"")]
    assert second.headers is None


def test_a_given_schema_is_a_projection_in_its_own_order(log, read):
    log.topic("t").append("t", 0, 3)
    frame = read(schema="Offset bigint, value binary", subscribe="t")
    assert frame.columns == ["Offset", "value"]
    assert [tuple(row) for row in frame.collect()] == [(0, b"0"), (1, b"1"), (2, b"2")]
    assert read(schema="headers array<struct<key:string,value:binary>>", subscribe="t").count() == 3


@pytest.mark.parametrize(("schema", "words"), [("offset int", "offset is bigint, not int"), ("ofset bigint", "no column ofset")])
def test_a_schema_that_does_not_fit_is_refused(log, read, schema, words):
    log.topic("t").append("t", 0, 1)
    with pytest.raises(PySparkException, match=words):
        read(schema=schema, subscribe="t").collect()


def test_partitions_are_assigned_subscribed_or_found_by_a_pattern_in_the_name(log, read):
    log.topic("a", 2).topic("ba-c", 1).append("a", 0, 1).append("a", 1, 1).append("ba-c", 0, 1)
    assert values(read(assign='{"a":[1]}')) == [1]
    assert sorted(values(read(subscribe="a , ba-c"))) == [0, 1, 2]
    assert sorted(values(read(subscribePattern="a"))) == [0, 1, 2]
    assert sorted(values(read(subscribePattern="^a$"))) == [0, 1]
    assert sorted(values(read(subscribePattern="a.+"))) == [2]
    assert values(read(subscribePattern="nothing")) == []


def test_a_range_of_offsets_is_half_open(log, read):
    log.topic("t", 2).append("t", 0, 10).append("t", 1, 10)
    options = {"startingOffsets": '{"t":{"0":3,"1":-2}}', "endingOffsets": '{"t":{"0":5,"1":-1}}'}
    assert sorted(values(read(subscribe="t", **options))) == [3, 4, *range(10, 20)]


def test_times_give_the_first_offset_at_or_after_them(log, read):
    log.topic("t", 2).append("t", 0, 10).append("t", 1, 10)
    at = lambda number: START_MS + 1000 * number  # noqa: E731
    assert sorted(values(read(subscribe="t", startingTimestamp=at(8) - 1, endingTimestamp=at(12)))) == [8, 9, 10, 11]
    per = json.dumps({"t": {"0": at(9), "1": at(19)}})
    assert sorted(values(read(subscribe="t", startingOffsetsByTimestamp=per))) == [9, 19]
    with pytest.raises(PySparkException, match="no record of t-0 is at or after"):
        read(subscribe="t", startingTimestamp=at(15)).collect()
    latest = {"startingTimestamp": at(15), "startingOffsetsByTimestampStrategy": "latest"}
    assert sorted(values(read(subscribe="t", **latest))) == [15, 16, 17, 18, 19]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"subscribe": "order"}, "has no topic order; did you mean orders"),
        ({"assign": '{"orders":[0,7]}'}, "has no orders-7"),
        ({"subscribe": "orders", "startingOffsets": '{"orders":{"0":0}}'}, "exactly the partitions of the query"),
        ({"subscribe": "orders", "startingOffsets": '{"orders":{"0":9,"1":0}}'}, "start of orders-0, 9, is above its end, 5"),
        ({"subscribe": "orders", "startingOffsets": "latest"}, "cannot start at latest"),
        ({"subscribe": "orders", "startingOfsets": "earliest"}, "did you mean startingOffsets"),
    ],
)
def test_wrong_options_end_the_query_with_a_sentence(log, read, options, words):
    log.topic("orders", 2).append("orders", 0, 5)
    with pytest.raises(PySparkException, match=words):
        read(**options).collect()


def test_a_missing_directory_is_named(spark, tmp_path):
    with pytest.raises(PySparkException, match="nowhere"):
        spark.read.format("fletchlog").options(path=str(tmp_path / "nowhere"), subscribe="t").load().collect()


def test_offsets_that_retention_took_are_an_error_or_skipped(log, read):
    log.topic("t", segment_bytes=200).append("t", 0, 4).append("t", 0, 6)
    log.lose("t", 0, 4)
    assert values(read(subscribe="t")) == [4, 5, 6, 7, 8, 9]
    start = {"startingOffsets": '{"t":{"0":2}}'}
    with pytest.raises((PySparkException, Py4JJavaError), match=r"starts at 4; offsets from 2 were to be read.*failOnDataLoss"):
        read(subscribe="t", **start).collect()
    assert values(read(subscribe="t", failOnDataLoss="false", **start)) == [4, 5, 6, 7, 8, 9]


def test_an_end_that_the_log_does_not_reach_is_an_error_or_skipped(log, read):
    log.topic("t").append("t", 0, 3)
    end = {"endingOffsets": '{"t":{"0":8}}'}
    with pytest.raises((PySparkException, Py4JJavaError), match="ends at 3; offsets up to 7 were to be read"):
        read(subscribe="t", **end).collect()
    assert values(read(subscribe="t", failOnDataLoss="false", **end)) == [0, 1, 2]


def test_ranges_are_fixed_when_the_frame_is_planned_and_a_new_load_sees_more(log, read):
    log.topic("t").append("t", 0, 3)
    frame = read(format="fletchlog", subscribe="t")  # Spark plans a source of Python once for all queries of a frame
    assert frame.count() == 3
    log.append("t", 0, 2)
    assert frame.count() == 3
    assert read(subscribe="t").count() == 5


def test_an_empty_topic_gives_no_rows(log, read):
    log.topic("t", 2)
    assert read(subscribe="t").collect() == []


def test_sql_reads_it_too(spark, log):
    log.topic("t").append("t", 0, 4)
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW v USING fletchlog OPTIONS (path '{log.path}', subscribe 't')")
    assert spark.sql("SELECT max(offset) FROM v").collect()[0][0] == 3


def test_a_task_opens_the_logs_of_its_own_partitions_only(log):
    """So that a topic of a thousand partitions does not cost each of a thousand tasks a thousand opened logs."""
    log.topic("t", partitions=2).append("t", 0, 10).append("t", 1, 10)
    log.broker.close()
    segment = Path(log.path) / "t-1" / f"{0:020}.log"
    segment.unlink()
    segment.mkdir()
    options = SourceOptions.parse({"path": log.path, "subscribe": "t"})
    batches = read_ranges((OffsetRange("t", 0, 0, 10),), options, kafka_schema(include_headers=False))
    assert [row["offset"] for batch in batches for row in batch.to_pylist()] == list(range(10))
