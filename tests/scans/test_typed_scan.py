"""Typed columns of `fl.scan`, `Broker.scan` and `Cluster.scan`: what decoding the scan of bytes gives, batch by batch, in every way to read a scan."""

from __future__ import annotations

import asyncio

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import fletchlog as fl
from fletchlog import serde
from fletchlog.errors import InvalidArgumentError, RecordDeserializationError

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
