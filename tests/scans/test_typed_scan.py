"""Typed columns of `fl.scan`, `Broker.scan` and `Cluster.scan`: what decoding the scan of bytes gives, batch by batch, in every way to read a scan."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import fletchlog as fl
from fletchlog import serde
from fletchlog.errors import InvalidArgumentError, RecordDeserializationError
from fletchlog.scans._typed import in_order

FIELDS = pa.schema({"amount": pa.int64(), "text": pa.string()})
VALUE = serde.Json(FIELDS)


def decoded(source: fl.Broker | str, **options: str) -> pa.Table:
    """The whole topic, decoded behind the scan."""
    found: pa.Table = serde.deserialize(fl.scan(source, "a"), key=serde.String(), value=VALUE, **options)  # type: ignore[arg-type]
    return found


def test_every_way_to_read_a_scan_gives_decoded_rows(source: fl.Broker | str) -> None:
    scan, expected = fl.scan(source, "a", key=serde.String(), value=VALUE, batch_rows=7), decoded(source)
    assert scan.schema == expected.schema
    assert scan.to_pyarrow() == expected
    assert scan.to_reader().read_all() == expected
    assert pa.RecordBatchReader.from_stream(scan).read_all() == expected
    assert pa.schema(scan) == expected.schema
    batches = list(scan)
    assert len(batches) > 5
    assert pa.Table.from_batches(batches) == expected
    assert scan.to_pandas()["value"].tolist() == expected["value"].to_pylist()
    assert scan.to_polars()["value"].to_list() == expected["value"].to_pylist()
    assert scan.lazy().select("key", "value").collect().to_dict(as_series=False) == expected.select(["key", "value"]).to_pydict()
    assert duckdb.sql("select sum(value.amount) from scan").fetchall() == [(pc.sum(pc.struct_field(expected["value"], "amount")).as_py(),)]
    records = list(scan.records())
    assert [(one.offset, one.key, one.value) for one in records] == [
        (row["offset"], row["key"], row["value"]) for row in expected.select(["offset", "key", "value"]).to_pylist()
    ]


def test_columns_and_fields_by_name(source: fl.Broker | str) -> None:
    expected = decoded(source)
    only = fl.scan(source, "a", value=VALUE, columns=["value", "offset"])
    assert only.to_pyarrow() == expected.select(["value", "offset"])
    flat = fl.scan(source, "a", key=serde.String(), value=VALUE, unnest=True)
    assert flat.schema.names[:3] == ["key", "value.amount", "value.text"]
    assert flat.to_pyarrow()["value.text"].to_pylist() == pc.struct_field(expected["value"], "text").to_pylist()
    assert flat.lazy().select(pl.col("value.amount").sum()).collect().item() == pc.sum(flat.to_pyarrow()["value.amount"]).as_py()
    one = fl.scan(source, "a", value=VALUE, unnest=True, columns=["value.text"], include_headers=True, timestamp_unit="ms")
    assert one.to_pyarrow().column_names == ["value.text"]
    whole = fl.scan(source, "a", value=VALUE, include_headers=True, timestamp_unit="ms")
    assert whole.schema.field("headers").type == fl.scan(source, "a", include_headers=True).schema.field("headers").type
    assert whole.schema.field("timestamp").type == pa.timestamp("ms", "UTC")
    assert fl.scan(source, "empty", value=VALUE).to_pyarrow().schema == fl.scan(source, "a", value=VALUE).schema


@pytest.fixture(scope="module")
def bad() -> fl.Broker:
    broker = fl.Broker.in_memory()
    broker.create_topic("t")
    with fl.Producer(broker) as producer:
        for value in (b'{"amount": 1}', b"{", None, b'{"amount": 4}'):
            producer.send("t", value=value, key=b"k")
    return broker


def test_what_cannot_be_decoded(bad: fl.Broker) -> None:
    scan = fl.scan(bad, "t", value=VALUE, batch_rows=1)
    batches = iter(scan)
    assert next(batches)["value"].to_pylist() == [{"amount": 1, "text": None}]
    for read in (lambda: next(batches), scan.to_pyarrow, scan.to_polars, lambda: list(scan.records())):
        with pytest.raises(RecordDeserializationError, match="t-0 at offset 1"):
            read()
    records = scan.records()
    next(records)
    with pytest.raises(RecordDeserializationError):
        next(records)
    assert next(records).offset == 2
    nulls = fl.scan(bad, "t", value=VALUE, on_error="null")
    assert [one and one["amount"] for one in nulls.to_pyarrow()["value"].to_pylist()] == [1, None, None, 4]
    assert [one.value and one.value["amount"] for one in nulls.records()] == [1, None, None, 4]
    collected = fl.scan(bad, "t", key=serde.String(), value=VALUE, on_error="collect", columns=["value_error", "key"]).to_pyarrow()
    assert collected.column_names == ["value_error", "key"]
    assert [one and one["data"] for one in collected["value_error"].to_pylist()] == [None, b"{", None, None]


def test_what_cannot_be_asked(bad: fl.Broker) -> None:
    for options, said in [
        ({"value": serde.Json()}, "depends on the values"),
        ({"value": VALUE, "columns": ["x"]}, "there is no column 'x'; the columns are key, value"),
        ({"value": VALUE, "columns": []}, "column"),
        ({"value": VALUE, "on_error": "no"}, "on_error is 'no'; expected one of raise, null, collect"),
        ({"on_error": "no"}, "on_error is 'no'"),
        ({"value": VALUE, "timestamp_unit": "s"}, "timestamp_unit is 's'"),
    ]:
        with pytest.raises(InvalidArgumentError, match=said):
            bad.scan("t", **options)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match=r"give value=Json\(\)"):
        bad.scan("t", value=serde.Json)  # type: ignore[arg-type]


def test_an_awaited_scan(address: str, source: fl.Broker | str) -> None:
    async def run() -> pa.Table:
        async with fl.AsyncCluster(address) as cluster:
            scan = await cluster.scan("a", key=serde.String(), value=VALUE)
            return await asyncio.to_thread(scan.to_pyarrow)

    assert asyncio.run(run()) == decoded(source)


def test_a_wide_struct_is_looked_at_once_and_not_for_each_of_its_fields() -> None:
    wide = serde.Json(pa.schema({f"c{number}": pa.int64() for number in range(300)}))

    class Counted:
        asked = 0

        @property
        def type(self) -> pa.DataType:
            self.asked += 1
            return wide.type

        decode = wide.decode

    counted = Counted()
    with fl.Broker.in_memory() as broker:
        broker.create_topic("t")
        with fl.Producer(broker) as producer:
            producer.send_many("t", [b'{"c299": 7}', None])
        found = fl.scan(broker, "t", value=counted, unnest=True).to_pyarrow()
        dataset = fl.scans.dataset(broker, "t", value=counted, unnest=True)
        assert found.column_names[-1] == "timestampType"
        assert found["value.c299"].to_pylist() == [7, None]
        assert dataset.to_table(found.column_names) == found
    assert counted.asked < 30


@pytest.fixture
def many() -> fl.Broker:
    """As many batches as several threads are busy with; the last value is none."""
    broker = fl.Broker.in_memory()
    broker.create_topic("many", partitions=2)
    with fl.Producer(broker) as producer:
        values = serde.Json(pa.int64()).encode(pa.array(range(20_000)))[0]
        partitions = pa.array([number % 2 for number in range(20_000)], pa.int32())
        producer.send_arrow("many", pa.record_batch({"value": values, "partition": partitions}))
    with fl.Producer(broker) as producer:
        producer.send("many", b"x", partition=1)
    return broker


def threads_of(name: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith(name)]


def test_batches_are_decoded_by_several_threads_in_their_order(many: fl.Broker) -> None:
    number = serde.Json(pa.int64())
    expected = [*range(0, 20_000, 2), *range(1, 20_000, 2), None]
    for threads in (1, 2, 5):
        scan = many.scan("many", value=number, on_error="null", batch_rows=100, threads=threads)
        assert scan.to_pyarrow()["value"].to_pylist() == expected
    lazy = fl.scan_topic(many, "many", value=number, on_error="null").select("value").collect()
    assert lazy["value"].to_list() == expected

    failing = iter(many.scan("many", value=number, batch_rows=100, threads=3))
    rows = 0
    with pytest.raises(RecordDeserializationError, match="many-1 at offset 10000"):
        for batch in failing:
            rows += batch.num_rows
    # all batches before the one with the value that is none
    assert rows == 20_000
    assert threads_of("fletchlog-decode") == []


def test_a_scan_that_is_left_ends_its_threads(many: fl.Broker) -> None:
    batches = iter(many.scan("many", value=serde.Json(pa.int64()), batch_rows=10, threads=2))
    assert [next(batches).num_rows for _ in range(5)] == [10] * 5
    while len(threads_of("fletchlog-decode")) < 2:
        # the second one starts when the first is busy and there is more to decode
        assert next(batches).num_rows == 10
    assert len(threads_of("fletchlog-decode")) == 2
    del batches
    assert threads_of("fletchlog-decode") == []


def test_an_object_of_another_make_is_called_by_one_thread(many: fl.Broker) -> None:
    called = set()

    class Mine:
        type = pa.int64()

        def decode(self, column: pa.BinaryArray) -> tuple[pa.Array, dict[int, str]]:
            called.add(threading.get_ident())
            return serde.Json(pa.int64()).decode(column)

    assert len(many.scan("many", value=Mine(), on_error="null", batch_rows=100, threads=4).to_pyarrow()) == 20_001
    assert called == {threading.get_ident()}


def test_no_more_is_read_than_threads_can_decode() -> None:
    read, made = [], []

    def numbers() -> Iterator[int]:
        for number in range(100):
            read.append(number)
            yield number

    results = in_order(lambda number: number * 2, numbers(), 3)
    for number in range(10):
        made.append(next(results))
        assert len(read) <= number + 1 + 4
    results.close()
    assert made == list(range(0, 20, 2))
    assert list(in_order(str, [], 3)) == []
