"""JSON values."""

from __future__ import annotations

import datetime as dt
import decimal
import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from fletchlog import _core
from fletchlog.errors import InvalidArgumentError
from fletchlog.serde import ddl
from fletchlog.serde.columns import cast, converted, mapped, plain_type, refuse_other_fields
from fletchlog.serde.outcome import OneByOne, Reasons, arrow, by_halves, framed, without
from fletchlog.serde.typed import batch_of, column_of, decoded, encoded, paths, schema_of, type_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import pyarrow as pa


@dataclass(frozen=True)
class Json(OneByOne[Any]):
    """One JSON value per record, of any kind: object, array, number, string, true, false, null.

    Args:
        schema: A `pyarrow.Schema` (for objects), a `pyarrow.DataType`, or text in Spark's DDL, `id bigint, name string`. Fields that a
            value lacks are null, fields that the schema lacks are left out (and refused by `encode`), a value that does not fit the type is malformed.
            None: the type is what the values show, read in order up to the first that contradicts those before it (which is malformed, as are
            later ones that do not fit; one that contradicts itself is malformed and left out); it then depends on the values, so streams of
            batches should give a schema.

    A value must be exactly one JSON value in UTF-8, nested at most 127 levels deep. ISO 8601 strings become timestamps where the schema says so; when the
    type is inferred, those with whole seconds. With a schema what `encode` writes is read as it was:

    | Arrow type | JSON |
    |---|---|
    | bool, integers, floats | true and false, numbers (`1.0` is an integer, too) |
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

    schema: pa.Schema | pa.DataType | str | None = None

    def __post_init__(self) -> None:
        self._reader  # noqa: B018 - a schema that cannot work fails here, not at the first record

    def __getstate__(self) -> dict[str, Any]:
        return {"schema": self.schema}

    @cached_property
    def type(self) -> pa.DataType | None:
        """Arrow type of the result, None if it is inferred."""
        if self.schema is None:
            return None
        if isinstance(self.schema, str):
            if self.schema.lstrip().startswith("{"):
                raise InvalidArgumentError(f"Json takes a type as text, such as 'id bigint', got {self.schema!r:.60}; JsonSchema takes a JSON Schema")
            return ddl.arrow_type(self.schema)
        pa = arrow()
        if not isinstance(self.schema, pa.Schema | pa.DataType):
            raise InvalidArgumentError(f"Json takes a pyarrow.Schema, a pyarrow.DataType or text such as 'id bigint, name string', got {self.schema!r:.60}")
        return pa.struct(list(self.schema)) if isinstance(self.schema, pa.Schema) else self.schema

    @cached_property
    def _reader(self) -> _core.ValueReader | None:
        return None if self.type is None else _core.json_reader(schema_of(_escaped(self.type)))

    @cached_property
    def _whole_reader(self) -> _core.ValueReader | None:
        return None if self.type is None else _core.json_reader(schema_of(_escaped(self.type)), refuses_other_fields=True)

    @cached_property
    def value_reader(self) -> _core.ValueReader | None:
        """What reads one value; None if the type is inferred, or has dictionaries or views, which are made of whole columns."""
        return None if self._reader is None or type_of(self._reader) != self.type else self._reader

    @cached_property
    def value_writer(self) -> _core.ValueWriter | None:
        """What writes one value; None where columns are cast before they are written."""
        return None if self.type is None or not self.type == plain_type(self.type) == _escaped(self.type) else _core.json_writer()

    def decode(self, column: pa.BinaryArray) -> tuple[pa.Array, Reasons]:
        """See `Deserializer.decode`."""
        return self._decoded(column, self._reader)

    def decode_whole(self, column: pa.BinaryArray) -> tuple[pa.Array, Reasons]:
        """As `decode`; a value with a field that the schema lacks is malformed."""
        return self._decoded(column, self._whole_reader)

    def _decoded(self, column: pa.BinaryArray, reader: _core.ValueReader | None) -> tuple[pa.Array, Reasons]:
        made, reasons = column_of(_core.json_decode_inferred(batch_of(column))) if reader is None else decoded(reader, column)
        reasons = {row: reason + framed(column[row].as_py()) if reason.startswith(_NOT_JSON) else reason for row, reason in reasons.items()}
        arrow_type = _unescaped(made.type) if self.type is None else self.type
        if made.type == arrow_type:
            return made, reasons
        # dictionaries and views, in whose types pyarrow says what fits
        return by_halves(len(made), arrow_type, lambda start, stop: converted(made[start:stop], arrow_type, _cast), reasons), reasons

    def judged(self, column: pa.BinaryArray) -> tuple[Reasons, pa.BinaryArray]:
        """Why rows are no JSON, and the column with null in their place."""
        values = column.to_pylist()
        reasons = {row: why + framed(data) for row, data in enumerate(values) if data is not None and (why := _core.json_refused(data)) is not None}
        return reasons, without(column, reasons)

    def pruned(self, fields: Iterable[str | Sequence[str]]) -> Json:
        """The same for these fields alone, each given as the names on the way to it from the top; the others are skipped.

        Raises:
            fletchlog.errors.InvalidArgumentError: There is no such field, or no schema.
        """
        if self._reader is None:
            raise InvalidArgumentError("Json() reads all fields that it finds; give a schema to read some of them")
        pa = arrow()
        return Json(pa.schema(self._reader.pruned(paths(fields))).field(0).type)

    def encode(self, column: pa.Array) -> tuple[pa.BinaryArray, Reasons]:
        """See `Serializer.encode`."""
        return self.written(column, _core.json_writer())

    def written(self, column: pa.Array, writer: _core.ValueWriter) -> tuple[pa.BinaryArray, Reasons]:
        """A column as the type, encoded by a writer of JSON."""
        reasons: Reasons = {}
        if self.type is not None:
            refuse_other_fields(column.type, self.type)
        column = cast(column, plain_type(self.type or column.type), reasons)
        escaped = _escaped(column.type)
        made, why = encoded(writer, column if escaped == column.type else converted(column, escaped, _cast))
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
            return super().of_bytes(data)
        refused = _core.json_refused(data)
        if refused is not None:
            raise ValueError(refused + framed(data))
        return json.loads(data)


_NOT_JSON = "not JSON"


# Arrow's C interface ends the name of a field at a NUL: `rust/serde/src/json/names.rs` has these escapes, too
_MARK = "\U0010ffff"


def _escaped(arrow_type: pa.DataType) -> pa.DataType:
    """A type as the engine takes it."""
    return _renamed(arrow_type, lambda name: name.replace(_MARK, f"{_MARK}1").replace("\0", f"{_MARK}0"))


def _unescaped(arrow_type: pa.DataType) -> pa.DataType:
    """A type of the engine as it is."""
    return _renamed(arrow_type, lambda name: name.replace(f"{_MARK}0", "\0").replace(f"{_MARK}1", _MARK))


def _renamed(arrow_type: pa.DataType, rename: Callable[[str], str]) -> pa.DataType:
    pa, types = arrow(), arrow().types
    names: list[str] = []

    def part(one: Any, _path: str) -> Any:
        if not types.is_struct(one):
            return None
        names.extend(field.name for field in one)
        return pa.struct([field.with_name(rename(field.name)).with_type(mapped(field.type, part)) for field in one])

    made = mapped(arrow_type, part)
    return made if any(rename(name) != name for name in names) else arrow_type


def _cast(part: pa.Array, arrow_type: pa.DataType) -> pa.Array:
    return part.cast(arrow_type)


def _text(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain).encode()


def _plain(value: Any) -> Any:
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, decimal.Decimal) and value.is_finite():
        return format(value, "f")
    raise TypeError(f"{type(value).__name__} has no JSON")
