"""Records as text: one line of JSON, or cells of a table."""

from __future__ import annotations

import base64
import datetime as dt
import json
import re
from typing import Any

from fletchlog.cli.common import CommandError
from fletchlog.cli.text import controls
from fletchlog.cli.typed import Malformed, Shown, cells

_EPOCH = dt.datetime.fromtimestamp(0, dt.UTC)
_QUOTED = re.compile(r'[",\r\n]')


def json_line(row: dict[str, Any]) -> str:
    """A record of the kafka schema as one JSON object.

    Bytes that are no UTF-8 go to `keyBase64`, `valueBase64`; a typed value is JSON itself; of one that cannot be decoded `valueError` says why.
    """
    result: dict[str, Any] = {name: row[name] for name in ("topic", "partition", "offset")} | {"timestamp": _iso(row["timestamp"])}
    for name in ("key", "value"):
        result |= _text(name, row[name])
    if row.get("headers"):
        result["headers"] = _headers(row)
    return _json(result)


def csv_line(row: dict[str, Any]) -> str:
    """A record as a line of csv: null is empty, an empty text is `""`, headers are JSON.

    Raises:
        CommandError: A key or value is no UTF-8.
    """
    line = [row["topic"], row["partition"], row["offset"], _iso(row["timestamp"])]
    for name in ("key", "value"):
        try:
            item = row[name]
            line.append(item.decode() if isinstance(item, bytes) else item)
        except UnicodeDecodeError:
            place = f"{row['topic']}-{row['partition']}, offset {row['offset']}"
            raise CommandError(f"{place}: its {name} is no UTF-8, for which csv has no place; use jsonl, json, parquet or arrow") from None
    line.append(_json(_headers(row)) if row["headers"] else None)
    return ",".join(map(_csv, line)) + "\n"


def header_text(headers: list[dict[str, Any]] | None) -> str:
    """Headers for a cell."""
    return ", ".join(f"{header['key']}={cell(header['value'])}" for header in headers or ())


def _iso(time: dt.datetime | int | None) -> str | int | None:
    return time.isoformat() if isinstance(time, dt.datetime) else time


def _headers(row: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": header["key"]} | _text("value", header["value"]) for header in row["headers"]]


def _json(item: Any) -> str:
    # JSON need not escape all characters that a terminal obeys, and may
    return controls().sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(item, ensure_ascii=False))


def _csv(item: str | int | None) -> str:
    text = "" if item is None else str(item)
    escaped = text.replace('"', '""')
    return f'"{escaped}"' if item == "" or _QUOTED.search(text) else text


def plain(batch: Any) -> list[dict[str, Any]]:
    """Rows of a batch or table. A time that `datetime` cannot hold (before the year 1, beyond the year 9999) is a number: milliseconds since 1970."""
    import pyarrow as pa

    place = batch.schema.get_field_index("timestamp")
    numbers = batch.column(place).cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64())
    rows: list[dict[str, Any]] = batch.set_column(place, "timestamp", numbers).to_pylist()
    for row in rows:
        row["timestamp"] = _time(row["timestamp"])
    for name in ("key", "value"):
        for row, item in zip(rows, cells(batch, name), strict=True):
            row[name] = item
    return rows


def _time(milliseconds: int | None) -> dt.datetime | int | None:
    if milliseconds is None:
        return None
    try:
        return _EPOCH + dt.timedelta(milliseconds=milliseconds)
    except OverflowError:
        return milliseconds


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


def _text(name: str, data: bytes | Shown | None) -> dict[str, Any]:
    if data is None:
        return {name: None}
    if isinstance(data, Shown):
        return {name: data.json}
    why = {f"{name}Error": data.reason} if isinstance(data, Malformed) else {}
    try:
        return {name: data.decode(), **why}
    except UnicodeDecodeError:
        return {f"{name}Base64": base64.b64encode(data).decode(), **why}
