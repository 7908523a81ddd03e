"""Times and decimals of a writer's schema as those of a reader's schema of another unit or scale.

Avro resolves only what is encoded, so a number of milliseconds would be read as one of microseconds. fastavro calls `resolved` for each value of a
writer's annotated type, as it calls its own functions for annotations that it knows.
"""

from __future__ import annotations

from typing import Any

from fletchlog.interop import require
from fletchlog.serde import iso8601
from fletchlog.serde.outcome import arrow

LOGICAL_TYPE = "fletchlog.logicalType"
"""The annotation of a type, under a name that fastavro does not know: it would make Python's objects of it."""

_PREFIX = "fletchlog-"
_SIZES = {"millis": 10**6, "micros": 10**3, "nanos": 1}
_NANOSECONDS = {f"{kind}-{unit}": size for kind in ("time", "timestamp", "local-timestamp") for unit, size in _SIZES.items()} | {"date": 86_400 * 10**9}


def resolve(schema: dict[str, Any], annotation: str) -> None:
    """Lets fastavro call `resolved` for values of an annotated type of a writer's schema."""
    schema[LOGICAL_TYPE] = annotation
    schema["logicalType"] = _PREFIX + annotation
    require("fastavro.read", "serde").LOGICAL_READERS[f"{schema['type']}-{_PREFIX}{annotation}"] = resolved


def resolved(data: Any, writer: dict[str, Any], reader: Any) -> Any:
    """A value of the writer's type as it would be encoded by the reader's.

    Raises:
        ValueError: That type does not hold it.
    """
    kind, annotation = (reader["type"], reader.get(LOGICAL_TYPE)) if isinstance(reader, dict) else (reader, None)
    if annotation is None:
        # as for types without annotations
        return float(data) if kind in ("float", "double") else data.decode() if kind == "string" else data
    if annotation == "decimal":
        return _decimal(data, writer, reader)
    given = writer[LOGICAL_TYPE]
    if given.startswith("time-") != annotation.startswith("time-"):
        raise ValueError(f"a {given} is no {annotation}")
    made, rest = divmod(data * _NANOSECONDS[given], _NANOSECONDS[annotation])
    if rest:
        raise ValueError(f"the {given} {data} is between two of {annotation}")
    return made


def _decimal(data: bytes, writer: dict[str, Any], reader: dict[str, Any]) -> bytes:
    more = reader.get("scale", 0) - writer.get("scale", 0)
    if more == 0 and reader["type"] == "bytes":
        return data
    digits, rest = divmod(int.from_bytes(data, "big", signed=True) * 10 ** max(more, 0), 10 ** max(-more, 0))
    if rest:
        raise ValueError(f"a decimal has more than the {reader.get('scale', 0)} places of the reader schema")
    least = digits.bit_length() // 8 + 1
    size: int = reader.get("size", least)
    if least > size:
        raise ValueError(f"a decimal has more digits than the {size} bytes of the reader schema hold")
    made: bytes = digits.to_bytes(size, "big", signed=True)
    return made


def with_texts(schema: dict[str, Any], annotation: str) -> None:
    """Lets fastavro make Python's objects of an annotated type, and texts of dates and timestamps that `datetime` cannot hold."""
    name = f"{_PREFIX}text-{annotation}"
    schema[LOGICAL_TYPE], schema["logicalType"] = annotation, name
    require("fastavro.read", "serde").LOGICAL_READERS[f"{schema['type']}-{name}"] = _object_or_text


def _object_or_text(data: Any, writer: dict[str, Any], reader: Any) -> Any:
    annotation, readers = writer[LOGICAL_TYPE], require("fastavro.read", "serde").LOGICAL_READERS
    made = readers.get(f"{writer['type']}-{annotation}")
    try:
        return data if made is None else made(data, writer, reader)
    except (OverflowError, ValueError):
        kind, _, unit = annotation.rpartition("-")
        if annotation == "date":
            return iso8601.text_of(data, arrow().date32())
        if not kind.endswith("timestamp"):
            raise
        units = {"millis": "ms", "micros": "us", "nanos": "ns"}
        return iso8601.text_of(data, arrow().timestamp(units[unit], None if kind.startswith("local") else "UTC"))
