"""Records as text: one line of JSON, or cells of a table."""

from __future__ import annotations

import base64
import datetime as dt
import json
from typing import Any

from fletchlog.cli.text import controls


def json_line(row: dict[str, Any]) -> str:
    """A record of the kafka schema as one JSON object; keys and values that are no UTF-8 go to `keyBase64`, `valueBase64`."""
    result: dict[str, Any] = {
        "topic": row["topic"],
        "partition": row["partition"],
        "offset": row["offset"],
        "timestamp": row["timestamp"].isoformat() if isinstance(row["timestamp"], dt.datetime) else row["timestamp"],
    }
    for name in ("key", "value"):
        result |= _text(name, row[name])
    if row.get("headers"):
        result["headers"] = [{"key": header["key"]} | _text("value", header["value"]) for header in row["headers"]]
    # JSON need not escape all characters that a terminal obeys, and may
    return controls().sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(result, ensure_ascii=False))


def plain(batch: Any) -> list[dict[str, Any]]:
    """Rows of a batch or table. A time that Python has not (beyond the year 9999) is a number: milliseconds since 1970."""
    import pyarrow as pa

    try:
        rows: list[dict[str, Any]] = batch.to_pylist()
    except (OverflowError, ValueError):
        place = batch.schema.get_field_index("timestamp")
        rows = batch.set_column(place, "timestamp", batch.column(place).cast(pa.int64())).to_pylist()
        for row in rows:
            row["timestamp"] = _time(row["timestamp"])
    return rows


def _time(microseconds: int | None) -> dt.datetime | int | None:
    if microseconds is None:
        return None
    try:
        return dt.datetime.fromtimestamp(0, dt.UTC) + dt.timedelta(microseconds=microseconds)
    except OverflowError:
        return microseconds // 1000


def cell(item: bytes | dt.datetime | int | None) -> str:
    """Bytes as text with escapes where they are none, times with milliseconds."""
    if item is None:
        return "null"
    if isinstance(item, int):
        return f"{item} ms"
    if isinstance(item, dt.datetime):
        return item.isoformat(sep=" ", timespec="milliseconds")
    return item.decode("utf-8", "backslashreplace")


def _text(name: str, data: bytes | None) -> dict[str, str | None]:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}Base64": base64.b64encode(data).decode()}
