"""Single values as Python objects: the same as by way of pyarrow's columns, and its errors."""

import collections
import datetime as dt
import decimal
import io
import json
import pickle
from concurrent.futures import ThreadPoolExecutor

import fastavro
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import fletchlog as fl
from fletchlog import serde
from fletchlog.errors import InvalidArgumentError
from fletchlog.serde.outcome import value_of
from tests.support import arrow_types

pytestmark = pytest.mark.timeout(180)
CASES = settings(
    max_examples=150,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
UTC = dt.UTC

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.integers(-3, 3),
    st.floats(),
    st.sampled_from([1.0, -0.0, 2.0**53]),
    st.text(max_size=3),
    st.binary(max_size=3),
    st.datetimes() | st.datetimes(timezones=st.timezones()),
    st.dates(),
    st.times(),
    st.timedeltas(),
    st.decimals(),
)
OBJECTS = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", max_size=1) | st.integers(0, 2), inner, max_size=3))


def outcome(call):
    """What a call returns, exactly, or that it fails."""
    try:
        return repr(call())
    except (ValueError, OverflowError, KeyError, InvalidArgumentError, pa.ArrowException) as error:
        return f"fails: {'fraction' if 'not a whole number' in str(error) else ''}"


@CASES
@given(st.data())
def test_objects_are_those_of_pyarrow(data):
    arrow_type = data.draw(arrow_types.TYPES)
    _, column = data.draw(arrow_types.arrays(arrow_type))
    reads = serde.Json(arrow_type)
    for value in reads.encode(column)[0].drop_null().to_pylist():
        assert outcome(lambda: reads.of_bytes(value)) == outcome(lambda: value_of(reads, value))  # noqa: B023


@CASES
@given(st.data())
def test_bytes_are_those_by_way_of_pyarrow(data):
    arrow_type = data.draw(arrow_types.TYPES)
    _, column = data.draw(arrow_types.arrays(arrow_type))
    writes = serde.Json(arrow_type)
    for scalar in column.drop_null():
        try:
            value = scalar.as_py(maps_as_pydicts="strict")
        except (ValueError, OverflowError, KeyError, pa.ArrowException):
            continue  # Python has no such object
        assert outcome(lambda: writes(value)) == outcome(lambda: writes._by_column(value))  # noqa: B023


@CASES
@given(st.data())
def test_objects_of_any_class_are_taken_as_pyarrow_takes_them(data):
    arrow_type = data.draw(arrow_types.TYPES)
    value = data.draw(OBJECTS)
    writes = serde.Json(arrow_type)
    made = outcome(lambda: writes(value))
    # pyarrow cuts the fraction off
    assert made in (outcome(lambda: writes._by_column(value)), "fails: fraction")


AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"], "default": None},
        {"name": "raw", "type": "bytes"},
        {"name": "four", "type": {"type": "fixed", "name": "Four", "size": 4}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
        {"name": "time", "type": {"type": "int", "logicalType": "time-millis"}},
        {"name": "color", "type": {"type": "enum", "name": "Color", "symbols": ["RED", "BLUE"]}},
        {"name": "lines", "type": {"type": "array", "items": {"type": "record", "name": "Line", "fields": [{"name": "n", "type": "int"}]}}},
        {"name": "tags", "type": {"type": "map", "values": "double"}},
        {"name": "mode", "type": "string", "default": "usual"},
    ],
}
ORDER = {
    "id": 7,
    "name": "a",
    "raw": b"\x00\xff",
    "four": b"abcd",
    "price": decimal.Decimal("-12.30"),
    "day": dt.date(1969, 12, 31),
    "at": dt.datetime(2024, 5, 6, 7, 8, 9, 123000, tzinfo=UTC),
    "local": dt.datetime(1960, 1, 1, 0, 0, 0, 5),  # noqa: DTZ001
    "time": dt.time(1, 2, 3, 4000),
    "color": "BLUE",
    "lines": [{"n": 1}, {"n": -2}],
    "tags": {"x": 1.5, "y": 2.0},
    "mode": "fast",
}


def test_avro_reads_and_writes_what_fastavro_does():
    parsed, writes = fastavro.parse_schema(AVRO), serde.Avro(json.dumps(AVRO))
    out = io.BytesIO()
    fastavro.schemaless_writer(out, parsed, ORDER)
    assert writes.of_bytes(out.getvalue()) == ORDER
    assert writes(ORDER) == out.getvalue()
    assert pickle.loads(pickle.dumps(writes))(ORDER) == out.getvalue()


def test_a_field_that_a_value_lacks_has_its_default():
    writes = serde.Avro(json.dumps(AVRO))
    given = {name: value for name, value in ORDER.items() if name not in ("mode", "name")}
    assert writes.of_bytes(writes(given)) == ORDER | {"mode": "usual", "name": None}
    with pytest.raises(InvalidArgumentError, match="Avro cannot encode"):
        writes({name: value for name, value in ORDER.items() if name != "id"})


def test_a_datetime_of_another_zone_is_the_same_moment():
    writes = serde.Avro(json.dumps(AVRO))
    there = ORDER["at"].astimezone(dt.timezone(dt.timedelta(hours=-9, minutes=30)))
    assert writes(ORDER | {"at": there}) == writes(ORDER)
    assert writes.of_bytes(writes(ORDER))["at"].utcoffset() == dt.timedelta(0)


@pytest.mark.parametrize("writes", [serde.Long(), serde.Integer(), serde.Json(pa.int64()), serde.Json(pa.list_(pa.int8()))], ids=repr)
def test_the_fraction_of_a_float_is_not_cut_off(writes):
    one = [1.5] if "list" in repr(writes) else 1.5
    with pytest.raises(InvalidArgumentError, match=r"cannot encode.*1\.5 is not a whole number"):
        writes(one)
    assert writes([2.0] if one == [1.5] else 2.0) == writes([2] if one == [1.5] else 2)


def test_reasons_are_those_of_columns():
    for reads, data in (
        (serde.Long(), b"1"),
        (serde.Avro('"string"'), b"\x02"),
        (serde.Json(pa.int8()), b"300"),
        (serde.Json(), b"\0{}..."),
        (serde.Json(), b"[1"),
    ):
        with pytest.raises(ValueError) as caught:
            reads.of_bytes(data)
        assert str(caught.value) == reads.decode(pa.array([data], pa.binary()))[1][0]


def test_a_map_with_a_key_twice_is_refused():
    # two texts of one number
    with pytest.raises(KeyError, match="duplicate key"):
        serde.Json(pa.map_(pa.float32(), pa.int8())).of_bytes(b'{"1":1,"1.0":2}')


def test_json_without_a_type_gives_what_json_has():
    deep = {"a": [1, 2.5, None, True, "2024-05-06T07:08:09Z", {"b": 2**70}]}
    for reads in (serde.Json(), serde.JsonSchema({})):
        assert reads.of_bytes(reads(deep)) == deep
    with pytest.raises(ValueError, match="not JSON"):
        serde.JsonSchema({}).of_bytes(b"{")
    with pytest.raises(ValueError, match="not as the JSON Schema says"):
        serde.JsonSchema({"minimum": 5}).of_bytes(b"4")
    with pytest.raises(InvalidArgumentError, match="not as the JSON Schema says"):
        serde.JsonSchema({"type": "integer", "minimum": 5})(4)


@CASES
@given(st.data())
def test_a_value_leaves_nothing_for_the_next(data):
    arrow_type = data.draw(arrow_types.TYPES)
    reads = serde.Json(arrow_type)
    written = reads.encode(data.draw(arrow_types.arrays(arrow_type))[1])[0].drop_null().to_pylist()
    values = data.draw(st.lists(st.sampled_from([*written, b"{", b"[1,", b"null", b'{"":']), max_size=12))
    for value in values:
        assert outcome(lambda: reads.of_bytes(value)) == outcome(lambda: serde.Json(arrow_type).of_bytes(value))  # noqa: B023


def test_several_threads_and_large_values():
    reads = serde.Avro({"type": "array", "items": ["null", "string"]})
    lists = [[None, "x" * (number * 37 % 90_000)] * (number % 4) for number in range(400)]
    values = [reads(one) for one in lists]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(3):
            assert list(pool.map(reads.of_bytes, values)) == lists
            assert list(pool.map(reads, lists)) == values


def test_a_consumer_and_a_producer_use_them(tmp_path):
    values = serde.Avro(json.dumps(AVRO))
    with fl.Broker(tmp_path / "b", create=True) as broker:
        broker.create_topic("orders")
        with fl.Producer(broker, key_serializer=serde.Long(), value_serializer=values) as producer:
            for number in range(100):
                producer.send("orders", key=number, value=ORDER | {"id": number})
        with fl.Consumer(
            broker, {"auto.offset.reset": "earliest"}, group="g", topics=["orders"], key_deserializer=serde.Long(), value_deserializer=values
        ) as consumer:
            records = [record for polled in consumer.read_to_end() for record in polled]
    assert [record.key for record in records] == list(range(100))
    assert [record.value for record in records] == [ORDER | {"id": number} for number in range(100)]


NARROW_ROW = pa.struct([("id", pa.int64()), ("in", pa.struct([("note", pa.string())])), ("many", pa.list_(pa.struct([("n", pa.int64())])))])
NARROW_AVRO = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "id", "type": ["null", "long"], "default": None},
        {"name": "in", "type": ["null", {"type": "record", "name": "I", "fields": [{"name": "note", "type": ["null", "string"]}]}], "default": None},
        {
            "name": "many",
            "type": {"type": "array", "items": {"type": "record", "name": "M", "fields": [{"name": "n", "type": ["null", "long"]}]}},
            "default": [],
        },
    ],
}
NARROW_PROTO = """syntax = "proto3"; message I { string note = 1; } message M { int64 n = 1; }
message R { int64 id = 1; I in = 2; repeated M many = 3; }"""
NARROW_JSON_SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "in": {"type": "object", "properties": {"note": {"type": "string"}}},
        "many": {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer"}}}},
    },
}


@pytest.mark.parametrize(
    "made",
    [serde.Avro(NARROW_AVRO), serde.Protobuf("R", NARROW_PROTO), serde.Json(NARROW_ROW), serde.JsonSchema(NARROW_JSON_SCHEMA)],
    ids=lambda one: type(one).__name__,
)
@pytest.mark.parametrize(
    ("value", "name"),
    [
        ({"idd": 5}, "idd"),
        ({"id": 1, "in": {"note": "a", "nota": "b"}}, "nota"),
        ({"id": 1, "many": [{"n": 1}, {"m": 2}]}, "m"),
        (collections.OrderedDict(id=1, extra=2), "extra"),
    ],
)
def test_a_field_that_the_schema_lacks_is_not_lost(made, value, name):
    with pytest.raises(fl.errors.InvalidArgumentError, match=f"there is no field '{name}'"):
        made(value)
    with pytest.raises((fl.errors.InvalidArgumentError, ValueError), match=f"there is no field '{name}'"):
        column = pa.array([value])
        _, reasons = made.encode(column)
        raise ValueError(reasons.get(0))
