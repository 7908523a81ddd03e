"""What `serialize` writes `deserialize` reads as it was: every serializer over types and values of all kinds, and other libraries as judges."""

import decimal
import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import arrow_types
from fletchlog import serde

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
