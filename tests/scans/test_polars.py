"""A pushed query gives the rows that filtering the whole topic gives, in the same order, and reads less."""

from __future__ import annotations

import datetime as dt
import io
import json

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import fletchlog as fl
from fletchlog import serde
from fletchlog.errors import InvalidArgumentError
from fletchlog.scans import _predicate, _ranges
from fletchlog.scans._polars_expressions import predicate_of
from fletchlog.scans._predicate import And, Compare, boxes
from tests.scans.conftest import NOW, TOPICS, bytes_sent, time

CASES = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
VALUE = serde.Json(pa.schema({"amount": pa.int64(), "text": pa.string()}))
c = pl.col


offsets = st.integers(-3, 130) | st.sampled_from([2**40, -(2**40)])
times = st.integers(NOW - 20, NOW + 3000).map(time)
fewest = {"min_size": 0, "max_size": 4}


def comparisons(column: pl.Expr, values: st.SearchStrategy) -> st.SearchStrategy[pl.Expr]:
    signs = [pl.Expr.__lt__, pl.Expr.__le__, pl.Expr.__gt__, pl.Expr.__ge__, pl.Expr.__eq__, pl.Expr.__ne__, pl.Expr.ne_missing]
    between = st.builds(
        lambda low, high, closed: column.is_between(pl.lit(low), pl.lit(high), closed=closed),
        values,
        values,
        st.sampled_from(["both", "left", "right", "none"]),
    )
    return st.builds(lambda sign, value: sign(column, value), st.sampled_from(signs), values) | between


leaves = st.one_of(
    comparisons(c("offset"), offsets),
    comparisons(c("timestamp"), times),
    comparisons(c("partition"), st.integers(-1, 4)),
    comparisons(c("topic"), st.sampled_from([*TOPICS, "other"])),
    st.lists(offsets, **fewest).map(lambda values: c("offset").is_in(values)),
    st.lists(st.integers(0, 4), **fewest).map(lambda values: c("partition").is_in(values)),
    st.lists(st.sampled_from([*TOPICS, "other"]), **fewest).map(lambda values: c("topic").is_in(values)),
    st.lists(times, **fewest).map(lambda values: c("timestamp").is_in(values)),
    st.sampled_from([c("key") == b"k2", c("value").is_null(), c("offset") % 2 == 0, c("offset") > 10.5, pl.lit(True), c("timestampType") == 0]),
    st.sampled_from([c("offset") > c("offset").max() - 5, pl.lit(5) < c("offset"), (c("offset") + 3).cast(pl.Int32) < 20, c("offset").is_not_null()]),
)
predicates = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(lambda one, other: one & other, inner, inner),
        st.builds(lambda one, other: one | other, inner, inner),
        inner.map(lambda one: ~one),
        st.lists(inner, min_size=1, max_size=3).map(pl.any_horizontal),
        st.lists(inner, min_size=1, max_size=3).map(pl.all_horizontal),
    ),
    max_leaves=5,
)
slices = st.sampled_from(
    [lambda frame: frame, *(lambda frame, n=n: frame.head(n) for n in (0, 1, 7, 90)), lambda frame: frame.slice(5, 20), lambda f: f.tail(9)]
)
columns = st.lists(st.sampled_from(["key", "value", "topic", "partition", "offset", "timestamp"]), unique=True, min_size=1)


def whole(source: fl.Broker | str, topics: tuple[str, ...] = TOPICS) -> pl.LazyFrame:
    """Everything, read before any query."""
    return pl.concat([fl.scan(source, topic).to_polars() for topic in topics]).lazy()


# what is near, how many ranges of a partition and how many boxes are kept apart: as it is, and so that a small log has every case
limits = st.sampled_from([None, (0, 16, 64), (3, 2, 64), (0, 16, 3)])


@CASES
@given(predicate=predicates, wanted=columns, before=slices, after=slices, streaming=st.booleans(), limit=limits)
def test_a_query_gives_what_it_gives_over_the_whole_topic(source, predicate, wanted, before, after, streaming, limit) -> None:
    def asked(frame: pl.LazyFrame) -> pl.DataFrame:
        return after(before(frame).filter(predicate)).select(wanted).collect(engine="streaming" if streaming else "auto")

    with pytest.MonkeyPatch.context() as patch:
        if limit is not None:
            near, ranges, most = limit
            patch.setattr(_predicate, "NEAR", near)
            patch.setattr(_ranges, "NEAR", near)
            patch.setattr(_ranges, "MOST_RANGES", ranges)
            patch.setattr(_predicate, "MOST_BOXES", most)
        assert_frame_equal(asked(fl.scan_topic(source, TOPICS)), asked(whole(source)))


ROWS = pl.concat(
    pl.DataFrame(
        {"offset": range(132), "timestamp": [time(NOW + at * 23) if at % 5 else None for at in range(132)], "key": [b"k2", b"k3"] * 66},
        schema_overrides={"timestamp": pl.Datetime("us", "UTC")},
    ).with_columns(topic=pl.lit(topic), partition=pl.lit(partition), value=None, timestampType=0)
    for topic in TOPICS
    for partition in range(4)
)


@settings(max_examples=250)
@given(predicate=predicates)
def test_every_row_that_a_predicate_keeps_is_in_one_of_its_boxes(predicate) -> None:
    found = boxes(predicate_of(predicate))
    outside = ROWS.filter(predicate)
    for box in found:
        inside = [c("offset") >= box.first, c("partition") >= box.from_partition]
        inside += [c("offset") < box.end] if box.end is not None else []
        inside += [c("topic").is_in(box.topics)] if box.topics is not None else []
        inside += [c("partition").is_in(box.partitions)] if box.partitions is not None else []
        inside += [c("timestamp") >= time(box.start_ms)] if box.start_ms is not None else []
        inside += [c("timestamp") < time(box.end_ms)] if box.end_ms is not None else []
        outside = outside.filter(~pl.all_horizontal(inside).fill_null(value=False))
    assert outside.is_empty()


@CASES
@given(predicate=predicates, field=st.sampled_from(["value.amount", "value.text"]))
def test_typed_columns_take_part(filled: fl.Broker, predicate, field) -> None:
    predicate = predicate.meta.serialize(format="json").replace('"value"', '"value.amount"')
    predicate = pl.Expr.deserialize(io.StringIO(predicate), format="json") | (c("value.amount") > 200)
    read = serde.deserialize(filled.scan("a"), value=VALUE)
    eager = pl.DataFrame(read).lazy().with_columns(c("value").struct.unnest().name.prefix("value.")).drop("value")
    lazy = fl.scan_topic(filled, "a", value=VALUE, unnest=True)
    assert_frame_equal(lazy.filter(predicate).select("offset", field).collect(), eager.filter(predicate).select("offset", field).collect())


@pytest.mark.parametrize(
    ("query", "rows", "share"),
    [
        (lambda lf: lf.filter(c("offset") >= 19_000), 2000, 0.2),
        (lambda lf: lf.filter(c("timestamp") >= time(NOW + 19_000_000)), 2000, 0.2),
        (lambda lf: lf.filter(pl.lit(time(NOW + 19_000_000)) - pl.duration(hours=0) <= c("timestamp")), 2000, 0.2),
        (lambda lf: lf.filter((c("partition") == 0) & (c("offset") < 10) | (c("partition") == 1) & c("offset").is_between(50, 59)), 20, 0.2),
        (lambda lf: lf.filter(c("partition").is_in([1])), 20_000, 0.6),
        (lambda lf: lf.filter(~(c("partition") != 1)), 20_000, 0.6),
        (lambda lf: lf.filter(~c("partition").is_in([1, 2])), 20_000, 0.6),
        (lambda lf: lf.filter(~((c("partition") == 1) | (c("offset") >= 10))), 10, 0.1),
        (lambda lf: lf.filter(c("offset").is_in([5, 19_999])), 4, 0.3),
        (lambda lf: lf.filter(c("topic") == "other"), 0, 0.001),
        (lambda lf: lf.filter(c("offset") < 0), 0, 0.001),
        (lambda lf: lf.filter(pl.lit(value=False)), 0, 0.001),
        (lambda lf: lf.head(5), 5, 0.25),
        (lambda lf: lf.filter(c("offset") >= 19_000).head(5), 5, 0.2),
    ],
)
def test_what_a_query_does_not_need_is_not_sent(large: fl.Broker, query, rows, share) -> None:
    with large.listen() as listener:
        lazy = fl.scan_topic(f"kafka://{listener.bootstrap}", "t")
        before = bytes_sent(listener)
        assert query(lazy).collect().height == rows
        asked = bytes_sent(listener) - before
        assert lazy.collect().height == 40_000
        everything = bytes_sent(listener) - before - asked
    assert everything > 36_000_000
    assert asked < share * everything, asked / everything


def test_the_plan_names_the_scan_and_what_reaches_it(filled: fl.Broker) -> None:
    shown = fl.scan_topic(filled, ["a", "b"]).filter(c("offset") >= 5).select("key").explain()
    assert "fletchlog" in shown
    assert "a, b" in shown
    assert 'SELECTION: col("offset") >= 5' in shown
    assert "PROJECT 2/7 COLUMNS" in shown


def test_headers_and_timestamps_in_milliseconds_are_columns(filled: fl.Broker) -> None:
    lazy = fl.scan_topic(filled, "a", include_headers=True, timestamp_unit="ms")
    expected = filled.scan("a", include_headers=True, timestamp_unit="ms").to_polars()
    assert_frame_equal(lazy.collect(), expected)
    late = c("timestamp") >= time(NOW + 700)
    assert_frame_equal(lazy.filter(late).select("headers", "offset").collect(), expected.filter(late).select("headers", "offset"))


def test_a_secret_of_the_source_is_not_shown() -> None:
    assert "hunter2" not in fl.scan_topic("s3://user:hunter2@bucket/logs", "a").explain()


def test_an_expression_that_cannot_be_walked_is_applied_to_the_rows(filled: fl.Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = whole(filled).filter(c("offset").is_between(25, 30)).collect()
    for form in ("no json", json.dumps({"Binary": 1}), json.dumps({"BinaryExpr": {"left": {"Column": "offset"}, "op": "AtLeast", "right": {"Literal": 1}}})):
        monkeypatch.setattr("polars.expr.meta.ExprMetaNameSpace.serialize", lambda *_, form=form, **__: form)
        assert_frame_equal(fl.scan_topic(filled, TOPICS).filter(c("offset").is_between(25, 30)).collect(), expected)


def test_a_bound_of_the_caller_below_the_log_start_is_an_error_and_one_of_a_predicate_is_not(source) -> None:
    assert fl.scan_topic(source, "a", 0).filter(c("offset") >= 3).collect()["offset"].min() == 20
    with pytest.raises(fl.errors.OffsetOutOfRangeError):
        fl.scan_topic(source, "a", 0, 3).collect()
    assert fl.scan_topic(source, "a", 0, 3).filter(c("offset") >= 30).collect()["offset"].min() >= 30


@pytest.mark.parametrize("end", [None, 30, 12])
def test_records_that_are_deleted_while_a_query_runs_are_no_error(end: int | None) -> None:
    with fl.Broker.in_memory() as broker, fl.Producer(broker) as producer, broker.listen() as listener:
        broker.create_topic("t", partitions=3)
        for partition in range(3):
            producer.send_many("t", [b"%d" % at for at in range(50)], partition=partition)
        producer.flush()
        for source in (broker, f"kafka://{listener.bootstrap}"):
            offset = broker.beginning_offsets([("t", 2)])["t", 2] + 4
            predicate = Compare("offset", ">=", offset) if end is None else And((Compare("offset", ">=", offset), Compare("offset", "<", end)))
            plan = fl.scans.plan(source, "t", [0, 1, 2]).where(predicate)
            batches = plan.batches()
            first = next(batches, None)
            rows = first.num_rows if first else 0
            broker.delete_records("t", 2, offset + 8)
            rows += sum(batch.num_rows for batch in batches)
            most = 50 if end is None else end
            assert rows == 2 * max(0, most - offset) + max(0, most - offset - 8)


def test_records_deleted_before_one_call_reads_all_partitions_are_no_error(filled: fl.Broker) -> None:
    plan = fl.scans.plan(filled, "a")
    rows = sum(batch.num_rows for batch in plan._scan(filled, fl.scans.Range("a", None, 3, 40), ("offset",), 1000))
    expected = filled.scan("a").to_polars().filter(c("offset") >= 3, c("offset") < 40).height
    assert rows == expected


def test_a_tail_is_taken_before_predicates(source) -> None:
    last = fl.scan_topic(source, "a", tail=4)
    assert last.collect().height == 12
    expected = fl.scan(source, "a", tail=4).to_polars().filter(c("offset") % 2 == 0, c("offset") > 40)
    assert_frame_equal(last.filter(c("offset") % 2 == 0, c("offset") > 40).collect(), expected)


@pytest.mark.parametrize(
    ("arguments", "options", "reason"),
    [
        (("d", []), {}, "topics are names"),
        (("d", ["a", "a"]), {}, "topics are names"),
        (("d", "a", -1), {}, "partition is -1"),
        (("d", "a", None, 5, 3), {}, "does not end before it starts"),
        (("d", "a"), {"start_time": 5, "end_time": 3}, "does not end before it starts"),
        (("d", "a"), {"start_time": dt.datetime.fromisoformat("2026-01-01")}, "no time zone"),
        (("d", "a"), {"tail": 3, "start_time": 4}, "tail does not go with"),
        (("d", "a"), {"columns": ["offsets"]}, "no column 'offsets'"),
        (("d", "a"), {"value": serde.Json()}, "give the deserializer a schema"),
        (("d", "a"), {"value": serde.Json}, "give value=Json()"),
        (("d", "a"), {"isolation_level": "committed"}, "isolation_level"),
        (("d", "a"), {"timestamp_unit": "s"}, "timestamp_unit"),
        (("d", "a"), {"on_error": "skip"}, "on_error"),
        (("d", "a"), {"tail": -1}, "tail"),
        (("d", 5), {}, "topics are names"),
        (("d", "a", "x"), {}, "partition is 'x'"),
        (("d", "a", [1.5]), {}, "partition is 1.5"),
        (("d", "a", None, 2**70), {}, "start_offset is 1180591620717411303424"),
        (("d", "a"), {"end_time": 2**70}, "an int of 64 bits"),
        (("d", "a"), {"start_time": "yesterday"}, "a time is a datetime"),
        (("d", "a"), {"columns": "offset"}, "columns are names"),
        (("d", "a"), {"columns": ["offset", "offset"]}, "columns are names"),
    ],
)
def test_bad_arguments_are_refused_at_once(arguments, options, reason) -> None:
    with pytest.raises(fl.errors.InvalidArgumentError, match=reason.replace("(", r"\(").replace(")", r"\)")):
        fl.scan_topic(*arguments, **options)


@pytest.mark.parametrize("call", [fl.scan_topic, fl.scans.dataset])
def test_an_unknown_option_is_named_with_a_near_one(call) -> None:
    name = call.__name__
    with pytest.raises(TypeError, match=rf"^{name}\(\) got an unexpected keyword argument 'colums'; did you mean 'columns'\?$"):
        call("d", "a", colums=["key"])


def test_a_failure_while_it_is_read_has_its_reason(source, tmp_path) -> None:
    with pytest.raises(fl.errors.DirectoryError, match="does not exist"):
        fl.scan_topic(tmp_path / "nothing", "a").collect()
    with pytest.raises(fl.errors.UnknownTopicOrPartitionError, match="missing"):
        fl.scan_topic(source, ["a", "missing"]).collect()
    assert fl.scan_topic(source, ["a", "missing"]).filter(c("topic") == "a").collect().height > 0
    with pytest.raises(fl.errors.RecordDeserializationError, match=r"value of a-\d at offset \d+ cannot be decoded"):
        fl.scan_topic(source, "a", value=serde.Long()).select("value").collect()
    bad = fl.scan_topic(source, "a", value=serde.Long(), on_error="collect").select("value_error").collect()
    assert bad.filter(c("value_error").is_not_null()).height > 50
    # rows that a predicate leaves out are not decoded
    assert fl.scan_topic(source, "a", value=serde.Long()).filter(c("key") == b"none").collect().height == 0


@pytest.mark.parametrize(
    "asked", [{}, {"partition": 1}, {"start_offset": 30, "end_offset": 60}, {"tail": 7}, {"start_time": time(NOW + 300), "end_time": time(NOW + 1500)}]
)
def test_a_scan_as_a_lazy_frame_has_its_rows(source, asked):
    scan = fl.scan(source, "a", include_headers=True, isolation_level="read_committed", **asked)
    assert_frame_equal(scan.lazy().collect(), scan.to_polars())
    late = c("offset") >= 40
    assert_frame_equal(scan.lazy().filter(late).select("key", "offset").collect(), scan.to_polars().filter(late).select("key", "offset"))


def test_a_scan_knows_its_source_and_ranges(filled):
    scan = filled.scan("a", 0, 25, 40, start_time=NOW)
    assert scan.source is filled
    assert scan.ranges == [("a", 0, 25, 40, NOW, None)]
    assert scan.ranges[0].start_offset == 25


def test_a_lazy_scan_reads_no_more_than_its_query(filled):
    with filled.listen() as listener, fl.Cluster(f"kafka://{listener.bootstrap}") as cluster:
        scan = cluster.scan("a")
        sizes = []
        for query in (scan.lazy(), scan.lazy().filter(c("partition") == 1, c("offset") >= 20)):
            before = bytes_sent(listener)
            query.collect()
            sizes.append(bytes_sent(listener) - before)
        assert sizes[1] < 0.6 * sizes[0]
        assert scan.source is cluster


def test_a_lazy_scan_keeps_its_range_while_the_topic_grows():
    with fl.Broker.in_memory() as broker:
        broker.create_topic("t", partitions=2)
        with fl.Producer(broker) as producer:
            for number in range(10):
                producer.send("t", b"%d" % number, partition=number % 2)
            producer.flush()
            frame = broker.scan("t", columns=["value"]).lazy()
            producer.send("t", b"late", partition=0).result()
        assert frame.collect_schema().names() == ["value"]
        assert frame.collect().height == 10
        assert broker.scan("t", 0, 6, 6).lazy().collect().height == 0


def test_a_scan_by_time_has_no_lazy_frame(filled):
    with pytest.raises(InvalidArgumentError, match="sort the frame by timestamp"):
        filled.scan("a", order="timestamp").lazy()
