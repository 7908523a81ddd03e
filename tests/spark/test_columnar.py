"""`format("fletchlog-columnar")`: the rows of the Python source, read without Python. The tests of `read` and `run` hold for it too."""

import importlib.util
import sys
import zipfile
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import fletchlog as fl
from fletchlog.spark import configure
from tests.support.spark_session import JAR

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]

START_MS = 1_700_000_000_000
COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
BOTH = ("fletchlog", "fletchlog-columnar")


@pytest.fixture
def source():
    """These tests read with both, or say with which."""
    return "fletchlog-columnar"


def open_readers(spark):
    return spark.sparkContext._jvm.fletchlog.spark.FletchlogColumnar.openReaders()


@pytest.fixture
def everything(log):
    """Nulls, headers, codecs, both kinds of timestamps, transactions, and gaps of compaction, in two topics of two partitions."""
    log.topic("t", 2).topic("compacted", 2, cleanup_policy="compact", message_timestamp_type="LogAppendTime", segment_bytes=2000)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        with fl.Producer(log.broker, {"compression.type": codec, "linger.ms": 1000}) as producer:
            for i in range(40):
                producer.send(
                    "t",
                    partition=i % 2,
                    key=None if i % 3 else f"k{i}".encode(),
                    value=None if i % 7 == 0 else f"{codec}-{i}".encode() * (i % 5),
                    timestamp_ms=START_MS + i,
                    headers=[("h", b"x" * i), ("h", None), ("", b"")] if i % 4 == 0 else None,
                )
                producer.send("compacted", partition=i % 2, key=b"%d" % (i % 5), value=b"%d" % i)
    for commit in (True, False, True):
        with fl.Producer(log.broker, {"transactional.id": "x"}) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            for i in range(10):
                producer.send("t", partition=i % 2, key=b"tx", value=str(commit).encode())
            producer.flush()
            (producer.commit_transaction if commit else producer.abort_transaction)()
    log.broker.clean_topic("compacted", force=True)
    return log


@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
def test_rows_columns_and_counts_are_those_of_the_python_source(everything, read, level):
    options = {"subscribe": "t,compacted", "includeHeaders": "true", "kafka__isolation__level": level}
    python, columnar = (read(format=name, **options) for name in BOTH)
    assert columnar.schema == python.schema
    order = ("topic", "partition", "offset")
    expected = python.orderBy(*order).collect()
    assert len(expected) > 200
    assert columnar.orderBy(*order).collect() == expected
    for columns in (*((name,) for name in COLUMNS), ("headers", "key"), ("offset", "topic", "value")):
        of = lambda frame: sorted(map(repr, frame.select(*columns).collect()))  # noqa: B023, E731
        assert of(columnar) == of(python), columns
    assert columnar.count() == len(expected)
    # cut in the middle of batches, of which the header does not say how many records are left
    cut = options | {"maxRecordsPerPartition": 7}
    assert read(**cut).count() == len(expected)
    assert read(**cut).orderBy(*order).collect() == expected
    aggregated = lambda frame: frame.groupBy("topic", "partition").agg({"offset": "sum", "value": "max"}).orderBy("topic", "partition").collect()  # noqa: E731
    assert aggregated(columnar) == aggregated(python)


def test_a_filter_gives_the_same_rows_and_rules_out_ranges(log, read):
    log.topic("t", 3).append("t", 0, 50).append("t", 1, 50)
    for condition, left in (
        ("partition = 1 and offset >= 30", 1),
        ("offset = 7", 2),
        ("topic = 'u'", 1),
        ("timestamp >= timestamp_millis(1700000090000)", 1),
        ("value = cast('3' as binary)", 2),
    ):
        frames = [read(format=name, subscribe="t").filter(condition) for name in BOTH]
        python, columnar = (frame.orderBy("partition", "offset").collect() for frame in frames)
        assert columnar == python, condition
        assert [frame.count() for frame in frames] == [len(python)] * 2
        assert [frame.rdd.getNumPartitions() for frame in frames] == [2, left], condition  # the Python source leaves filters to Spark


def test_only_the_columns_of_the_query_are_read(log, read):
    log.topic("t").append("t", 0, 3)
    plan = read(subscribe="t").selectExpr("offset + 1 as next")._jdf.queryExecution().executedPlan().toString()
    assert "fletchlog-columnar struct<offset:bigint>" in plan


def test_spark_knows_how_many_rows_there_are_before_it_reads(spark, log, read):
    log.topic("t", 2).append("t", 0, 30).append("t", 1, 12)
    spark.conf.set("spark.sql.cbo.enabled", "true")
    try:
        stats = read(subscribe="t")._jdf.queryExecution().optimizedPlan().stats()
        assert stats.rowCount().get() == 42
        bounds = stats.attributeStats().values().head()
        assert (bounds.min().get(), bounds.max().get()) == (0, 29)
    finally:
        spark.conf.unset("spark.sql.cbo.enabled")


def test_a_stream_goes_on_from_a_checkpoint_of_the_other_format(log, run):
    log.topic("t", 2).append("t", 0, 10)
    earliest = {"subscribe": "t", "startingOffsets": "earliest"}
    assert run(format="fletchlog", **earliest)[0] == list(range(10))
    log.append("t", 1, 5)
    assert run(format="fletchlog-columnar", **earliest)[0] == list(range(10, 15))
    assert run(format="fletchlog", **earliest)[0] == []
    log.append("t", 0, 3)
    assert run(format="fletchlog", **earliest)[0] == list(range(15, 18))


def test_a_query_that_stops_early_frees_what_it_reads(spark, log, read):
    log.topic("t", 2).append("t", 0, 70_000).append("t", 1, 70_000)
    frame = read(subscribe="t")
    assert len(frame.limit(10).collect()) == 10
    assert frame.filter("value = cast('5' as binary)").head().offset == 5
    assert open_readers(spark) == 0
    assert frame.count() == 140_000


def test_damage_is_an_error_that_names_the_place(spark, log, read):
    log.topic("t").append("t", 0, 100)
    assert read(subscribe="t").count() == 100
    segment = Path(log.path) / "t-0" / f"{0:020}.log"
    damaged = bytearray(segment.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    segment.write_bytes(damaged)
    for ask in (lambda frame: frame.count(), lambda frame: frame.collect()):
        with pytest.raises(Py4JJavaError, match=r"IOException: t-0 at offset 0: .*CRC"):
            ask(read(subscribe="t"))
    assert open_readers(spark) == 0


@pytest.mark.parametrize("options", [{"kafka.bootstrap.servers": "h:9092"}, {"path": "s3://bucket/prefix"}])
def test_what_is_not_a_directory_is_for_the_other_format(spark, options):
    with pytest.raises(PySparkException, match=r'reads directories; read .* with format\("fletchlog"\)'):
        spark.read.format("fletchlog-columnar").options(subscribe="t", **options).load()


def test_configure_finds_the_package_with_the_jar(tmp_path, monkeypatch):
    (wheel,) = JAR.parent.glob("fletchlog_spark_jar-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    assert "spark.jars" not in configure(SparkSession.Builder())._options
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    try:
        mine = configure(SparkSession.Builder().config("spark.jars", "other.jar"))._options["spark.jars"]
        assert configure(SparkSession.Builder())._options["spark.jars"] == mine.removeprefix("other.jar,")
    finally:
        sys.modules.pop("fletchlog_spark_jar", None)
    assert mine.startswith("other.jar,")
    assert Path(mine.removeprefix("other.jar,")).read_bytes() == JAR.read_bytes()


def test_each_query_of_a_frame_and_of_a_view_reads_what_is_there_then(spark, log, read):
    log.topic("t").append("t", 0, 5)
    frame = read(subscribe="t")
    derived = frame.selectExpr("offset + 1 as next")
    frame.createOrReplaceTempView("growing")
    spark.sql(f"create or replace temporary view growing_too using `fletchlog-columnar` options (path '{log.path}', subscribe 't')")
    asked = [frame.count, derived.count, *(spark.sql(f"select * from {view}").count for view in ("growing", "growing_too"))]
    assert [ask() for ask in asked] == [5] * 4
    log.append("t", 0, 3)
    assert frame.count() == derived.count() == frame.selectExpr("max(offset)").first()[0] + 1 == 8
    assert [spark.sql(f"select * from {view}").count() for view in ("growing", "growing_too")] == [8, 8]
    log.broker.delete_records("t", 0, 6)
    assert frame.count() == 2


def test_an_executor_that_does_not_see_the_directory_says_so(log, read, tmp_path):
    log.topic("t").append("t", 0, 5)
    frame = read(subscribe="t")
    assert frame.rdd.getNumPartitions() == 1  # planned
    log.broker.close()
    Path(log.path).rename(tmp_path / "elsewhere")
    with pytest.raises(Py4JJavaError, match=r"cannot be read on this machine: No such file.* every executor have to see it under the same path") as caught:
        frame.collect()
    assert "read_only" not in str(caught.value)
