"""Typed columns of every kind of deserializer: a query for some fields gives what decoding everything gives."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

import fletchlog as fl
from fletchlog import serde

F = descriptor_pb2.FieldDescriptorProto
f, c = pc.field, pl.col
ITEM = pa.struct([("n", pa.int64()), ("text", pa.string())])
ORDER = pa.struct([("amount", pa.int64()), ("note", pa.string()), ("item", ITEM), ("items", pa.list_(ITEM))])
AVRO_ITEM = {"type": "record", "name": "Item", "fields": [{"name": "n", "type": ["null", "long"]}, {"name": "text", "type": ["null", "string"]}]}
AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "amount", "type": "long"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "item", "type": ["null", AVRO_ITEM]},
        {"name": "items", "type": {"type": "array", "items": "Item"}},
    ],
}


def message() -> type:
    file = descriptor_pb2.FileDescriptorProto(name="scans.proto", package="scans", syntax="proto3")
    item = file.message_type.add(name="Item")
    item.field.add(name="n", number=1, type=F.TYPE_INT64, label=F.LABEL_OPTIONAL)
    item.field.add(name="text", number=2, type=F.TYPE_STRING, label=F.LABEL_OPTIONAL)
    order = file.message_type.add(name="Order")
    order.field.add(name="amount", number=1, type=F.TYPE_INT64, label=F.LABEL_OPTIONAL)
    order.field.add(name="note", number=2, type=F.TYPE_STRING, label=F.LABEL_OPTIONAL)
    order.field.add(name="item", number=3, type=F.TYPE_MESSAGE, label=F.LABEL_OPTIONAL, type_name=".scans.Item")
    order.field.add(name="items", number=4, type=F.TYPE_MESSAGE, label=F.LABEL_REPEATED, type_name=".scans.Item")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("scans.Order"))


DESERIALIZERS = {
    "json": serde.Json(pa.schema(list(ORDER))),
    "avro": serde.Avro(AVRO),
    "confluent": serde.Confluent({7: AVRO}, schema_id=7, reader_schema=AVRO),
    "protobuf": serde.Protobuf(message()),
    "json schema": serde.JsonSchema({"type": "object"}, serde.Json(pa.schema(list(ORDER)))),
}


def orders(nulls: bool) -> pa.Array:
    rows = [
        {
            "amount": at,
            "note": None if nulls and at % 3 == 0 else f"n{at % 5}",
            "item": None if nulls and at % 4 == 0 else {"n": at * 2, "text": f"t{at}"},
            "items": [{"n": one, "text": "x"} for one in range(at % 3)],
        }
        for at in range(60)
    ]
    return pa.array([None if at % 10 == 9 else row for at, row in enumerate(rows)], ORDER)


@pytest.fixture(scope="module", params=DESERIALIZERS)
def topic(request: pytest.FixtureRequest) -> Iterator[tuple[fl.Broker, serde.Deserializer]]:
    """A topic with values, null values, and some that cannot be decoded (in partition 1)."""
    deserializer = DESERIALIZERS[request.param]
    with fl.Broker.in_memory() as broker, fl.Producer(broker) as producer:
        broker.create_topic("t", partitions=2)
        values = orders(nulls=request.param != "protobuf")
        partition = pa.array([0] * len(values), pa.int32())
        producer.send_arrow("t", serde.serialize(pa.table({"value": values, "partition": partition}), value=deserializer))
        for number in range(3):
            producer.send("t", b"\xff\xff\xff" * number + b"\xff", partition=1)
        producer.flush()
        yield broker, deserializer


PROJECTIONS = [
    {"x": f("value", "amount")},
    {"x": f("value", "item", "n"), "offset": f("offset")},
    {"x": f("value", "item"), "y": f("value", "item", "text")},
    {"x": f("value", "items")},
    ["value"],
    ["offset"],
]
FILTERS = [None, f("value", "amount") > 20, f("value", "item", "n").is_null(), (f("value", "note") == "n1") & (f("offset") < 40), f("offset") >= 30]


def test_some_fields_are_as_all_are(topic) -> None:
    broker, deserializer = topic
    whole = ds.dataset(serde.deserialize(broker.scan("t", 0), value=deserializer))
    dataset = fl.scans.dataset(broker, "t", 0, value=deserializer)
    for projection in PROJECTIONS:
        for kept in FILTERS:
            assert dataset.to_table(projection, kept) == whole.to_table(projection, kept), (projection, kept)


def test_some_columns_are_as_all_are_in_polars_and_duckdb(topic) -> None:
    broker, deserializer = topic
    whole = serde.deserialize(broker.scan("t", 0), value=deserializer)
    expected = [row["value"] and row["value"]["item"] for row in whole.to_pylist()]
    lazy = fl.scan_topic(broker, "t", 0, value=deserializer, unnest=True)
    assert lazy.collect_schema().names()[1:5] == ["value.amount", "value.note", "value.item", "value.items"]
    assert lazy.select("value.item").collect()["value.item"].to_list() == expected
    amounts = [row["value"]["amount"] for row in whole.to_pylist() if row["value"]]
    assert lazy.filter(c("value.amount") > 20).select(c("value.amount").sum()).collect().item() == sum(amount for amount in amounts if amount > 20)
    assert len(whole) == 60
    t = fl.scans.dataset(broker, "t", 0, value=deserializer)
    assert duckdb.sql("select sum(value.item.n) from t where value.amount > 20").fetchall() == [
        (sum(row["item"]["n"] for row in whole["value"].to_pylist() if row and row["amount"] > 20 and row["item"]),)
    ]
    assert t.schema.field("value").type == whole.schema.field("value").type


def test_values_that_cannot_be_decoded_are_null_listed_or_an_error(topic) -> None:
    broker, deserializer = topic
    for columns in (["value.amount"], ["value.amount", "value_error"], ["offset", "value_error"]):
        found = fl.scan_topic(broker, "t", value=deserializer, unnest=True, on_error="collect").filter(c("partition") == 1).select(columns).collect()
        assert found.height == 3
        if "value_error" in columns:
            assert found["value_error"].struct.field("reason").null_count() == 0
    assert (
        fl.scan_topic(broker, "t", 1, value=deserializer, unnest=True, on_error="null").select("value.amount").collect()["value.amount"].to_list() == [None] * 3
    )
    with pytest.raises(fl.errors.RecordDeserializationError, match="value of t-1 at offset 0"):
        fl.scan_topic(broker, "t", value=deserializer).select("value").collect()
    assert fl.scan_topic(broker, "t", value=deserializer).filter(c("partition") == 0).collect().height == 60


def test_headers_are_read_for_a_deserializer_that_looks_into_them(topic) -> None:
    broker, deserializer = topic

    class Looks:
        type = deserializer.type
        decode = staticmethod(deserializer.decode)

        def with_headers(self, column: pa.Array, headers: pa.Array, name: str) -> pa.Array:
            assert len(headers) == len(column)
            assert name == "value"
            return column

    looking = fl.scans.plan(broker, "t", 0, value=Looks(), on_error="null")
    assert looking.typed.decoder(["value", "offset"], {}).needs() == ["headers"]
    assert looking.typed.decoder(["offset"], {}).needs() == []
    expected = fl.scans.dataset(broker, "t", 0, value=deserializer).to_table(["value", "offset"])
    assert fl.scans.TopicDataset(looking).to_table(["value", "offset"]) == expected
