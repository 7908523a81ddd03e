"""Fields with a character between them, below a line with their names."""

from __future__ import annotations

import csv
import re
import sys
from typing import TYPE_CHECKING, BinaryIO

from fletchlog.cli import records
from fletchlog.cli.common import CommandError
from fletchlog.cli.inputs.rows import from_row
from fletchlog.cli.inputs.text import decoded

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fletchlog.cli.inputs import Input
    from fletchlog.cli.records import Record

SEPARATED = {"csv": ",", "tsv": "\t"}


def read_separated(file: BinaryIO, source: Input) -> Iterator[Record]:
    """Rows below the names of their fields."""
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
            fields = dict(zip(names, row, strict=True))
            yield records.of_row(fields, source.place(number), number, partitions=source.partitions, typed=source.kinds, of_csv=True)
        else:
            yield from_row({name: cell if source.kinds else cell or "" for name, cell in zip(names, row, strict=True)}, None, number, source)
    if names is None:
        source.has([], source.where)


def _rows_of_csv(file: BinaryIO, source: Input, delimiter: str) -> Iterator[tuple[int, list[str | None]]]:
    """Rows with the number of their last line, without empty lines. An empty field is None, `""` an empty text, which Python's csv cannot tell apart."""
    csv.field_size_limit(sys.maxsize)
    mark = re.escape(delimiter)
    fields = re.compile(rf'("[^"]*(?:""[^"]*)*"|[^{mark}]*)(?:{mark}|$)')
    taken: list[str] = []

    def lines() -> Iterator[str]:
        for line in decoded(file, source, ""):
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
