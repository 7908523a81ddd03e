"""Formats of keys and values by plain options, as the shell and Spark have them."""

import contextlib
import pickle

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fletchlog.errors import InvalidArgumentError
from fletchlog.serde import ddl, formats

RECORD = '{"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": "string"}]}'
NARROW = '{"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}'
PROTO = 'syntax = "proto3"; package shop; message Other { int32 x = 1; } message Order { int64 id = 1; string name = 2; }'
ID_NAME = pa.struct([("id", pa.int64()), ("name", pa.string())])


def named(option):
    return f"value.{option}"


@pytest.mark.parametrize(
    ("options", "arrow_type"),
    [
        ({"format": "string"}, pa.string()),
        ({"format": "LONG "}, pa.int64()),
        ({"format": "json"}, None),
        ({"format": "json", "schema": "id bigint, name string"}, ID_NAME),
        ({"format": "json-schema", "schema": '{"type": "object"}', "reader_schema": "id bigint, name string"}, ID_NAME),
        ({"format": "avro", "schema": RECORD}, ID_NAME),
        ({"format": "avro", "schema": RECORD, "reader_schema": NARROW}, pa.struct([("id", pa.int64())])),
        ({"format": "protobuf", "schema": PROTO, "message": "shop.Order"}, ID_NAME),
        ({"format": "protobuf", "schema": PROTO}, pa.struct([("x", pa.int32())])),
        ({"format": "protobuf", "message": "google.protobuf.duration_pb2.Duration"}, pa.struct([("seconds", pa.int64()), ("nanos", pa.int32())])),
    ],
)
def test_a_format_makes_the_same_object_wherever_it_is_pickled_to(options, arrow_type):
    found = pickle.loads(pickle.dumps(formats.parse(options, named)))
    made = found.deserializer().type
    assert made is None if arrow_type is None else [(f.name, f.type) for f in pa.schema([("v", made)])] == [("v", arrow_type)]


def test_bytes_stay_bytes_and_no_option_is_no_format():
    assert formats.parse({"format": "bytes"}, named).deserializer() is None
    assert formats.parse({"format": None, "schema": None}, named) is None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"format": "jsn"}, "value.format is jsn; expected one of string, .*; did you mean json\\?"),
        ({"schema": RECORD}, "value.schema is given without value.format"),
        ({"format": "avro"}, "value.format is avro, which needs value.schema: an Avro schema"),
        ({"format": "json", "message": "a.B"}, "value.message is given, and json takes value.schema"),
        ({"format": "double", "schema": RECORD}, "value.schema is given, and double takes no schema"),
        ({"format": "avro", "schema": "{"}, "value.schema: not an Avro schema"),
        ({"format": "avro", "schema": RECORD, "reader_schema": '"int"'}, "value.reader_schema: "),
        ({"format": "protobuf", "message": "Order"}, "value.message: Order cannot be imported"),
        ({"format": "protobuf"}, "value.format is protobuf, which needs value.schema: the text of a .proto file; or value.message"),
        ({"format": "protobuf", "schema": PROTO, "message": "shop.Odrer"}, "value.schema: "),
        ({"format": "json-schema", "schema": "[]"}, "value.schema: not a JSON Schema"),
        ({"format": "json", "schema": "id bigit"}, "value.schema: 'id bigit' is no type"),
    ],
)
def test_an_error_names_the_option_as_the_user_does(options, said):
    with pytest.raises(InvalidArgumentError, match=said):
        formats.parse(options, named)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"format": "confluent"}, "value.format is confluent, which needs value.schema.registry: the URL"),
        ({"format": "long", "schema.registry": "http://r:1"}, "value.schema.registry is given, and long takes no schema"),
        ({"format": "avro", "schema": RECORD, "subject": "s"}, "value.subject is given, and avro takes value.schema and value.reader_schema"),
    ],
)
def test_a_registry_is_for_formats_with_schemas(options, said):
    with pytest.raises(InvalidArgumentError, match=said):
        formats.parse(options, named)


@pytest.mark.parametrize(
    ("text", "arrow_type"),
    [
        ("BIGINT", pa.int64()),
        ("array<map<string, decimal(5,2)>>", pa.list_(pa.map_(pa.string(), pa.decimal128(5, 2)))),
        ("a: int, `b c` struct<d: timestamp, e timestamp_ntz>", None),
        ("id bigint not null, day date", pa.struct([pa.field("id", pa.int64(), nullable=False), ("day", pa.date32())])),
        ("numeric", pa.decimal128(10, 0)),
    ],
)
def test_a_type_is_text_in_the_ddl_of_spark(text, arrow_type):
    inner = pa.struct([("d", pa.timestamp("us", "UTC")), ("e", pa.timestamp("us"))])
    assert ddl.arrow_type(text) == (arrow_type or pa.struct([("a", pa.int32()), ("b c", inner)]))


@pytest.mark.parametrize(
    "text", ["", "bigin", "array<bigint", "array<>", "id", "id bigint,", "a int b int", "decimal(39)", "decimal(3,4)", "map<string>", "int>"]
)
def test_what_is_no_type_says_what_was_expected(text):
    with pytest.raises(InvalidArgumentError, match=r"is no type: .* expected, found"):
        ddl.arrow_type(text)


@given(st.text("abint <>(),:`4struclga", max_size=30))
def test_no_text_of_a_type_is_worse_than_an_error(text):
    with contextlib.suppress(InvalidArgumentError):
        ddl.arrow_type(text)


def test_types_within_types_end_at_a_limit():
    with pytest.raises(InvalidArgumentError, match="at most 64 types within each other"):
        ddl.arrow_type("array<" * 5000 + "int" + ">" * 5000)
