"""JSON values, through pyarrow's JSON reader."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from fletchlog import _core
from fletchlog.errors import InvalidArgumentError
from fletchlog.interop import require
from fletchlog.serde import json_types
from fletchlog.serde.columns import cast, converted, plain_type
from fletchlog.serde.outcome import OneByOne, Reasons, arrow, by_halves, encode_each, framed, value_of

if TYPE_CHECKING:
    from collections.abc import Collection

    import pyarrow as pa

# blocks are read in parallel; a line must fit into one
_BLOCK_BYTES = 1 << 20
_ENVELOPE_BYTES = len('{"v":}\n') + len("null")
# pyarrow counts rows within its block, not within the column
_ROW = re.compile(r" in row \d+$")


@dataclass(frozen=True)
class Json(OneByOne[Any]):
    """One JSON value per record, of any kind: object, array, number, string, true, false, null.

    Args:
        schema: A `pyarrow.Schema` (for objects) or `pyarrow.DataType`. Fields that a value lacks are null, fields that the schema
            lacks are left out, a value that does not fit the type is malformed. None: the type is what the values show, read in
            order up to the first that contradicts those before it (which is malformed, as are later ones that do not fit; one that contradicts
            itself is malformed and left out); it then depends on the values, so streams of batches should give a schema.

    A value must be exactly one JSON value in UTF-8, nested at most 128 levels deep. Conversions are those of `pyarrow.json`:
    ISO 8601 strings become timestamps where the schema says so, and when the type is inferred. With a schema what `encode` writes is read as it was:

    | Arrow type | JSON |
    |---|---|
    | bool, integers, floats | true and false, numbers |
    | string, large_string, string_view | string |
    | decimal | string; a number is read, too |
    | timestamp | string, `2024-05-06T07:08:09.123`; with a zone in UTC, with a Z |
    | date, time | string, `2024-05-06`, `07:08:09.123`; a number of days (date64: milliseconds) or units is read, too |
    | duration | number of its unit |
    | list, large_list, fixed_size_list | array |
    | struct, map | object |
    | dictionary | as the type of its values |

    The year of a date is signed outside of 0000 to 9999, as in `+10000-01-01`. The keys of a map are strings, `{"5":true}`; each may be there once.

    `encode` writes one line without spaces: fields in the order of the schema, null fields as null. NaN, infinity and bytes have no JSON.

    Raises:
        fletchlog.errors.InvalidArgumentError: The schema has a type that has no JSON (binary, intervals, unions, ..), or a struct a name twice.
    """

    schema: pa.Schema | pa.DataType | None = None

    def __post_init__(self) -> None:
        self._read_type  # noqa: B018 - a schema that cannot work fails here, not at the first record

    @cached_property
    def type(self) -> pa.DataType | None:
        """Arrow type of the result, None if it is inferred."""
        if self.schema is None:
            return None
        pa = arrow()
        if not isinstance(self.schema, pa.Schema | pa.DataType):
            raise InvalidArgumentError(f"Json takes a pyarrow.Schema or pyarrow.DataType, got {self.schema!r:.60}")
        return pa.struct(list(self.schema)) if isinstance(self.schema, pa.Schema) else self.schema

    @cached_property
    def _read_type(self) -> pa.DataType | None:
        return None if self.type is None else json_types.to_read(self.type)

    def decode(self, column: pa.BinaryArray) -> tuple[pa.Array, Reasons]:
        """See `Deserializer.decode`."""
        lines, malformed = _lines(column)
        reasons: Reasons = {row: reason + framed(column[row].as_py()) for row, reason in malformed}
        column = _without(column, reasons) if malformed else column
        if self.type is None:
            column, arrow_type = _inferred(column, reasons)
            return by_halves(len(column), arrow_type, lambda start, stop: _read(column[start:stop], None, arrow_type), reasons), reasons
        made = by_halves(len(column), self.type, lambda start, stop: self._read(column[start:stop], lines if stop - start == len(column) else None), reasons)
        return made, reasons

    def _read(self, column: pa.BinaryArray, lines: bytes | None) -> pa.Array:
        pa = arrow()

        def read(values: Any, lines: bytes | None) -> Any:
            return converted(_read(values, lines, self._read_type), self.type, json_types.from_json)

        try:
            return read(json_types.rewritten(column, self.type), None) if json_types.has_maps(self.type) else read(column, lines)
        except (pa.ArrowInvalid, ValueError, OverflowError):
            if not json_types.has_dates(self.type):
                raise
            return read(json_types.rewritten(column, self.type), None)

    def encode(self, column: pa.Array) -> tuple[pa.BinaryArray, Reasons]:
        """See `Serializer.encode`."""
        reasons: Reasons = {}
        made, why = encode_each(cast(column, plain_type(self.type or column.type), reasons, json_types.to_json), _text)
        return made, why | reasons

    def __call__(self, value: Any) -> bytes:
        """The bytes of one value; without a schema of any that JSON has.

        Raises:
            fletchlog.errors.InvalidArgumentError: It cannot be encoded.
        """
        if self.schema is not None:
            return super().__call__(value)
        try:
            return _text(value)
        except (ValueError, TypeError, RecursionError) as error:
            raise InvalidArgumentError(f"Json cannot encode {value!r:.60}: {error}") from None

    def of_bytes(self, data: bytes) -> Any:
        """One value from its bytes; without a schema of any kind that JSON has, also arrays of different things.

        Raises:
            ValueError: It is not exactly one JSON value, or does not fit the schema.
        """
        if self.schema is not None:
            return value_of(self, data)
        _, malformed = _lines(arrow().array([data], arrow().binary()))
        if malformed:
            raise ValueError(malformed[0][1] + framed(data))
        return json.loads(data)


def _text(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain).encode()


def _plain(value: Any) -> Any:
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, decimal.Decimal) and value.is_finite():
        return format(value, "f")
    raise TypeError(f"{type(value).__name__} has no JSON")


def _lines(column: pa.BinaryArray) -> tuple[bytes, list[tuple[int, str]]]:
    """One line `{"v": VALUE}` per row, null for a null or malformed value, and the malformed rows."""
    return _core.json_lines(arrow().record_batch([column], ["v"]))


def _without(column: pa.BinaryArray, rows: Collection[int]) -> pa.BinaryArray:
    """A column with null in some rows."""
    return arrow().array([None if row in rows else value for row, value in enumerate(column.to_pylist())], arrow().binary())


def _inferred(column: pa.BinaryArray, reasons: Reasons) -> tuple[pa.BinaryArray, pa.DataType]:
    """The type of the longest beginning of the column whose values agree, and the column without those that contradict themselves."""
    pa = arrow()

    def type_of(start: int, stop: int) -> Any:
        return _read(column[start:stop], None, None).type

    def judge(start: int, stop: int) -> None:
        try:
            type_of(start, stop)
        except pa.ArrowInvalid as error:
            if stop - start == 1:
                reasons[start] = str(error)
                return
            middle = (start + stop) // 2
            judge(start, middle)
            judge(middle, stop)

    try:
        return column, type_of(0, len(column))
    except pa.ArrowInvalid:
        judge(0, len(column))
        column = _without(column, reasons)
    # a beginning of one row agrees
    good, bad = 1, len(column) + 1
    while bad - good > 1:
        middle = (good + bad) // 2
        try:
            type_of(0, middle)
            good = middle
        except pa.ArrowInvalid:
            bad = middle
    return column, type_of(0, good)


def _read(column: pa.BinaryArray, lines: bytes | None, arrow_type: pa.DataType | None) -> pa.Array:
    """The values of a column as an array.

    Args:
        column: The values.
        lines: The same as lines, if they have been made.
        arrow_type: A type that pyarrow reads; None to infer it.

    Raises:
        pyarrow.ArrowInvalid: A value does not fit the type, or contradicts another one when the type is inferred.
    """
    pa, compute, reader = arrow(), require("pyarrow.compute", "serde"), require("pyarrow.json", "serde")
    lines = _lines(column)[0] if lines is None else lines
    if not lines:
        return pa.nulls(0, arrow_type)
    explicit = None if arrow_type is None else pa.schema([("v", arrow_type)])
    options = reader.ParseOptions(explicit_schema=explicit, unexpected_field_behavior="infer" if explicit is None else "ignore")
    longest = compute.max(compute.binary_length(column)).as_py() or 0
    block_bytes = max(_BLOCK_BYTES, longest + _ENVELOPE_BYTES)
    try:
        table = reader.read_json(pa.BufferReader(lines), reader.ReadOptions(block_size=block_bytes), options)
    except pa.ArrowInvalid as error:
        raise pa.ArrowInvalid(_ROW.sub("", str(error)).replace("JSON parse error: Column(/v", "Column(", 1)) from None
    return pa.concat_arrays(table["v"].chunks)
