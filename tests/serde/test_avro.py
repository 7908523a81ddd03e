"""`serde.Avro` and `serde.Confluent`: values that fastavro wrote."""

import datetime as dt
import decimal
import io
import json
import pickle
import subprocess
import sys
import uuid

import numpy as np
import pyarrow as pa
import pytest

import fletchlog as fl
from fletchlog import serde
from fletchlog.serde import avro_files

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


@pytest.mark.parametrize(
    "bad", [b"", b"\x02", b"\xff" * 20, write(V1, {"id": 1, "note": None}) + b"\x00", b"\x02\x02\x01x", b"\x02\x02\x02\xff", b"\x02\x02\xfe\xff\xff\xff\x0fx"]
)
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
        (["int", ["string"]], "a union has a union as a branch"),
        (["int", "null", "int"], "two branches of the type int"),
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


def test_a_type_that_arrow_cannot_have_is_named():
    with pytest.raises(fl.errors.InvalidArgumentError, match="Arrow"):
        serde.Avro({"type": "fixed", "name": "F", "size": 2**40})


@pytest.mark.parametrize(
    "annotation",
    [
        {"logicalType": "decimal"},
        {"logicalType": "decimal", "precision": "5"},
        {"logicalType": "decimal", "precision": 0},
        {"logicalType": "decimal", "precision": -1},
        {"logicalType": "decimal", "precision": True},
        {"logicalType": "decimal", "precision": 5.0},
        {"logicalType": "decimal", "precision": 64, "scale": 127},
        {"logicalType": "decimal", "precision": 5, "scale": -1},
        {"logicalType": "decimal", "precision": 5, "scale": "2"},
        {"logicalType": "decimal", "precision": 77},
        {"logicalType": "timestamp-millis"},
        {"logicalType": "unheard-of"},
        {"logicalType": ["x"]},
        {"logicalType": None},
        {"logicalType": {"type": "decimal"}},
    ],
)
def test_an_annotation_that_is_not_valid_is_ignored(annotation):
    in_record = {"type": "record", "name": "R", "fields": [{"name": "a", "type": ["null", {"type": "bytes"} | annotation]}, {"name": "b", "type": "int"}]}
    fixed = {"type": "fixed", "name": "F", "size": 2} | annotation
    for schema, value in [({"type": "bytes"} | annotation, b"\x05"), (in_record, {"a": b"\x05", "b": 1}), (fixed, b"\x00\x05")]:
        plain = json.loads(json.dumps(schema).replace('"logicalType"', '"note"'))
        avro = serde.Avro(schema)
        assert avro.type == serde.Avro(plain).type
        data = write(plain, value)
        assert avro.decode(column(data)) == (pa.array([value], avro.type), {})
        assert avro(value) == data


@pytest.mark.parametrize("annotation", [{"precision": 64, "scale": 127}, {}, {"precision": "5"}, {"precision": 100}])
@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_a_file_whose_annotation_is_not_valid_is_read(annotation, codec):
    # fastavro writes no such file, so the name is put right afterwards
    fields = [
        {"name": "d", "type": {"type": "bytes", "logicalTypo": "decimal"} | annotation},
        {"name": "t", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ]
    file = io.BytesIO()
    rows = [{"d": bytes([n % 256]) * n, "t": INSTANT} for n in range(1000)]
    fastavro.writer(file, {"type": "record", "name": "R", "fields": fields}, rows, codec=codec)
    assert list(avro_files.records(io.BytesIO(file.getvalue().replace(b"logicalTypo", b"logicalType", 1)))) == rows


def test_the_records_of_a_file_are_pythons_objects_where_python_has_them():
    file = io.BytesIO()
    rows = [VALUE, VALUE | {"day": 2932897, "ms": 253402300800000, "us": -(2**63), "local": 253402300800000000}]
    fastavro.writer(file, EVERYTHING, rows)
    file.seek(0)
    first, second = avro_files.records(file)
    assert first == VALUE | {"uid": str(UID)}
    texts = {"day": "+10000-01-01", "ms": "+10000-01-01T00:00:00Z", "us": "-290308-12-21T19:59:05.224192Z", "local": "+10000-01-01T00:00:00"}
    assert second == first | texts
    assert texts["us"] == f"{np.datetime64(-(2**63) + 1, 'us')}".replace("193", "192") + "Z"


def test_a_fixed_decimal_has_as_many_digits_as_its_size_holds():
    for precision, arrow_type in [(4, pa.decimal128(4, 0)), (5, pa.binary(2))]:
        assert serde.Avro({"type": "fixed", "name": "F", "size": 2, "logicalType": "decimal", "precision": precision}).type == arrow_type


def test_a_decimal_of_too_many_digits_is_malformed_and_nothing_is_rounded():
    avro = serde.Avro({"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2})
    values = [99_999, 100_000, -99_999, -100_000, 0, 2**70_000]
    data = [long(len(raw)) + raw for raw in (value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True) for value in values)]
    decoded, reasons = avro.decode(column(*data))
    assert decoded.to_pylist() == [decimal.Decimal("999.99"), None, decimal.Decimal("-999.99"), None, decimal.Decimal(0), None]
    assert reasons == {
        1: "it has a decimal of 6 digits, the type has a precision of 5",
        3: "it has a decimal of 6 digits, the type has a precision of 5",
        5: "it has a decimal of 8751 bytes, the type has a precision of 5",
    }


DEFAULTS = {
    "null": (["null", "int"], None, None),
    "boolean": ("boolean", True, True),
    "int": ("int", -5, -5),
    "long": ("long", 2**62, 2**62),
    "float": ("float", 1, 1.0),
    "double": ("double", 0.5, 0.5),
    "infinity": ("float", "-Infinity", float("-inf")),
    "bytes": ("bytes", "\u00ff\u0000a", b"\xff\x00a"),
    "empty bytes": ("bytes", "", b""),
    "string": ("string", "\u00ff", "\u00ff"),
    "fixed": ({"type": "fixed", "name": "F2", "size": 2}, "\u00ff\u0000", b"\xff\x00"),
    "enum": ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", "B"),
    "decimal": ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, "\u0004\u00d2", decimal.Decimal("12.34")),
    "zero": ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, "\u0000", decimal.Decimal("0.00")),
    "fixed decimal": ({"type": "fixed", "name": "D", "size": 3, "logicalType": "decimal", "precision": 4}, "\u00ff\u00ff\u00fe", decimal.Decimal(-2)),
    "duration": ({"type": "fixed", "name": "U", "size": 12, "logicalType": "duration"}, "\u0001" * 12, b"\x01" * 12),
    "uuid": ({"type": "string", "logicalType": "uuid"}, str(UID), str(UID)),
    "date": ({"type": "int", "logicalType": "date"}, 1, dt.date(1970, 1, 2)),
    "time": ({"type": "int", "logicalType": "time-millis"}, 1000, dt.time(0, 0, 1)),
    "time us": ({"type": "long", "logicalType": "time-micros"}, 5, dt.time(0, 0, 0, 5)),
    "timestamp": ({"type": "long", "logicalType": "timestamp-millis"}, 0, dt.datetime(1970, 1, 1, tzinfo=dt.UTC)),
    "local": ({"type": "long", "logicalType": "local-timestamp-micros"}, -1_000_000, dt.datetime(1969, 12, 31, 23, 59, 59, tzinfo=dt.UTC).replace(tzinfo=None)),
    "array": ({"type": "array", "items": "bytes"}, ["\u00ff", ""], [b"\xff", b""]),
    "map": ({"type": "map", "values": "bytes"}, {"k": "\u00ff"}, [("k", b"\xff")]),
    "decimals": ({"type": "array", "items": {"type": "bytes", "logicalType": "decimal", "precision": 4}}, ["\u0005"], [decimal.Decimal(5)]),
    "union": (["bytes", "null"], "\u00ff", b"\xff"),
    "a later branch": (["null", "bytes"], "\u00ff", b"\xff"),
    "record": (
        {"type": "record", "name": "In", "fields": [{"name": "y", "type": "bytes"}, {"name": "z", "type": ["null", "bytes"], "default": None}, {"name": "f", "type": "bytes", "default": "\u0080"}]},
        {"y": "\u00ff"},
        {"y": b"\xff", "z": None, "f": b"\x80"},
    ),
    "records": ({"type": "array", "items": {"type": "record", "name": "In", "fields": [{"name": "y", "type": "bytes"}]}}, [{"y": "\u00ff"}], [{"y": b"\xff"}]),
}  # fmt: skip


@pytest.mark.parametrize("name", DEFAULTS)
def test_a_default_is_a_value_of_its_type(name):
    kind, default, value = DEFAULTS[name]
    writer = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
    reader = {"type": "record", "name": "R", "fields": [{"name": "d", "type": kind, "default": default}, {"name": "a", "type": "int"}]}
    for given in (reader, json.dumps(reader), fastavro.parse_schema(reader)):
        decoded, reasons = serde.Avro(writer, given).decode(column(write(writer, {"a": 1}), None))
        assert (decoded.to_pylist(), reasons) == ([{"d": value, "a": 1}, None], {})
    # inside of what is read
    outer = [{"type": "record", "name": "O", "fields": [{"name": "r", "type": {"type": "array", "items": record}}]} for record in (writer, reader)]
    decoded, reasons = serde.Avro(*outer).decode(column(write(outer[0], {"r": [{"a": 1}]})))
    assert (decoded.to_pylist(), reasons) == ([{"r": [{"d": value, "a": 1}]}], {})


@pytest.mark.parametrize(
    ("kind", "default", "text"),
    [
        ("int", "x", '"x" is no int'),
        ("int", 2**31, "2147483648 is no int"),
        ("int", True, "true is no int"),
        ("long", 1.5, "1.5 is no long"),
        ("boolean", 0, "0 is no boolean"),
        ("double", "x", '"x" is no double'),
        ("bytes", 5, "5 is no bytes"),
        ("bytes", "\u0100", "has characters above U"),
        ({"type": "fixed", "name": "F", "size": 2}, "a", '"a" is 1 bytes, the fixed type has 2'),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "B", '"B" is no enum'),
        (["null", "int"], "x", '"x" is of no branch of the union'),
        ({"type": "array", "items": "int"}, ["x"], '"x" is no int'),
        ({"type": "record", "name": "In", "fields": [{"name": "y", "type": "int"}]}, {}, "{} lacks the field y"),
        ({"type": "int", "logicalType": "time-millis"}, 86_400_000, "not within the acceptable range"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 1}, "\u0064", "a decimal of 3 digits"),
    ],
)
def test_a_default_of_the_reader_that_is_not_of_its_type_fails_at_once(kind, default, text):
    writer, reader = ({"type": "record", "name": "R", "fields": [{"name": "d", "type": kind} | more]} for more in ({}, {"default": default}))
    with pytest.raises(fl.errors.InvalidArgumentError, match=text) as caught:
        serde.Avro(writer, reader)
    assert "default at R.d" in str(caught.value)
    # a writer's is not used
    assert serde.Avro(reader).type == serde.Avro(writer).type


DAY = 24 * 60 * 60


@pytest.mark.parametrize(
    ("kind", "annotation", "arrow_type", "numbers"),
    [
        ("int", "date", pa.date32(), [-(2**31), 2**31 - 1, 2932897, -719163]),
        ("long", "timestamp-millis", pa.timestamp("ms", "UTC"), [-(2**63), 2**63 - 1, 2932897 * DAY * 10**3, -719163 * DAY * 10**3]),
        ("long", "timestamp-micros", pa.timestamp("us", "UTC"), [-(2**63), 2**63 - 1, 2932897 * DAY * 10**6, -719163 * DAY * 10**6]),
        ("long", "timestamp-nanos", pa.timestamp("ns", "UTC"), [-(2**63), 2**63 - 1, 1]),
        ("long", "local-timestamp-millis", pa.timestamp("ms"), [-(2**63), 2**63 - 1, 2932897 * DAY * 10**3]),
        ("long", "local-timestamp-micros", pa.timestamp("us"), [-(2**63), 2**63 - 1]),
        ("long", "local-timestamp-nanos", pa.timestamp("ns"), [-(2**63), 2**63 - 1]),
        ("int", "time-millis", pa.time32("ms"), [0, DAY * 10**3 - 1]),
        ("long", "time-micros", pa.time64("us"), [0, DAY * 10**6 - 1]),
    ],
)
def test_times_are_whatever_their_numbers_can_be(kind, annotation, arrow_type, numbers):
    annotated = {"type": kind, "logicalType": annotation}
    for schema, nested in [
        (annotated, lambda number: number),
        ({"type": "array", "items": ["null", annotated]}, lambda number: [number, None]),
        ({"type": "map", "values": annotated}, lambda number: {"k": number}),
        ({"type": "record", "name": "R", "fields": [{"name": "t", "type": annotated}]}, lambda number: {"t": number}),
    ]:
        plain = json.loads(json.dumps(schema).replace('"logicalType"', '"note"'))
        data = [write(plain, nested(number)) for number in numbers]
        avro = serde.Avro(schema)
        decoded, reasons = avro.decode(column(*data, None))
        assert reasons == {}
        decoded.validate(full=True)
        assert decoded == pa.array([*map(nested, numbers), None], serde.Avro(plain).type).cast(avro.type)
        assert avro.encode(decoded)[0].to_pylist() == [*data, None]
    assert serde.Avro(annotated).type == arrow_type


def decimal_type(precision, scale, size=None):
    kind = {"type": "bytes"} if size is None else {"type": "fixed", "name": "D", "size": size}
    return kind | {"logicalType": "decimal", "precision": precision, "scale": scale}


def time_type(kind, annotation):
    return {"type": kind, "logicalType": annotation}


@pytest.mark.parametrize(
    ("writer", "reader", "value", "result"),
    [
        (time_type("long", "timestamp-millis"), time_type("long", "timestamp-micros"), -5, -5000),
        (time_type("long", "timestamp-micros"), time_type("long", "timestamp-millis"), -5000, -5),
        (time_type("long", "timestamp-micros"), time_type("long", "timestamp-millis"), 1500, "the timestamp-micros 1500 is between two of timestamp-millis"),
        (time_type("long", "local-timestamp-nanos"), time_type("long", "timestamp-micros"), 7000, 7),
        (time_type("long", "timestamp-millis"), time_type("long", "timestamp-nanos"), 2**62, "too large"),
        (time_type("int", "date"), time_type("long", "timestamp-millis"), 2, 2 * 86_400_000),
        (time_type("int", "time-millis"), time_type("long", "time-micros"), 5, 5000),
        (time_type("int", "time-millis"), time_type("long", "timestamp-micros"), 5, "a time-millis is no timestamp-micros"),
        (time_type("long", "timestamp-millis"), "long", 5, 5),
        (time_type("long", "timestamp-millis"), "double", 5, 5.0),
        ("long", time_type("long", "timestamp-millis"), 5, 5),
        ("int", time_type("long", "timestamp-millis"), 5, 5),
        (decimal_type(9, 2), decimal_type(12, 4), b"\x04\xd2", decimal.Decimal("12.3400")),
        (decimal_type(9, 2), decimal_type(9, 1), b"\x04\xce", decimal.Decimal("12.3")),
        (decimal_type(9, 2), decimal_type(9, 1), b"\x04\xd2", "a decimal has more than the 1 places of the reader schema"),
        (decimal_type(9, 2), decimal_type(3, 2), b"\x04\xd2", "a decimal of 4 digits, the type has a precision of 3"),
        (decimal_type(4, 2, 3), decimal_type(4, 0, 3), b"\xff\xff\x9c", decimal.Decimal(-1)),
        (decimal_type(4, 0, 3), decimal_type(6, 4, 3), b"\x7f\xff\xff", "a decimal has more digits than the 3 bytes of the reader schema hold"),
        (decimal_type(9, 2), "bytes", b"\x04\xd2", b"\x04\xd2"),
        (decimal_type(9, 2), "string", b"ab", "ab"),
        ("bytes", decimal_type(9, 2), b"\x04\xd2", decimal.Decimal("12.34")),
    ],
)
def test_a_reader_schema_of_another_unit_or_scale_gets_the_same_value(writer, reader, value, result):
    for outer in (
        lambda kind: kind,
        lambda kind: {"type": "array", "items": ["null", kind]},
        lambda kind: {"type": "record", "name": "R", "fields": [{"name": "f", "type": kind}, {"name": "m", "type": {"type": "map", "values": "int"}}]},
    ):
        made = value if outer(1) == 1 else [value] if "items" in outer(1) else {"f": value, "m": {}}
        data = write(json.loads(json.dumps(outer(writer)).replace('"logicalType"', '"note"')), made)
        avro = serde.Avro(outer(writer), outer(reader))
        decoded, reasons = avro.decode(column(data))
        if isinstance(result, str) and result != "ab":
            assert list(reasons) == [0]
            assert result in reasons[0]
            continue
        assert reasons == {}
        inner = decoded if decoded.type == serde.Avro(reader).type else decoded.flatten() if pa.types.is_list(decoded.type) else decoded.field("f")
        assert (inner.cast(pa.int64()) if pa.types.is_temporal(inner.type) else inner).to_pylist() == [result]
        # what has the writer's type is read as it was
        assert serde.Avro(outer(writer), outer(writer)).decode(column(data)) == serde.Avro(outer(writer)).decode(column(data))


def record(name, *fields, **more):
    return {"type": "record", "name": name, "fields": list(fields)} | more


def fixed(name, size):
    return {"type": "fixed", "name": name, "size": size}


def enum(name, *symbols):
    return {"type": "enum", "name": name, "symbols": list(symbols)}


A_INT, A_STRING = {"name": "a", "type": "int"}, {"name": "a", "type": "string"}


@pytest.mark.parametrize(
    ("writer", "reader", "reason"),
    [
        ("string", "int", "string is read as int"),
        ("long", "int", "long is read as int"),
        ("double", "float", "double is read as float"),
        (record("R", A_INT), record("R", {"name": "b", "type": "int"}), "the field /b is not in the schema, and has no default in the reader_schema"),
        (record("R", A_STRING), record("R", A_INT), "string at /a is read as int"),
        (record("R", A_INT), record("Q", A_INT), "record R is read as record Q, which has no such alias"),
        (fixed("F", 2), fixed("F", 3), "fixed F has 2 bytes in the schema and 3 in the reader_schema"),
        (enum("E", "A"), enum("D", "A"), "enum E is read as enum D"),
        ({"type": "array", "items": "string"}, {"type": "array", "items": "int"}, "string at /items is read as int"),
        ({"type": "map", "values": "int"}, {"type": "array", "items": "int"}, "map is read as array"),
        (["null", "string"], "int", "string is read as int"),
        ("string", ["null", "int"], "string is read as int"),
        (
            record("O", {"name": "r", "type": record("R", A_STRING)}),
            record("O", {"name": "r", "type": ["null", record("R", A_INT)]}),
            "string at /r/a is read as int",
        ),
    ],
)
def test_schemas_that_never_resolve_are_refused_at_once(writer, reader, reason):
    with pytest.raises(fl.errors.InvalidArgumentError, match="no value of the Avro schema can be read by the reader_schema: ") as caught:
        serde.Avro(writer, reader)
    assert reason in str(caught.value)
    # one schema of many is the fault of its values only
    decoded, reasons = serde.Confluent({1: writer, 2: reader}, reader).decode(column(framed(1, b""), framed(2, write(reader, sample(reader)))))
    assert list(reasons) == [0]
    assert reason in reasons[0]
    assert decoded.is_valid().to_pylist() == [False, True]


def sample(schema):
    """A value of a schema."""
    if isinstance(schema, list):
        return sample(schema[-1])
    if not isinstance(schema, dict):
        return 1
    kinds = {"array": [], "map": {}, "enum": schema.get("symbols", [None])[0], "fixed": bytes(schema.get("size", 0))}
    return kinds[schema["type"]] if schema["type"] in kinds else {field["name"]: sample(field["type"]) for field in schema["fields"]}


@pytest.mark.parametrize(
    ("writer", "reader", "value", "result"),
    [
        ("int", "double", 1, 1.0),
        ("bytes", "string", b"x", "x"),
        ("string", "bytes", "x", b"x"),
        (["string", "int"], "long", 5, 5),
        ("int", ["null", "long"], 5, 5),
        (record("x.R", A_INT), record("y.R", {"name": "b", "type": "long", "aliases": ["a"]}), {"a": 1}, {"b": 1}),
        (record("x.R", A_INT), record("Q", A_INT, aliases=["x.R"]), {"a": 1}, {"a": 1}),
        (record("R", A_INT), record("R"), {"a": 1}, {}),
        (record("R"), record("R", A_INT | {"default": 7}), {}, {"a": 7}),
        (record("R"), record("R", {"name": "n", "type": ["null", "R2"], "default": None}), {}, None),
        (enum("E", "A", "B"), enum("E", "A", "C"), "A", "A"),
        (record("L", A_INT, {"name": "next", "type": ["null", "L"]}), record("L", A_INT), {"a": 1, "next": {"a": 2, "next": None}}, {"a": 1}),
    ],
)
def test_schemas_that_resolve_are_not_refused(writer, reader, value, result):
    if result is None:
        reader["fields"][0]["type"][1] = record("R2", A_INT)
        result = {"n": None}
    assert serde.Avro(writer, reader).decode(column(write(writer, value))) == (pa.array([result], serde.Avro(reader).type), {})


def test_in_another_process_units_are_converted_as_well():
    avro = serde.Avro(time_type("long", "timestamp-millis"), time_type("long", "timestamp-micros"))
    data = column(long(5))
    assert avro.decode(data)[0].cast(pa.int64()).to_pylist() == [5000]
    code = "import pickle, sys; avro, data = pickle.load(sys.stdin.buffer); print(avro.decode(data)[0].cast('int64').to_pylist())"
    done = subprocess.run([sys.executable, "-c", code], input=pickle.dumps((avro, data)), capture_output=True, check=True)
    assert done.stdout.split() == [b"[5000]"]


def test_a_time_beyond_the_end_of_the_day_is_malformed():
    for kind, annotation, number in [("int", "time-millis", DAY * 10**3), ("long", "time-micros", DAY * 10**6), ("int", "time-millis", -1)]:
        decoded, reasons = serde.Avro({"type": kind, "logicalType": annotation}).decode(column(long(number), long(1)))
        assert (decoded.is_valid().to_pylist(), list(reasons)) == ([False, True], [0])
        assert "not within the acceptable range" in reasons[0]


def test_a_field_that_the_column_lacks_is_written_with_its_default():
    kinds = [DEFAULTS[name] for name in ("bytes", "fixed", "decimal", "timestamp", "record")]
    fields = [{"name": f"d{number}", "type": kind, "default": default} for number, (kind, default, _) in enumerate(kinds)]
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}, *fields]}
    for writer in (schema, schema | {"fields": [*schema["fields"], {"name": "u", "type": ["int", "string"], "default": 7}]}):
        reader = schema if writer is schema else writer | {"fields": writer["fields"][:-1]}
        avro = serde.Avro(writer, reader)
        made, reasons = avro.encode(pa.array([{"a": 1}]))
        assert reasons == {}
        assert avro.decode(made)[0].to_pylist() == [{"a": 1} | {f"d{number}": value for number, (_, _, value) in enumerate(kinds)}]
    made, reasons = serde.Avro(V1).encode(pa.array([{"note": "x"}]))
    assert (made.to_pylist(), reasons) == ([None], {0: "there is no value and no default for /id"})


def test_a_null_of_a_type_without_null_is_written_as_the_default_of_its_field():
    inner = {"type": "record", "name": "I", "fields": [{"name": "q", "type": "int", "default": 7}]}
    fields = [
        {"name": "id", "type": "long"},
        {"name": "tags", "type": {"type": "array", "items": "string"}, "default": ["x"]},
        {"name": "inner", "type": inner, "default": {}},
        {"name": "of", "type": ["int", "string"], "default": 5},
        {"name": "open", "type": ["string", "null"], "default": "null stays null"},
    ]
    avro = serde.Avro({"type": "record", "name": "R", "fields": fields})
    parsed = fastavro.parse_schema(avro.schema)
    full = {"id": 2, "tags": ["y"], "inner": {"q": 1}, "of": {"int": 3, "string": None}, "open": "z"}
    for given in ({"id": 1}, {"id": 1, "inner": {}}, {"id": 1, "tags": [], "inner": {"q": None}}):
        # as fastavro writes what the object lacks, but for the union that has a null
        file = io.BytesIO()
        fastavro.schemaless_writer(file, parsed, {"open": None} | {name: value for name, value in given.items() if value != {"q": None}})
        assert avro(given) == file.getvalue()
        made, reasons = avro.encode(pa.array([given, full], avro.type))
        assert (made[0].as_py(), reasons) == (file.getvalue(), {})
        assert avro.of_bytes(made[1].as_py()) == full
    assert avro.encode(pa.array([{"tags": []}], avro.type))[1] == {0: "there is no value at /id, and the type long has no null"}


def test_a_column_of_another_unit_is_cast_and_a_row_that_loses_by_it_is_named():
    avro = serde.Avro({"type": "long", "logicalType": "timestamp-millis"})
    made, reasons = avro.encode(pa.array([1_000_000, 1_500, None], pa.timestamp("us")))
    assert made.to_pylist() == [long(1000), None, None]
    assert list(reasons) == [1]
    assert "would lose data" in reasons[1]


def test_named_types_of_another_parsed_schema_are_known():
    names = {}
    fastavro.parse_schema({"type": "record", "name": "P", "fields": [{"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}}]}, names)
    schema = fastavro.parse_schema({"type": "record", "name": "Q", "fields": [{"name": "p", "type": "P"}]}, names)
    file = io.BytesIO()
    fastavro.schemaless_writer(file, schema, {"p": {"at": INSTANT}})
    assert serde.Avro(schema).decode(column(file.getvalue()))[0].to_pylist() == [{"p": {"at": INSTANT}}]


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


def test_an_id_for_which_there_is_none_is_unknown():
    value, other = framed(1, write(V1, {"id": 1, "note": None})), framed(9, b"\x02")
    for schemas in ({1: V1}.get, {1: V1}, lambda schema_id: V1 if schema_id == 1 else None):
        decoded, reasons = serde.Confluent(schemas).decode(column(value, other))
        assert decoded.to_pylist() == [{"id": 1, "note": None}, None]
        assert reasons == {1: "schema id 9 is unknown"}
        with pytest.raises(fl.errors.InvalidArgumentError, match="schema id 9 is unknown"):
            serde.Confluent(schemas, schema_id=9)(1)


def test_confluent_refuses_what_cannot_work_and_names_the_schema():
    with pytest.raises(fl.errors.InvalidArgumentError, match="takes a mapping or a callable from schema ids to schemas, got 'long'"):
        serde.Confluent("long")
    with pytest.raises(fl.errors.InvalidArgumentError, match="not an Avro schema"):
        serde.Confluent({}, "lon")
    with pytest.raises(fl.errors.InvalidArgumentError, match=r"default at R\.d that is not of its type"):
        serde.Confluent({}, {"type": "record", "name": "R", "fields": [{"name": "d", "type": "int", "default": "x"}]})
    for schema_id in (-1, 2**31):
        with pytest.raises(fl.errors.InvalidArgumentError, match=f"schema_id is {schema_id}; ids are 0 to 2,147,483,647"):
            serde.Confluent({}, schema_id=schema_id)
    with pytest.raises(fl.errors.InvalidArgumentError, match="schema id 1: not an Avro schema"):
        serde.Confluent({1: '{"type":"object"}'}).decode(column(framed(1, b"")))


def test_confluent_can_frame_json_too():
    numbers = serde.Json(pa.int64())
    decoded, reasons = serde.Confluent(lambda _: numbers).decode(column(framed(1, b"5"), framed(2, b"x"), framed(-1 & 0xFFFFFFFF, b"6")))
    assert decoded.to_pylist() == [5, None, 6]
    assert list(reasons) == [1]


@pytest.mark.parametrize(
    "arrow_type", [pa.string_view(), pa.list_(pa.string_view()), pa.struct({"a": pa.string_view()}), pa.map_(pa.string(), pa.string_view())], ids=str
)
def test_confluent_puts_values_of_every_type_to_their_rows(arrow_type):
    values = serde.Json(arrow_type)
    texts = [b'"x"', b'"y"'] if arrow_type == pa.string_view() else [b'["x"]', b'["y"]'] if pa.types.is_list(arrow_type) else [b'{"a":"x"}', b'{"a":"y"}']
    decoded, reasons = serde.Confluent({1: values, 2: values}).decode(
        column(framed(1, texts[0]), None, framed(2, texts[1]), framed(3, b""), framed(1, texts[1]))
    )
    assert list(reasons) == [3]
    x, y = values.decode(pa.array(texts))[0].to_pylist()
    assert (decoded.type, decoded.to_pylist()) == (arrow_type, [x, None, y, None, y])


def test_schemas_of_different_types_need_a_reader_schema():
    values = column(framed(1, write(V1, {"id": 1, "note": None})), framed(2, write(V2, {"id": 2.5, "city": "c"})))
    with pytest.raises(fl.errors.InvalidArgumentError, match="schema ids 1 and 2 give different types"):
        serde.Confluent({1: V1, 2: V2}).decode(values)


def test_strings_and_what_was_one_are_utf8():
    nested = {"type": "array", "items": {"type": "map", "values": "string"}}
    for writer, reader, before, after in [
        ("string", "string", b"", b""),
        ("string", "bytes", b"", b""),
        ("bytes", "string", b"", b""),
        (nested, nested, b"\x02\x02\x00", b"\x00\x00"),
    ]:
        texts = ["é".encode(), b"\xff", b"\xc3", b"\xa9", b"x"]
        decoded, reasons = serde.Avro(writer, reader).decode(column(*(before + long(len(text)) + text + after for text in texts)))
        assert decoded.is_valid().to_pylist() == [True, False, False, False, True]
        assert reasons == dict.fromkeys((1, 2, 3), "not Avro of this schema: a string is not UTF-8")


def test_deserializers_survive_pickling_before_and_after_use():
    value = write(V1, {"id": 1, "note": None})
    for deserializer, data in [(serde.Avro(V1, V2), value), (serde.Confluent({1: V1}, V2), framed(1, value))]:
        for _ in range(2):
            again = pickle.loads(pickle.dumps(deserializer))
            assert again.decode(column(data))[0].to_pylist() == [{"id": 1.0, "city": "?"}]
            deserializer.decode(column(data))


def test_a_record_that_never_resolves_is_refused_also_where_it_is_named_again():
    def schema(a):
        return record("O", {"name": "may", "type": ["null", record("R", a)]}, {"name": "must", "type": "R"})

    with pytest.raises(fl.errors.InvalidArgumentError, match="no value of the Avro schema can be read by the reader_schema: string at /must/a is read as int"):
        serde.Avro(schema(A_STRING), schema(A_INT))
    assert serde.Avro(schema(A_INT), schema(A_INT)).type == serde.Avro(schema(A_INT)).type


EITHER = [
    "null",
    "int",
    "string",
    {"type": "array", "items": "long"},
    {"type": "record", "name": "a.b.R", "fields": [{"name": "x", "type": "int"}]},
    {"type": "enum", "name": "E", "symbols": ["A"]},
]


def test_a_union_of_several_types_is_a_struct_with_a_field_a_branch():
    avro = serde.Avro(EITHER)
    fields = {"int": pa.int32(), "string": pa.string(), "array": pa.list_(pa.int64()), "R": pa.struct([("x", pa.int32())]), "E": pa.string()}
    assert avro.type == pa.struct(list(fields.items()))
    rows = [5, "five", [5], ("a.b.R", {"x": 5}), ("E", "A"), None]
    decoded, reasons = avro.decode(column(*(write(EITHER, row) for row in rows)))
    assert reasons == {}
    nothing = dict.fromkeys(fields)
    expected = [nothing | one for one in ({"int": 5}, {"string": "five"}, {"array": [5]}, {"R": {"x": 5}}, {"E": "A"})]
    assert decoded.to_pylist() == [*expected, None]
    # a null row is a null, not the null of the schema
    assert avro.encode(decoded) == (column(*(write(EITHER, row) for row in rows[:-1]), None), {})
    in_array = serde.Avro({"type": "array", "items": EITHER})
    nested = pa.array([decoded.to_pylist()], in_array.type)
    assert in_array.decode(in_array.encode(nested)[0]) == (nested, {})


def test_a_column_of_one_branch_is_written_as_that_branch():
    avro = serde.Avro(EITHER)
    for values, branch in [
        (pa.array([5, None], pa.int8()), 5),
        (pa.array(["five"], pa.large_string()), "five"),
        (pa.array([[5]]), [5]),
        (pa.array([{"x": 5}]), ("a.b.R", {"x": 5})),
        (pa.array([{"string": "five"}]), "five"),
    ]:
        made, reasons = avro.encode(values)
        assert (made.to_pylist(), reasons) == ([write(EITHER, branch)] + [None] * (len(values) - 1), {})
    with pytest.raises(fl.errors.InvalidArgumentError, match=r"is of no branch of an Avro union; give .* the fields int, string, array, R, E"):
        avro.encode(pa.array([dt.date(2024, 5, 6)]))
    made, reasons = avro.encode(pa.array([{"int": 1, "string": "x"}, {"int": None, "string": None}, {"int": 1, "string": None}]))
    assert made.to_pylist() == [None, None, write(EITHER, 1)]
    assert reasons == dict.fromkeys((0, 1), "exactly one field of the union must be set, the others null")


def test_branches_whose_names_differ_in_their_namespace_have_their_full_names():
    records = [record(f"{space}.R", {"name": "x", "type": "int"}) for space in "ab"]
    assert [field.name for field in serde.Avro(records).type] == ["a.R", "b.R"]


def test_a_symbol_that_the_reader_does_not_have_is_its_default():
    writer, reader = enum("E", "A", "B", "C"), enum("E", "A", "Z")
    data = column(write(writer, "A"), write(writer, "C"))
    decoded, reasons = serde.Avro(writer, reader).decode(data)
    assert (decoded.to_pylist(), list(reasons)) == (["A", None], [1])
    assert "the symbol C is none of the reader_schema's" in reasons[1]
    assert serde.Avro(writer, reader | {"default": "Z"}).decode(data) == (pa.array(["A", "Z"]), {})


def test_of_a_map_the_last_value_of_a_key_is_kept():
    names = [f"k{n}" for n in range(12)]
    for keys in (["a", "b", "a"], [*names, "k3", "k1", "k3"]):
        entries = b"".join(long(len(key)) + key.encode() + long(n) for n, key in enumerate(keys))
        data = long(len(keys)) + entries + long(0)
        schema = {"type": "map", "values": "int"}
        decoded, reasons = serde.Avro(schema).decode(column(data))
        expected = fastavro.schemaless_reader(io.BytesIO(data), schema)
        assert (decoded.to_pylist(), reasons) == ([list(expected.items())], {})


def test_pruned_fields_alone_have_columns():
    avro = serde.Avro(EVERYTHING)
    data = write(EVERYTHING, VALUE)
    for fields, expected in [
        (["l", "s"], {"l": 2**40, "s": "é"}),
        (["r.k", ("m",)], {"m": [("k", 3)], "r": {"k": 4}}),
        ([], {}),
    ]:
        pruned = avro.pruned(fields)
        assert pruned == pickle.loads(pickle.dumps(pruned))
        for one in (pruned, pickle.loads(pickle.dumps(pruned))):
            decoded, reasons = one.decode(column(data, data[:-1], None))
            assert (decoded.type, decoded.to_pylist(), list(reasons)) == (one.type, [expected, None, None], [1])
    with pytest.raises(fl.errors.InvalidArgumentError, match="no field /r/j; the fields there are: k"):
        avro.pruned(["r.j"])
    with pytest.raises(fl.errors.InvalidArgumentError, match="no field /l/k; the fields there are: none"):
        avro.pruned(["l.k"])
    reader = {"type": "record", "name": "All", "fields": [{"name": "new", "type": "int", "default": 5}, {"name": "l", "type": "double"}]}
    assert serde.Avro(EVERYTHING, reader).pruned(["new"]).decode(column(data))[0].to_pylist() == [{"new": 5}]
    either = serde.Avro({"type": "array", "items": EITHER}).pruned(["R.x", "int"])
    made = [5, "five", ("a.b.R", {"x": 5}), None]
    decoded, reasons = either.decode(column(write({"type": "array", "items": EITHER}, made)))
    assert (decoded.to_pylist(), reasons) == ([[{"int": 5, "R": None}, {"int": None, "R": None}, {"int": None, "R": {"x": 5}}, None]], {})


def test_a_schema_has_a_guid_in_the_value_or_in_a_header():
    guid, other = uuid.uuid4(), uuid.uuid4()
    body = write(V1, {"id": 1, "note": "a"})
    confluent = serde.Confluent({guid: V1, 1: V1})
    decoded, reasons = confluent.decode(column(b"\x01" + guid.bytes + body, framed(1, body), b"\x01" + other.bytes + body))
    assert (decoded.to_pylist(), reasons) == ([{"id": 1, "note": "a"}] * 2 + [None], {2: f"schema GUID {other} is unknown"})
    assert confluent.of_bytes(b"\x01" + guid.bytes + body) == {"id": 1, "note": "a"}
    numbers = serde.Confluent({guid: serde.Json(pa.int64())})
    assert numbers.decode(column(b"\x01" + guid.bytes + b"5"))[0].to_pylist() == [5]
    with fl.Broker.in_memory() as broker:
        broker.create_topic("orders")
        header = b"\x01" + guid.bytes
        with fl.Producer(broker) as producer:
            producer.send("orders", value=body, headers=[("__value_schema_id", b"\x01" + other.bytes), ("__value_schema_id", header)])
            producer.send("orders", value=framed(1, body), headers=[("__key_schema_id", header), ("trace", b"x")])
            producer.send("orders", value=framed(1, body))
            producer.send("orders", value=None, headers=[("__value_schema_id", header)])
            producer.send("orders", value=body, headers=[("__value_schema_id", b"\x01" + other.bytes)])
        rows = broker.scan("orders", include_headers=True).to_pyarrow()
        for table in (rows, rows.to_batches()[0], pa.concat_tables([rows.slice(0, 2), rows.slice(2)])):
            read = serde.deserialize(table, value=confluent, on_error="collect")
            assert read.column("value").to_pylist() == [{"id": 1, "note": "a"}] * 3 + [None] * 2
            assert read.column("value_error").to_pylist() == [None] * 4 + [{"reason": f"schema GUID {other} is unknown", "data": body}]
        with pytest.raises(fl.errors.InvalidArgumentError, match="the column 'headers' is int64"):
            serde.deserialize(pa.table({"value": column(body), "headers": [1]}), value=confluent)


def test_pruned_fields_of_many_schemas():
    values = column(framed(1, write(V1, {"id": 1, "note": "a"})), framed(2, write(V2, {"id": 2.5, "city": "c"})), framed(3, b""), b"")
    whole = serde.Confluent({1: V1, 2: V2}, V2)
    pruned = whole.pruned(["city"])
    assert (pruned.type, whole.type.names) == (pa.struct([("city", pa.string())]), ["id", "city"])
    for one in (pruned, pickle.loads(pickle.dumps(pruned))):
        decoded, reasons = one.decode(values)
        assert (decoded.to_pylist(), sorted(reasons)) == ([{"city": "?"}, {"city": "c"}, None, None], [2, 3])
        assert one.decode(values[2:])[0].type == pruned.type
    assert whole.decode(values)[0].to_pylist()[:2] == [{"id": 1.0, "city": "?"}, {"id": 2.5, "city": "c"}]
    assert serde.Confluent({1: V1}).pruned(["note"]).decode(values[:1])[0].to_pylist() == [{"note": "a"}]
    with pytest.raises(fl.errors.InvalidArgumentError, match="no field /town"):
        whole.pruned(["town"])
    with pytest.raises(fl.errors.InvalidArgumentError, match="schema id 1: the Avro schema has no field /city"):
        serde.Confluent({1: V1}).pruned(["city"]).decode(values[:1])
    with pytest.raises(fl.errors.InvalidArgumentError, match="schema id 1 has a Long, which cannot leave fields out"):
        serde.Confluent({1: serde.Long()}).pruned(["city"]).decode(values[:1])
    as_json = serde.Confluent({1: V1, 2: serde.Json(whole.type)}, V2).pruned(["city"])
    decoded, reasons = as_json.decode(
        column(framed(1, write(V1, {"id": 1, "note": "a"})), framed(2, b'{"id": 2, "city": "c"}'), framed(2, b"null"), framed(2, b"{"))
    )
    assert (decoded.type, decoded.to_pylist(), list(reasons)) == (pruned.type, [{"city": "?"}, {"city": "c"}, None, None], [3])
