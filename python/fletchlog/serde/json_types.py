"""Arrow types that JSON has no kind of its own for, as what pyarrow's JSON reader and Python's writer take, and back.

Dates and times are texts, durations numbers, maps objects. pyarrow reads no objects as maps: such values are written anew as arrays of entries.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from fletchlog.errors import InvalidArgumentError
from fletchlog.interop import require
from fletchlog.serde import iso8601
from fletchlog.serde.columns import converted, mapped, plain_type
from fletchlog.serde.outcome import arrow

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

_WHOLE = re.compile(r"-?\d+")


def _is_nested(arrow_type: pa.DataType) -> bool:
    types = arrow().types
    return bool(types.is_nested(arrow_type) or types.is_dictionary(arrow_type))


def _is_iso(arrow_type: pa.DataType) -> bool:
    types = arrow().types
    return bool(types.is_date(arrow_type) or types.is_time(arrow_type) or types.is_timestamp(arrow_type))


def to_read(arrow_type: pa.DataType) -> pa.DataType:
    """The type that pyarrow reads for values of a type: `from_json` makes that of it.

    Raises:
        fletchlog.errors.InvalidArgumentError: A part of the type has no JSON.
    """
    pa, types = arrow(), arrow().types

    def part(one: Any, path: str) -> Any:
        if types.is_struct(one):
            names = [field.name for field in one]
            if len(set(names)) != len(names):
                raise InvalidArgumentError(f"a JSON object has no name twice, but {one} has{_at(path)}")
            # fields that must not be null are checked where the rows are known that are null themselves
            return pa.struct([(field.name, mapped(field.type, part, f"{path}/{field.name}")) for field in one])
        if types.is_map(one):
            if _is_nested(one.key_type):
                raise InvalidArgumentError(f"Json has no {one}{_at(path)}: the names of an object are strings")
            mapped(one.key_type, part, f"{path}/key")
            value = mapped(one.item_type, part, f"{path}/value")
            return pa.list_(pa.struct([("key", pa.string()), ("value", value)]))
        if types.is_list(one) or types.is_large_list(one) or types.is_fixed_size_list(one):
            return pa.list_(mapped(one.value_type, part, f"{path}/items"))
        if types.is_dictionary(one) and not _is_nested(one.value_type):
            return None
        # pyarrow's reader makes no valid lists of nulls
        if _is_iso(one) or types.is_null(one):
            return pa.string()
        if types.is_duration(one):
            return pa.int64()
        if types.is_float16(one):
            return pa.float64()
        known = (types.is_boolean, types.is_integer, types.is_floating, types.is_decimal, types.is_string, types.is_large_string, types.is_string_view)
        if any(is_one(one) for is_one in known):
            return one
        raise InvalidArgumentError(f"Json has no {one}{_at(path)}; give another type, such as string, list or struct")

    return mapped(arrow_type, part)


def _at(path: str) -> str:
    return f" at {path}" if path else ""


def from_json(array: pa.Array, arrow_type: pa.DataType) -> pa.Array:
    """An array that pyarrow has read (or strings, the keys of a map) as the type that was asked for.

    Raises:
        pyarrow.ArrowInvalid, OverflowError: A value does not fit it.
    """
    pa, types = arrow(), arrow().types
    if _is_iso(arrow_type):
        return iso8601.from_text(array, arrow_type)
    if types.is_null(arrow_type):
        if array.null_count < len(array):
            raise pa.ArrowInvalid("a value where the type has only nulls")
        return pa.nulls(len(array))
    if types.is_duration(arrow_type):
        return array.cast(pa.int64()).cast(arrow_type)
    made = array.cast(pa.float64()).cast(arrow_type) if types.is_float16(arrow_type) else array.cast(arrow_type)
    if types.is_floating(arrow_type) and not _finite(made):
        raise pa.ArrowInvalid(f"a number is beyond those of {arrow_type}")
    return made


def _finite(array: pa.Array) -> bool:
    compute = require("pyarrow.compute", "serde")
    return bool(compute.all(compute.is_finite(array.cast(arrow().float64())), min_count=0).as_py())


def to_json(array: pa.Array) -> pa.Array:
    """An array as one whose values are JSON's, except those that have no JSON."""
    pa, types = arrow(), arrow().types

    def part(one: Any, path: str) -> Any:
        if types.is_map(one):
            return pa.map_(pa.string(), mapped(one.item_type, part, path))
        if types.is_large_list(one) or types.is_fixed_size_list(one):
            return mapped(pa.list_(one.value_field), part, path)
        if _is_iso(one):
            return pa.string()
        if types.is_duration(one):
            return pa.int64()
        return pa.float64() if types.is_float16(one) else None

    return converted(array, mapped(plain_type(array.type), part), _one_to_json)


def _one_to_json(array: pa.Array, arrow_type: pa.DataType) -> pa.Array:
    pa, types = arrow(), arrow().types
    if _is_iso(array.type):
        return iso8601.to_text(array)
    if array.type == arrow_type:
        return array
    # the rest are keys of maps
    if types.is_decimal(array.type):
        return pa.array([format(value, "f") for value in array.to_pylist()], arrow_type)
    if types.is_floating(array.type) and types.is_string(arrow_type) and not _finite(array):
        raise ValueError("a key of a map is not a finite number, which has no JSON")
    if types.is_duration(array.type):
        return array.cast(pa.int64()).cast(arrow_type)
    if not (types.is_primitive(array.type) or types.is_string(array.type) or types.is_large_string(array.type) or types.is_string_view(array.type)):
        raise TypeError(f"a key of the type {array.type} has no JSON")
    return (array.cast(pa.float32()) if types.is_float16(array.type) else array).cast(arrow_type)


class _Number(str):
    """A number as it is written in JSON."""

    __slots__ = ()


class _Object(list[tuple[str, Any]]):
    """The members of an object, those of one name as well."""


def has_maps(arrow_type: pa.DataType) -> bool:
    """Whether a type has maps."""
    return _has(arrow_type, arrow().types.is_map)


def has_dates(arrow_type: pa.DataType) -> bool:
    """Whether a type has dates or times, which may be numbers in JSON."""
    types = arrow().types
    return _has(arrow_type, lambda part: types.is_date(part) or types.is_time(part))


def _has(arrow_type: pa.DataType, is_one: Callable[[pa.DataType], bool]) -> bool:
    found: list[bool] = []

    def part(one: pa.DataType, _path: str) -> None:
        found.append(is_one(one))

    mapped(arrow_type, part)
    return any(found)


def rewritten(column: pa.BinaryArray, arrow_type: pa.DataType) -> pa.BinaryArray:
    """Values with maps as arrays of entries, and dates and times that are numbers as texts.

    Raises:
        TypeError: A map is no object.
        ValueError: It has a key twice.
    """
    values = [None if value is None else _rewritten(value, arrow_type) for value in column.to_pylist()]
    return arrow().array(values, arrow().binary())


def _rewritten(value: bytes, arrow_type: pa.DataType) -> bytes:
    return _anew(json.loads(value, parse_int=_Number, parse_float=_Number, object_pairs_hook=_Object), arrow_type).encode()


def _anew(value: Any, arrow_type: pa.DataType) -> str:
    """The JSON of a parsed value; objects and arrays where the type has neither are empty, for pyarrow to report."""
    types = arrow().types
    if types.is_map(arrow_type) and value is not None:
        return _entries(value, arrow_type)
    if isinstance(value, _Object):
        kinds = {field.name: field.type for field in arrow_type} if types.is_struct(arrow_type) else {}
        return "{" + ",".join(f"{json.dumps(name)}:{_anew(inner, kinds[name])}" for name, inner in value if name in kinds) + "}"
    if isinstance(value, list):
        items = value if types.is_list(arrow_type) or types.is_large_list(arrow_type) or types.is_fixed_size_list(arrow_type) else []
        return "[" + ",".join(_anew(item, arrow_type.value_type) for item in items) + "]"
    if isinstance(value, _Number):
        is_whole = (types.is_date(arrow_type) or types.is_time(arrow_type)) and _WHOLE.fullmatch(value)
        return json.dumps(iso8601.text_of(int(value), arrow_type)) if is_whole else value
    return json.dumps(value)


def _entries(value: Any, arrow_type: pa.DataType) -> str:
    if not isinstance(value, _Object):
        raise TypeError(f"a map takes an object, not {json.dumps(value):.60}")
    keys = set()
    for key, _ in value:
        if key in keys:
            raise ValueError(f"a map has the key {json.dumps(key)} twice")
        keys.add(key)
    return "[" + ",".join(f'{{"key":{json.dumps(key)},"value":{_anew(inner, arrow_type.item_type)}}}' for key, inner in value) + "]"
