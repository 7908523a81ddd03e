"""Nested Arrow arrays, part by part: times and decimals as the numbers and texts that other libraries take, and back.

Python's `datetime` ends at the years 1 and 9999 and has no nanoseconds, so no value is converted through it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fletchlog.interop import require
from fletchlog.serde.outcome import arrow

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

# its digits are not counted: the number of its bytes says enough
_LONG_DECIMAL = 1000


def converted(array: pa.Array, arrow_type: pa.DataType, leaf: Callable[[pa.Array, pa.DataType], pa.Array]) -> pa.Array:
    """The array as `arrow_type`: the same nesting, each part that is not nested converted by `leaf(part, its type in arrow_type)`.

    A list of structs of two fields becomes a map where `arrow_type` has one.

    Raises:
        pyarrow.ArrowException: A part cannot be converted; `leaf` may raise ValueError and OverflowError too.
    """
    pa, types = arrow(), arrow().types
    if types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if types.is_struct(arrow_type) and arrow_type.num_fields > 0:
        parts = [converted(part, field.type, leaf) for part, field in zip(array.flatten(), arrow_type, strict=True)]
        return pa.StructArray.from_arrays(parts, fields=list(arrow_type), mask=array.is_null())
    if types.is_map(arrow_type):
        array = _packed(array)
        keys, items = (array.keys, array.items) if types.is_map(array.type) else array.values.flatten()
        keys, items = converted(keys, arrow_type.key_type, leaf), converted(items, arrow_type.item_type, leaf)
        return pa.MapArray.from_arrays(array.offsets, keys, items, type=arrow_type, mask=array.is_null())
    if types.is_list(arrow_type):
        array = _packed(array if types.is_list(array.type) else array.cast(pa.list_(array.type.value_type)))
        values = converted(array.values, arrow_type.value_type, leaf)
        return pa.ListArray.from_arrays(array.offsets, values, type=arrow_type, mask=array.is_null())
    if types.is_large_list(arrow_type) or types.is_fixed_size_list(arrow_type):
        return converted(array, pa.list_(arrow_type.value_field), leaf).cast(arrow_type)
    if types.is_dictionary(arrow_type):
        coded = converted(array, arrow_type.value_type, leaf).dictionary_encode()
        return pa.DictionaryArray.from_arrays(coded.indices.cast(arrow_type.index_type), coded.dictionary, ordered=arrow_type.ordered)
    return array if array.type == arrow_type and types.is_struct(arrow_type) else leaf(array, arrow_type)


def _packed(array: pa.Array) -> pa.Array:
    """A list or map array whose offsets begin at 0 and whose values are those of its rows only."""
    return array.take(arrow().array(range(len(array)), arrow().int64()))


def number(array: pa.Array, arrow_type: pa.DataType) -> pa.Array:
    """Times <-> the integers that Arrow keeps them as, decimals <-> their digits in two's complement, big-endian."""
    types = arrow().types
    if types.is_decimal(arrow_type):
        return _decimals(array, arrow_type)
    if types.is_decimal(array.type):
        return _digits(array, arrow_type)
    made = array.cast(arrow_type)
    if types.is_time(arrow_type):
        # a cast takes numbers beyond the end of the day
        made.validate(full=True)
    return made


def _decimals(array: pa.Array, arrow_type: pa.DataType) -> pa.Array:
    pa, compute = arrow(), require("pyarrow.compute", "serde")
    dense = bytearray()
    for data in array.to_pylist():
        value = 0 if data is None else int.from_bytes(data, "big", signed=True)
        if abs(value) >= 10**arrow_type.precision:
            what = f"{len(data)} bytes" if len(data) > _LONG_DECIMAL else f"{len(str(abs(value)))} digits"
            raise ValueError(f"it has a decimal of {what}, the type has a precision of {arrow_type.precision}")
        dense += value.to_bytes(arrow_type.byte_width, "little", signed=True)
    made = pa.Array.from_buffers(arrow_type, len(array), [None, pa.py_buffer(bytes(dense))])
    return compute.if_else(array.is_valid(), made, pa.scalar(None, arrow_type)) if array.null_count else made


def _digits(array: pa.Array, arrow_type: pa.DataType) -> pa.Array:
    pa = arrow()
    size = arrow_type.byte_width if pa.types.is_fixed_size_binary(arrow_type) else None
    made: list[bytes | None] = []
    for data in array.view(pa.binary(array.type.byte_width)).to_pylist():
        value = 0 if data is None else int.from_bytes(data, "little", signed=True)
        # as Java's BigInteger.toByteArray: as few bytes as hold the sign as well
        least = (value if value >= 0 else ~value).bit_length() // 8 + 1
        made.append(None if data is None else value.to_bytes(size or least, "big", signed=True))
    return pa.array(made, arrow_type)
