"""What `fletchlog consume` writes: records as a table, text or columns. Each says which records a group has read with it."""

from __future__ import annotations

import contextlib
import io
import itertools
from typing import TYPE_CHECKING, Any

from fletchlog.cli.common import CommandError
from fletchlog.cli.delivery import Offsets, Output, behind
from fletchlog.cli.interrupts import held
from fletchlog.cli.records import CSV
from fletchlog.cli.rows import cell, csv_lines, header_text, json_lines, rows
from fletchlog.cli.tables import NARROW, vertical
from fletchlog.cli.template import Template
from fletchlog.cli.terminal import in_file, out
from fletchlog.cli.text import visible

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    import pyarrow as pa

    from fletchlog.cli.rows import Row


# a row group, or a batch of Arrow, of useful size for those who read it
GROUP_ROWS = 128 * 1024
GROUP_BYTES = 64 << 20


class Writer:
    """Writes records to standard output (None) or a file."""

    def __init__(self, output: Path | None, *, follow: bool) -> None:
        self._out = Output(output, follow=follow)
        self._finished = False
        self.count = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Takes records, with headers."""
        raise NotImplementedError

    def finish(self) -> None:
        """All records have come."""
        self._finished = True

    def taken(self) -> Offsets:
        """Behind the records that have been read, or are in a file, for certain."""
        return self._out.taken()

    def wait_until_taken(self) -> None:
        """Waits until the reader of a pipe has read what was written.

        Raises:
            fletchlog.cli.streams.PipeClosedError: It ended before.
        """
        self._out.wait_until_taken()

    def shown(self) -> Offsets:
        """The same when all is closed."""
        return self._out.shown()

    def close(self) -> None:
        """Completes what was written, also after Ctrl-C or an error: those records count as shown."""
        complete = False
        try:
            # a file is always completed; a reader may keep a pipe waiting
            with held() if self._out.path is not None else contextlib.nullcontext():
                self._end()
            complete = self._finished
        finally:
            self._out.close(keep=complete or bool(self._out.shown()))

    def _end(self) -> None:
        """Writes the end of the output, behind the last record."""


class _Text(Writer):
    """A piece of text for every record."""

    head = b""

    def __init__(self, output: Path | None, *, follow: bool) -> None:
        super().__init__(output, follow=follow)
        self._out.write([self.head])

    def add(self, batch: pa.RecordBatch) -> None:
        pieces: list[bytes] = []
        try:
            # those before a record that has no place in this format stay
            pieces.extend(self.pieces(batch))
        finally:
            self.count += len(pieces)
            if self._out.terminal:
                # no byte of a record commands a terminal
                pieces = [visible(piece.decode("utf-8", "backslashreplace")).encode() for piece in pieces]
            self._out.write(pieces, lambda count: behind(batch.slice(0, count)))

    def pieces(self, batch: pa.RecordBatch) -> Iterable[bytes]:
        """The texts of records."""
        raise NotImplementedError


class _JsonLines(_Text):
    def pieces(self, batch: pa.RecordBatch) -> Iterable[bytes]:
        return (f"{line}\n".encode() for line in json_lines(batch))


class _Json(_Text):
    head = b"["

    def pieces(self, batch: pa.RecordBatch) -> Iterable[bytes]:
        between = itertools.chain([] if self.count else ["\n"], itertools.repeat(",\n"))
        return (f"{mark}{line}".encode() for mark, line in zip(between, json_lines(batch), strict=False))

    def _end(self) -> None:
        self._out.write([b"\n]\n"])


class _Csv(_Text):
    head = ",".join(CSV).encode() + b"\n"

    def pieces(self, batch: pa.RecordBatch) -> Iterable[bytes]:
        return (f"{line}\n".encode() for line in csv_lines(batch))


class _Raw(_Text):
    def __init__(self, output: Path | None, *, follow: bool, template: Template) -> None:
        super().__init__(output, follow=follow)
        self._template = template

    def pieces(self, batch: pa.RecordBatch) -> Iterable[bytes]:
        return self._template.of(batch)


class _Table(Writer):
    """A table, printed at the end."""

    def __init__(self, output: Path | None, *, follow: bool) -> None:
        super().__init__(output, follow=follow)
        self._rows: list[Row] = []
        self._behind: Offsets = {}
        self._shown: Offsets = {}

    def add(self, batch: pa.RecordBatch) -> None:
        self._rows += rows(batch)
        self._behind |= behind(batch)
        self.count += batch.num_rows

    def finish(self) -> None:
        if self._out.path is None:
            console = out()
            console.print(_table(self._rows, narrow=console.width < NARROW))
            self._shown = self._behind
        else:
            text = io.StringIO()
            in_file(text).print(_table(self._rows, narrow=False))
            self._out.write([text.getvalue().encode()], lambda _: self._behind)
        super().finish()

    def taken(self) -> Offsets:
        return self._shown | super().taken()

    def shown(self) -> Offsets:
        return self._shown | super().shown()


def _table(found: list[Row], *, narrow: bool) -> Any:
    from rich.table import Table

    headers = any(row[-1] for row in found)
    names = ["topic", "partition", "offset", "timestamp", "key", "value", *(["headers"] if headers else [])]
    lines = [[row[0], str(row[1]), str(row[2]), *map(cell, row[3:6]), *([header_text(row[-1])] if headers else [])] for row in found]
    if narrow:
        return vertical(names, lines)
    table = Table(*names)
    for column in table.columns[1:3]:
        column.justify = "right"
    for line in lines:
        table.add_row(*line)
    return table


class _Columns(Writer):
    """Parquet, complete when it is closed, or an Arrow stream. Many polls are written as one row group or batch, unless somebody is to follow it."""

    def __init__(self, output: Path | None, *, follow: bool, form: str) -> None:
        super().__init__(output, follow=follow)
        self._form = form
        if self._out.terminal:
            self._out.close(keep=False)
            raise CommandError(f"--format {form} is no text: give --output FILE, or send it to another program")
        self._sink = _Sink()
        self._writer: Any = None
        self._follow = follow
        self._batches: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0
        self._behind: Offsets = {}

    def add(self, batch: pa.RecordBatch) -> None:
        if self._writer is None:
            self._writer = self._open(batch.schema)
        self._batches.append(batch)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        if self._follow or self._rows >= GROUP_ROWS or self._bytes >= GROUP_BYTES:
            self._write()
        self.count += batch.num_rows

    def finish(self) -> None:
        if self._writer is None:
            name = "nothing was written" if self._out.path is None else f"{self._out.path} was not created"
            raise CommandError(f"there was no record to write, {name}")
        super().finish()

    def _open(self, schema: pa.Schema) -> Any:
        import pyarrow as pa
        import pyarrow.parquet as pq

        sink: Any = self._sink
        return pq.ParquetWriter(sink, schema) if self._form == "parquet" else pa.ipc.new_stream(sink, schema)

    def _write(self) -> None:
        """Writes what is in hand."""
        import pyarrow as pa

        if not self._batches:
            return
        # once, also if Ctrl-C or an error comes in between: the end of the output writes what is in hand, too
        with held():
            batches, self._batches, self._rows, self._bytes = self._batches, [], 0, 0
            for batch in pa.Table.from_batches(batches).combine_chunks().to_batches():
                self._writer.write_batch(batch)
                self._behind |= behind(batch)
        offsets = dict(self._behind) if self._form == "arrow" else {}
        self._out.write([self._sink.taken()], lambda _: offsets)

    def _end(self) -> None:
        # also what was read up to a Ctrl-C or an error becomes a file that can be read
        if self._writer is not None:
            self._write()
            self._writer.close()
            self._out.write([self._sink.taken()], lambda _: self._behind)


class _Sink(io.RawIOBase):
    """What a library has written and we have not."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._at = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._data += data
        self._at += len(data)
        return len(data)

    def tell(self) -> int:
        return self._at

    def taken(self) -> bytes:
        data = bytes(self._data)
        self._data.clear()
        return data


_TEXTS: dict[str, type[Writer]] = {"table": _Table, "jsonl": _JsonLines, "json": _Json, "csv": _Csv}
FORMATS = (*_TEXTS, "raw", "parquet", "arrow")


def writer(form: str, output: Path | None, *, follow: bool) -> Writer:
    """The writer of a format, or of a template.

    Raises:
        CommandError: There is no such format, or it does not fit.
    """
    if form in _TEXTS:
        return _TEXTS[form](output, follow=follow)
    if form in {"parquet", "arrow"}:
        return _Columns(output, follow=follow, form=form)
    if form == "raw" or "%" in form or "\\" in form:
        return _Raw(output, follow=follow, template=Template(r"%s\n" if form == "raw" else form))
    raise CommandError(f"--format is one of {', '.join(FORMATS)} or a template like '%k: %s\\n', not {form}")
