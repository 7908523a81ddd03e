"""`fletchlog produce`: lines, JSON lines, CSV or Parquet into a topic."""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
import json
import sys
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from fletchlog.cli.common import CommandError, Config, command, properties
from fletchlog.cli.terminal import counted, note, progress

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

FORMATS = ("lines", "jsonl", "csv", "parquet")
BY_SUFFIX = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".parquet": "parquet"}
# rows per hand-over: large enough that Python's share of the time is small, small enough for a moving progress bar
CHUNK = 20_000


@command
def produce(
    directory: Annotated[Path, typer.Argument(help="The broker's directory.", metavar="DIR")],
    topic: Annotated[str, typer.Argument(help="Topic to write to.")],
    source: Annotated[Path | None, typer.Argument(help="File to read; default or -: standard input.", metavar="[FILE]")] = None,
    form: Annotated[str | None, typer.Option("--format", "-f", help=f"{', '.join(FORMATS)}; default: by the file's name.")] = None,
    key: Annotated[str | None, typer.Option(help="Field (lines: separator before the value) that gives the key.")] = None,
    value: Annotated[str | None, typer.Option(help="Field that gives the value; default: the whole row as JSON.")] = None,
    timestamp: Annotated[str | None, typer.Option(help="Field with the timestamp: ms since 1970, or ISO 8601.")] = None,
    partitions: Annotated[int | None, typer.Option(help="Create the topic with so many partitions if it is missing.")] = None,
    config: Config = None,
) -> None:
    r"""Write records into a topic, from standard input or a file.

      seq 1000 | fletchlog produce data/ numbers --partitions 3

      fletchlog produce data/ orders orders.jsonl --key customer --timestamp created_at

      fletchlog produce data/ flights flights.csv --key carrier -c enable.idempotence=true -c linger.ms=5

      printf 'a:1\nb:2\n' | fletchlog produce data/ pairs --key :          lines "key:value"

    Parquet files with columns named key and value (as `fletchlog consume -f parquet` writes them) need no option.
    """
    import fletchlog as fl

    path = None if source is None or str(source) == "-" else source
    chosen = form or (BY_SUFFIX.get(path.suffix, "lines") if path is not None else "lines")
    if chosen not in FORMATS:
        raise CommandError(f"--format is one of {', '.join(FORMATS)}, not {chosen}")
    fields = _Fields(key, value, timestamp)
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(path.open("rb")) if path is not None else _standard_input()
        broker = stack.enter_context(fl.Broker(directory))
        if partitions is not None and topic not in broker.topics():
            broker.create_topic(topic, partitions=partitions)
        broker.describe_topic(topic)
        producer = stack.enter_context(fl.Producer(broker, properties(config)))
        bar = stack.enter_context(progress(unit="records"))
        task = bar.add_task(f"producing to {topic}", total=None)
        count = 0
        for table in _READERS[chosen](file, fields, str(path or "standard input")):
            producer.send_arrow(topic, table)
            count += table.num_rows
            bar.advance(task, table.num_rows)
        producer.flush()
    note(f"produced {counted(count, 'record')} to {topic} in {directory}")


def _standard_input() -> BinaryIO:
    if sys.stdin is None:
        raise CommandError("standard input is closed; name a file")
    return sys.stdin.buffer


class _Fields:
    """Which field of a row is what."""

    def __init__(self, key: str | None, value: str | None, timestamp: str | None) -> None:
        self.key = key
        self.value = value
        self.timestamp = timestamp

    def check(self, names: Iterable[str], where: str) -> None:
        names = list(names)
        for option, field in (("--key", self.key), ("--value", self.value), ("--timestamp", self.timestamp)):
            if field is not None and field not in names:
                raise CommandError(f"{where}: {option} {field} is no field of it; fields are {', '.join(names)}")


def _table(keys: list[bytes | None], values: list[bytes | None], times: list[int | None] | None) -> pa.Table:
    import pyarrow as pa

    columns = {"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())}
    if times is not None:
        columns["timestamp"] = pa.array(times, pa.timestamp("ms", tz="UTC"))
    return pa.table(columns)


def _lines(file: BinaryIO, fields: _Fields, where: str) -> Iterator[pa.Table]:
    if fields.value or fields.timestamp:
        raise CommandError("--value and --timestamp need rows with fields: --format jsonl, csv or parquet")
    separator = fields.key.encode() if fields.key else None
    numbered = enumerate((line.rstrip(b"\r\n") for line in file), 1)
    for chunk in _chunks(numbered):
        keys: list[bytes | None] = []
        values: list[bytes | None] = []
        for number, line in chunk:
            key, found, value = line.partition(separator) if separator else (None, b"", line)
            if separator and not found:
                raise CommandError(f"{where}, line {number}: there is no key separator {fields.key!r} in it")
            keys.append(key)
            values.append(value)
        yield _table(keys, values, None)


def _chunks(items: Iterable[Any]) -> Iterator[list[Any]]:
    iterator = iter(items)
    while chunk := list(itertools.islice(iterator, CHUNK)):
        yield chunk


def _jsonl(file: BinaryIO, fields: _Fields, where: str) -> Iterator[pa.Table]:
    def rows() -> Iterator[tuple[dict[str, Any], bytes, str]]:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            place = f"{where}, line {number}"
            try:
                row = json.loads(line)
            except ValueError:
                raise CommandError(f"{place}: not a JSON text") from None
            if not isinstance(row, dict):
                raise CommandError(f"{place}: not a JSON object")
            yield row, line.strip(), place

    yield from _from_rows(rows(), fields)


def _csv(file: BinaryIO, fields: _Fields, where: str) -> Iterator[pa.Table]:
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    reader = csv.DictReader(text)
    fields.check(reader.fieldnames or (), where)

    def rows() -> Iterator[tuple[dict[str, Any], None, str]]:
        for row in reader:
            if None in row or None in row.values():
                raise CommandError(f"{where}, line {reader.line_num}: the row does not have {len(reader.fieldnames or ())} fields")
            yield row, None, f"{where}, line {reader.line_num}"

    yield from _from_rows(rows(), fields)
    text.detach()  # the file is closed by whoever opened it


def _from_rows(rows: Iterator[tuple[dict[str, Any], bytes | None, str]], fields: _Fields) -> Iterator[pa.Table]:
    for chunk in _chunks(rows):
        keys, values, times = [], [], []
        for row, whole, place in chunk:
            fields.check(row, place)
            keys.append(_bytes(row[fields.key]) if fields.key else None)
            if fields.value:
                values.append(_bytes(row[fields.value]))
            else:
                values.append(whole if whole is not None else json.dumps(row, ensure_ascii=False).encode())
            times.append(_milliseconds(row[fields.timestamp], place) if fields.timestamp else None)
        yield _table(keys, values, times if fields.timestamp else None)


def _bytes(item: Any) -> bytes | None:
    if item is None:
        return None
    if isinstance(item, bytes):
        return item
    return (item if isinstance(item, str) else json.dumps(item, ensure_ascii=False)).encode()


def _milliseconds(item: Any, place: str) -> int:
    import datetime as dt

    if isinstance(item, (int, float)) and not isinstance(item, bool):
        return int(item)
    if isinstance(item, dt.datetime):
        moment = item
    else:
        text = str(item)
        if text.lstrip("-").isdecimal():
            return int(text)
        try:
            moment = dt.datetime.fromisoformat(text)
        except ValueError:
            raise CommandError(f"{place}: {item!r} is no timestamp: neither milliseconds since 1970 nor ISO 8601") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.UTC)
    return round(moment.timestamp() * 1000)


def _parquet(file: BinaryIO, fields: _Fields, where: str) -> Iterator[pa.Table]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        parquet = pq.ParquetFile(file if file.seekable() else io.BytesIO(file.read()))
    except pa.ArrowInvalid as error:
        raise CommandError(f"{where}: not a Parquet file: {error}") from None
    names = parquet.schema_arrow.names
    fields.check(names, where)
    if fields.value is None and "value" in names:
        fields = _Fields(fields.key or ("key" if "key" in names else None), "value", fields.timestamp or ("timestamp" if "timestamp" in names else None))
    for batch in parquet.iter_batches(CHUNK):
        yield from _from_rows(((_jsonable(row, fields), None, where) for row in batch.to_pylist()), fields)


def _jsonable(row: dict[str, Any], fields: _Fields) -> dict[str, Any]:
    """For a row that becomes a JSON value: what JSON does not know (times, decimals, bytes) as text."""
    if fields.value is not None:
        return row
    return {name: item if isinstance(item, (str, int, float, bool, list, dict, type(None))) else str(item) for name, item in row.items()}


_READERS = {"lines": _lines, "jsonl": _jsonl, "csv": _csv, "parquet": _parquet}
