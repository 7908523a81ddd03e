"""Decoded keys and values as columns, and how a table's schema grows."""

from datetime import date
from decimal import Decimal

import pyarrow as pa
import pytest

import fletchlog as fl
from fletchlog import serde
from fletchlog.errors import RecordDeserializationError, SchemaError
from fletchlog.landing.columns import portable
from fletchlog.landing.positions import Position, Wanted
from fletchlog.landing.tables import table_at
from tests.support.landed import Place


def values(place, *names):
    found = place.read().sort_by("offset")
    return [tuple(row[name] for name in names) for row in found.select(list(names)).to_pylist()]


def test_decoded_values_are_structs_or_columns(broker, place, send):
    send([b'{"id": 1, "tags": ["a"]}', None, b'{"id": 2}'])
    order = serde.Json(pa.schema([("id", pa.int64()), ("tags", pa.list_(pa.string()))]))
    place.land(broker, key=serde.String(), value=order)
    assert values(place, "key", "value") == [("k0", {"id": 1, "tags": ["a"]}), ("k1", None), ("k2", {"id": 2, "tags": None})]


def test_fields_become_columns_and_names_that_are_taken_get_a_prefix(broker, place, send):
    send([b'{"id": 1, "Offset": 7, "key": "x"}'])
    order = serde.Json(pa.schema([("id", pa.int64()), ("Offset", pa.int32()), ("key", pa.string())]))
    place.land(broker, value=order, flatten=True)
    assert values(place, "id", "value_Offset", "value_key", "key", "offset") == [(1, 7, "x", b"k0", 0)]
    assert "value" not in place.read().schema.names


def test_what_cannot_be_decoded_raises_is_null_or_is_collected(broker, place, send):
    send([b"1", b"x", b"3"])
    with pytest.raises(RecordDeserializationError, match="the value of t-0 at offset 1 cannot be decoded"):
        place.land(broker, value=serde.Json(pa.int64()))
    assert place.rows() == []
    place.land(broker, value=serde.Json(pa.int64()), on_error="collect")
    found = values(place, "value", "value_error")
    assert [row[0] for row in found] == [1, None, 3]
    assert found[1][1]["data"] == b"x"
    assert found[0][1] is None
    send([b"y"])
    place.land(broker, value=serde.Json(pa.int64()), on_error="null")
    assert values(place, "value", "value_error")[3] == (None, None)


def test_nanoseconds_are_refused_and_a_long_in_the_reader_schema_keeps_them(broker, place, send):
    nanos = {"type": "long", "logicalType": "timestamp-nanos"}
    at = serde.Avro(nanos)
    send(at.encode(pa.array([2_000, 3_001], pa.timestamp("ns", "UTC")))[0].to_pylist())
    with pytest.raises(SchemaError, match="would lose data: 3001; give a reader schema with another type for it, such as string or long"):
        place.land(broker, value=at)
    assert place.rows() == []
    place.land(broker, value=serde.Avro(nanos, "long"))
    assert values(place, "value") == [(2_000,), (3_001,)]


def test_a_schema_grows_by_fields_that_may_be_null(broker, place, send):
    narrow = pa.schema([("id", pa.int64()), ("in", pa.struct([("a", pa.string())]))])
    wide = pa.schema([("in", pa.struct([("b", pa.int32()), ("a", pa.string())])), ("new", pa.list_(pa.int64())), ("id", pa.int64())])
    send([b'{"id": 1, "in": {"a": "x"}}'])
    place.land(broker, value=serde.Json(narrow), flatten=True)
    send([b'{"id": 2, "in": {"a": "y", "b": 3}, "new": [4]}'])
    place.land(broker, value=serde.Json(wide), flatten=True)
    send([b'{"id": 5}'])
    place.land(broker, value=serde.Json(pa.schema([("id", pa.int64())])), flatten=True)
    found = values(place, "id", "in", "new")
    assert [row[0] for row in found] == [1, 2, 5]
    assert found[0][1]["a"] == "x"
    assert found[1][1:] == ({"a": "y", "b": 3}, [4])
    assert found[2][1:] == (None, None)
    if place.format == "parquet":
        place.land(broker, value=serde.Json(wide), flatten=True, compact=True)
        assert len(list(place.path.glob("*.parquet"))) == 1
        assert values(place, "id", "new") == [(1, None), (2, [4]), (5, None)]


def test_a_field_of_another_type_is_refused_with_what_to_do(broker, place, send):
    send([b'{"id": 1}'])
    place.land(broker, value=serde.Json(pa.schema([("id", pa.int64())])))
    send([b'{"id": "x"}'])
    with pytest.raises(SchemaError, match=r"column value/id is int64 in the table .* and string in the new rows.*new table"):
        place.land(broker, value=serde.Json(pa.schema([("id", pa.string())])))
    assert len(place.rows()) == 1


class Typed:
    """A deserializer that returns one value of any type."""

    def __init__(self, value, arrow_type):
        self.value, self.type = value, arrow_type

    def decode(self, column):
        return pa.array([self.value] * len(column), self.type), {}


TYPES = {
    pa.bool_(): True, pa.int8(): -1, pa.uint16(): 65535, pa.uint32(): 2**32 - 1, pa.int64(): -(2**63), pa.float32(): 0.5, pa.float64(): 0.1,
    pa.large_string(): "ü", pa.string_view(): "ü", pa.dictionary(pa.int8(), pa.string()): "d", pa.large_binary(): b"\0", pa.binary(2): b"ab",
    pa.decimal128(9, 2): Decimal("1.50"), pa.list_(pa.int16()): [1, None], pa.list_(pa.int8(), 2): [1, 2], pa.large_list(pa.string()): ["a"],
    pa.map_(pa.string(), pa.int16()): [("a", 1)], pa.struct([("a", pa.struct([("b", pa.uint8())]))]): {"a": {"b": 255}},
    pa.list_(pa.struct([("d", pa.dictionary(pa.int8(), pa.string()))])): [{"d": "x"}],
}  # fmt: skip


def test_every_format_has_the_same_types(broker, place, send):
    send(2)
    struct = pa.struct([(f"f{number}", one) for number, one in enumerate(TYPES)])
    value = dict(zip((f"f{number}" for number in range(len(TYPES))), TYPES.values(), strict=True))
    place.land(broker, value=Typed(value, struct), flatten=True)
    place_rows = place.read().to_pylist()
    for name, one in value.items():
        assert [place_rows[0][name], place_rows[1][name]] == [one] * 2 or dict(place_rows[0][name]) == dict(one), name


@pytest.mark.parametrize("one", [pa.duration("s"), pa.time64("us"), pa.null(), pa.struct([]), pa.month_day_nano_interval(), pa.decimal256(50, 2)])
def test_types_that_no_table_has_are_refused_by_their_place(one):
    with pytest.raises(SchemaError, match="column value/in"):
        portable(pa.struct([("in", one)]), "value")


def test_uint64_is_a_decimal(broker, place, send):
    send(1)
    place.land(broker, value=Typed(2**64 - 1, pa.uint64()))
    assert place.read()["value"].to_pylist() == [Decimal(2**64 - 1)]


def test_a_timestamp_beyond_microseconds_is_a_named_error(broker, tmp_path):
    broker.create_topic("u", config={"message.timestamp.after.max.ms": str(2**63 - 1)})
    with fl.Producer(broker) as producer:
        producer.send("u", value=b"", timestamp_ms=2**62)
    with pytest.raises(fl.errors.InvalidTimestampError):
        Place("parquet", tmp_path).land(broker, "u")


def test_rows_without_a_timestamp_have_no_day_and_no_hour(place):
    columns = {
        "topic": ["t"] * 3,
        "partition": pa.array([0] * 3, pa.int32()),
        "offset": [0, 1, 2],
        "timestamp": pa.array([None, 10**15, None], pa.timestamp("us", "UTC")),
    }
    rows, table = pa.table(columns), table_at(place.table, place.format, place.catalog, None)
    table.open({"t": Wanted(["id"], [0])})
    table.append(rows, rows.schema, "hour", {"t": Position("id", {0: 3})})
    table.close()
    assert values(place, "day", "hour") == [(None, None), (date(2001, 9, 9), 1), (None, None)]
    assert place.offsets() == {("t", 0): 3}


def test_a_manifest_that_something_else_has_changed_is_named(broker, parquet, send):
    send(1)
    parquet.land(broker)
    manifest = parquet.path / "_fletchlog" / "manifest.json"
    for text, said in (
        ("{", "is no manifest"),
        ('{"fletchlog": 2}', "in form 2, this release reads form 1"),
        ('{"fletchlog": 1, "topics": {"t": 1}}', "cannot be read"),
    ):
        manifest.write_text(text)
        with pytest.raises(fl.errors.StorageError, match=said):
            parquet.land(broker)
        with pytest.raises(fl.errors.StorageError, match=said):
            parquet.offsets()
