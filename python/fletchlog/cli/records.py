"""Records that `fletchlog consume` wrote, read back by `fletchlog produce`.

Rows are taken for such records when their fields are exactly those that `consume` writes: in text all of topic, partition, offset, timestamp, a key
and a value (`keyBase64`, `valueBase64` for bytes that are no text), and `headers` or not; in columns a value of bytes or text and nothing but those.
One field more or less, and a row is a row: it becomes the value, as JSON.
"""

from __future__ import annotations

import base64
import itertools
import json
import re
from typing import TYPE_CHECKING, Any

from fletchlog.cli import times
from fletchlog.cli.common import CommandError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    import pyarrow as pa

    Row = tuple[Mapping[str, Any], str]
    """Fields, and where they are."""

# rows per hand-over: large enough that Python's share of the time is small, small enough for a moving progress bar
CHUNK = 20_000
# the columns of csv
CSV = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
_PLACE = frozenset({"topic", "partition", "offset", "timestamp"})
_DATA = (frozenset({"key", "keyBase64"}), frozenset({"value", "valueBase64"}))
_TEXT = _PLACE.union(*_DATA, {"headers"})
_COLUMNS = _PLACE | {"key", "value", "timestampType", "headers"}
_LOWEST, _HIGHEST = -(2**63), 2**63 - 1


def is_record(names: Collection[str]) -> bool:
    """Whether a row of text with these fields is a record."""
    found = set(names)
    return found >= _PLACE and all(len(found & one) == 1 for one in _DATA) and found <= _TEXT


def are_records(schema: pa.Schema) -> bool:
    """Whether rows with these columns are records."""
    import pyarrow as pa

    kinds: Any = pa.types
    if "value" not in schema.names or not set(schema.names) <= _COLUMNS or len(set(schema.names)) != len(schema.names):
        return False
    data = [schema.field(name).type for name in ("key", "value") if name in schema.names]
    times = [schema.field(name).type for name in ("timestamp",) if name in schema.names]
    return all(any(test(kind) for test in (kinds.is_binary, kinds.is_large_binary, kinds.is_string, kinds.is_large_string)) for kind in data) and all(
        kinds.is_timestamp(kind) or kinds.is_integer(kind) for kind in times
    )


def from_columns(batches: Iterable[Any], *, partitions: bool) -> Iterator[pa.Table]:
    """Records of columns. With `partitions` each keeps its partition."""
    import pyarrow as pa
    import pyarrow.compute as pc

    compute: Any = pc
    for batch in batches:
        batch.validate(full=True)
        table: Any = pa.Table.from_batches([batch])
        columns = {name: table[name].cast(pa.binary()) for name in ("key", "value") if name in table.column_names}
        if "timestamp" in table.column_names:
            time = table["timestamp"].cast(pa.timestamp("ms", tz="UTC"), safe=False)
            none = compute.equal(time.cast(pa.int64()), -1)
            columns["timestamp"] = compute.if_else(none, pa.scalar(None, time.type), time)
        if "headers" in table.column_names:
            columns["headers"] = table["headers"].cast(_headers_type())
        if partitions and "partition" in table.column_names:
            columns["partition"] = table["partition"].cast(pa.int32())
        yield pa.table(columns)


def from_rows(rows: Iterator[Row], *, partitions: bool) -> Iterator[pa.Table]:
    """Records of text. With `partitions` each keeps its partition.

    Raises:
        CommandError: A row is no record.
    """
    import pyarrow as pa

    while chunk := list(itertools.islice(rows, CHUNK)):
        made = [_record(row, place) for row, place in chunk]
        columns = {
            "key": pa.array([record["key"] for record in made], pa.binary()),
            "value": pa.array([record["value"] for record in made], pa.binary()),
            "timestamp": pa.array([record["timestamp"] for record in made], pa.timestamp("ms", tz="UTC")),
            "headers": pa.array([record["headers"] for record in made], _headers_type()),
        }
        if partitions:
            columns["partition"] = pa.array([record["partition"] for record in made], pa.int32())
        yield pa.table(columns)


def _record(row: Mapping[str, Any], place: str) -> dict[str, Any]:
    if not is_record(row):
        raise CommandError(f"{place}: no record as `fletchlog consume` writes it; its fields are {', '.join(row)}; --as-rows makes each row a value")
    try:
        return {"key": _bytes(row, "key"), "value": _bytes(row, "value"), "headers": _headers(row.get("headers")), "partition": _partition(row["partition"]),
                "timestamp": None if row["timestamp"] is None else _time(row["timestamp"], place)}  # fmt: skip
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise CommandError(f"{place}: no record as `fletchlog consume` writes it: {error}") from None


def _bytes(fields: Mapping[str, Any], name: str) -> bytes | None:
    """The bytes of a key or value."""
    if f"{name}Base64" in fields:
        return base64.b64decode(fields[f"{name}Base64"], validate=True)
    text = fields[name]
    if text is not None and not isinstance(text, str):
        raise ValueError(f"its {name} is neither text nor null")
    return None if text is None else text.encode()


def _partition(item: Any) -> int:
    number = int(item)
    if not 0 <= number < 2**31:
        raise ValueError(f"there is no partition {number}")
    return number


def _headers(found: Any) -> list[dict[str, Any]] | None:
    headers = json.loads(found) if isinstance(found, str) else found
    if headers is None:
        return None
    made = [{"key": header["key"], "value": _bytes(header, "value")} for header in headers]
    if not all(isinstance(header["key"], str) for header in made):
        raise ValueError("a header's key is no text")
    return made


def _time(item: Any, place: str) -> int | None:
    # -1 is Kafka's "none"
    return None if (found := milliseconds(item, place)) == -1 else found


def _headers_type() -> Any:
    import pyarrow as pa

    return pa.list_(pa.struct([pa.field("key", pa.utf8()), pa.field("value", pa.binary())]))


def milliseconds(item: Any, place: str) -> int:
    """A field's time in milliseconds since 1970.

    Raises:
        CommandError: It is none.
    """
    import datetime as dt

    try:
        if isinstance(item, (int, float)) and not isinstance(item, bool):
            found = int(item)
        else:
            found = times.milliseconds(item) if isinstance(item, dt.datetime) else times.moment(str(item))
    except (ValueError, OverflowError):
        raise CommandError(f"{place}: {item!r} is no timestamp: neither milliseconds since 1970 nor ISO 8601") from None
    if not _LOWEST <= found <= _HIGHEST:
        raise CommandError(f"{place}: the timestamp {found} has no place in 64 bits")
    return found


def csv_cells(lines: Iterable[str], delimiter: str, wrong: Callable[[int], CommandError]) -> Iterator[tuple[int, list[str | None]]]:
    """Rows of csv with the number of their last line; an empty field is None, `""` an empty text, which Python's csv cannot tell apart."""
    field = re.compile(rf'(?:"([^"]*(?:""[^"]*)*)"|([^"{re.escape(delimiter)}\r\n]*))({re.escape(delimiter)}|\r?\n|\r|$)')
    parts: list[str] = []
    quoted = last = 0
    for number, line in enumerate(lines, 1):
        last = number
        parts.append(line)
        quoted ^= line.count('"') & 1
        if not quoted:
            text = "".join(parts)
            parts.clear()
            if text.strip("\r\n"):
                cells = _split(text, field, delimiter)
            if cells is None:
                raise wrong(number)
            yield number, cells
    if parts:
        raise wrong(last)


def _split(text: str, field: re.Pattern[str], delimiter: str) -> list[str | None] | None:
    cells: list[str | None] = []
    place = 0
    while (found := field.match(text, place)) is not None:
        cells.append(found[2] or None if found[1] is None else found[1].replace('""', '"'))
        place = found.end()
        if found[3] != delimiter:
            return cells if place == len(text) else None
    return None
