"""What `serialize` writes `deserialize` reads as it was: every serializer over types and values of all kinds, and other libraries as judges."""

import datetime as dt
import decimal
import io
import itertools
import json
import struct
import uuid

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from fletchlog import serde
from tests.support import arrow_types

# a busy machine takes long for many cases
pytestmark = pytest.mark.timeout(180)
CASES = settings(
    max_examples=100,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def round_trip(serializer, column):
    """Writes a column, in two chunks, and reads it; the bytes are returned."""
    table = pa.table({"value": pa.chunked_array([column, column[:1]])})
    written = serde.serialize(table, value=serializer)
    assert written.schema.field("value").type == pa.binary()
    back = serde.deserialize(written, value=serializer)
    back.validate(full=True)
    assert back["value"].type == column.type
    assert back == table
    return written["value"].combine_chunks().to_pylist()[: len(column)]


def iso8601(number, arrow_type):
    """The text of a time, by numpy."""
    types = pa.types
    if types.is_date(arrow_type):
        text = str(np.datetime64(number, "D" if types.is_date32(arrow_type) else "ms").astype("M8[D]"))
    else:
        text = str(np.datetime64(number, arrow_type.unit))
        text = text[: -len(text.rpartition(".")[2]) - 1] if set(text.rpartition(".")[2]) == {"0"} else text
    if types.is_time(arrow_type):
        return text.partition("T")[2]
    # numpy writes the year 10000 without a sign
    text = f"+{text}" if text[0] != "-" and text.index("-") > 4 else text
    return text + ("Z" if types.is_timestamp(arrow_type) and arrow_type.tz is not None else "")


def same(read, raw, arrow_type):
    """Whether what Python's json reads is a raw value of a type."""
    types = pa.types
    if read is None or raw is None:
        return read is raw
    if types.is_struct(arrow_type):
        return list(read) == [field.name for field in arrow_type] and all(same(read[field.name], raw[field.name], field.type) for field in arrow_type)
    if types.is_map(arrow_type):
        pairs = zip(read.items(), raw, strict=True)
        return all(
            same(key(name, arrow_type.key_type), given, arrow_type.key_type) and same(one, other, arrow_type.item_type) for (name, one), (given, other) in pairs
        )
    if types.is_nested(arrow_type):
        return all(same(one, other, arrow_type.value_type) for one, other in zip(read, raw, strict=True))
    if types.is_decimal(arrow_type):
        return "E" not in read and decimal.Decimal(read) == raw
    if types.is_temporal(arrow_type) and not types.is_duration(arrow_type):
        return read == iso8601(raw, arrow_type)
    return type(read) is type(raw) and read == raw


def key(name, arrow_type):
    """The name of an object as the JSON value that it would be."""
    if pa.types.is_floating(arrow_type):
        return float({16: np.float16, 32: np.float32, 64: np.float64}[arrow_type.bit_width](name))
    is_json = pa.types.is_boolean(arrow_type) or pa.types.is_integer(arrow_type) or pa.types.is_duration(arrow_type)
    return json.loads(name) if is_json else name


@CASES
@given(st.data())
def test_json(data):
    arrow_type = data.draw(arrow_types.TYPES)
    rows, column = data.draw(arrow_types.arrays(arrow_type))
    for raw, text in zip(rows, round_trip(serde.Json(arrow_type), column), strict=True):
        assert text is None if raw is None else same(json.loads(text), raw, arrow_type)


@pytest.mark.parametrize(
    "inner", [pa.string(), pa.large_string(), pa.int64(), pa.float64(), pa.timestamp("ms", "UTC"), pa.date32(), pa.decimal128(5, 2)], ids=str
)
@settings(parent=CASES, max_examples=10)
@given(data=st.data())
def test_json_of_dictionaries(inner, data):
    coded = data.draw(arrow_types.arrays(inner))[1].dictionary_encode()
    coded = pa.DictionaryArray.from_arrays(coded.indices.cast(pa.int8()), coded.dictionary)
    in_struct = pa.StructArray.from_arrays([coded], names=["d"])
    in_list = pa.ListArray.from_arrays(pa.array([0, len(coded)], pa.int32()), coded)
    for column, plain in ((coded, inner), (in_struct, pa.struct([("d", inner)])), (in_list, pa.list_(inner))):
        json_of = serde.Json(column.type)
        made, reasons = json_of.encode(column)
        assert reasons == {}
        assert serde.Json(plain).encode(column)[0] == made
        decoded, reasons = json_of.decode(made)
        assert (decoded.type, reasons) == (column.type, {})
        assert serde.Json(plain).decode(made) == (serde.Json(plain).decode(json_of.encode(decoded)[0])[0], {})


@CASES
@given(st.data())
def test_json_schema_and_frames_add_to_json_and_change_nothing(data):
    arrow_type = data.draw(arrow_types.TYPES)
    _, column = data.draw(arrow_types.arrays(arrow_type))
    alone = round_trip(serde.Json(arrow_type), column)
    follows = serde.JsonSchema({"type": ["null", "boolean", "number", "string", "object", "array"]}, serde.Json(arrow_type))
    assert round_trip(follows, column) == alone
    for framed in (serde.Json(arrow_type), follows):
        written = round_trip_framed(framed, column)
        assert written == [None if one is None else b"\0\0\0\x01\x02" + one for one in alone]


def round_trip_framed(serializer, column):
    """As `round_trip`, behind a schema id. A column of nulls only has no id, so no type."""
    if column.null_count == len(column):
        return serde.Confluent({258: serializer}, schema_id=258).encode(column)[0].to_pylist()
    table = pa.table({"value": column})
    confluent = serde.Confluent({258: serializer}, schema_id=258)
    written = serde.serialize(table, value=confluent)
    assert serde.deserialize(written, value=confluent) == table
    return written["value"].to_pylist()


INT = st.integers(-(2**31), 2**31 - 1)
LONG = st.integers(-(2**63), 2**63 - 1)


def annotated(kind, annotation, numbers):
    return st.just(({"type": kind, "logicalType": annotation}, numbers))


def digits(number, size=None):
    return number.to_bytes(size or (number if number >= 0 else ~number).bit_length() // 8 + 1, "big", signed=True)


def decimals(drawn):
    precision, scale, size = drawn
    size = size and max(size, -(-(10**precision).bit_length() // 8) + 1)
    numbers = st.integers(-(10**precision) + 1, 10**precision - 1).map(lambda number: digits(number, size))
    kind = {"type": "fixed", "name": "?", "size": size} if size else {"type": "bytes"}
    return kind | {"logicalType": "decimal", "precision": precision, "scale": min(scale, precision)}, numbers


# pairs of an Avro schema and a strategy for values as they are encoded: times are numbers, decimals bytes
AVRO_SCALARS = st.one_of(
    st.just(("null", st.none())),
    st.just(("boolean", st.booleans())),
    st.just(("int", INT)),
    st.just(("long", LONG)),
    st.just(("float", st.floats(width=32, allow_nan=False))),
    st.just(("double", st.floats(allow_nan=False))),
    st.just(("bytes", st.binary(max_size=6))),
    st.just(("string", arrow_types.TEXT)),
    st.just(({"type": "enum", "name": "?", "symbols": ["A", "B_2"]}, st.sampled_from(["A", "B_2"]))),
    st.integers(0, 5).map(lambda size: ({"type": "fixed", "name": "?", "size": size}, st.binary(min_size=size, max_size=size))),
    annotated("int", "date", INT),
    annotated("int", "time-millis", st.integers(0, arrow_types.PER_DAY["ms"] - 1)),
    annotated("long", "time-micros", st.integers(0, arrow_types.PER_DAY["us"] - 1)),
    *[annotated("long", f"{local}timestamp-{unit}", LONG) for local in ("", "local-") for unit in ("millis", "micros", "nanos")],
    annotated("string", "uuid", st.uuids().map(str)),
    st.tuples(st.integers(1, 76), st.integers(0, 76), st.sampled_from([None, 1])).map(decimals),
)


def avro_nested(inner):
    def array(item):
        return {"type": "array", "items": item[0]}, st.lists(item[1], max_size=3)

    def mapping(item):
        return {"type": "map", "values": item[0]}, st.dictionaries(arrow_types.TEXT, item[1], max_size=3)

    def record(parts):
        fields = [{"name": f"f{number}", "type": part[0]} for number, part in enumerate(parts)]
        return {"type": "record", "name": "?", "fields": fields}, st.fixed_dictionaries({f"f{number}": part[1] for number, part in enumerate(parts)})

    def nullable(item):
        return (["null", item[0]], st.none() | item[1]) if isinstance(item[0], dict) else ([item[0], "null"], st.none() | item[1])

    optional = inner.filter(lambda item: not isinstance(item[0], list) and item[0] != "null").map(nullable)
    return st.one_of(inner.map(array), inner.map(mapping), st.lists(inner, max_size=3).map(record), optional)


def with_names(schema, names):
    """The schema with each name once."""
    if isinstance(schema, list):
        return [with_names(branch, names) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    copy = {key: with_names(value, names) if key in ("items", "values") else value for key, value in schema.items()}
    if "name" in copy:
        copy["name"] = f"ns.T{next(names)}"
    if "fields" in copy:
        copy["fields"] = [field | {"type": with_names(field["type"], names)} for field in copy["fields"]]
    return copy


AVRO = st.recursive(AVRO_SCALARS, avro_nested, max_leaves=4).map(lambda pair: (with_names(pair[0], itertools.count()), pair[1]))


def without_annotations(schema):
    return json.loads(json.dumps(schema).replace('"logicalType"', '"note"'))


def avro_bytes(schema, value):
    file = io.BytesIO()
    fastavro.schemaless_writer(file, fastavro.parse_schema(schema), value)
    return file.getvalue()


def plain(value):
    """What fastavro and pyarrow make of a value, in one form; None for nanoseconds, which fastavro leaves as numbers."""
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return str(value) if isinstance(value, uuid.UUID) else value


@CASES
@given(st.data())
def test_avro(data):
    schema, values = data.draw(AVRO)
    rows = data.draw(st.lists(values, max_size=4))
    avro, raw = serde.Avro(schema), serde.Avro(without_annotations(schema))
    written = [avro_bytes(without_annotations(schema), row) for row in rows]
    table = pa.table({"value": pa.array([*written, None], pa.binary())})
    decoded = serde.deserialize(table, value=avro)
    decoded.validate(full=True)
    assert decoded["value"].type == avro.type
    # what fastavro reads as it is encoded, and as Python's objects where Python has them
    assert serde.deserialize(table, value=raw)["value"].to_pylist(maps_as_pydicts="strict") == [*rows, None]
    if "nanos" not in json.dumps(schema):
        for row, one in zip(decoded["value"], written, strict=False):
            try:
                expected = plain(fastavro.schemaless_reader(io.BytesIO(one), fastavro.parse_schema(schema), None))
            except (OverflowError, ValueError):
                continue  # a year that Python has not
            assert row.as_py(maps_as_pydicts="strict") == expected
    # a null has no bytes of its own, but the type null has: none
    assert serde.serialize(decoded, value=avro)["value"].to_pylist() == [None if row is None else one for row, one in zip(rows, written, strict=True)] + [None]
    if any(row is not None for row in rows):
        framed = serde.Confluent({7: schema}, schema_id=7)
        column = decoded["value"].combine_chunks()
        assert framed.decode(framed.encode(column)[0]) == (column, {})
        assert framed.encode(column)[0].to_pylist() == [None if one is None else b"\0\0\0\0\x07" + one for one in avro.encode(column)[0].to_pylist()]


F = descriptor_pb2.FieldDescriptorProto
NUMBERS = {"INT32": INT, "SINT32": INT, "SFIXED32": INT, "INT64": LONG, "SINT64": LONG, "SFIXED64": LONG}
UNSIGNED = {
    "UINT32": st.integers(0, 2**32 - 1),
    "FIXED32": st.integers(0, 2**32 - 1),
    "UINT64": st.integers(0, 2**64 - 1),
    "FIXED64": st.integers(0, 2**64 - 1),
}
KEYS = NUMBERS | UNSIGNED | {"BOOL": st.booleans(), "STRING": arrow_types.TEXT}
FLOATS = {"FLOAT": st.floats(width=32, allow_nan=False), "DOUBLE": st.floats(allow_nan=False)}
PROTOBUF = (
    KEYS
    | FLOATS
    | {"BYTES": st.binary(max_size=5), "ENUM": st.sampled_from(["A", "B", "-7"]), "TIME": st.datetimes(timezones=st.just(dt.UTC)), "MESSAGE": None}
)


@st.composite
def messages(draw):
    """A message class of random fields, and a strategy for its values as dicts."""
    file = descriptor_pb2.FileDescriptorProto(name="m.proto", package="p", syntax="proto3", dependency=["google/protobuf/timestamp.proto"])
    kinds = file.enum_type.add(name="Kind")
    kinds.value.add(name="A", number=0)
    kinds.value.add(name="B", number=1)
    outer, inner = file.message_type.add(name="Outer"), file.message_type.add(name="Inner")
    inside = draw_fields(draw, inner, {kind: values for kind, values in PROTOBUF.items() if kind != "MESSAGE"})
    values = draw_fields(draw, outer, PROTOBUF | {"MESSAGE": inside})
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("p.Outer")), values


def draw_fields(draw, message, kinds):
    made = {}
    for number in range(1, draw(st.integers(0, 4)) + 1):
        kind, shape = draw(st.sampled_from(sorted(kinds))), draw(st.sampled_from(["one", "optional", "repeated", "map"]))
        field = message.field.add(name=f"f{number}", number=number, label=F.LABEL_OPTIONAL)
        value = kinds[kind]
        if shape == "map":
            key = draw(st.sampled_from(sorted(KEYS)))
            entry = message.nested_type.add(name=f"F{number}Entry")
            entry.options.map_entry = True
            set_type(entry.field.add(name="key", number=1, label=F.LABEL_OPTIONAL), key)
            set_type(entry.field.add(name="value", number=2, label=F.LABEL_OPTIONAL), kind)
            field.label, field.type, field.type_name = F.LABEL_REPEATED, F.TYPE_MESSAGE, f".p.{message.name}.F{number}Entry"
            made[field.name] = st.dictionaries(KEYS[key], value, max_size=3)
            continue
        set_type(field, kind)
        if shape == "repeated":
            field.label = F.LABEL_REPEATED
            value = st.lists(value, max_size=3)
        elif shape == "optional" or kind in ("MESSAGE", "TIME"):
            field.proto3_optional, field.oneof_index = True, len(message.oneof_decl)
            message.oneof_decl.add(name=f"_f{number}")
            value = st.none() | value
        made[field.name] = value
    return st.fixed_dictionaries(made)


def set_type(field, kind):
    names = {"ENUM": ".p.Kind", "TIME": ".google.protobuf.Timestamp", "MESSAGE": ".p.Inner"}
    field.type = getattr(F, f"TYPE_{'MESSAGE' if kind == 'TIME' else kind}")
    if kind in names:
        field.type_name = names[kind]


def filled(message, value):
    """The message with the values of a dict, by Google's library."""
    for name, part in value.items():
        if part is None:
            continue
        target = getattr(message, name)
        if isinstance(part, dict) and not hasattr(target, "DESCRIPTOR"):
            for key, item in part.items():
                if isinstance(item, dict | dt.datetime):
                    fill_one(target[key], item)
                else:
                    target[key] = enum_number(message, name, item)
        elif isinstance(part, list):
            for item in part:
                if isinstance(item, dict | dt.datetime):
                    fill_one(target.add(), item)
                else:
                    target.append(enum_number(message, name, item))
        elif isinstance(part, dict | dt.datetime):
            fill_one(target, part)
        else:
            setattr(message, name, enum_number(message, name, part))
    return message


def fill_one(message, value):
    message.SetInParent()
    if isinstance(value, dict):
        filled(message, value)
    else:
        message.FromDatetime(value)


def enum_number(message, name, value):
    field = message.DESCRIPTOR.fields_by_name[name]
    field = field.message_type.fields_by_name["value"] if field.message_type is not None and field.message_type.GetOptions().map_entry else field
    return {"A": 0, "B": 1, "-7": -7}[value] if field.enum_type is not None else value


@CASES
@given(st.data())
def test_protobuf(data):
    message, values = data.draw(messages())
    rows = data.draw(st.lists(values, max_size=4))
    protobuf = serde.Protobuf(message)
    written = [filled(message(), row).SerializeToString(deterministic=True) for row in rows]
    decoded = serde.deserialize(pa.table({"value": pa.array([*written, None], pa.binary())}), value=protobuf)
    decoded.validate(full=True)
    assert [row.as_py(maps_as_pydicts="strict") for row in decoded["value"]] == [*rows, None]
    assert serde.serialize(decoded, value=protobuf)["value"].to_pylist() == [*written, None]
    framed = serde.Confluent({7: protobuf}, schema_id=7)
    assert serde.serialize(decoded, value=framed)["value"].to_pylist() == [*[b"\0\0\0\0\x07\0" + one for one in written], None]
    if rows:
        assert serde.deserialize(serde.serialize(decoded, value=framed), value=framed) == decoded


PRIMITIVES = {
    serde.Short(): ("h", st.integers(-(2**15), 2**15 - 1)),
    serde.Integer(): ("i", INT),
    serde.Long(): ("q", LONG),
    serde.Float(): ("f", st.floats(width=32)),
    serde.Double(): ("d", st.floats()),
    serde.Boolean(): ("?", st.booleans()),
    serde.String(): (None, arrow_types.TEXT),
}


@pytest.mark.parametrize("serializer", PRIMITIVES, ids=lambda serializer: type(serializer).__name__)
@CASES
@given(data=st.data())
def test_primitives(serializer, data):
    code, values = PRIMITIVES[serializer]
    rows = data.draw(st.lists(st.none() | values, max_size=6))
    start = data.draw(st.integers(0, 2))
    column = pa.array(rows, serializer.type)[start:]
    written, reasons = serializer.encode(column)
    assert reasons == {}
    assert written.to_pylist() == [None if row is None else row.encode() if code is None else struct.pack(f">{code}", row) for row in rows[start:]]
    decoded, reasons = serializer.decode(written)
    assert reasons == {}
    assert decoded.type == serializer.type
    # NaN is not equal to itself
    assert serializer.encode(decoded)[0] == written
    assert [value is None for value in decoded.to_pylist()] == [row is None for row in rows[start:]]
