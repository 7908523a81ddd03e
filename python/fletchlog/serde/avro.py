"""Avro values, through fastavro."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, BinaryIO

from fletchlog.errors import InvalidArgumentError
from fletchlog.interop import require
from fletchlog.serde.avro_limits import MAX_TYPES, Walk
from fletchlog.serde.outcome import OneByOne, Reasons, arrow, by_halves, encode_each

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

_DECIMAL128_DIGITS = 38


@dataclass(frozen=True)
class Avro(OneByOne):
    """One value in Avro's binary encoding per record, without a header (for Confluent's wire format see `Confluent`).

    Args:
        schema: Avro schema the values were written with: JSON text, or what it parses to.
        reader_schema: Schema they are resolved to (renamed, added and removed fields, promotions); None: the same.

    Arrow types: record struct, array list, map map<string, ..>, enum and uuid string, fixed and bytes binary, `["null", x]` a nullable x,
    date date32, time-* time32[ms] or time64[us], timestamp-* timestamp in UTC, local-timestamp-* without zone, decimal decimal128 or
    decimal256. Unions of several types and types that contain themselves have no Arrow type.

    A value must end where its schema ends. What fastavro tolerates is tolerated (any byte but 0 is true). A value whose arrays have more
    than 1,000 items that take no bytes, or which a type that contains itself (and that the reader schema leaves out) nests more than 128
    levels deep, is malformed: such values of a few bytes would take any amount of memory or stack.

    `encode` writes with `schema`; a column of another Arrow type is cast to its type first.

    Raises:
        fletchlog.errors.InvalidArgumentError: Not an Avro schema, one without an Arrow type, one nested too deep, or one with more than 100,000 types
            once every name in it is replaced by its type, as in Arrow.
    """

    schema: Any
    reader_schema: Any = None

    def __post_init__(self) -> None:
        self.type  # noqa: B018 - a schema that cannot work fails here, not at the first record

    @cached_property
    def type(self) -> pa.DataType:
        """Arrow type of the result."""
        self._writer  # noqa: B018 - parsed, so judged
        pa = arrow()
        try:
            return _Types((self._reader or self._writer)[1]).of((self._reader or self._writer)[0], "")
        except RecursionError:
            raise InvalidArgumentError("the Avro schema is nested too deep") from None
        except InvalidArgumentError:
            raise
        except (pa.ArrowException, ValueError, TypeError, KeyError, OverflowError) as error:
            raise InvalidArgumentError(f"the Avro schema has no Arrow type: {error}") from error

    @cached_property
    def _writer(self) -> tuple[Any, dict[str, Any]]:
        return _parse(self.schema)

    @cached_property
    def _reader(self) -> tuple[Any, dict[str, Any]] | None:
        return None if self.reader_schema is None else _parse(self.reader_schema)

    @cached_property
    def _walk(self) -> Walk | None:
        walk = Walk(*self._writer)
        return walk if walk.needed else None

    def decode(self, column: pa.BinaryArray) -> tuple[pa.Array, Reasons]:
        """See `Deserializer.decode`."""
        read = require("fastavro", "serde").schemaless_reader
        writer, reader = self._writer[0], None if self._reader is None else self._reader[0]
        reasons: Reasons = {}
        values: list[Any] = [None] * len(column)
        for row, data in enumerate(column.to_pylist()):
            if data is None:
                continue
            refused = self._walk.refused(data) if self._walk is not None else None
            if refused is not None:
                reasons[row] = f"not read: {refused}"
                continue
            file = io.BytesIO(data)
            try:
                value = read(file, writer, reader)
            except Exception as error:  # noqa: BLE001 - malformed bytes make fastavro raise errors of any class
                reasons[row] = f"not Avro of this schema: {type(error).__name__} {error}".rstrip()
                continue
            if file.tell() != len(data):
                reasons[row] = f"not Avro of this schema: {len(data) - file.tell()} bytes are left after the value"
                continue
            values[row] = value
        pa = arrow()
        return by_halves(len(values), self.type, lambda start, stop: pa.array(values[start:stop], self.type), reasons), reasons

    def encode(self, column: pa.Array) -> tuple[pa.BinaryArray, Reasons]:
        """See `Serializer.encode`."""
        write, writer = require("fastavro", "serde").schemaless_writer, self._writer[0]

        def one(value: Any) -> bytes:
            file = io.BytesIO()
            write(file, writer, value)
            return file.getvalue()

        return encode_each(column if self.reader_schema is not None else column.cast(self.type), one)


def records(file: BinaryIO) -> Iterator[Any]:
    """The records of an Avro file, as Python values.

    Raises:
        fletchlog.errors.InvalidArgumentError: Not an Avro file, a damaged one, or one with types whose values may have any size.
    """
    fastavro = require("fastavro", "serde")
    try:
        reader = fastavro.reader(file)
        walk = Walk(*_parse(reader.writer_schema))
        bounded = not walk.needed and not walk.takes_no_bytes()
        if bounded:
            yield from reader
    except (InvalidArgumentError, OSError):
        raise
    except Exception as error:  # noqa: BLE001
        # malformed bytes make fastavro raise errors of any class
        raise InvalidArgumentError(f"not an Avro file that can be read: {type(error).__name__} {error}".rstrip()) from None
    if not bounded:
        raise InvalidArgumentError("a type of this Avro file contains itself, or takes no bytes where it is repeated: it may have any size")


def _parse(schema: Any) -> tuple[Any, dict[str, Any]]:
    """The parsed schema, and its named types."""
    avro = require("fastavro.schema", "serde")
    names: dict[str, Any] = {}
    try:
        if isinstance(schema, str):
            schema = schema if schema in _PRIMITIVE else json.loads(schema)
        parsed = avro.parse_schema(_without_uuid(schema), names)
        types = Walk(parsed, names).types()
    except RecursionError:
        raise InvalidArgumentError("not an Avro schema: it is nested too deep") from None
    except (ValueError, TypeError, AttributeError, KeyError, avro.SchemaParseException, avro.UnknownType) as error:
        raise InvalidArgumentError(f"not an Avro schema: {type(error).__name__}: {error}") from error
    if types > MAX_TYPES:
        raise InvalidArgumentError(f"the Avro schema has {types:,} types once its names are replaced; at most {MAX_TYPES:,} are read")
    return parsed, names


def _without_uuid(schema: Any) -> Any:
    """The schema with uuids as the strings they are written as: Arrow has no such type."""
    if isinstance(schema, list):
        return [_without_uuid(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    copy = {key: _without_uuid(value) if key in ("type", "items", "values", "fields") else value for key, value in schema.items()}
    if copy.get("logicalType") == "uuid" and copy.get("type") == "string":
        del copy["logicalType"]
    return copy


class _Types:
    """Arrow types of a parsed schema."""

    def __init__(self, names: dict[str, Any]) -> None:
        self._names = names
        self._inside: list[str] = []

    def of(self, schema: Any, path: str) -> pa.DataType:
        """Arrow type of a part of the schema; `path` is the place of it, for errors."""
        pa = arrow()
        if isinstance(schema, list):
            branches = [branch for branch in schema if branch != "null"]
            if len(branches) > 1:
                message = f"the Avro union {branches} at {path or 'the top'} has no Arrow type; give a reader_schema with one of them"
                raise InvalidArgumentError(message)
            return self.of(branches[0], path) if branches else pa.null()
        if isinstance(schema, str):
            schema = self._names.get(schema) or {"type": schema}
        kind, logical = schema["type"], schema.get("logicalType")
        if isinstance(kind, list | dict) or kind in self._names:
            return self.of(kind, path)
        if logical == "decimal" and kind in ("bytes", "fixed"):
            precision, scale = schema["precision"], schema.get("scale", 0)
            return pa.decimal128(precision, scale) if precision <= _DECIMAL128_DIGITS else pa.decimal256(precision, scale)
        if (kind, logical) in _LOGICAL:
            name, *arguments = _LOGICAL[kind, logical]
            return getattr(pa, name)(*arguments)
        if kind in ("record", "error"):
            return self._struct(schema, path)
        if kind == "array":
            return pa.list_(self.of(schema["items"], f"{path}/items"))
        if kind == "map":
            return pa.map_(pa.string(), self.of(schema["values"], f"{path}/values"))
        return pa.binary(schema["size"]) if kind == "fixed" else getattr(pa, _PRIMITIVE[kind])()

    def _struct(self, schema: dict[str, Any], path: str) -> pa.DataType:
        pa, name = arrow(), schema["name"]
        if name in self._inside:
            raise InvalidArgumentError(f"the Avro type {name} at {path or 'the top'} contains itself; Arrow has no such type")
        self._inside.append(name)
        found = pa.struct([pa.field(field["name"], self.of(field["type"], f"{path}/{field['name']}")) for field in schema["fields"]])
        self._inside.pop()
        return found


_PRIMITIVE = {
    "null": "null",
    "boolean": "bool_",
    "int": "int32",
    "long": "int64",
    "float": "float32",
    "double": "float64",
    "bytes": "binary",
    "string": "string",
    "enum": "string",
}
_LOGICAL = {
    ("int", "date"): ("date32",),
    ("int", "time-millis"): ("time32", "ms"),
    ("long", "time-micros"): ("time64", "us"),
    ("long", "timestamp-millis"): ("timestamp", "ms", "UTC"),
    ("long", "timestamp-micros"): ("timestamp", "us", "UTC"),
    ("long", "timestamp-nanos"): ("timestamp", "ns", "UTC"),
    ("long", "local-timestamp-millis"): ("timestamp", "ms"),
    ("long", "local-timestamp-micros"): ("timestamp", "us"),
    ("long", "local-timestamp-nanos"): ("timestamp", "ns"),
}
