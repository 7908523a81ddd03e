"""Rows with fields: each becomes a value, or is a record that `consume` wrote."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from fletchlog.cli import records
from fletchlog.cli.common import CommandError
from fletchlog.cli.encoding import json_text
from fletchlog.cli.fields import Fields
from fletchlog.cli.records import Record, milliseconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from fletchlog.cli.inputs import Input

    Row = tuple[dict[str, Any], bytes | None, int]
    """Fields, the text of the row if it has one, and the number of its line."""


def from_rows(rows: Iterable[Row], source: Input) -> Iterator[Record]:
    """The records of rows; the first row decides whether they are records that `consume` wrote."""
    as_records: bool | None = None
    for row, text, number in rows:
        if as_records is None:
            as_records = source.takes_records(records.is_record(row))
        if as_records:
            yield records.of_row(row, source.place(number), number, partitions=source.partitions, typed=source.kinds)
        else:
            yield from_row(row, text, number, source)


def from_row(row: dict[str, Any], text: bytes | None, number: int, source: Input) -> Record:
    """The record of a row with fields; the value is its text, or the fields as JSON if it has none."""
    try:
        time = None if source.timestamp is None else row[source.timestamp]
        key = None if source.key is None else _encodable(row, source.key, "key", source)
        value = text if source.value is None and text is not None else _encodable(row, source.value, "value", source)
    except KeyError:
        source.has(row, source.place(number))
        raise
    except ValueError as error:
        raise CommandError(f"{source.place(number)}: cannot be written as JSON text: {error}") from None
    return Record(key, value, None if source.timestamp is None else milliseconds(time, source.place(number)), None, None, number)


def _encodable(row: dict[str, Any], field: str | None, name: str, source: Input) -> bytes | None:
    """A field, or the whole row, as a key or a value: its bytes, or JSON for what is encoded afterwards."""
    item = row if field is None else row[field]
    if isinstance(row, Fields) and field is not None and not (item is None or (isinstance(item, str) and name not in source.kinds)):
        return row.text_of(field).encode()
    if name not in source.kinds:
        return as_bytes(item)
    return json_text(item, source.kinds[name], of_text=source.form in {"csv", "tsv"})


def as_bytes(item: Any) -> bytes | None:
    """A field as the bytes of a key or value: a text as it is, all else as JSON."""
    if item is None:
        return None
    if isinstance(item, bytes):
        return item
    return (item if isinstance(item, str) else _ENCODER.encode(item)).encode()


def _plain(item: Any) -> str:
    """What JSON does not know (times, decimals, bytes) as text."""
    return item.decode("utf-8", "backslashreplace") if isinstance(item, bytes) else str(item)


_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, default=_plain)
