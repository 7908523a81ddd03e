"""Filters that are pushed down: the same rows in every query, and the columnar format reads only what is left of the log."""

import datetime as dt

import pytest
from pyspark.sql.datasource import EqualTo, GreaterThan, GreaterThanOrEqual, In, IsNotNull, LessThan, LessThanOrEqual, Not, StringContains, StringStartsWith

from fletchlog.spark.filters import Bounds
from fletchlog.spark.offsets import HIGHEST

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]

START = dt.datetime.fromtimestamp(1_700_000_000, dt.UTC)


@pytest.fixture
def not_pushed(spark):
    """Push-down is off, as Spark has it; the session of the tests has it on."""
    name = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(name, "false")
    yield
    spark.conf.set(name, "true")


@pytest.fixture
def frame(log, read):
    """Two topics of two partitions with 100 records each; the time of a record is its number in seconds."""
    for topic in ("a", "b"):
        log.topic(topic, partitions=2)
        for partition in range(2):
            log.append(topic, partition, 100)
    return lambda: read(subscribe="a,b")


def at(seconds):
    return (START + dt.timedelta(seconds=seconds)).isoformat()


# condition, rows that meet it, rows that are read
CONDITIONS = [
    ("offset >= 50", 200, 200),
    ("offset between 10 and 19", 40, 40),
    ("offset > 98 and offset < 50", 0, 0),
    ("offset = 7", 4, 4),
    ("offset in (3, 90)", 8, 4 * 88),
    ("topic = 'a'", 200, 200),
    ("topic in ('a', 'none') and partition = 1", 100, 100),
    ("partition = 0 and offset < 5", 10, 10),
    ("partition > 0", 200, 200),
    ("partition < 1 and topic <> 'b'", 100, 100),
    ("partition >= 1 and partition <= 1 and not (partition in (0, 2))", 200, 200),
    ("topic like 'b%' or topic like 'c%'", 200, 400),
    ("topic like 'b%'", 200, 200),
    (f"timestamp >= timestamp'{at(350)}'", 50, 50),
    (f"timestamp >= timestamp'{at(150)}' and offset >= 40", 170, 170),
    (f"timestamp < timestamp'{at(150)}'", 150, 400),
    (f"timestamp = timestamp'{at(150)}'", 1, 250),
    (f"timestamp >= timestamp'{at(150)}' and timestamp < timestamp'{at(149)}'", 0, 0),
    ("topic <> 'a'", 200, 200),
    ("not (offset > 50)", 204, 204),
    ("offset >= 50 or partition = 1", 300, 400),
    ("cast(cast(value as string) as int) % 2 = 0", 200, 400),
]


@pytest.mark.parametrize(("condition", "rows", "read_rows"), CONDITIONS)
def test_a_condition_gives_the_same_rows_and_reads_what_it_leaves(frame, source, condition, rows, read_rows):
    found = frame().where(condition)
    assert found.count() == rows
    plan = found._jdf.queryExecution().executedPlan()
    found._jdf.collectToPython()
    leaf = plan.collectLeaves().apply(0)
    # Spark would give what is left to other queries of the frame, too, if Python planned with filters
    assert leaf.metrics().apply("numOutputRows").value() == (400 if source == "fletchlog" else read_rows)


def test_queries_of_one_frame_do_not_get_the_filters_of_each_other(spark, frame):
    loaded = frame()
    few, last = loaded.where("offset < 3"), loaded.where("offset >= 98 and topic = 'a'")
    assert (few.count(), loaded.count(), last.count(), loaded.count()) == (12, 400, 4, 400)
    loaded = frame()
    few, last = loaded.where("offset < 3"), loaded.where("offset >= 98 and topic = 'a'")
    assert few.union(last).union(loaded).count() == 12 + 4 + 400
    assert few.select("offset").crossJoin(last.select("partition")).count() == 12 * 4
    frame().createOrReplaceTempView("filtered_and_not")
    asked = "select (select count(*) from filtered_and_not where partition = 0), (select count(*) from filtered_and_not)"
    assert tuple(spark.sql(asked).first()) == (200, 400)
    # planned in one order, run in the other
    for query in (few, last):
        query._jdf.queryExecution().optimizedPlan()
    assert (len(last.collect()), len(few.collect())) == (4, 12)


@pytest.mark.parametrize("condition", [condition for condition, _, _ in CONDITIONS])
def test_without_push_down_the_rows_are_the_same(not_pushed, frame, condition):
    assert frame().where(condition).count() == {c: n for c, n, _ in CONDITIONS}[condition]


def test_what_is_not_exact_is_left_to_spark():
    bounds = Bounds()
    exact = [
        GreaterThanOrEqual(("offset",), 5),
        LessThanOrEqual(("OFFSET",), 9),
        EqualTo(("topic",), "t"),
        In(("partition",), (1, 2)),
        LessThan(("partition",), 2),
        Not(EqualTo(("topic",), "u")),
        StringStartsWith(("topic",), "t"),
        IsNotNull(("offset",)),
    ]
    inexact = [
        IsNotNull(("timestamp",)),  # a record may have none
        GreaterThan(("timestamp",), START),
        In(("offset",), (6, 8)),
        In(("offset",), ()),
        EqualTo(("key",), b"k"),
        IsNotNull(("key",)),
        Not(IsNotNull(("topic",))),
        Not(GreaterThan(("offset",), 3)),
        LessThan(("timestamp",), START),
        StringContains(("key",), "k"),
        EqualTo(("partition",), None),
        EqualTo(("a", "offset"), 1),
    ]
    assert all(bounds.add(condition) for condition in exact)
    assert not any(bounds.add(condition) for condition in inexact)
    assert [range_[:3] for range_ in bounds.ranges] == [
        ("topic", "EqualTo", "t"),
        ("partition", "In", (1, 2)),
        ("partition", "LessThan", 2),
        ("topic", "EqualTo", "u"),
        ("topic", "StringStartsWith", "t"),
    ]
    assert (bounds.start, bounds.end, bounds.since_ms, bounds.until_ms) == (6, 9, 1_700_000_000_000, 1_700_000_000_000)
    assert Bounds().end == HIGHEST
