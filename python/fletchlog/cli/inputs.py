"""What `fletchlog produce` reads: records of files in many formats, one after the other, or as columns."""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import json
import os
import re
import select
import sys
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

from fletchlog.cli import records
from fletchlog.cli.common import CommandError
from fletchlog.cli.records import Record, milliseconds
from fletchlog.cli.template import unescaped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa
    from typing_extensions import Buffer

    Row = tuple[dict[str, Any], bytes | None, int]
    """Fields, the text of the row if it has one, and the number of its line."""
    Columns = tuple[pa.Table, int]
    """Records as columns, and the number of the first row."""

BY_SUFFIX = {
    ".txt": "lines", ".lines": "lines", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json", ".csv": "csv", ".tsv": "tsv",
    ".parquet": "parquet", ".arrow": "arrow", ".feather": "arrow", ".avro": "avro",
}  # fmt: skip
FORMATS = tuple(dict.fromkeys(BY_SUFFIX.values()))
TEXT = ("lines", "jsonl", "json", "csv", "tsv")
RECORDS = ("jsonl", "json", "csv", "parquet", "arrow")
SEPARATED = {"csv": ",", "tsv": "\t"}
# rows of a file of columns that are read at once
_ROWS = 20_000
# bytes of lines that are read at once
_BLOCK = 1 << 16
# how long an input may make wait before the records in hand are sent
_PATIENCE_MS = 100
_BOM = "\ufeff"
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
        if self.key == "" and form == "lines":
            raise CommandError("--key is empty: for lines it is the text between key and value, for example --key '\\t'")
        if self.encoding is not None and form not in TEXT:
            raise CommandError(f"--encoding is for text ({', '.join(TEXT)}), not for {form}")
        if form == "lines" and (self.value is not None or self.timestamp is not None):
            raise CommandError("--value and --timestamp need rows with fields: --format jsonl, json, csv, tsv, parquet, arrow or avro")
        if self.as_records and (self.form not in {None, *RECORDS} or self._chosen()):
            raise CommandError(f"--as-records is for what `consume` wrote as {', '.join(RECORDS)}, without --key, --value and --timestamp")

    def read(self, file: BinaryIO) -> Iterator[Record | Columns]:
        """The records, one by one or as columns; those before one that cannot be read, too.

        Raises:
            CommandError: What is wrong with the next one, and where.
        """
        if self.compression is not None:
            file = io.BufferedReader(_Decompressed(file, self.compression, self.where))
        if self.form is None:
            file = self._recognise(file)
        return _READERS[self.form or "lines"](file, self)

    def place(self, number: int) -> str:
        """The place of a line, row or record, for messages."""
        return f"{self.where}, {_UNITS.get(self.form or '', 'line')} {number}"

    def _chosen(self) -> bool:
        return not (self.key is None and self.value is None and self.timestamp is None)

    def _recognise(self, file: BinaryIO) -> BinaryIO:
        """Decides on the format by how the input begins; returns the whole input."""
        head = file.readline()
        if head.removeprefix(_BOM.encode()).strip() == b"[":
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
            self.as_records = found and self.form in RECORDS and not self._chosen()
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
    text = head.decode("utf-8", "replace").removeprefix(_BOM).strip()
    form = "json" if text.startswith("[") else "jsonl"
    try:
        row = json.loads(text.removeprefix("[").rstrip().removesuffix(",") if form == "json" else text)
    except (ValueError, RecursionError):
        return "csv" if text == ",".join(records.CSV) else None
    return form if isinstance(row, dict) and records.is_record(row) else None


def waiting(file: io.RawIOBase | BinaryIO, before: Callable[[], None]) -> BinaryIO:
    """The same input; `before` is called before it is waited for.

    What is behind a pipe may take its time, or never end: what has come from it is not kept meanwhile.
    """
    raw: Any = getattr(file, "raw", file)
    try:
        poll = select.poll()
        poll.register(raw.fileno(), select.POLLIN)
        patient = raw.seekable()
    except (OSError, AttributeError):  # kept in memory, by a test
        patient = True
    # reading a file does not wait
    return file if patient else io.BufferedReader(_Waiting(raw, poll, before))  # type: ignore[return-value]


class _Waiting(io.RawIOBase):
    """A pipe or a terminal."""

    def __init__(self, raw: Any, poll: select.poll, before: Callable[[], None]) -> None:
        self._raw = raw
        self._poll = poll
        self._before = before

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer) -> int:
        if not self._poll.poll(_PATIENCE_MS):
            self._before()
            # a pipe may have been made not to block
            self._poll.poll()
        data = os.read(self._raw.fileno(), len(memoryview(buffer)))
        memoryview(buffer)[: len(data)] = data
        return len(data)


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
        self._file = file
        self._compression = compression
        self._wrong = f"{where}: not a {compression} file, or one that is cut off or damaged"
        self._content = self._opened()
        self._given = 0
        self._bytewise = False

    def _opened(self) -> Any:
        import pyarrow as pa

        return gzip.GzipFile(fileobj=self._file) if self._compression == "gzip" else pa.CompressedInputStream(self._file, self._compression)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer) -> int:
        import pyarrow as pa

        view = memoryview(buffer)
        try:
            data = self._content.read(1 if self._bytewise else len(view))
        except (OSError, EOFError, zlib.error, pa.ArrowException) as error:
            if self._bytewise:
                raise CommandError(f"{self._wrong}: {error}") from None
            self._again()
            return self.readinto(buffer)
        view[: len(data)] = data
        self._given += len(data)
        return len(data)

    def _again(self) -> None:
        """Continues byte by byte: a read that fails gives nothing, also not what comes before the damage."""
        self._bytewise = True
        self._file.seek(0)
        # a stream of pyarrow closes its file when it is dropped
        self._first, self._content = self._content, self._opened()
        left = self._given
        while left > 0:
            data = self._content.read(min(left, io.DEFAULT_BUFFER_SIZE))
            if not data:
                raise CommandError(f"{self._wrong}: it became shorter while it was read")
            left -= len(data)


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
            yield line.removeprefix(_BOM) if number == 1 else line
    except UnicodeError as error:
        reason = getattr(error, "reason", error)
        raise CommandError(f"{source.where}, after line {number}: not {encoding} ({reason}); name the encoding with --encoding") from None
    finally:
        # the file is closed by the caller that opened it, perhaps before this generator ends
        with contextlib.suppress(ValueError):
            text.detach()


def _lines(file: BinaryIO, source: Input) -> Iterator[Record | Columns]:
    separator = None if source.key is None else unescaped(source.key)
    if source.encoding is None:
        yield from _lines_of_bytes(file, source, separator)
        return
    for number, line in enumerate(_text(file, source, "\n"), 1):
        content = line.removesuffix("\r\n").removesuffix("\n").encode()
        if separator is None:
            yield Record(None, content, None, None, None, number)
            continue
        key, found, value = content.partition(separator)
        if not found:
            raise _no_separator(source, number)
        yield Record(key, value, None, None, None, number)


def _lines_of_bytes(file: BinaryIO, source: Input, separator: bytes | None) -> Iterator[Columns]:
    import pyarrow as pa
    import pyarrow.compute as pc

    number = 1
    for block in _blocks(file):
        text = block.removeprefix(_BOM.encode()) if number == 1 else block
        values = _split(pa.array([text.replace(b"\r\n", b"\n").removesuffix(b"\n")], pa.large_binary()), b"\n").values
        if separator is None:
            yield pa.table({"value": values}), number
        else:
            pairs = _split(values, separator, max_splits=1)
            # of the first line without a separator
            bad = pc.index(pc.list_value_length(pairs), 1).as_py()
            pairs = pairs[:bad] if bad >= 0 else pairs
            if len(pairs):
                yield pa.table({"key": pc.list_element(pairs, 0), "value": pc.list_element(pairs, 1)}), number
            if bad >= 0:
                raise _no_separator(source, number + bad)
        number += len(values)


def _blocks(file: Any) -> Iterator[bytes]:
    """Whole lines, as many as have come together; the last one perhaps without its end."""
    begun: list[bytes] = []
    while data := file.read1(_BLOCK):
        end = data.rfind(b"\n") + 1
        if end:
            yield b"".join([*begun, data[:end]])
            begun.clear()
        begun.append(data[end:])
    if last := b"".join(begun):
        yield last


def _split(texts: Any, pattern: bytes, max_splits: int | None = None) -> Any:
    import pyarrow.compute as pc

    return pc.split_pattern(texts, pattern, max_splits=max_splits)


def _no_separator(source: Input, number: int) -> CommandError:
    return CommandError(f"{source.place(number)}: there is no key separator {source.key!r} in it")


def _jsonl(file: BinaryIO, source: Input) -> Iterator[Record]:
    def rows() -> Iterator[Row]:
        for number, line in enumerate(_text(file, source, ""), 1):
            text = line.rstrip(" \t\r\n")
            if text:
                start = _skip(text, 0)
                row, end = _object(text, start, source.where, number)
                if end != len(text):
                    raise CommandError(f"{source.place(number)}, column {_skip(text, end) + 1}: not a JSON text: something follows the object")
                yield row, text[start:].encode(), number

    yield from _from_rows(rows(), source)


def _json(file: BinaryIO, source: Input) -> Iterator[Record]:
    lines: list[str] = []
    wrong: CommandError | None = None
    try:
        for line in _text(file, source, "\n"):
            lines.append(line)  # noqa: PERF402 - those before one that cannot be read stay
    except CommandError as error:
        wrong = error
    try:
        yield from _from_rows(_elements("".join(lines), source.where), source)
    except CommandError as error:
        # what ends too early ends so because of what cannot be read
        raise wrong or error from None
    if wrong is not None:
        raise wrong


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
        row, end = _object(text, position, where, line, whole=True)
        yield row, text[position:end].encode(), line
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


def _csv(file: BinaryIO, source: Input) -> Iterator[Record]:
    delimiter = source.delimiter or SEPARATED[source.form or "csv"]
    names: list[str] | None = None
    as_records = False
    for number, row in _rows_of_csv(file, source, delimiter):
        if names is None:
            names = [name or "" for name in row]
            _check_header(names, delimiter, source)
            as_records = source.takes_records(records.is_record(names))
            continue
        # a line of blanks is no row
        if len(row) == 1 < len(names) and (row[0] or "").isspace():
            continue
        if len(row) != len(names):
            raise _uneven(source, number, names)
        if as_records:
            yield records.of_row(dict(zip(names, row, strict=True)), source.place(number), number, partitions=source.partitions)
        else:
            yield _from_row({name: cell or "" for name, cell in zip(names, row, strict=True)}, None, number, source)
    if names is None:
        source.has([], source.where)


def _rows_of_csv(file: BinaryIO, source: Input, delimiter: str) -> Iterator[tuple[int, list[str | None]]]:
    """Rows with the number of their last line, without empty lines. An empty field is None, `""` an empty text, which Python's csv cannot tell apart."""
    csv.field_size_limit(sys.maxsize)
    mark = re.escape(delimiter)
    fields = re.compile(rf'("[^"]*(?:""[^"]*)*"|[^{mark}]*)(?:{mark}|$)')
    taken: list[str] = []

    def lines() -> Iterator[str]:
        for line in _text(file, source, ""):
            taken.append(line)
            yield line

    reader = csv.reader(lines(), delimiter=delimiter, strict=True)
    try:
        for row in reader:
            text = "".join(taken).rstrip("\r\n")
            taken.clear()
            if not row:
                continue
            if "" in row:
                yield reader.line_num, [cell if raw else None for cell, raw in zip(row, fields.findall(text), strict=False)]
            else:
                yield reader.line_num, list(row)
    except csv.Error as error:
        # of the lines that were read, also those of a row that is not complete
        raise CommandError(f"{source.place(reader.line_num)}: not {source.form}: {error}") from None


def _uneven(source: Input, number: int, names: Sequence[str | None]) -> CommandError:
    return CommandError(f"{source.place(number)}: the row does not have {len(names)} fields")


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


def _parquet(file: BinaryIO, source: Input) -> Iterator[Record | Columns]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        parquet = pq.ParquetFile(file if file.seekable() else io.BytesIO(file.read()))
        yield from _from_columns(parquet.schema_arrow, parquet.iter_batches(_ROWS), source)
    except (pa.ArrowException, OSError, OverflowError, ValueError) as error:
        raise CommandError(f"{source.where}: not a Parquet file that can be read: {error}") from None


def _arrow(file: BinaryIO, source: Input) -> Iterator[Record | Columns]:
    import pyarrow as pa

    head = file.read(6)
    data: Any = io.BufferedReader(_Rejoined(head, file))
    try:
        if head == b"ARROW1":
            reader: Any = pa.ipc.open_file(io.BytesIO(data.read()) if not file.seekable() else file)
            batches = (reader.get_batch(number) for number in range(reader.num_record_batches))
        else:
            # batch by batch: the writer of a pipe may take its time
            reader = batches = pa.ipc.open_stream(data)
        yield from _from_columns(reader.schema, batches, source)
    except (pa.ArrowException, OSError, OverflowError, ValueError) as error:
        raise CommandError(f"{source.where}: not an Arrow file or stream that can be read: {error}") from None


def _avro(file: BinaryIO, source: Input) -> Iterator[Record]:
    from fletchlog.errors import InvalidArgumentError
    from fletchlog.serde.avro import records

    def rows() -> Iterator[Row]:
        try:
            for number, row in enumerate(records(file), 1):
                if not isinstance(row, dict):
                    raise CommandError(f"{source.where}: record {number} is no Avro record with fields")
                if number == 1:
                    source.has(row, source.where)
                yield row, None, number
        except InvalidArgumentError as error:
            raise CommandError(f"{source.where}: {error}") from None

    yield from _from_rows(rows(), source)


def _from_columns(schema: pa.Schema, batches: Iterable[Any], source: Input) -> Iterator[Record | Columns]:
    source.has(schema.names, source.where)
    fit = records.are_records(schema)
    as_records = source.takes_records(fit)
    if as_records and not fit:
        raise CommandError(f"{source.where}: no records as `fletchlog consume` writes them; its columns are {', '.join(schema.names)}")
    before = 0
    for batch in batches:
        for start, part, wrong in _parts(batch, (lambda part: records.from_columns(part, partitions=source.partitions)) if as_records else _rows_of_columns):
            number = before + start + 1
            if wrong is not None:
                raise CommandError(f"{source.place(number)}: {wrong}")
            if as_records:
                yield part, number
            else:
                for ahead, row in enumerate(part):
                    yield _from_row(row, None, number + ahead, source)
        before += batch.num_rows


def _parts(batch: Any, convert: Callable[[Any], Any]) -> Iterator[tuple[int, Any, Exception | None]]:
    """What is made of a batch, with the row at which each part begins; ends with why a row cannot be converted, if there is such a row.

    Rows that can be converted one by one may be too large for one part.
    """
    import pyarrow as pa

    wrong = (pa.ArrowException, OverflowError, ValueError)
    begin = 0
    while begin < batch.num_rows:
        good, bad, part = 0, batch.num_rows - begin, None
        # all of them at first
        tried = bad
        while good < bad:
            try:
                part = convert(batch.slice(begin, tried))
                good = tried
            except wrong as error:
                reason, bad = error, tried - 1
            tried = (good + bad + 1) // 2
        if good == 0:
            yield begin, None, reason
            return
        yield begin, part, None
        begin += good


def _rows_of_columns(batch: Any) -> list[dict[str, Any]]:
    batch.validate(full=True)
    rows: list[dict[str, Any]] = batch.to_pylist()
    return rows


def _from_rows(rows: Iterable[Row], source: Input) -> Iterator[Record]:
    as_records: bool | None = None
    for row, text, number in rows:
        if as_records is None:
            as_records = source.takes_records(records.is_record(row))
        if as_records:
            yield records.of_row(row, source.place(number), number, partitions=source.partitions)
        else:
            yield _from_row(row, text, number, source)


def _from_row(row: dict[str, Any], text: bytes | None, number: int, source: Input) -> Record:
    """The record of a row with fields; the value is its text, or the fields as JSON if it has none."""
    try:
        time = None if source.timestamp is None else row[source.timestamp]
        key = None if source.key is None else _bytes(row[source.key])
        value = _bytes(row[source.value]) if source.value is not None else text if text is not None else _bytes(row)
    except KeyError:
        source.has(row, source.place(number))
        raise
    except ValueError as error:
        raise CommandError(f"{source.place(number)}: cannot be written as JSON text: {error}") from None
    return Record(key, value, None if source.timestamp is None else milliseconds(time, source.place(number)), None, None, number)


def _bytes(item: Any) -> bytes | None:
    if item is None:
        return None
    if isinstance(item, bytes):
        return item
    return (item if isinstance(item, str) else _ENCODER.encode(item)).encode()


def _plain(item: Any) -> str:
    """What JSON does not know (times, decimals, bytes) as text."""
    return item.decode("utf-8", "backslashreplace") if isinstance(item, bytes) else str(item)


_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, default=_plain)

# what is counted in a file, if not lines
_UNITS = {"parquet": "row", "arrow": "row", "avro": "record"}
_READERS: dict[str, Callable[[BinaryIO, Input], Iterator[Record | Columns]]] = {
    "lines": _lines, "jsonl": _jsonl, "json": _json, "csv": _csv, "tsv": _csv, "parquet": _parquet, "arrow": _arrow, "avro": _avro,
}  # fmt: skip
