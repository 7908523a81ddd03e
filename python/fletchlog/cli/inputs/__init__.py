"""What `fletchlog produce` reads: records of files in many formats, one after the other, or as columns. A module for each kind of format."""

from __future__ import annotations

import io
import json
import re
from dataclasses import dataclass
from dataclasses import field as made_by
from typing import TYPE_CHECKING, Any, BinaryIO

from fletchlog.cli import records
from fletchlog.cli.common import CommandError
from fletchlog.cli.inputs.avro import read_avro
from fletchlog.cli.inputs.columns import read_arrow, read_parquet
from fletchlog.cli.inputs.files import Decompressed, Rejoined
from fletchlog.cli.inputs.json_texts import read_json, read_jsonl
from fletchlog.cli.inputs.lines import read_lines
from fletchlog.cli.inputs.separated import SEPARATED, read_separated
from fletchlog.cli.inputs.text import BOM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from fletchlog.cli.records import Columns, Record

BY_SUFFIX = {
    ".txt": "lines", ".lines": "lines", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json", ".csv": "csv", ".tsv": "tsv",
    ".parquet": "parquet", ".arrow": "arrow", ".feather": "arrow", ".avro": "avro",
}  # fmt: skip
FORMATS = tuple(dict.fromkeys(BY_SUFFIX.values()))
TEXT = ("lines", "jsonl", "json", "csv", "tsv")
RECORDS = ("jsonl", "json", "csv", "parquet", "arrow")


@dataclass
class Input:
    """One input and how to read it.

    Attributes:
        where: Its name, for errors.
        form: One of `FORMATS`; None: records if it begins as `consume` writes them, JSON if it begins so and options name fields, else lines. Holds
            afterwards what it was.
        compression: `gzip`, `zstd` or None.
        key: Field that gives the key (lines: what separates it from the value).
        value: Field that gives the value; None: the whole row.
        timestamp: Field that gives the timestamp; None: now.
        delimiter: Between the fields of csv and tsv; None: that of the format.
        encoding: Of text; None: UTF-8, and bytes as they are for lines.
        as_records: Whether the rows are records that `consume` wrote; None: if they look exactly so. Holds afterwards what they were.
        partitions: Whether such records keep their partition.
        kinds: Keys and values that are encoded afterwards, with their types: they are JSON here, or columns.
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
    kinds: dict[str, Any] = made_by(default_factory=dict)

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
        if self.form == "lines" and (self.value is not None or self.timestamp is not None):
            raise CommandError("--value and --timestamp need rows with fields: --format jsonl, json, csv, tsv, parquet, arrow or avro")
        if self.as_records and (self.form not in {None, *RECORDS} or self._chosen()):
            raise CommandError(f"--as-records is for what `consume` wrote as {', '.join(RECORDS)}, without --key, --value and --timestamp")
        if self.partitions and (self.as_records is False or self.form not in {None, *RECORDS} or self._chosen()):
            raise CommandError(f"--keep-partitions is for what `consume` wrote as {', '.join(RECORDS)}, without --key, --value, --timestamp and --as-rows")

    def read(self, file: BinaryIO) -> Iterator[Record | Columns]:
        """The records, one by one or as columns; those before one that cannot be read, too.

        Raises:
            CommandError: What is wrong with the next one, and where.
        """
        if self.compression is not None:
            file = io.BufferedReader(Decompressed(file, self.compression, self.where))
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
        if head.removeprefix(BOM.encode()).strip() == b"[":
            head += file.readline()
        form, names, is_certain = _begin(head)
        written = is_certain and (names is None or names == list(records.CSV) or (form != "csv" and records.is_record(names)))
        found = form if (written and self.as_records is not False) or (self._chosen() and is_certain and form != "csv") else None
        if self.key is not None and form is not None and names is not None and (written or (self.key in names) != is_certain):
            how = f"as `fletchlog consume -f {form}` writes records" if written else f"as {form}, with the fields {', '.join(names)}"
            advice = f"give -f {form} if --key names a field, -f lines if it is what separates the key"
            raise CommandError(f"{self.where} begins {how}; {advice}")
        self.form = found or "lines"
        if head or self.value is not None or self.timestamp is not None:
            self.check()
        return io.BufferedReader(Rejoined(head, file))

    def takes_records(self, found: bool) -> bool:
        """Decides whether the rows are records, by what was found out about the first one."""
        if self.as_records is None:
            self.as_records = found and self.form in RECORDS and not self._chosen()
        if self.partitions and not self.as_records:
            raise CommandError(f"{self.where}: --keep-partitions needs records as `consume` wrote them, and the rows have other fields")
        return self.as_records

    def has(self, names: Iterable[str], where: str) -> None:
        """Raises a CommandError if an option names a field that is missing."""
        names = list(names)
        if not names and self._chosen():
            raise CommandError(f"{where}: there are no fields, and --key, --value and --timestamp name fields")
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


def _begin(head: bytes) -> tuple[str | None, list[str] | None, bool]:
    """What an input may be that begins so, with a whole line, or two for `[`; the names of its fields, where they are text; whether that is certain."""
    if head.startswith(b"\xff\xff\xff\xff"):
        return "arrow", None, True
    if head.startswith(b"PAR1"):
        return "parquet", None, True
    text = head.decode("utf-8", "replace").removeprefix(BOM).strip()
    form = "json" if text.startswith("[") else "jsonl"
    try:
        row = json.loads(text.removeprefix("[").rstrip().removesuffix(",") if form == "json" else text)
    except (ValueError, RecursionError):
        if text.startswith(("{", "[")):
            return "json", re.findall(r'"([^"]*)"\s*:', text), False
        names = [name.strip().strip('"') for name in re.split(r"[,;|\t]", text)]
        return "tsv" if "\t" in text else "csv", names if len(names) > 1 else [], names == list(records.CSV)
    return (form, list(row), True) if isinstance(row, dict) else (None, None, False)


# what is counted in a file, if not lines
_UNITS = {"parquet": "row", "arrow": "row", "avro": "record"}
_READERS: dict[str, Callable[[BinaryIO, Input], Iterator[Record | Columns]]] = {
    "lines": read_lines, "jsonl": read_jsonl, "json": read_json, "csv": read_separated, "tsv": read_separated,
    "parquet": read_parquet, "arrow": read_arrow, "avro": read_avro,
}  # fmt: skip
