"""JSON values, through pyarrow's JSON reader."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fletchlog import _core
from fletchlog.errors import InvalidArgumentError
from fletchlog.interop import require
from fletchlog.serde.outcome import OneByOne, Reasons, arrow, by_halves, encode_each

if TYPE_CHECKING:
    import pyarrow as pa

# blocks are read in parallel; a line must fit into one
_BLOCK_BYTES = 1 << 20
_ENVELOPE_BYTES = len('{"v":}\n') + len("null")
# pyarrow counts rows within its block, not within the column
_ROW = re.compile(r" in row \d+$")


@dataclass(frozen=True)
class Json(OneByOne):
    """One JSON value per record, of any kind: object, array, number, string, true, false, null.

    Args:
        schema: A `pyarrow.Schema` (for objects) or `pyarrow.DataType`. Fields that a value lacks are null, fields that the schema
            lacks are left out, a value that does not fit the type is malformed. None: the type is what the values show, read in
            order up to the first that contradicts those before it (which is malformed, as are later ones that do not fit); it then depends
            on the values, so streams of batches should give a schema.

    A value must be exactly one JSON value in UTF-8, nested at most 128 levels deep. Conversions are those of `pyarrow.json`:
    ISO 8601 strings become timestamps where the schema says so, and when the type is inferred.

    `encode` writes one line without spaces: fields in the order of the schema, null fields as null, times in ISO 8601, decimals as strings. NaN,
    infinity and bytes have no JSON.
    """

    schema: pa.Schema | pa.DataType | None = None

    @property
    def type(self) -> pa.DataType | None:
        """Arrow type of the result, None if it is inferred."""
        pa = arrow()
        return pa.struct(list(self.schema)) if isinstance(self.schema, pa.Schema) else self.schema

    def decode(self, column: pa.BinaryArray) -> tuple[pa.Array, Reasons]:
        """See `Deserializer.decode`."""
        lines, malformed = _lines(column)
        reasons: Reasons = dict(malformed)
        rows = len(column)
        arrow_type = self.type or _inferred(column)

        def read(start: int, stop: int) -> pa.Array:
            part = column[start:stop]
            return _read(part, lines if (start, stop) == (0, rows) else _lines(part)[0], arrow_type)

        return by_halves(rows, arrow_type, read, reasons), reasons

    def encode(self, column: pa.Array) -> tuple[pa.BinaryArray, Reasons]:
        """See `Serializer.encode`."""
        wanted = self.type
        return encode_each(column if wanted is None else column.cast(wanted), _text)

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


def _text(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain).encode()


def _plain(value: Any) -> Any:
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, decimal.Decimal) and value.is_finite():
        return str(value)
    raise TypeError(f"{type(value).__name__} has no JSON")


def _lines(column: pa.BinaryArray) -> tuple[bytes, list[tuple[int, str]]]:
    """One line `{"v": VALUE}` per row, null for a null or malformed value, and the malformed rows."""
    return _core.json_lines(arrow().record_batch([column], ["v"]))


def _inferred(column: pa.BinaryArray) -> pa.DataType:
    """The type of the longest beginning of the column whose values agree."""
    pa = arrow()

    def type_of(rows: int) -> Any:
        part = column[:rows]
        return _read(part, _lines(part)[0], None).type

    try:
        return type_of(len(column))
    except pa.ArrowInvalid:
        good, bad = 0, len(column)
        while bad - good > 1:
            middle = (good + bad) // 2
            try:
                type_of(middle)
                good = middle
            except pa.ArrowInvalid:
                bad = middle
        return type_of(good)


def _read(column: pa.BinaryArray, lines: bytes, arrow_type: pa.DataType | None) -> pa.Array:
    """The values of a column, given as its lines, as an array.

    Raises:
        pyarrow.ArrowInvalid: A value does not fit the type, or contradicts another one when the type is inferred.
    """
    pa, compute, reader = arrow(), require("pyarrow.compute", "serde"), require("pyarrow.json", "serde")
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
