"""`fletchlog dump`: the batches and records of a segment file."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from fletchlog.cli.arguments import argument, option
from fletchlog.cli.common import CommandError
from fletchlog.cli.options import JSON
from fletchlog.cli.rows import cell, header_text, json_lines, rows
from fletchlog.cli.tables import draw
from fletchlog.cli.terminal import out, styled
from fletchlog.cli.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa


def dump(
    file: Path = argument("FILE.log", "A .log file of a partition."),
    records: bool = option("--records -r", "Records instead of batches.", False),
    most: int = option("--max -n", "Stop after this many lines; 0: no limit.", 50),
    as_json: bool = JSON,
) -> None:
    """Show what is in a segment file: every batch with offsets, producer, checksum; or its records.

    Changes nothing and needs no broker; Kafka's own files are read too. Exit code 1 if a batch is damaged.

      fletchlog dump data/orders-0/00000000000000000000.log

      fletchlog dump data/orders-0/00000000000000000000.log --records --json
    """
    if most < 0:
        raise CommandError(f"--max is 0 or more, not {most}")
    if file.suffix != ".log":
        raise CommandError(f"{file} is not a segment: name a .log file")
    if records:
        _records(file, most or None, as_json=as_json)
    else:
        _batches(file, most or None, as_json=as_json)


def _batches(file: Path, most: int | None, *, as_json: bool) -> None:
    import fletchlog as fl

    inspection = fl.files.inspect_segment(file)
    rows = inspection.batches.to_pyarrow().slice(0, most).to_pylist()
    damaged = [row for row in rows if row["error"] is not None]
    if as_json:
        for row in rows:
            print(json.dumps(row))
    else:
        _table(file, inspection, rows)
    if inspection.tail is not None:
        position, reason = inspection.tail
        raise CommandError(f"{file}: batches end at byte {position} of {inspection.size}: {reason}")
    if damaged:
        first = f"at byte {damaged[0]['position']}: {damaged[0]['error']}"
        raise CommandError(f"{file}: {counted(len(damaged), 'batch is', 'batches are')} damaged, the first {first}")


def _table(file: Path, inspection: Any, rows: list[dict[str, Any]]) -> None:
    from rich.table import Table

    table = Table(title=f"{file.name}  ({inspection.size:,} bytes)", title_justify="left")
    for heading in ("byte", "size", "offsets", "records", "codec", "max timestamp", "producer", "sequence", "kind", "state"):
        table.add_column(heading, justify="left" if heading in {"codec", "kind", "state"} else "right")
    for row in rows:
        has_producer = row["producer_id"] is not None
        kind = row["marker"] or ("control" if row["control"] else "transactional" if row["transactional"] else "")
        table.add_row(
            f"{row['position']:,}",
            f"{row['size']:,}",
            f"{row['base_offset']} to {row['last_offset']}",
            f"{row['records']:,}",
            f"{row['codec']} v{row['magic']}",
            str(row["max_timestamp"]),
            f"{row['producer_id']} epoch {row['producer_epoch']}" if has_producer else "",
            f"{row['base_sequence']} to {row['last_sequence']}" if row["base_sequence"] is not None else "",
            kind,
            styled(row["error"], "red") if row["error"] else styled("sound", "green"),
        )
    draw(table)
    total = len(inspection.batches)
    if len(rows) < total:
        out().print(f"{len(rows):,} of {counted(total, 'batch', 'batches')}; -n 0 shows all")


def _records(file: Path, most: int | None, *, as_json: bool) -> None:
    from rich.table import Table

    table = Table("offset", "timestamp", "key", "value", "headers")
    table.columns[0].justify = "right"
    for batch in _batches_of(file, most):
        if as_json:
            for line in json_lines(batch):
                print(line)
        else:
            for _, _, offset, time, key, value, headers in rows(batch):
                table.add_row(str(offset), cell(time), cell(key), cell(value), header_text(headers))
    if not as_json:
        draw(table)


def _batches_of(file: Path, most: int | None) -> Iterator[pa.Table]:
    """The records of a segment, or its first ones."""
    from fletchlog._core import segment_records

    topic, _, partition = file.absolute().parent.name.rpartition("-")
    position: int | None = 0
    while position is not None and most != 0:
        found, position = segment_records(file, topic, int(partition) if partition.isdecimal() else 0, position)
        table = found.to_pyarrow().slice(0, most)
        most = None if most is None else most - table.num_rows
        yield table
