"""`fletchlog verify`: checks every file of a directory and says what is wrong."""

from __future__ import annotations

import json
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fletchlog.cli.common import CommandError, command, err, out

if TYPE_CHECKING:
    from fletchlog.types import PartitionReport


@command
def verify(
    directory: Annotated[Path, typer.Argument(help="The broker's directory, or one partition's.", metavar="DIR")],
    as_json: Annotated[bool, typer.Option("--json", help="JSON report instead of a table.")] = False,
) -> None:
    """Check every batch, index, snapshot and checkpoint of a directory.

    Never writes and needs no broker. What a writer is just appending may look like a damaged tail: check a directory that nobody
    writes to. Exit code 0: all sound; 1: something is wrong.

      fletchlog verify data/

      fletchlog verify /var/lib/kafka/data --json > report.json
    """
    import fletchlog as fl

    with err().status(f"verifying {directory}"):
        reports = fl.verify(directory)
    wrong = [report for report in reports if not report.ok]
    if as_json:
        print(json.dumps({"directory": str(directory), "sound": not wrong, "partitions": [_plain(r) for r in reports]}, indent=2))
    else:
        _print(reports)
    if wrong:
        raise CommandError(f"{len(wrong)} of {len(reports)} partitions are not sound: {', '.join(report.name for report in wrong)}")


def _plain(report: PartitionReport) -> dict[str, Any]:
    def problems(items: Any) -> list[dict[str, Any]]:
        return [{"path": str(item.path), "position": item.position, "reason": item.reason} for item in items]

    return {
        "partition": report.name,
        "path": str(report.path),
        "sound": report.ok,
        "segments": report.segments,
        "batches": report.batches,
        "records": report.records,
        "damaged": problems(report.damaged),
        "index_problems": problems(report.index_problems),
        "holes": [list(hole) for hole in report.holes],
        "producers": report.producers,
        "open_transactions": [list(item) for item in report.open_transactions],
        "would_cut": [{"path": str(path), "from": start, "size": size} for path, start, size in report.would_cut],
    }


def _print(reports: list[PartitionReport]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table("partition", "segments", "batches", "records", "holes", "producers", "open transactions", "state")
    for column in table.columns[1:-1]:
        column.justify = "right"
    for report in reports:
        numbers = (report.segments, report.batches, report.records, len(report.holes), report.producers, len(report.open_transactions))
        state = Text("sound", "green") if report.ok else Text("damaged" if report.damaged else "index", "red")
        table.add_row(report.name, *(f"{number:,}" for number in numbers), state)
    out().print(table)
    for report in reports:
        for problem in [*report.damaged, *report.index_problems]:
            out().print(Text(f"{problem.path}, byte {problem.position:,}: {problem.reason}"), soft_wrap=True)
        for path, start, size in report.would_cut:
            out().print(Text(f"{path}: opening it for writing after an unclean stop would cut it at byte {start:,} of {size:,}"), soft_wrap=True)
    records, sound = sum(report.records for report in reports), sum(1 for report in reports if report.ok)
    out().print(f"{records:,} records; {sound} of {len(reports)} partitions are sound. Holes are offsets without a batch.")
