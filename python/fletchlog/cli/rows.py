"""Records as text: one line of JSON, or cells of a table."""

from __future__ import annotations

import base64
import datetime as dt
import json
from typing import Any

from fletchlog.cli.terminal import CONTROLS


def json_line(row: dict[str, Any]) -> str:
    """A record of the kafka schema as one JSON object; keys and values that are no UTF-8 go to `keyBase64`, `valueBase64`."""
    result: dict[str, Any] = {
        "topic": row["topic"],
        "partition": row["partition"],
        "offset": row["offset"],
        "timestamp": row["timestamp"].isoformat() if row["timestamp"] is not None else None,
    }
    for name in ("key", "value"):
        result |= _text(name, row[name])
    if row.get("headers"):
        result["headers"] = [{"key": header["key"]} | _text("value", header["value"]) for header in row["headers"]]
    # JSON need not escape all characters that a terminal obeys, and may
    return CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(result, ensure_ascii=False))


def cell(item: bytes | dt.datetime | None) -> str:
    """Bytes as text with escapes where they are none, times with milliseconds."""
    if item is None:
        return "null"
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
