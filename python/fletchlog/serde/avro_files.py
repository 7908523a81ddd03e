"""The records of Avro files, through fastavro."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any, BinaryIO

from fletchlog import _core
from fletchlog.errors import InvalidArgumentError
from fletchlog.interop import require
from fletchlog.serde.json import Json
from fletchlog.serde.outcome import arrow

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

_DECIMAL256_DIGITS = 76
_DECIMAL256_BYTES = 32
_ANNOTATION = "fletchlog.logicalType"
_TEXT = "fletchlog-text-"


def records(file: BinaryIO) -> Iterator[Any]:
    """The records of an Avro file, as Python values; dates and timestamps that `datetime` cannot hold are texts.

    Raises:
        fletchlog.errors.InvalidArgumentError: Not an Avro file, a damaged one, or one with types whose values may have any size.
    """
    fastavro = require("fastavro", "serde")
    try:
        reader = fastavro.reader(_Readable(file))
        bounded = _core.avro_is_bounded(json.dumps(reader.writer_schema))
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
        found["meta"]["avro.schema"] = json.dumps(_prepared(json.loads(found["meta"]["avro.schema"]))).encode()
        fastavro.schemaless_writer(header, _HEADER, found)
        self._header = io.BytesIO(header.getvalue())
        self._file = file

    def read(self, size: int) -> bytes:
        """As of a file."""
        head = self._header.read(size)
        return head + self._file.read(size - len(head)) if len(head) < size else head


def _prepared(schema: Any) -> Any:
    """The schema with valid annotations, without others, and with defaults where fastavro does not look for them."""
    if isinstance(schema, list):
        return [_prepared(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    copy = {name: _prepared(value) if name in ("type", "items", "values") else value for name, value in schema.items() if not name.startswith("__")}
    if isinstance(schema.get("fields"), list):
        copy["fields"] = [
            {"fletchlog.default" if name == "default" else name: _prepared(value) if name == "type" else value for name, value in field.items()}
            if isinstance(field, dict)
            else field
            for field in schema["fields"]
        ]
    annotation = copy.pop("logicalType", None)
    if _valid(copy, annotation):
        _with_texts(copy, annotation)
    return copy


def _with_texts(schema: dict[str, Any], annotation: str) -> None:
    """Lets fastavro make Python's objects of an annotated type, and texts of dates and timestamps that `datetime` cannot hold."""
    name = _TEXT + annotation
    schema[_ANNOTATION], schema["logicalType"] = annotation, name
    require("fastavro.read", "serde").LOGICAL_READERS[f"{schema['type']}-{name}"] = _object_or_text


def _object_or_text(data: Any, writer: dict[str, Any], reader: Any) -> Any:
    annotation, readers = writer[_ANNOTATION], require("fastavro.read", "serde").LOGICAL_READERS
    made = readers.get(f"{writer['type']}-{annotation}")
    try:
        return data if made is None else made(data, writer, reader)
    except (OverflowError, ValueError):
        kind, _, unit = annotation.rpartition("-")
        if annotation == "date":
            return _text(data, arrow().date32())
        if not kind.endswith("timestamp"):
            raise
        units = {"millis": "ms", "micros": "us", "nanos": "ns"}
        return _text(data, arrow().timestamp(units[unit], None if kind.startswith("local") else "UTC"))


def _text(number: int, arrow_type: pa.DataType) -> str:
    """A date or timestamp, given as the number that Arrow keeps of it, as `Json` writes it."""
    pa = arrow()
    column = pa.array([number], pa.int32() if pa.types.is_date32(arrow_type) else pa.int64()).cast(arrow_type)
    return str(json.loads(Json().encode(column)[0][0].as_py()))


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


_LOGICAL = {
    ("int", "date"),
    ("int", "time-millis"),
    ("long", "time-micros"),
    *(("long", f"{kind}-{unit}") for kind in ("timestamp", "local-timestamp") for unit in ("millis", "micros", "nanos")),
}
