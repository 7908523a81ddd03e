"""`serde.JsonSchema`: the type that a JSON Schema gives, other schemas that it refers to, and columns of several schemas."""

import json
import pickle

import pyarrow as pa
import pytest

import fletchlog as fl
from fletchlog import serde

ORDER = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "price": {"type": ["number", "null"]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "by": {"oneOf": [{"type": "null"}, {"$ref": "#/$defs/person"}]},
        "more": {"type": "object", "additionalProperties": {"type": "boolean"}},
    },
    "required": ["id"],
    "$defs": {"person": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 5}}}},
}
TYPE = pa.struct(
    {
        "id": pa.int64(),
        "price": pa.float64(),
        "tags": pa.list_(pa.string()),
        "by": pa.struct({"name": pa.string()}),
        "more": pa.map_(pa.string(), pa.bool_()),
    }
)


def decoded(deserializer, *values):
    column, reasons = deserializer.decode(pa.array([json.dumps(value).encode() for value in values]))
    return column.to_pylist(), reasons


def test_the_type_is_the_one_that_the_schema_gives():
    order = serde.JsonSchema(ORDER)
    assert order.type == TYPE
    rows, reasons = decoded(order, {"id": 1, "by": {"name": "ada"}, "more": {"x": True}}, {"id": 2, "by": {"name": "adelaide"}}, {"price": 1})
    assert rows == [{"id": 1, "price": None, "tags": None, "by": {"name": "ada"}, "more": [("x", True)]}, None, None]
    assert list(reasons) == [1, 2]
    assert reasons[2] == 'not as the JSON Schema says: "id" is a required property'
    assert "at /by" in reasons[1]
    assert pickle.loads(pickle.dumps(order)).type == TYPE
    assert order({"id": 3, "price": None, "tags": ["a"], "by": None, "more": {}}).startswith(b'{"id":3,')


@pytest.mark.parametrize(
    "schema",
    [
        {},
        True,
        {"type": ["string", "integer"]},
        {"type": "object"},
        {"type": "array"},
        {"type": "object", "properties": {"a": {}}},
        {"enum": ["a", 1]},
        {"const": [1]},
        {"oneOf": [{"type": "string"}, {"type": "object", "properties": {"a": {"type": "string"}}}]},
        {"anyOf": [{"required": ["a"]}, {"type": "object", "properties": {"a": {"type": "string"}}}]},
        {"allOf": [{"properties": {"a": {"type": "string"}}}, {"properties": {"a": {"type": "integer"}}}]},
        {"$ref": "#/definitions/node", "definitions": {"node": {"type": "object", "properties": {"next": {"$ref": "#/definitions/node"}}}}},
    ],
)
def test_a_schema_that_leaves_the_type_open_leaves_it_to_the_values(schema):
    assert serde.JsonSchema(schema).type is None


CARD = {
    "type": "object",
    "properties": {"kind": {"const": "card"}, "number": {"type": "string"}, "at": {"type": "integer"}},
    "required": ["kind", "number"],
} | {"additionalProperties": False}
CASH = {"properties": {"kind": {"enum": ["cash", None]}, "at": {"type": ["number", "null"]}, "coins": {"type": "array", "items": {"type": "integer"}}}}


@pytest.mark.parametrize(
    ("schema", "arrow_type", "values", "wrong"),
    [
        ({"enum": ["a", None, "b"]}, pa.string(), ["a", None], ["c", 1]),
        ({"enum": [1, 2.5]}, pa.float64(), [1.0, 2.5], [2]),
        ({"const": True}, pa.bool_(), [True], [False]),
        ({"type": "null"}, pa.null(), [None], [1]),
        (
            {"oneOf": [CARD, {"type": "null"}, CASH]},
            pa.struct({"kind": pa.string(), "number": pa.string(), "at": pa.float64(), "coins": pa.list_(pa.int64())}),
            [{"kind": "card", "number": "7", "at": 1.0, "coins": None}, {"kind": "cash", "number": None, "at": 2.5, "coins": [1]}, None],
            [{"kind": "card"}, {"kind": "x"}, 5],
        ),
        (
            {"type": "object", "allOf": [{"properties": {"a": {"type": "number"}}}, {"properties": {"a": {"type": "integer"}, "b": {"enum": ["x"]}}}]},
            pa.struct({"a": pa.int64(), "b": pa.string()}),
            [{"a": 1, "b": "x"}, {"a": None, "b": "x"}],
            [{"a": 1.5}, {"b": "y"}],
        ),
        (
            {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
            pa.struct({"a": pa.string(), "b": pa.string()}),
            [{"a": "x", "b": None}, {"a": None, "b": "y"}],
            [{}],
        ),
    ],
)
def test_the_type_of_several_schemas_has_the_fields_of_all(schema, arrow_type, values, wrong):
    made = serde.JsonSchema(schema)
    assert made.type == arrow_type
    written, reasons = made.encode(pa.array(values, arrow_type))
    assert reasons == {}
    assert [row and json.loads(row) for row in written.to_pylist()] == [
        {name: part for name, part in value.items() if part is not None} if isinstance(value, dict) else value for value in values
    ]
    assert made.decode(written)[0].to_pylist() == values
    rows, reasons = decoded(made, *wrong)
    assert set(rows) == {None}
    assert list(reasons) == list(range(len(wrong)))


def test_a_number_without_a_fraction_is_an_integer():
    column, reasons = serde.JsonSchema({"type": "integer"}).decode(pa.array([b"1.0", b"-2.50e1", b"1e3", b"9007199254740993.0", b"-0.0", b"1.5", b"1e19"]))
    assert column.to_pylist() == [1, -25, 1000, 2**53 + 1, 0, None, None]
    assert list(reasons) == [5, 6]
    # the key of a map is as a number is written
    column, reasons = serde.Json(pa.map_(pa.int64(), pa.uint8())).decode(pa.array([b'{"1":2.0}', b'{"1.0":2}', b'{"1":256.0}']))
    assert column.to_pylist() == [[(1, 2)], None, None]
    assert list(reasons) == [1, 2]


def test_the_fields_that_are_asked_for_are_read_and_the_whole_value_must_follow():
    names = serde.JsonSchema(ORDER).pruned(["by.name", "id"])
    assert names.type == pa.struct({"id": pa.int64(), "by": pa.struct({"name": pa.string()})})
    rows, reasons = decoded(names, {"id": 1, "price": 2.5}, {"id": 2, "price": "x"})
    assert rows == [{"id": 1, "by": None}, None]
    assert list(reasons) == [1]
    with pytest.raises(fl.errors.InvalidArgumentError, match="there is no field"):
        serde.JsonSchema(ORDER).pruned(["nothing"])


def test_a_schema_that_another_refers_to_is_given_by_its_name():
    item = {
        "type": "object",
        "properties": {"sku": {"type": "string"}, "count": {"$ref": "#/definitions/count"}},
        "definitions": {"count": {"type": "integer", "minimum": 1}},
    }
    order = {"type": "object", "properties": {"items": {"type": "array", "items": {"$ref": "item.json"}}}}
    with pytest.raises(fl.errors.InvalidArgumentError, match=r"not a JSON Schema: .*item\.json"):
        serde.JsonSchema(order)
    both = serde.JsonSchema(order, references={"item.json": item})
    assert both.type == pa.struct({"items": pa.list_(pa.struct({"sku": pa.string(), "count": pa.int64()}))})
    rows, reasons = decoded(both, {"items": [{"sku": "a", "count": 1}]}, {"items": [{"count": 0}]})
    assert rows == [{"items": [{"sku": "a", "count": 1}]}, None]
    assert "0 is less than the minimum of 1" in reasons[1]


def test_nothing_is_fetched():
    for name in ("http://127.0.0.1:9/a.json", "file:///etc/hostname"):
        with pytest.raises(fl.errors.InvalidArgumentError, match="which is not given"):
            serde.JsonSchema({"$ref": name})


def test_values_of_several_json_schemas_and_types_of_kafkas_own_are_read_in_one_column():
    one = serde.JsonSchema({"type": "object", "properties": {"n": {"type": "integer", "minimum": 0}}})
    other = serde.Json(pa.schema({"n": pa.int64()}))
    both = serde.Confluent({1: one, 2: other})
    column, reasons = both.decode(pa.array([b'\0\0\0\0\x01{"n":1}', b'\0\0\0\0\x02{"n":-1}', b'\0\0\0\0\x01{"n":-1}', b"\0\0\0\0\x03{}"]))
    assert column.to_pylist() == [{"n": 1}, {"n": -1}, None, None]
    assert {row: text.split(":")[0] for row, text in reasons.items()} == {2: "not as the JSON Schema says at /n", 3: reasons[3]}
    longs, _ = serde.Confluent({7: serde.Long()}).decode(pa.array([b"\0\0\0\0\x07" + (5).to_bytes(8, "big")]))
    assert longs.to_pylist() == [5]


def test_null_fields_that_the_schema_does_not_allow_are_left_out():
    schema = {
        "type": "object",
        "required": ["id"],
        "properties": {"id": {"type": "integer"}, "note": {"type": "string"}, "may": {"type": ["string", "null"]}, "by": {"$ref": "by.json"}},
    }
    by = {"type": "object", "properties": {"name": {"type": "string"}}}
    follows = serde.JsonSchema(schema, references={"by.json": by})
    column = pa.array([{"id": 1}, {"id": 2, "note": "n", "may": "m", "by": {}}, {"note": "x"}], follows.type)
    made, reasons = follows.encode(column)
    assert made.to_pylist() == [b'{"id":1,"may":null}', b'{"id":2,"note":"n","may":"m","by":{}}', None]
    assert list(reasons) == [2]
    assert '"id" is a required property' in reasons[2]
    assert follows({"id": 1}) == b'{"id":1,"may":null}'
    back, reasons = follows.decode(made[:2])
    assert (back, reasons) == (column[:2], {})
