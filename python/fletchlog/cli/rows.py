"""Records as text: one line of JSON, or cells of a table. Columns become lists, and no record an object of its own: `consume` prints millions."""

from __future__ import annotations

import base64
import datetime as dt
import re
from typing import TYPE_CHECKING, Any

from fletchlog.cli.common import CommandError
from fletchlog.cli.typed import Malformed, Shown, cells, dumped

if TYPE_CHECKING:
    from collections.abc import Iterator

    Headers = list[dict[str, Any]] | None
    Row = tuple[str, int, int, dt.datetime | str | int | None, bytes | Shown | None, bytes | Shown | None, Headers]
    """Topic, partition, offset, timestamp, key, value and headers of a record."""

_EPOCH = dt.datetime.fromtimestamp(0, dt.UTC)
_QUOTED = re.compile(r'[",\r\n]')


def json_lines(batch: Any) -> Iterator[str]:
    """Records of the kafka schema, each as one JSON object without the end of the line.

    Bytes that are no UTF-8 go to `keyBase64`, `valueBase64`; a typed value is JSON itself; of one that cannot be decoded `valueError` says why.
    """
    for topic, partition, offset, time, key, value, headers in rows(batch, _iso):
        start = f'{{"topic": "{topic}", "partition": {partition}, "offset": {offset}, "timestamp": {dumped(time)}, '
        end = f', "headers": {_headers(headers)}}}' if headers else "}"
        yield f"{start}{_text('key', key)}, {_text('value', value)}{end}"


def csv_lines(batch: Any) -> Iterator[str]:
    """Records as lines of csv, without their ends: null is empty, an empty text is `""`, headers are JSON.

    Raises:
        CommandError: A key or value is no UTF-8.
    """
    for topic, partition, offset, time, key, value, headers in rows(batch, _iso):
        line = [topic, str(partition), str(offset), "" if time is None else str(time)]
        for name, item in (("key", key), ("value", value)):
            try:
                line.append(_csv(item.decode() if isinstance(item, bytes) else item))
            except UnicodeDecodeError:
                place = f"{topic}-{partition}, offset {offset}"
                raise CommandError(f"{place}: its {name} is no UTF-8, for which csv has no place; use jsonl, json, parquet or arrow") from None
        yield ",".join([*line, _csv(_headers(headers)) if headers else ""])


def header_text(headers: Headers) -> str:
    """Headers for a cell."""
    return ", ".join(f"{header['key']}={cell(header['value'])}" for header in headers or ())


def rows(batch: Any, shown: Any = None) -> Iterator[Row]:
    """The records of a batch or table. `shown`: what their times become, of which many records have the same."""
    times = milliseconds(batch)
    made = {time: (shown or _time)(time) for time in set(times)}
    columns = [batch.column(name).to_pylist() for name in ("topic", "partition", "offset")]
    return zip(*columns, map(made.__getitem__, times), cells(batch, "key"), cells(batch, "value"), batch.column("headers").to_pylist(), strict=True)


def milliseconds(batch: Any) -> list[int | None]:
    """The times of records, in ms since 1970."""
    import pyarrow as pa

    found: list[int | None] = batch.column("timestamp").cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64()).to_pylist()
    return found


def _time(milliseconds: int | None) -> dt.datetime | int | None:
    """A time that `datetime` cannot hold (before the year 1, beyond the year 9999) is a number: milliseconds since 1970."""
    if milliseconds is None:
        return None
    try:
        return _EPOCH + dt.timedelta(milliseconds=milliseconds)
    except OverflowError:
        return milliseconds


def _iso(milliseconds: int | None) -> str | int | None:
    time = _time(milliseconds)
    return time.isoformat() if isinstance(time, dt.datetime) else time


def _headers(headers: list[dict[str, Any]]) -> str:
    made = [f'{{"key": {dumped(header["key"])}, {_text("value", header["value"])}}}' for header in headers]
    return f"[{', '.join(made)}]"


def _csv(text: str | None) -> str:
    if not text:
        return "" if text is None else '""'
    return '"' + text.replace('"', '""') + '"' if _QUOTED.search(text) else text


def cell(item: bytes | str | dt.datetime | int | None) -> str:
    """Bytes as text with escapes where they are none, times with milliseconds."""
    if item is None:
        return "null"
    if isinstance(item, str):
        return item
    if isinstance(item, Malformed):
        return f"{item.decode('utf-8', 'backslashreplace')} ({item.reason})"
    if isinstance(item, int):
        return f"{item} ms"
    if isinstance(item, dt.datetime):
        return item.isoformat(sep=" ", timespec="milliseconds")
    return item.decode("utf-8", "backslashreplace")


def _text(name: str, data: bytes | Shown | None) -> str:
    """A key or a value as a field of an object."""
    if data is None:
        return f'"{name}": null'
    if isinstance(data, Shown):
        return f'"{name}": {data.json}'
    why = f', "{name}Error": {dumped(data.reason)}' if isinstance(data, Malformed) else ""
    try:
        return f'"{name}": {dumped(data.decode())}{why}'
    except UnicodeDecodeError:
        return f'"{name}Base64": "{base64.b64encode(data).decode()}"{why}'
