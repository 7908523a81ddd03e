"""A topic as a dataset: pyarrow, pandas and DuckDB get the rows that a table of the whole topic gives, and less is read."""

from __future__ import annotations

import datetime as dt
import pickle
from collections.abc import Iterator
from functools import cache

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fletchlog as fl
from fletchlog import serde
from fletchlog.scans import TopicDataset, _arrow_expressions
from fletchlog.scans._arrow_expressions import predicate_of, tree
from fletchlog.scans._predicate import boxes
from fletchlog.scans._typed import pruned
from tests.scans.conftest import NOW, TOPICS, bytes_sent, time

CASES = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
TYPE = pa.struct([("amount", pa.int64()), ("text", pa.string())])
VALUE = serde.Json(pa.schema(list(TYPE)))
f = pc.field
offsets = st.integers(-3, 130) | st.sampled_from([2**40])
partitions = st.integers(-1, 4)
topics = st.sampled_from([*TOPICS, "other"])
moments = st.integers(NOW - 20, NOW + 3000).map(time)
SIGNS = [pc.Expression.__lt__, pc.Expression.__le__, pc.Expression.__gt__, pc.Expression.__ge__, pc.Expression.__eq__, pc.Expression.__ne__]


def comparisons(name: str, kind: pa.DataType, values: st.SearchStrategy) -> st.SearchStrategy[pc.Expression]:
    literals = (values | st.none()).map(lambda value: pc.scalar(pa.scalar(value, kind)))
    one = st.builds(lambda sign, value: sign(f(name), value), st.sampled_from(SIGNS), literals)
    turned = st.builds(lambda sign, value: sign(value, f(name)), st.sampled_from(SIGNS), literals)
    return one | turned | st.lists(values, max_size=4).map(lambda several: f(name).isin(pa.array(several, kind)))


leaves = st.one_of(
    comparisons("offset", pa.int64(), offsets),
    comparisons("partition", pa.int32(), partitions),
    comparisons("topic", pa.string(), topics),
    comparisons("timestamp", pa.timestamp("us", "UTC"), moments),
    comparisons("timestamp", pa.timestamp("ms", "UTC"), moments),
    st.sampled_from([f("key") == b"k2", f("value").is_null(), f("offset") + 3 < 20, f("offset") > 10.5, pc.scalar(value=True), pc.scalar(value=False)]),
)
expressions = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(lambda one, other: one & other, inner, inner), st.builds(lambda one, other: one | other, inner, inner), inner.map(lambda one: ~one)
    ),
    max_leaves=5,
)
names = st.lists(st.sampled_from(["key", "value", "topic", "partition", "offset", "timestamp"]), unique=True, min_size=1)
projections = names | st.sampled_from([{"n": f("offset") * 2, "k": f("key")}, {"one": pc.scalar(1)}])


@cache
def whole(source: fl.Broker | str) -> pa.Table:
    return pa.concat_tables([fl.scan(source, topic).to_pyarrow() for topic in TOPICS]).combine_chunks()


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(config={"threads": 1}) as connection:
        yield connection


@CASES
@given(columns=projections, expression=expressions)
def test_a_filter_gives_what_it_gives_over_the_whole_topic(source, columns, expression) -> None:
    dataset, table = fl.scans.dataset(source, TOPICS), ds.dataset(whole(source))
    expected = table.to_table(columns, expression)
    assert dataset.to_table(columns, expression) == expected
    assert dataset.count_rows(expression) == expected.num_rows
    assert dataset.head(7, columns, expression) == expected.slice(0, 7)
    assert dataset.filter(expression).to_table(columns, f("offset") > 20) == table.to_table(columns, expression & (f("offset") > 20))


@settings(max_examples=60)
@given(expression=expressions)
def test_every_row_that_a_filter_keeps_is_in_one_of_its_boxes(filled: fl.Broker, expression) -> None:
    table = whole(filled)
    for row in ds.dataset(table).to_table(["topic", "partition", "offset", "timestamp"], expression).to_pylist():
        ms = round(row["timestamp"].timestamp() * 1000)
        assert any(
            box.has(row["topic"], row["partition"])
            and box.first <= row["offset"] < (2**63 if box.end is None else box.end)
            and (box.start_ms or 0) <= ms < (2**63 if box.end_ms is None else box.end_ms)
            for box in boxes(predicate_of(tree(expression, table.schema)))
        ), row


def texts(name: str, values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    sign = st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "is distinct from"])
    several = st.lists(values, min_size=1, max_size=4).map(", ".join)
    return st.one_of(
        st.builds(lambda sign, value: f'"{name}" {sign} {value}', sign, values),
        st.builds(lambda low, high: f'"{name}" between {low} and {high}', values, values),
        several.map(lambda listed: f'"{name}" in ({listed})'),
        several.map(lambda listed: f'"{name}" not in ({listed})'),
    )


conditions = st.recursive(
    st.one_of(
        texts("offset", offsets.map(str)),
        texts("partition", partitions.map(str)),
        texts("topic", topics.map(repr)),
        texts("timestamp", moments.map(lambda moment: f"timestamptz '{moment}'")),
        st.sampled_from(
            ["key = 'k2'::blob", "value is null", '"offset" + 3 < 20', '"offset" % 2 = 0', "topic like 'a%'", "1 = 0", "timestamp::date > '2023-01-01'"]
        ),
    ),
    lambda inner: st.one_of(
        st.builds(lambda one, other: f"({one} and {other})", inner, inner),
        st.builds(lambda one, other: f"({one} or {other})", inner, inner),
        inner.map(lambda one: f"not ({one})"),
    ),
    max_leaves=5,
)


@CASES
@given(condition=conditions, wanted=st.sampled_from(["*", "key, value", "count(*)", '"offset", topic', "partition, max(timestamp)"]))
def test_duckdb_gets_what_it_gets_of_a_table(source, connection, condition, wanted) -> None:
    last = {"*": "", "count(*)": "", "partition, max(timestamp)": "group by all"}.get(wanted, "")
    connection.register("pushed", fl.scans.dataset(source, TOPICS))
    connection.register("whole", whole(source).select(fl.scans.dataset(source, TOPICS).schema.names))
    answers = [connection.sql(f"select {wanted} from {name} where {condition} {last} order by all").fetchall() for name in ("pushed", "whole")]
    assert answers[0] == answers[1]


@CASES
@given(condition=conditions, typed=st.sampled_from(["value.amount > 100", "value.text = 't1'", "value.amount is null", "true"]))
def test_duckdb_gets_typed_columns(filled: fl.Broker, connection, condition, typed) -> None:
    connection.register("pushed", fl.scans.dataset(filled, "a", value=VALUE, key=serde.String()))
    connection.register("whole", serde.deserialize(filled.scan("a"), value=VALUE, key=serde.String()))
    condition = condition.replace("'k2'::blob", "'k2'")
    query = f"select value.amount, key from NAME where {condition} and {typed} order by all"
    answers = [connection.sql(query.replace("NAME", name)).fetchall() for name in ("pushed", "whole")]
    assert answers[0] == answers[1]


@pytest.mark.parametrize(
    ("condition", "rows", "share"),
    [
        ("\"offset\" >= 19000", 2000, 0.2),
        (f"timestamp >= timestamptz '{time(NOW + 19_000_000)}'", 2000, 0.2),
        ("(partition = 0 and \"offset\" < 10) or (partition = 1 and \"offset\" between 50 and 59)", 20, 0.2),
        ("partition in (1)", 20_000, 0.6),
        ("partition <> 1", 20_000, 0.6),
        ("partition not in (1, 2)", 20_000, 0.6),
        ("not (partition = 1 or \"offset\" >= 10)", 10, 0.1),
        ("\"offset\" in (5, 19999)", 4, 0.3),
        ("topic = 'other'", 0, 0.001),
    ],
)  # fmt: skip
def test_what_a_query_does_not_need_is_not_sent(large: fl.Broker, condition, rows, share) -> None:
    with large.listen() as listener:
        t = fl.scans.dataset(f"kafka://{listener.bootstrap}", "t")
        before = bytes_sent(listener)
        assert duckdb.sql(f"select count(*) from t where {condition}").fetchall() == [(rows,)]
        asked = bytes_sent(listener) - before
        assert t.count_rows() == 40_000
        everything = bytes_sent(listener) - before - asked
    assert everything > 36_000_000
    assert asked < share * everything, asked / everything


def test_a_limit_ends_the_reading(large: fl.Broker) -> None:
    with large.listen() as listener:
        t = fl.scans.dataset(f"kafka://{listener.bootstrap}", "t")
        assert len(duckdb.sql("select * from t limit 3").fetchall()) == 3
        assert t.head(3).num_rows == 3
        assert t.head(3, filter=f("offset") > 7).num_rows == 3
        assert bytes_sent(listener) < 36_000_000


class Pruned:
    """A deserializer that notes which fields it was asked to leave."""

    def __init__(self, seen: list, fields: list[str] | None = None) -> None:
        self.seen, self.of = seen, VALUE if fields is None else serde.Json(pa.schema([TYPE.field(name) for name in fields]))
        self.type = self.of.type

    def decode(self, column):
        self.seen.append(len(column))
        return self.of.decode(column)

    def pruned(self, fields: list[list[str]]) -> Pruned:
        names = [name for (name,) in fields]
        self.seen.append(names)
        return Pruned(self.seen, names)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (lambda d, n: d.to_table({"x": f("value", "amount")}), ["amount"]),
        (lambda d, n: d.to_table({"x": f("value", "amount")}, f("value", "text") == "t1"), []),
        (lambda d, n: d.to_table(["offset"], f("value", "text") == "t1"), ["text"]),
        (lambda d, n: d.to_table(["value"], f("value", "text") == "t1"), []),
        (lambda d, n: d.count_rows(f("value", "amount") > 3), ["amount"]),
        (lambda d, n: n.select("value.text").collect(), ["text"]),
        (lambda d, n: n.filter(pl.col("value.text") == "t1").select("value.text", "offset").collect(), ["text"]),
        (lambda d, n: n.select("value.text", "value.amount").collect(), []),
    ],
)
def test_only_the_fields_that_are_asked_for_are_decoded(filled: fl.Broker, query, expected) -> None:
    seen: list = []
    nested = fl.scans.dataset(filled, "a", value=Pruned(seen))
    query(nested, fl.scan_topic(filled, "a", value=Pruned(seen), unnest=True))
    assert {tuple(one) for one in seen if isinstance(one, list)} == ({tuple(expected)} if expected else set())


def test_nothing_is_decoded_that_a_filter_leaves_out(filled: fl.Broker) -> None:
    seen: list = []
    dataset = fl.scans.dataset(filled, "a", value=Pruned(seen))
    assert dataset.to_table(["value"], f("key") == b"k2").num_rows == sum(seen) > 10
    seen.clear()
    assert dataset.count_rows(f("key") == b"k2") > 10
    assert seen == []


def test_an_expression_that_cannot_be_read_is_applied_to_the_rows(filled: fl.Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    expression = (f("offset") > 25) & (f("value", "amount") > 100)
    dataset = fl.scans.dataset(filled, TOPICS, value=VALUE)
    expected = dataset.to_table({"x": f("value", "amount")}, expression)
    monkeypatch.setattr(_arrow_expressions, "_tree", lambda _: 1 / 0)
    assert dataset.to_table({"x": f("value", "amount")}, expression) == expected
    assert dataset.count_rows(expression) == expected.num_rows > 10
    monkeypatch.undo()
    # a name that would pass for a part of an expression
    schema = pa.schema([("offset", pa.int64()), ("x\nfield_ref: 'offset", pa.int64())])
    assert tree(f(schema.names[1]) > 3, schema) is None


def test_every_public_name_of_pyarrows_dataset_is_its_own() -> None:
    # what pyarrow would do with an object that it has not made ends the process
    public = {name for name in dir(ds.Dataset) if not name.startswith("_")} | {"_get_fragments"}
    assert {name for name in public if name not in vars(TopicDataset)} == set()


def test_the_rest_of_a_dataset(filled: fl.Broker) -> None:
    dataset = fl.scans.dataset(filled, TOPICS)
    table = whole(filled).select(dataset.schema.names)
    assert dataset.to_table() == table
    assert pa.Table.from_batches(dataset.to_batches()) == table
    assert dataset.take([3, 1]) == table.take([3, 1])
    assert dataset.sort_by("offset").to_table() == table.sort_by("offset")
    assert dataset.filter(f("offset") > 5).filter(f("offset") < 9).to_table() == table.filter((f("offset") > 5) & (f("offset") < 9))
    assert dataset.to_pandas(["offset"]).equals(table.select(["offset"]).to_pandas())
    other = pa.table({"partition": pa.array([1], pa.int32()), "name": ["one"]})
    assert dataset.join(ds.dataset(other), "partition", join_type="inner").to_table().num_rows == dataset.count_rows(f("partition") == 1)
    assert dataset.partition_expression.equals(pc.scalar(value=True))
    assert repr(dataset) == "<fletchlog.scans.TopicDataset of a, b, empty>"
    for call in (lambda: dataset.replace_schema(table.schema), dataset.get_fragments):
        with pytest.raises(NotImplementedError):
            call()
    with pytest.raises(fl.errors.InvalidArgumentError, match="no column 'nothing'"):
        dataset.to_table(["nothing"])


def test_a_dataset_of_a_place_can_be_pickled(address: str) -> None:
    dataset = fl.scans.dataset(address, "a", value=VALUE).filter(f("offset") > 30)
    assert pickle.loads(pickle.dumps(dataset)).to_table() == dataset.to_table()
    plan = pickle.loads(pickle.dumps(fl.scans.plan(address, "a", 0, 30, value=VALUE)))
    assert sum(batch.num_rows for batch in plan.batches()) == dataset.count_rows(f("partition") == 0) + 1


def test_a_failure_while_it_is_read_has_its_reason(filled: fl.Broker) -> None:
    t = fl.scans.dataset(filled, ["a", "missing"])
    with pytest.raises(fl.errors.UnknownTopicOrPartitionError, match="missing"):
        t.to_table()
    with pytest.raises(duckdb.Error, match="missing"):
        duckdb.sql("select * from t").fetchall()
    assert duckdb.sql("select count(*) from t where topic = 'a'").fetchall()[0][0] > 100


def test_the_schema_is_that_of_the_scan(filled: fl.Broker) -> None:
    for headers in (False, True):
        for unit in ("us", "ms"):
            found = fl.scans.plan(filled, "a", include_headers=headers, timestamp_unit=unit)
            assert found.schema == filled.scan("a", include_headers=headers, timestamp_unit=unit).schema
            assert pa.Table.from_batches(found.batches()).schema == found.schema
    assert fl.scans.dataset(filled, "a", timestamp_unit="ms").count_rows(f("timestamp") > time(NOW + 500)) > 10
    assert dt.datetime.fromtimestamp(0, dt.UTC) == time(0)


@pytest.mark.parametrize(
    ("paths", "asked"),
    [
        ({("a",), ("a", "b"), ("c", "d")}, [["a"], ["c", "d"]]),
        ({("c", "d")}, [["c", "d"]]),
        ({("a",), ("c",)}, None),
        ({("a",), ()}, None),
        ({("other",)}, None),
        (set(), None),
    ],
)
def test_fields_are_named_by_the_way_to_them(paths, asked) -> None:
    class Nested:
        type = pa.struct([("a", pa.struct([("b", pa.int64())])), ("c", pa.struct([("d", pa.int64()), ("e", pa.int64())]))])

        def pruned(self, fields: list[list[str]]) -> list[list[str]]:
            return fields

    deserializer = Nested()
    assert pruned(deserializer, frozenset(paths)) == (deserializer if asked is None else asked)


@pytest.mark.parametrize("terms", [300, 1000])
def test_a_long_chain_of_conditions_is_read_however_deep(filled: fl.Broker, terms: int) -> None:
    mine = fl.scans.dataset(filled, TOPICS[0])
    chain = (f("partition") == -1) & (f("offset") == 0)
    for number in range(terms):
        chain = chain | ((f("partition") == 0) & (f("offset") == 2 * number))
    rows = mine.to_table().filter(chain)
    assert rows.num_rows > 0
    assert mine.to_table(filter=chain).equals(rows)
    words = " or ".join(f'(partition = 0 and "offset" = {2 * number})' for number in range(terms))
    assert duckdb.sql(f"select count(*) from mine where {words}").fetchall() == [(rows.num_rows,)]
