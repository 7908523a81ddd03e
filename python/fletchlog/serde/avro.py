"""Avro values, through fastavro."""

from __future__ import annotations

import io
import json
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, BinaryIO

from fletchlog.errors import InvalidArgumentError
from fletchlog.interop import require
from fletchlog.serde.avro_defaults import DEFAULT, decode_defaults, fields
from fletchlog.serde.avro_limits import MAX_TYPES, Walk
from fletchlog.serde.avro_resolution import Resolution
from fletchlog.serde.avro_units import LOGICAL_TYPE, resolve, with_texts
from fletchlog.serde.columns import cast, converted, number
from fletchlog.serde.outcome import OneByOne, Reasons, arrow, by_halves, encode_each, framed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

_DECIMAL128_DIGITS = 38
_DECIMAL256_DIGITS = 76
_DECIMAL256_BYTES = 32


class UnresolvableError(InvalidArgumentError):
    """No value of the schema can be read by the reader schema."""


@dataclass(frozen=True)
class Avro(OneByOne[Any]):
    """One value in Avro's binary encoding per record, without a header (for Confluent's wire format see `Confluent`).

    Args:
        schema: Avro schema the values were written with: JSON text, or what it parses to.
        reader_schema: Schema they are resolved to (renamed, added and removed fields, promotions); None: the same.

    Arrow types: record struct, array list, map map<string, ..>, enum and uuid string, fixed and bytes binary, `["null", x]` a nullable x,
    date date32, time-* time32[ms] or time64[us], timestamp-* timestamp in UTC, local-timestamp-* without zone, decimal decimal128 or
    decimal256. Unions of several types and types that contain themselves have no Arrow type.

    An annotation that is not valid (a decimal without a precision, or whose scale is larger), unknown, or not Arrow's (a decimal of more than 76 digits,
    a duration) is ignored, as Avro's specification says: the values are those of the type below it. The defaults of the reader schema are values of
    their types; for a union, of the first branch they are a value of. Where the units of times or the scales of decimals differ between `schema` and
    `reader_schema`, values are converted; one that would lose by it is malformed.

    A value must end where its schema ends. What fastavro tolerates is tolerated (any byte but 0 is true). A value whose arrays have more
    than 1,000 items that take no bytes, or which a type that contains itself (and that the reader schema leaves out) nests more than 128
    levels deep, is malformed: such values of a few bytes would take any amount of memory or stack.

    `encode` writes with `schema`; a column of another Arrow type is cast to its type first, and a field that the column lacks gets its default.

    Raises:
        fletchlog.errors.InvalidArgumentError: Not an Avro schema, one without an Arrow type, one nested too deep, a reader schema with a default that is
            not of its type or by which no value can be read, or one with more than 100,000 types once every name in it is replaced by its type, as in Arrow.
    """

    schema: Any
    reader_schema: Any = None

    def __post_init__(self) -> None:
        self.type  # noqa: B018 - a schema that cannot work fails here, not at the first record
        reason = None if self._reader is None else Resolution(self._writer, self._reader).reason()
        if reason is not None:
            raise UnresolvableError(f"no value of the Avro schema can be read by the reader_schema: {reason}")

    def __getstate__(self) -> dict[str, Any]:
        # what is parsed is parsed again: in another process fastavro does not know the functions of annotated types
        return {"schema": self.schema, "reader_schema": self.reader_schema}

    @cached_property
    def type(self) -> pa.DataType:
        """Arrow type of the result."""
        self._writer  # noqa: B018 - parsed, so judged
        with _judging():
            schema, names = self._reader or self._writer
            types = _Types(names)
            found = types.of(schema, "")
            if self._reader is not None:
                _check_defaults(types, schema, names)
            return found

    @cached_property
    def _raw(self) -> pa.DataType:
        """The result as fastavro reads it: times as numbers, decimals as bytes."""
        schema, names = self._reader or self._writer
        return _Types(names, raw=True).of(schema, "")

    @cached_property
    def _writer(self) -> tuple[Any, dict[str, Any]]:
        return _parse(self.schema)

    @cached_property
    def _resolving(self) -> Any:
        """The writer's schema to read by: where there is a reader schema, fastavro converts units and scales."""
        return self._writer[0] if self.reader_schema is None else _parse(self.schema, resolves=True)[0]

    @cached_property
    def _annotated(self) -> Any:
        return _parse(self.schema, annotated=True)[0]

    @cached_property
    def _reader(self) -> tuple[Any, dict[str, Any]] | None:
        return None if self.reader_schema is None else _parse(self.reader_schema, reads=True)

    @cached_property
    def _walk(self) -> Walk | None:
        walk = Walk(*self._writer)
        return walk if walk.needed else None

    def decode(self, column: pa.BinaryArray) -> tuple[pa.Array, Reasons]:
        """See `Deserializer.decode`."""
        read = require("fastavro", "serde").schemaless_reader
        writer, reader = self._resolving, None if self._reader is None else self._reader[0]
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
                reasons[row] = f"not Avro of this schema: {type(error).__name__} {error}".rstrip() + framed(data)
                continue
            if file.tell() != len(data):
                reasons[row] = f"not Avro of this schema: {len(data) - file.tell()} bytes are left after the value" + framed(data)
                continue
            values[row] = value
        array, raw = arrow().array, self._raw
        return by_halves(len(values), self.type, lambda start, stop: converted(array(values[start:stop], raw), self.type, number), reasons), reasons

    def encode(self, column: pa.Array) -> tuple[pa.BinaryArray, Reasons]:
        """See `Serializer.encode`."""
        write = require("fastavro", "serde").schemaless_writer
        writer, names = self._writer
        reasons: Reasons = {}
        try:
            target = _Types(names).of(writer, "", column.type)
        except InvalidArgumentError:
            # unions of several types, or a type within itself: fastavro chooses by Python's objects
            writer = self._annotated
        else:
            raw = _Types(names, raw=True).of(writer, "", column.type)
            column = cast(column, target, reasons, lambda part: converted(part, raw, number))

        def one(value: Any) -> bytes:
            file = io.BytesIO()
            write(file, writer, value)
            return file.getvalue()

        made, why = encode_each(column, one)
        return made, why | reasons


@contextmanager
def _judging() -> Iterator[None]:
    """What goes wrong within is the schema's fault."""
    try:
        yield
    except RecursionError:
        raise InvalidArgumentError("the Avro schema is nested too deep") from None
    except InvalidArgumentError:
        raise
    except (arrow().ArrowException, ValueError, TypeError, KeyError, OverflowError) as error:
        raise InvalidArgumentError(f"the Avro schema has no Arrow type: {error}") from error


def _check_defaults(types: _Types, schema: Any, names: dict[str, Any]) -> None:
    """Raises unless Arrow's types hold the defaults: a time may be beyond the end of the day, a decimal have too many digits."""
    pa, raw = arrow(), _Types(names, raw=True)
    for place, field in fields(schema, names):
        if "default" in field:
            try:
                converted(pa.array([field["default"]], raw.of(field["type"], place)), types.of(field["type"], place), number)
            except (pa.ArrowException, ValueError, OverflowError) as error:
                raise InvalidArgumentError(f"the Avro schema has a default at {place} that is not of its type: {error}") from None


def records(file: BinaryIO) -> Iterator[Any]:
    """The records of an Avro file, as Python values; dates and timestamps that `datetime` cannot hold are texts.

    Raises:
        fletchlog.errors.InvalidArgumentError: Not an Avro file, a damaged one, or one with types whose values may have any size.
    """
    fastavro = require("fastavro", "serde")
    try:
        reader = fastavro.reader(_Readable(file))
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


_HEADER = {
    "type": "record",
    "name": "Header",
    "fields": [
        {"name": "magic", "type": {"type": "fixed", "name": "Magic", "size": 4}},
        {"name": "meta", "type": {"type": "map", "values": "bytes"}},
        {"name": "sync", "type": {"type": "fixed", "name": "Sync", "size": 16}},
    ],
}


class _Readable:
    """An Avro file without the annotations in its header that are not valid: fastavro refuses a file with such."""

    def __init__(self, file: BinaryIO) -> None:
        fastavro, header = require("fastavro", "serde"), io.BytesIO()
        found = fastavro.schemaless_reader(file, _HEADER, None)
        found["meta"]["avro.schema"] = json.dumps(_prepared(json.loads(found["meta"]["avro.schema"]), with_texts)).encode()
        fastavro.schemaless_writer(header, _HEADER, found)
        self._header = io.BytesIO(header.getvalue())
        self._file = file

    def read(self, size: int) -> bytes:
        """As of a file."""
        head = self._header.read(size)
        return head + self._file.read(size - len(head)) if len(head) < size else head


def _parse(schema: Any, *, reads: bool = False, annotated: bool = False, resolves: bool = False) -> tuple[Any, dict[str, Any]]:
    """The parsed schema, and its named types.

    Args:
        schema: JSON text, or what it parses to.
        reads: Whether it is a reader schema, whose defaults are used.
        annotated: Whether fastavro is to take Python's objects where a type is annotated; otherwise it takes and makes what is encoded.
        resolves: Whether it is a writer's schema to be read by another one.
    """
    avro = require("fastavro.schema", "serde")
    names: dict[str, Any] = {}
    try:
        if isinstance(schema, str):
            schema = schema if schema in _PRIMITIVE else json.loads(schema)
        mark = _mark_known if annotated else resolve if resolves else _mark
        # a schema that fastavro has parsed keeps named types of other schemas here
        for part in schema if isinstance(schema, list) else [schema]:
            if isinstance(part, dict):
                names.update({name: _prepared(known, mark) for name, known in part.get("__named_schemas", {}).items()})
        parsed = avro.parse_schema(_prepared(schema, mark), names)
        types = Walk(parsed, names).types()
        if types <= MAX_TYPES:
            decode_defaults(parsed, names, needed=reads)
    except RecursionError:
        raise InvalidArgumentError("not an Avro schema: it is nested too deep") from None
    except InvalidArgumentError:
        raise
    except (ValueError, TypeError, AttributeError, KeyError, avro.SchemaParseException, avro.UnknownType) as error:
        raise InvalidArgumentError(f"not an Avro schema: {type(error).__name__}: {error}") from error
    if types > MAX_TYPES:
        raise InvalidArgumentError(f"the Avro schema has {types:,} types once its names are replaced; at most {MAX_TYPES:,} are read")
    return parsed, names


def _prepared(schema: Any, mark: Callable[[dict[str, Any], str], None]) -> Any:
    """The schema with valid annotations, set by `mark`, without others, and with defaults where fastavro does not look for them."""
    if isinstance(schema, list):
        return [_prepared(branch, mark) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    copy = {name: _prepared(value, mark) if name in ("type", "items", "values") else value for name, value in schema.items() if not name.startswith("__")}
    if isinstance(schema.get("fields"), list):
        copy["fields"] = [
            {DEFAULT if name == "default" else name: _prepared(value, mark) if name == "type" else value for name, value in field.items()}
            if isinstance(field, dict)
            else field
            for field in schema["fields"]
        ]
    annotation = copy.pop("logicalType", None) or copy.pop(LOGICAL_TYPE, None)
    if _valid(copy, annotation):
        mark(copy, annotation)
    return copy


def _mark(schema: dict[str, Any], annotation: str) -> None:
    schema[LOGICAL_TYPE] = annotation


def _mark_known(schema: dict[str, Any], annotation: str) -> None:
    schema["logicalType"] = annotation


def _valid(schema: dict[str, Any], annotation: Any) -> bool:
    """Whether an annotation is one that has an Arrow type; all others are ignored."""
    kind = schema.get("type")
    if not isinstance(kind, str) or not isinstance(annotation, str):
        return False
    if annotation != "decimal":
        return (kind, annotation) in _LOGICAL
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if kind not in ("bytes", "fixed") or type(precision) is not int or type(scale) is not int:
        return False
    size = schema.get("size") if kind == "fixed" else _DECIMAL256_BYTES
    bits = 8 * min(size, _DECIMAL256_BYTES) - 1 if isinstance(size, int) else 0
    return 0 < precision <= _DECIMAL256_DIGITS and 0 <= scale <= precision and bits > 0 and 10**precision <= 2**bits


class _Types:
    """Arrow types of a parsed schema; `raw`: those of what is encoded, without annotations."""

    def __init__(self, names: dict[str, Any], *, raw: bool = False) -> None:
        self._names = names
        self._raw = raw
        self._inside: list[str] = []

    def of(self, schema: Any, path: str, column: pa.DataType | None = None) -> pa.DataType:
        """Arrow type of a part of the schema.

        Args:
            schema: The part.
            path: Its place, for errors.
            column: A type of values that it is to write: fields that it lacks are left out.
        """
        pa = arrow()
        if isinstance(schema, list):
            branches = [branch for branch in schema if branch != "null"]
            if len(branches) > 1:
                message = f"the Avro union {branches} at {path or 'the top'} has no Arrow type; give a reader_schema with one of them"
                raise InvalidArgumentError(message)
            return self.of(branches[0], path, column) if branches else pa.null()
        if isinstance(schema, str):
            schema = self._names.get(schema) or {"type": schema}
        kind, logical = schema["type"], None if self._raw else schema.get(LOGICAL_TYPE)
        if isinstance(kind, list | dict) or kind in self._names:
            return self.of(kind, path, column)
        if logical == "decimal":
            precision, scale = schema["precision"], schema.get("scale", 0)
            return pa.decimal128(precision, scale) if precision <= _DECIMAL128_DIGITS else pa.decimal256(precision, scale)
        if logical is not None:
            name, *arguments = _LOGICAL[kind, logical]
            return getattr(pa, name)(*arguments)
        if kind in ("record", "error"):
            return self._struct(schema, path, column)
        inner = getattr(column, "item_type" if kind == "map" else "value_type", None)
        if kind == "array":
            return pa.list_(self.of(schema["items"], f"{path}/items", inner))
        if kind == "map":
            return pa.map_(pa.string(), self.of(schema["values"], f"{path}/values", inner))
        return pa.binary(schema["size"]) if kind == "fixed" else getattr(pa, _PRIMITIVE[kind])()

    def _struct(self, schema: dict[str, Any], path: str, column: pa.DataType | None) -> pa.DataType:
        pa, name = arrow(), schema["name"]
        if name in self._inside:
            raise InvalidArgumentError(f"the Avro type {name} at {path or 'the top'} contains itself; Arrow has no such type")
        self._inside.append(name)
        given = {field.name: field.type for field in column} if column is not None and pa.types.is_struct(column) else None
        kept = [field for field in schema["fields"] if given is None or field["name"] in given]
        parts = {field["name"]: self.of(field["type"], f"{path}/{field['name']}", None if given is None else given[field["name"]]) for field in kept}
        self._inside.pop()
        return pa.struct([pa.field(name, part) for name, part in parts.items()])


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
