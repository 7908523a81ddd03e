"""`serde.Avro` and `serde.Confluent`: values that fastavro wrote."""

import datetime as dt
import decimal
import io
import json
import pickle
import uuid

import pyarrow as pa
import pytest

import fletchlog as fl
from fletchlog import serde

fastavro = pytest.importorskip("fastavro")

V1 = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"]}]}
V2 = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "double"}, {"name": "city", "type": "string", "default": "?"}],
}


def write(schema, value):
    file = io.BytesIO()
    fastavro.schemaless_writer(file, fastavro.parse_schema(schema), value)
    return file.getvalue()


def framed(schema_id, data):
    return b"\x00" + schema_id.to_bytes(4, "big") + data


def column(*values):
    return pa.array(values, pa.binary())


EVERYTHING = {
    "type": "record",
    "name": "ns.All",
    "fields": [
        {"name": "b", "type": "boolean"},
        {"name": "i", "type": "int"},
        {"name": "l", "type": "long"},
        {"name": "f", "type": "float"},
        {"name": "d", "type": "double"},
        {"name": "y", "type": "bytes"},
        {"name": "s", "type": "string"},
        {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"]}},
        {"name": "e2", "type": "ns.E"},
        {"name": "x", "type": {"type": "fixed", "name": "X", "size": 3}},
        {"name": "a", "type": {"type": "array", "items": ["null", "int"]}},
        {"name": "m", "type": {"type": "map", "values": "long"}},
        {"name": "r", "type": ["null", {"type": "record", "name": "R", "fields": [{"name": "k", "type": "int"}]}]},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "ms", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "us", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
        {"name": "time", "type": {"type": "int", "logicalType": "time-millis"}},
        {"name": "money", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "uid", "type": {"type": "string", "logicalType": "uuid"}},
    ],
}
INSTANT = dt.datetime(2024, 5, 6, 7, 8, 9, 123000, tzinfo=dt.UTC)
UID = uuid.UUID(int=5)
VALUE = {
    "b": True, "i": -1, "l": 2**40, "f": 0.5, "d": -0.25, "y": b"\x00\xff", "s": "é", "e": "B", "e2": "A", "x": b"abc", "a": [1, None],
    "m": {"k": 3}, "r": {"k": 4}, "day": dt.date(2024, 5, 6), "ms": INSTANT, "us": INSTANT, "local": INSTANT.replace(tzinfo=None),
    "time": dt.time(1, 2, 3), "money": decimal.Decimal("12.34"), "uid": UID,
}  # fmt: skip


def test_every_avro_type_has_its_arrow_type():
    avro = serde.Avro(json.dumps(EVERYTHING))
    decoded, reasons = avro.decode(column(write(EVERYTHING, VALUE), None))
    assert reasons == {}
    assert decoded.type == avro.type
    assert decoded.to_pylist() == [VALUE | {"m": [("k", 3)], "uid": str(UID)}, None]
    types = {field.name: field.type for field in avro.type}
    assert types["money"] == pa.decimal128(9, 2)
    assert types["ms"] == pa.timestamp("ms", "UTC")
    assert types["x"] == pa.binary(3)
    assert types["a"] == pa.list_(pa.int32())


def test_a_reader_schema_resolves_promotions_removed_and_added_fields():
    decoded, reasons = serde.Avro(V1, V2).decode(column(write(V1, {"id": 7, "note": "n"})))
    assert (decoded.to_pylist(), reasons) == ([{"id": 7.0, "city": "?"}], {})


@pytest.mark.parametrize("bad", [b"", b"\x02", b"\xff" * 20, write(V1, {"id": 1, "note": None}) + b"\x00", b"\x02\x02\x01x", b"\x02\x02\xfe\xff\xff\xff\x0fx"])
def test_malformed_bytes_are_named_and_their_neighbours_kept(bad):
    good = write(V1, {"id": 1, "note": None})
    decoded, reasons = serde.Avro(V1).decode(column(good, bad, good))
    assert [row and row["id"] for row in decoded.to_pylist()] == [1, None, 1]
    assert list(reasons) == [1]
    assert reasons[1].startswith("not Avro of this schema: ")


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ("{", "not an Avro schema"),
        ('"Unknown"', "not an Avro schema"),
        (17, "not an Avro schema"),
        (["int", "string"], "union ['int', 'string'] at the top"),
        ({"type": "record", "name": "N", "fields": [{"name": "next", "type": ["null", "N"]}]}, "type N at /next contains itself"),
    ],
)
def test_a_schema_that_cannot_work_fails_at_once(schema, text):
    with pytest.raises(fl.errors.InvalidArgumentError) as caught:
        serde.Avro(schema)
    assert text in str(caught.value)


def long(number):
    file = io.BytesIO()
    fastavro.schemaless_writer(file, "long", number)
    return file.getvalue()


NOTHING = {"type": "record", "name": "Nothing", "fields": [{"name": "n", "type": "null"}]}


@pytest.mark.parametrize("item", ["null", NOTHING, {"type": "fixed", "name": "F", "size": 0}])
@pytest.mark.parametrize("count", [2**33, -(2**33)])
def test_items_of_no_bytes_are_limited_before_they_are_made(item, count):
    size = long(0) if count < 0 else b""
    few, many = (long(number) + size + long(0) for number in (1000 if count > 0 else -1000, count))
    for schema, before in [
        ({"type": "array", "items": item}, b""),
        ({"type": "record", "name": "R", "fields": [{"name": "a", "type": ["null", {"type": "array", "items": item}]}]}, long(1)),
    ]:
        decoded, reasons = serde.Avro(schema).decode(column(before + few, before + many))
        assert reasons == {1: "not read: its arrays have more than 1,000 items that take no bytes"}
        assert decoded[1].as_py() is None
        assert decoded[0].is_valid
        # a field that is only skipped
        reader = {"type": "record", "name": "R", "fields": [{"name": "other", "type": "int", "default": 5}]}
        if before:
            assert serde.Avro(schema, reader).decode(column(before + many, before + few))[1].keys() == {0}


def test_a_value_cannot_be_nested_deeper_than_the_stack():
    writer = {"type": "record", "name": "L", "fields": [{"name": "x", "type": "int"}, {"name": "next", "type": ["null", "L"]}]}
    reader = {"type": "record", "name": "L", "fields": [{"name": "x", "type": "int"}]}
    flat, deep = (b"\x02\x02" * links + b"\x02\x00" for links in (10, 2_000_000))
    decoded, reasons = serde.Avro(writer, reader).decode(column(flat, deep, flat))
    assert decoded.to_pylist() == [{"x": 1}, None, {"x": 1}]
    assert reasons == {1: "not read: it is nested more than 128 levels deep"}


def doubling(types, leaf):
    schema = {"type": "record", "name": f"R{types}", "fields": [{"name": "x", "type": leaf}]}
    for number in range(types - 1, -1, -1):
        schema = {"type": "record", "name": f"R{number}", "fields": [{"name": "a", "type": schema}, {"name": "b", "type": f"R{number + 1}"}]}
    return schema


@pytest.mark.parametrize("leaf", ["int", "null"])
def test_a_schema_may_not_multiply_itself(leaf):
    assert serde.Avro(doubling(10, leaf)).type.num_fields == 2
    for given in [(doubling(40, leaf),), ("int", doubling(40, leaf)), (doubling(40, leaf), "int"), ({"type": "array", "items": doubling(40, leaf)},)]:
        with pytest.raises(fl.errors.InvalidArgumentError, match=r"has [0-9,]+ types once"):
            serde.Avro(*given)


def test_a_schema_may_not_be_nested_without_end():
    for depth in (500, 100_000):
        schema = "int"
        for _ in range(depth):
            schema = {"type": "array", "items": schema}
        with pytest.raises(fl.errors.InvalidArgumentError, match="nested too deep"):
            serde.Avro(schema)
        with pytest.raises(fl.errors.InvalidArgumentError, match="nested too deep"):
            serde.Avro('{"type":"array","items":' * depth + '"int"' + "}" * depth)


@pytest.mark.parametrize("schema", [{"type": "bytes", "logicalType": "decimal", "precision": 100}, {"type": "fixed", "name": "F", "size": 2**40}])
def test_a_type_that_arrow_cannot_have_is_named(schema):
    with pytest.raises(fl.errors.InvalidArgumentError, match="Arrow"):
        serde.Avro(schema)


def test_confluent_values_are_grouped_by_schema_and_come_back_in_their_rows():
    values = column(
        framed(1, write(V1, {"id": 1, "note": "a"})),
        framed(2, write(V2, {"id": 2.5, "city": "c"})),
        None,
        framed(1, write(V1, {"id": 3, "note": None})),
        b"",
        b"{}",
        b"\x01\x00\x00\x00\x01\x02",
        framed(9, b"\x02"),
        framed(1, b"\x02"),
    )
    confluent = serde.Confluent({1: V1, 2: json.dumps(V2)}, reader_schema=V2)
    decoded, reasons = confluent.decode(values)
    assert decoded.type == confluent.type
    assert decoded.to_pylist()[:4] == [{"id": 1.0, "city": "?"}, {"id": 2.5, "city": "c"}, None, {"id": 3.0, "city": "?"}]
    assert decoded.to_pylist()[4:] == [None] * 5
    assert sorted(reasons) == [4, 5, 6, 7, 8]
    assert reasons[4].endswith("it begins with nothing")
    assert reasons[5].endswith("it begins with 7b7d")
    assert reasons[7] == "schema id 9 is unknown"
    assert reasons[8].startswith("not Avro of this schema")


def test_a_callable_is_asked_once_per_schema_and_its_failures_are_not_bad_data():
    asked = []

    def lookup(schema_id):
        asked.append(schema_id)
        if schema_id == 3:
            raise ConnectionError("registry is down")
        return {1: V1}[schema_id]

    confluent = serde.Confluent(lookup)
    value = framed(1, write(V1, {"id": 1, "note": None}))
    for _ in range(2):
        assert confluent.decode(column(value, value))[0].to_pylist() == [{"id": 1, "note": None}] * 2
    assert asked == [1]
    # an id that is unknown stays so for this object
    for _ in range(2):
        assert confluent.decode(column(framed(2, b""), framed(2, b"")))[1].keys() == {0, 1}
    assert asked == [1, 2]
    assert serde.Confluent(lookup).decode(column(framed(2, b"")))[1] == {0: "schema id 2 is unknown"}
    assert asked == [1, 2, 2]
    with pytest.raises(ConnectionError):
        confluent.decode(column(framed(3, b"")))


def test_confluent_can_frame_json_too():
    numbers = serde.Json(pa.int64())
    decoded, reasons = serde.Confluent(lambda _: numbers).decode(column(framed(1, b"5"), framed(2, b"x"), framed(-1 & 0xFFFFFFFF, b"6")))
    assert decoded.to_pylist() == [5, None, 6]
    assert list(reasons) == [1]


def test_schemas_of_different_types_need_a_reader_schema():
    values = column(framed(1, write(V1, {"id": 1, "note": None})), framed(2, write(V2, {"id": 2.5, "city": "c"})))
    with pytest.raises(fl.errors.InvalidArgumentError, match="schema ids 1 and 2 give different types"):
        serde.Confluent({1: V1, 2: V2}).decode(values)


def test_deserializers_survive_pickling_before_and_after_use():
    value = write(V1, {"id": 1, "note": None})
    for deserializer, data in [(serde.Avro(V1, V2), value), (serde.Confluent({1: V1}, V2), framed(1, value))]:
        for _ in range(2):
            again = pickle.loads(pickle.dumps(deserializer))
            assert again.decode(column(data))[0].to_pylist() == [{"id": 1.0, "city": "?"}]
            deserializer.decode(column(data))
