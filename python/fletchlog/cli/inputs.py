"""What `fletchlog produce` reads: files in many formats as tables with the columns key, value and timestamp."""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import itertools
import json
import re
import sys
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

from fletchlog.cli import records
from fletchlog.cli.common import CommandError
from fletchlog.cli.records import CHUNK, milliseconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa
    from typing_extensions import Buffer

    Row = tuple[dict[str, Any], bytes | None, str]
    """Fields, the text of the row if it has one, and where it is."""

BY_SUFFIX = {
    ".txt": "lines", ".lines": "lines", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json", ".csv": "csv", ".tsv": "tsv",
    ".parquet": "parquet", ".arrow": "arrow", ".feather": "arrow", ".avro": "avro",
}  # fmt: skip
FORMATS = tuple(dict.fromkeys(BY_SUFFIX.values()))
TEXT = ("lines", "jsonl", "json", "csv", "tsv")
RECORDS = ("jsonl", "json", "csv", "parquet", "arrow")
SEPARATED = {"csv": ",", "tsv": "\t"}
_UNDECODED = re.compile("[\udc80-\udcff]")
_BLANKS = re.compile(r"[ \t\r\n]*")


@dataclass
class Input:
    """One input and how to read it.

    Attributes:
        where: Its name, for errors.
        form: One of `FORMATS`; None: records if it begins as `consume` writes them, else lines. Holds afterwards what it was.
        compression: `gzip`, `zstd` or None.
        key: Field that gives the key (lines: what separates it from the value).
        value: Field that gives the value; None: the whole row.
        timestamp: Field that gives the timestamp; None: now.
        delimiter: Between the fields of csv and tsv; None: that of the format.
        encoding: Of text; None: UTF-8, and bytes as they are for lines.
        as_records: Whether the rows are records that `consume` wrote; None: if they look exactly so. Holds afterwards what they were.
        partitions: Whether such records keep their partition.
    """

    where: str
    form: str | None
    compression: str | None
    key: str | None
    value: str | None
    timestamp: str | None
    delimiter: str | None = None
    encoding: str | None = None
    as_records: bool | None = None
    partitions: bool = False

    def check(self) -> None:
        """Whether the options fit the format.

        Raises:
            CommandError: They do not.
        """
        form = self.form or "lines"
        if form not in FORMATS:
            raise CommandError(f"--format is one of {', '.join(FORMATS)}, not {form}")
        if self.delimiter is not None and (form not in SEPARATED or len(self.delimiter) != 1 or self.delimiter in '\r\n"'):
            raise CommandError(f"--delimiter is one character between the fields of csv or tsv, not {self.delimiter!r} in {form}")
        if self.encoding is not None and form not in TEXT:
            raise CommandError(f"--encoding is for text ({', '.join(TEXT)}), not for {form}")
        if form == "lines" and (self.value or self.timestamp):
            raise CommandError("--value and --timestamp need rows with fields: --format jsonl, json, csv, tsv, parquet, arrow or avro")
        if self.as_records and (self.form not in {None, *RECORDS} or self.key or self.value or self.timestamp):
            raise CommandError(f"--as-records is for what `consume` wrote as {', '.join(RECORDS)}, without --key, --value and --timestamp")

    def tables(self, file: BinaryIO) -> Iterator[pa.Table]:
        """The records, some at a time.

        Raises:
            CommandError: What is wrong with them, and where.
        """
        if self.compression is not None:
            file = io.BufferedReader(_Decompressed(file, self.compression, self.where))
        if self.form is None:
            file = self._recognise(file)
        yield from _READERS[self.form or "lines"](file, self)

    def _recognise(self, file: BinaryIO) -> BinaryIO:
        """Decides on the format by how the input begins; returns the whole input."""
        head = file.readline()
        if head.strip() == b"[":
            head += file.readline()
        found = None if self.as_records is False else _written_as(head)
        if found is not None and self.key is not None:
            advice = f"give -f {found} if --key names a field, -f lines if it is what separates the key"
            raise CommandError(f"{self.where} begins as `fletchlog consume -f {found}` writes records; {advice}")
        self.form = found or "lines"
        self.check()
        return io.BufferedReader(_Rejoined(head, file))

    def takes_records(self, found: bool) -> bool:
        """Decides whether the rows are records, by what was found out about the first one."""
        if self.as_records is None:
            self.as_records = found and self.form in RECORDS and not (self.key or self.value or self.timestamp)
        return self.as_records

    def has(self, names: Iterable[str], where: str) -> None:
        """Raises a CommandError if an option names a field that is missing."""
        names = list(names)
        for option, field in (("--key", self.key), ("--value", self.value), ("--timestamp", self.timestamp)):
            if field is not None and field not in names:
                raise CommandError(f"{where}: {option} {field} is no field of it; fields are {', '.join(names)}")


def by_name(path: Path) -> tuple[str | None, str | None]:
    """Format and compression by a file's name, None where it has none."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    compression = {".gz": "gzip", ".zst": "zstd"}.get(suffixes[-1]) if suffixes else None
    if compression is not None:
        suffixes.pop()
    return BY_SUFFIX.get(suffixes[-1]) if suffixes else None, compression


def _written_as(head: bytes) -> str | None:
    """The format in which `consume` writes records that begin so: with a whole line, or two for `[`."""
    if head.startswith(b"\xff\xff\xff\xff"):
        return "arrow"
    if head.startswith(b"PAR1"):
        return "parquet"
    text = head.decode("utf-8", "replace").strip()
    form = "json" if text.startswith("[") else "jsonl"
    try:
        row = json.loads(text.removeprefix("[").rstrip().removesuffix(",") if form == "json" else text)
    except (ValueError, RecursionError):
        return "csv" if text == ",".join(records.CSV) else None
    return form if isinstance(row, dict) and records.is_record(row) else None


class _Rejoined(io.RawIOBase):
    """The first bytes of a file, which were read, and the rest of it."""

    def __init__(self, head: bytes, rest: BinaryIO) -> None:
        self._head = io.BytesIO(head)
        self._rest: Any = rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer) -> int:
        view = memoryview(buffer)
        # what has come, not more: the writer of a pipe may take its time
        data = self._head.read(len(view)) or self._rest.read1(len(view))
        view[: len(data)] = data
        return len(data)


class _Decompressed(io.RawIOBase):
    """The content of a compressed file."""

    def __init__(self, file: BinaryIO, compression: str, where: str) -> None:
        import pyarrow as pa

        self._file: Any = gzip.GzipFile(fileobj=file) if compression == "gzip" else pa.CompressedInputStream(file, compression)
        self._wrong = f"{where}: not a {compression} file, or one that is cut off or damaged"

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer) -> int:
        import pyarrow as pa

        view = memoryview(buffer)
        try:
            data = self._file.read(len(view))
        except (OSError, EOFError, zlib.error, pa.ArrowException) as error:
            raise CommandError(f"{self._wrong}: {error}") from None
        view[: len(data)] = data
        return len(data)


def _text(file: BinaryIO, source: Input, newline: str) -> Iterator[str]:
    """Lines of text with their ends; `newline` as for `open`."""
    encoding = source.encoding or "utf-8"
    try:
        text = io.TextIOWrapper(file, encoding, "surrogateescape", newline)
    except LookupError:
        raise CommandError(f"--encoding {encoding}: there is no such encoding; there are utf-8, utf-16, latin-1, cp1252 and many more") from None
    number = 0
    try:
        for number, line in enumerate(text, 1):
            if (bad := _UNDECODED.search(line)) is not None:
                byte = ord(bad[0]) - 0xDC00
                guess = "utf-16" if number == 1 and byte in b"\xfe\xff" and not bad.start() else "latin-1 or cp1252"
                raise CommandError(
                    f"{source.where}, line {number}, column {bad.start() + 1}: byte 0x{byte:02x} is no {encoding}; "
                    f"name the encoding with --encoding, for example {guess}"
                )
            # a byte order mark is no part of the text
            yield line.removeprefix("\ufeff") if number == 1 else line
    except UnicodeError as error:
        reason = getattr(error, "reason", error)
        raise CommandError(f"{source.where}, after line {number}: not {encoding} ({reason}); name the encoding with --encoding") from None
    finally:
        # the file is closed by the caller that opened it, perhaps before this generator ends
        with contextlib.suppress(ValueError):
            text.detach()


def _lines(file: BinaryIO, source: Input) -> Iterator[pa.Table]:
    separator = source.key.encode() if source.key else None
    raw: Iterable[bytes] = file if source.encoding is None else (line.encode() for line in _text(file, source, "\n"))
    numbered = enumerate((line.rstrip(b"\r\n") for line in raw), 1)
    for chunk in _chunks(numbered):
        keys: list[bytes | None] = []
        values: list[bytes | None] = []
        for number, line in chunk:
            content = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
            key, found, value = content.partition(separator) if separator else (None, b"", content)
            if separator and not found:
                raise CommandError(f"{source.where}, line {number}: there is no key separator {source.key!r} in it")
            keys.append(key)
            values.append(value)
        yield _table(keys, values, None)


def _jsonl(file: BinaryIO, source: Input) -> Iterator[pa.Table]:
    def rows() -> Iterator[Row]:
        for number, line in enumerate(_text(file, source, "\n"), 1):
            text = line.rstrip(" \t\r\n")
            if text:
                place, start = f"{source.where}, line {number}", _skip(text, 0)
                row, end = _object(text, start, source.where, number)
                if end != len(text):
                    raise CommandError(f"{place}, column {_skip(text, end) + 1}: not a JSON text: something follows the object")
                yield row, text[start:].encode(), place

    yield from _from_rows(rows(), source)


def _json(file: BinaryIO, source: Input) -> Iterator[pa.Table]:
    text = "".join(_text(file, source, "\n"))
    yield from _from_rows(_elements(text, source.where), source)


def _elements(text: str, where: str) -> Iterator[Row]:
    """The objects of an array, or those that follow each other."""
    position = _skip(text, 0)
    in_array = text.startswith("[", position)
    position = _skip(text, position + in_array)
    line, counted_to = 1, 0
    if in_array and text.startswith("]", position):
        position = len(text) if _skip(text, position + 1) == len(text) else position
        in_array = False
    while position < len(text):
        line, counted_to = line + text.count("\n", counted_to, position), position
        place = f"{where}, line {line}"
        row, end = _object(text, position, where, line, whole=True)
        yield row, text[position:end].encode(), place
        position = _skip(text, end)
        if in_array:
            mark = text[position : position + 1]
            if mark not in {",", "]"}:
                raise CommandError(f"{where}: not a JSON text: after the object of line {line} a comma or the end of the array is missing")
            position = _skip(text, position + 1)
            if mark == "]":
                if position != len(text):
                    raise CommandError(f"{where}: not a JSON text: something follows the array")
                return
    if in_array:
        raise CommandError(f"{where}: not a JSON text: the array does not end")


def _skip(text: str, position: int) -> int:
    found = _BLANKS.match(text, position)
    return found.end() if found else position


def _object(text: str, position: int, where: str, line: int, *, whole: bool = False) -> tuple[dict[str, Any], int]:
    """A JSON object and where it ends; it begins in this line. `whole`: the text is the whole input, not the line."""
    place = f"{where}, line {line}"
    try:
        row, end = _DECODER.raw_decode(text, position)
    except RecursionError:
        raise CommandError(f"{place}: the JSON text is nested too deep") from None
    except json.JSONDecodeError as error:
        raise CommandError(f"{where}, line {error.lineno if whole else line}, column {error.colno}: not a JSON text: {error.msg}") from None
    except ValueError as error:
        raise CommandError(f"{place}: not a JSON text: {error}") from None
    if not isinstance(row, dict):
        raise CommandError(f"{place}: not a JSON object")
    return row, end


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


_DECODER = json.JSONDecoder(parse_constant=_no_number)


def _csv(file: BinaryIO, source: Input) -> Iterator[pa.Table]:
    csv.field_size_limit(sys.maxsize)
    delimiter = source.delimiter or SEPARATED[source.form or "csv"]
    lines = _text(file, source, "")
    first = next(lines, "")
    names = next(csv.reader([first], delimiter=delimiter), [])
    lines = itertools.chain([first], lines)
    if source.takes_records(records.is_record(names)):
        yield from records.from_rows(_csv_records(lines, delimiter, source), partitions=source.partitions)
        return
    reader = csv.DictReader(lines, delimiter=delimiter, strict=True)

    def rows() -> Iterator[Row]:
        for row in reader:
            if None in row or None in row.values():
                raise _uneven(source, reader.line_num, reader.fieldnames or ())
            yield row, None, f"{source.where}, line {reader.line_num}"

    try:
        _check_header(reader.fieldnames or (), delimiter, source)
        yield from _from_rows(rows(), source)
    except csv.Error as error:
        # of the lines that were read, also those of a row that is not complete
        raise CommandError(f"{source.where}, line {reader.reader.line_num}: not {source.form}: {error}") from None


def _csv_records(lines: Iterable[str], delimiter: str, source: Input) -> Iterator[tuple[dict[str, Any], str]]:
    cells = records.csv_cells(lines, delimiter, lambda number: CommandError(f"{source.where}, line {number}: not {source.form}: its quotes do not fit"))
    _, names = next(cells, (0, []))
    for number, row in cells:
        if len(row) != len(names):
            raise _uneven(source, number, names)
        yield {name or "": cell for name, cell in zip(names, row, strict=True)}, f"{source.where}, line {number}"


def _uneven(source: Input, number: int, names: Sequence[str | None]) -> CommandError:
    return CommandError(f"{source.where}, line {number}: the row does not have {len(names)} fields")


def _check_header(names: Sequence[str], delimiter: str, source: Input) -> None:
    twice = next((name for number, name in enumerate(names) if name in names[:number]), None)
    if twice is not None:
        raise CommandError(f"{source.where}: two fields are called {twice!r}")
    others = [mark for mark in ";\t|," if mark != delimiter and len(names) == 1 and mark in names[0]]
    if others and source.delimiter is None:
        wanted = "\\t" if others[0] == "\t" else others[0]
        advice = f"if {wanted} separates the fields, give --delimiter '{wanted}', else --delimiter ','"
        raise CommandError(f"{source.where}: its only field is {names[0]!r}; {advice}")
    source.has(names, source.where)


def _parquet(file: BinaryIO, source: Input) -> Iterator[pa.Table]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        parquet = pq.ParquetFile(_seekable(file))
        yield from _from_columns(parquet.schema_arrow, parquet.iter_batches(CHUNK), source)
    except (pa.ArrowException, OSError, OverflowError, ValueError) as error:
        raise CommandError(f"{source.where}: not a Parquet file that can be read: {error}") from None


def _arrow(file: BinaryIO, source: Input) -> Iterator[pa.Table]:
    import pyarrow as pa

    data = _seekable(file)
    in_file = data.read(6) == b"ARROW1"
    data.seek(0)
    try:
        reader: Any = pa.ipc.open_file(data) if in_file else pa.ipc.open_stream(data)
        batches = (reader.get_batch(number) for number in range(reader.num_record_batches)) if in_file else reader
        yield from _from_columns(reader.schema, batches, source)
    except (pa.ArrowException, OSError, OverflowError, ValueError) as error:
        raise CommandError(f"{source.where}: not an Arrow file or stream that can be read: {error}") from None


def _seekable(file: BinaryIO) -> BinaryIO:
    return file if file.seekable() else io.BytesIO(file.read())


def _avro(file: BinaryIO, source: Input) -> Iterator[pa.Table]:
    from fletchlog.errors import InvalidArgumentError
    from fletchlog.serde.avro import records

    def rows() -> Iterator[Row]:
        try:
            for number, row in enumerate(records(file), 1):
                if not isinstance(row, dict):
                    raise CommandError(f"{source.where}: record {number} is no Avro record with fields")
                yield row, None, f"{source.where}, record {number}"
        except InvalidArgumentError as error:
            raise CommandError(f"{source.where}: {error}") from None

    first = next(iterator := rows(), None)
    if first is not None:
        source.has(first[0], source.where)
        yield from _from_rows(itertools.chain([first], iterator), source)


def _from_columns(schema: pa.Schema, batches: Iterable[Any], source: Input) -> Iterator[pa.Table]:
    source.has(schema.names, source.where)
    fit = records.are_records(schema)
    if source.takes_records(fit):
        if not fit:
            raise CommandError(f"{source.where}: no records as `fletchlog consume` writes them; its columns are {', '.join(schema.names)}")
        yield from records.from_columns(batches, partitions=source.partitions)
        return

    def rows() -> Iterator[Row]:
        for batch in batches:
            batch.validate(full=True)
            for row in batch.to_pylist():
                yield row, None, source.where

    yield from _from_rows(rows(), source)


def _from_rows(rows: Iterator[Row], source: Input) -> Iterator[pa.Table]:
    first = next(rows, None)
    if first is None:
        return
    rows = itertools.chain([first], rows)
    if source.takes_records(records.is_record(first[0])):
        yield from records.from_rows(((row, place) for row, _, place in rows), partitions=source.partitions)
        return
    for chunk in _chunks(rows):
        keys, values, times = [], [], []
        for row, whole, place in chunk:
            source.has(row, place)
            try:
                keys.append(_bytes(row[source.key]) if source.key else None)
                values.append(_bytes(row[source.value]) if source.value else whole if whole is not None else _bytes(row))
            except ValueError as error:
                raise CommandError(f"{place}: cannot be written as JSON text: {error}") from None
            times.append(milliseconds(row[source.timestamp], place) if source.timestamp else None)
        yield _table(keys, values, times if source.timestamp else None)


def _table(keys: list[bytes | None], values: list[bytes | None], times: list[int | None] | None) -> pa.Table:
    import pyarrow as pa

    columns = {"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())}
    if times is not None:
        columns["timestamp"] = pa.array(times, pa.timestamp("ms", tz="UTC"))
    return pa.table(columns)


def _chunks(items: Iterable[Any]) -> Iterator[list[Any]]:
    iterator = iter(items)
    while chunk := list(itertools.islice(iterator, CHUNK)):
        yield chunk


def _bytes(item: Any) -> bytes | None:
    if item is None:
        return None
    if isinstance(item, bytes):
        return item
    return (item if isinstance(item, str) else json.dumps(item, ensure_ascii=False, allow_nan=False, default=_plain)).encode()


def _plain(item: Any) -> str:
    """What JSON does not know (times, decimals, bytes) as text."""
    return item.decode("utf-8", "backslashreplace") if isinstance(item, bytes) else str(item)


_READERS: dict[str, Callable[[BinaryIO, Input], Iterator[pa.Table]]] = {
    "lines": _lines, "jsonl": _jsonl, "json": _json, "csv": _csv, "tsv": _csv, "parquet": _parquet, "arrow": _arrow, "avro": _avro,
}  # fmt: skip
