"""`serde.serialize`: what it writes, `deserialize` reads; errors name the row; the producer takes each as a function."""

import datetime as dt
import pickle

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fletchlog as fl
from fletchlog import serde

AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "counts", "type": {"type": "map", "values": "int"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "raw", "type": {"type": "fixed", "name": "Raw", "size": 3}},
    ],
}
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
DAYS = st.dates(dt.date(1900, 1, 1), dt.date(2200, 1, 1))
TIMES = st.integers(-(10**15), 10**15).map(lambda us: dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=us))
ORDERS = st.fixed_dictionaries({
    "id": st.integers(-(2**63), 2**63 - 1),
    "note": st.none() | TEXT,
    "tags": st.lists(TEXT, max_size=3),
    "counts": st.dictionaries(TEXT, st.integers(-(2**31), 2**31 - 1), max_size=3),
    "day": DAYS,
    "at": TIMES,
    "price": st.decimals(-(10**9), 10**9, places=2),
    "kind": st.sampled_from("AB"),
    "raw": st.binary(min_size=3, max_size=3),
})  # fmt: skip
JSON = pa.schema([("id", pa.int64()), ("note", pa.string()), ("tags", pa.list_(pa.string())), ("x", pa.float64()), ("in", pa.struct([("b", pa.bool_())]))])
OBJECTS = st.fixed_dictionaries({
    "id": st.none() | st.integers(-(2**63), 2**63 - 1),
    "note": st.none() | TEXT,
    "tags": st.none() | st.lists(TEXT, max_size=3),
    "x": st.none() | st.floats(allow_nan=False, allow_infinity=False),
    "in": st.none() | st.fixed_dictionaries({"b": st.none() | st.booleans()}),
})  # fmt: skip
CASES = {
    "String": (serde.String(), TEXT),
    "Short": (serde.Short(), st.integers(-(2**15), 2**15 - 1)),
    "Integer": (serde.Integer(), st.integers(-(2**31), 2**31 - 1)),
    "Long": (serde.Long(), st.integers(-(2**63), 2**63 - 1)),
    "Float": (serde.Float(), st.floats(width=32, allow_nan=False)),
    "Double": (serde.Double(), st.floats(allow_nan=False)),
    "Json": (serde.Json(JSON), OBJECTS),
    "Avro": (serde.Avro(AVRO), ORDERS),
    "Confluent": (serde.Confluent({7: AVRO}, schema_id=7), ORDERS),
}


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_what_is_written_is_read_as_it_was(name, data):
    serializer, values = CASES[name]
    column = pa.array(data.draw(st.lists(st.none() | values, max_size=6)), serializer.type or serde.Avro(AVRO).type)
    # a slice, so that offsets into buffers count
    column = column[data.draw(st.integers(0, 1)) :]
    table = pa.table({"value": pa.chunked_array([column, column[:1]])})
    written = serde.serialize(table, value=serializer)
    assert written.schema.field("value").type == pa.binary()
    assert serde.deserialize(written, value=serializer)["value"].to_pylist() == table["value"].to_pylist()
    for one, made in zip(column.to_pylist(maps_as_pydicts="strict"), written["value"].to_pylist(), strict=False):
        if one is not None:
            assert pickle.loads(pickle.dumps(serializer))(one) == made


def test_the_bytes_are_kafkas_and_confluents():
    assert serde.Integer()(-2) == b"\xff\xff\xff\xfe"
    assert serde.Double()(1.5) == b"\x3f\xf8\0\0\0\0\0\0"
    assert serde.String()("ü") == b"\xc3\xbc"
    assert serde.Confluent({258: "long"}, schema_id=258)(3) == b"\0\0\0\x01\x02\x06"
    assert serde.Confluent({1: serde.Json()}, schema_id=1)({"a": None}) == b'\0\0\0\0\x01{"a":null}'
    assert serde.Json()([dt.date(2024, 5, 1), "ü"]) == '["2024-05-01","ü"]'.encode()


def test_a_table_goes_through_a_broker_and_comes_back_as_it_was():
    table = pa.table({"key": [1, 2, None], "value": [{"amount": 3}, None, {"amount": 4}]})
    amount = serde.Json(pa.schema({"amount": pa.int64()}))
    with fl.Broker.in_memory() as broker:
        broker.create_topic("t")
        with fl.Producer(broker) as producer:
            producer.send_arrow("t", serde.serialize(table, key=serde.Long(), value=amount))
        back = serde.deserialize(broker.scan("t"), key=serde.Long(), value=amount)
    assert back.select(["key", "value"]).to_pylist() == table.to_pylist()


def test_send_calls_the_serializers_but_not_for_none():
    with fl.Broker.in_memory() as broker:
        broker.create_topic("t")
        with fl.Producer(broker, key_serializer=str.encode, value_serializer=serde.Json()) as producer:
            producer.send("t", {"a": 1}, "k")
            producer.send("t", None, None)
            with pytest.raises(fl.errors.InvalidArgumentError, match=r"Json cannot encode nan: .*Out of range float values"):
                producer.send("t", float("nan"))
            with pytest.raises(TypeError, match="descriptor 'encode'"):
                producer.send("t", 1, key=5)
        with fl.Producer(broker, value_serializer=lambda value: 5) as producer, pytest.raises(TypeError, match="value: expected bytes, got int 5"):
            producer.send("t", "x")
        assert [(r["key"], r["value"]) for r in broker.scan("t").to_pyarrow().to_pylist()] == [(b"k", b'{"a":1}'), (None, None)]
        with pytest.raises(TypeError, match=r"key_serializer is called as key_serializer\(value\) and returns bytes: .*, got str 'utf-8'"):
            fl.Producer(broker, key_serializer="utf-8")


@pytest.mark.parametrize(
    ("values", "serializer", "text"),
    [
        ([1, 70_000], serde.Short(), "the value of row 1 cannot be encoded: .*70000"),
        ([{"a": 1}], serde.Long(), "the column 'value' is struct<a: int64>, which Long cannot encode"),
        ([1.0, float("inf")], serde.Json(), "the value of row 1 cannot be encoded: inf has no JSON: it is not a finite number"),
        ([b"x"], serde.Json(), "the value of row 0 cannot be encoded: binary has no JSON"),
        ([b"x", b"\xff"], serde.String(), "the value of row 1 cannot be encoded: Invalid UTF8"),
        ([{"id": 1}], serde.String(), "the column 'value' is struct<id: int64>, which String cannot encode"),
        ([1], serde.Confluent({}, schema_id=1), "schema id 1 is unknown"),
        ([1], serde.Confluent({1: "long"}), r"which schema is written\? Give Confluent\(schemas, schema_id=ID\)"),
    ],
)
def test_what_cannot_be_encoded_is_an_error_that_names_the_row(values, serializer, text):
    with pytest.raises(fl.errors.InvalidArgumentError, match=text):
        serde.serialize(pa.table({"value": values}), value=serializer)


def test_a_missing_column_and_no_serializer_are_errors():
    with pytest.raises(fl.errors.InvalidArgumentError, match="there is no column 'key' to encode; the columns are value"):
        serde.serialize(pa.table({"value": ["x"]}), key=serde.String())
    with pytest.raises(fl.errors.InvalidArgumentError, match="give a serializer"):
        serde.serialize(pa.table({"value": ["x"]}))
