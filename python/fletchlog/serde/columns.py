"""Nested Arrow arrays, part by part, as other types.

Python's `datetime` ends at the years 1 and 9999 and has no nanoseconds, so no value is converted through it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fletchlog.errors import InvalidArgumentError
from fletchlog.interop import require
from fletchlog.serde.outcome import Reasons, arrow, by_halves, no_field

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa


def mapped(arrow_type: pa.DataType, part: Callable[[pa.DataType, str], pa.DataType | None], path: str = "") -> pa.DataType:
    """A type with other parts: `part(type, place)` is the type in its stead, None to look into it. Dictionaries become the type of their values."""
    pa, types = arrow(), arrow().types
    found = part(arrow_type, path)
    if found is not None:
        return found
    if types.is_dictionary(arrow_type):
        return mapped(arrow_type.value_type, part, path)
    if types.is_struct(arrow_type):
        return pa.struct([field.with_type(mapped(field.type, part, f"{path}/{field.name}")) for field in arrow_type])
    if types.is_map(arrow_type):
        item = arrow_type.item_field
        return pa.map_(mapped(arrow_type.key_type, part, f"{path}/key"), item.with_type(mapped(item.type, part, f"{path}/value")))
    for is_one, make in ((types.is_list, pa.list_), (types.is_large_list, pa.large_list), (types.is_list_view, pa.list_), (types.is_large_list_view, pa.list_)):
        if is_one(arrow_type):
            return make(arrow_type.value_field.with_type(mapped(arrow_type.value_type, part, f"{path}/items")))
    if types.is_fixed_size_list(arrow_type):
        return pa.list_(arrow_type.value_field.with_type(mapped(arrow_type.value_type, part, f"{path}/items")), arrow_type.list_size)
    return arrow_type


def refuse_other_fields(given: pa.DataType, wanted: pa.DataType, path: str = "") -> None:
    """Refuses fields of structs that the type to be written does not have: their values would be lost.

    Raises:
        fletchlog.errors.InvalidArgumentError: There is one.
    """
    types = arrow().types
    if types.is_struct(given) and types.is_struct(wanted):
        for field in given:
            place = wanted.get_field_index(field.name)
            if place < 0:
                raise InvalidArgumentError(no_field(field.name, [one.name for one in wanted], path))
            refuse_other_fields(field.type, wanted.field(place).type, f"{path}/{field.name}")
    elif types.is_map(given) and types.is_map(wanted):
        refuse_other_fields(given.item_type, wanted.item_type, f"{path}/value")
    elif _has_items(given) and _has_items(wanted):
        refuse_other_fields(given.value_type, wanted.value_type, f"{path}/items")


def _has_items(arrow_type: pa.DataType) -> bool:
    types = arrow().types
    return any(is_one(arrow_type) for is_one in (types.is_list, types.is_large_list, types.is_fixed_size_list, types.is_list_view, types.is_large_list_view))


def plain_type(arrow_type: pa.DataType) -> pa.DataType:
    """A type without dictionaries and views, which pyarrow casts and takes only in part."""
    pa, types = arrow(), arrow().types

    def part(one: Any, _path: str) -> Any:
        if types.is_string_view(one):
            return pa.string()
        return pa.binary() if types.is_binary_view(one) else None

    return mapped(arrow_type, part)


def plain(array: pa.Array) -> pa.Array:
    """An array without dictionaries and views."""
    arrow_type = plain_type(array.type)
    return array if array.type == arrow_type else converted(array, arrow_type, lambda part, one: part.cast(one))


def converted(array: pa.Array, arrow_type: pa.DataType, leaf: Callable[[pa.Array, pa.DataType], pa.Array]) -> pa.Array:
    """The array as `arrow_type`: the same nesting, each part that is not nested converted by `leaf(part, its type in arrow_type)`.

    A list of structs of two fields becomes a map where `arrow_type` has one.

    Raises:
        pyarrow.ArrowException: A part cannot be converted; `leaf` may raise ValueError and OverflowError too.
    """
    pa, types = arrow(), arrow().types
    if types.is_dictionary(array.type):
        array = pa.DictionaryArray.from_arrays(array.indices, plain(array.dictionary)).dictionary_decode()
    if types.is_struct(arrow_type) and arrow_type.num_fields > 0:
        pairs = zip(array.flatten(), arrow_type, strict=True)
        parts = [_required(converted(part, field.type, leaf), field, nulls=array.null_count) for part, field in pairs]
        return pa.StructArray.from_arrays(parts, fields=list(arrow_type), mask=array.is_null())
    if types.is_map(arrow_type):
        offsets, entries = _unpacked(array)
        fields = (arrow_type.key_field, arrow_type.item_field)
        keys, items = (_required(converted(part, field.type, leaf), field) for part, field in zip(entries.flatten(), fields, strict=True))
        return pa.MapArray.from_arrays(offsets.cast(pa.int32()), keys, items, type=arrow_type, mask=array.is_null())
    if types.is_list(arrow_type) or types.is_large_list(arrow_type):
        offsets, values = _unpacked(array)
        values, made = (
            _required(converted(values, arrow_type.value_type, leaf), arrow_type.value_field),
            pa.ListArray if types.is_list(arrow_type) else pa.LargeListArray,
        )
        return made.from_arrays(offsets.cast(pa.int32() if types.is_list(arrow_type) else pa.int64()), values, type=arrow_type, mask=array.is_null())
    if types.is_fixed_size_list(arrow_type):
        if arrow_type.list_size == 0:
            # pyarrow divides by the size
            return pa.array([[] if is_valid else None for is_valid in array.is_valid().to_pylist()], arrow_type)
        offsets, values = _unpacked(array)
        values = _of_fixed_size(
            offsets.to_pylist(),
            array.is_valid().to_pylist(),
            _required(converted(values, arrow_type.value_type, leaf), arrow_type.value_field),
            arrow_type.list_size,
        )
        return pa.FixedSizeListArray.from_arrays(values, type=arrow_type, mask=array.is_null())
    if types.is_dictionary(arrow_type):
        coded = converted(array, arrow_type.value_type, leaf).dictionary_encode()
        return pa.DictionaryArray.from_arrays(coded.indices.cast(arrow_type.index_type), coded.dictionary, ordered=arrow_type.ordered)
    return array if array.type == arrow_type and types.is_struct(arrow_type) else leaf(array, arrow_type)


def _required(array: pa.Array, field: pa.Field, nulls: int = 0) -> pa.Array:
    """The array, which has no nulls beside those of rows that are null themselves, if the field may have none."""
    if not field.nullable and array.null_count > nulls:
        raise ValueError(f"the field {field.name} must not be null, and is null or missing")
    return array


def _of_fixed_size(offsets: list[int], valid: list[bool], values: pa.Array, size: int) -> pa.Array:
    """The values of lists of one size: those of null lists, which `values` does not have, are nulls. A cast would leave old memory there."""
    pa = arrow()
    parts, begin = [values[:0]], 0
    for row, is_valid in enumerate(valid):
        length = offsets[row + 1] - offsets[row]
        if is_valid and length != size:
            raise ValueError(f"a list has {length} items, the type has {size}")
        if not is_valid:
            parts += [values[begin : offsets[row]], pa.nulls(size, values.type)]
            begin = offsets[row]
    return pa.concat_arrays([*parts, values[begin:]])


def _unpacked(array: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Offsets, and the values of all rows of a list or map array; those that no row has (of a null, around a slice) are left out."""
    pa, compute, types = arrow(), require("pyarrow.compute", "serde"), arrow().types
    if types.is_map(array.type):
        # Arrow keeps a map as a list of entries; its casts leave too many items that are of the type null
        entries = pa.StructArray.from_arrays([array.keys, array.items[: len(array.keys)]], names=["key", "value"])
        array = pa.Array.from_buffers(pa.list_(entries.type), len(array), array.buffers()[:2], offset=array.offset, children=[entries])
    lengths = compute.fill_null(compute.list_value_length(array), 0).cast(pa.int64())
    return pa.concat_arrays([pa.array([0]), compute.cumulative_sum(lengths)]), array.flatten()


def cast(column: pa.Array, arrow_type: pa.DataType, reasons: Reasons) -> pa.Array:
    """A column to encode as another type; rows that cannot be cast become null and get a reason.

    Raises:
        pyarrow.ArrowException: The column's type can never be cast to that type.
    """

    def one(start: int, stop: int) -> Any:
        return cast_whole(column[start:stop], arrow_type)

    return by_halves(len(column), one(0, 0).type, one, reasons)


def cast_whole(column: pa.Array, arrow_type: pa.DataType) -> pa.Array:
    """A column to encode as another type.

    Raises:
        pyarrow.ArrowException, ValueError: A row cannot be cast, or the type.
    """
    if column.type == arrow_type:
        return column
    wide = mapped(arrow_type, lambda part, _: arrow().float64() if arrow().types.is_floating(part) else None)
    made = column.cast(wide)
    # casts of nested nulls make arrays that are not valid
    made.validate()
    return converted(made, arrow_type, _narrow) if wide != arrow_type else made


def _narrow(array: pa.Array, arrow_type: pa.DataType) -> pa.Array:
    """A cast that refuses a number that only infinity could stand for."""
    compute, made = require("pyarrow.compute", "serde"), array.cast(arrow_type)
    if arrow().types.is_floating(arrow_type) and arrow_type != array.type:
        beyond = compute.and_(compute.is_inf(made.cast(array.type)), compute.is_finite(array))
        if compute.any(beyond).as_py():
            raise ValueError(f"the number {array.filter(beyond)[0]} is beyond those of {arrow_type}")
    return made
