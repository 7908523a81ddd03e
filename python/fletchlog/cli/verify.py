"""`fletchlog verify`: checks every file of a directory and says what is wrong."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from fletchlog.cli.arguments import argument
from fletchlog.cli.common import CommandError
from fletchlog.cli.options import JSON
from fletchlog.cli.tables import draw
from fletchlog.cli.terminal import progress, styled
from fletchlog.cli.text import counted, say, visible

if TYPE_CHECKING:
    from fletchlog._place import Place
    from fletchlog.files import PartitionReport


def verify(directory: Place = argument("DIR", "The broker's directory, or one partition's."), as_json: bool = JSON) -> None:
    """Check every batch, index, snapshot and checkpoint of a directory.

    Never writes and needs no broker. Data that a writer is appending may look like a damaged tail: check a directory without a writer. Exit code 0:
    all sound; 1: something is wrong.

      fletchlog verify data/

      fletchlog verify /var/lib/kafka/data --json > report.json
    """
    import fletchlog as fl
    from fletchlog._core import partition_directories

    partitions = partition_directories(directory)
    reports = []
    with progress(unit="bytes") as bar:
        task = bar.add_task("", total=sum(size for _, size in partitions))
        for path, size in partitions:
            bar.update(task, description=visible(path.name))
            reports += fl.files.verify(path)
            bar.advance(task, size)
    wrong = [report for report in reports if not report.ok]
    if as_json:
        print(json.dumps({"directory": str(directory), "sound": not wrong, "partitions": [_plain(r) for r in reports]}, indent=2))
    else:
        _print(reports)
    if wrong:
        raise CommandError(f"{_of(len(wrong), reports)} not sound: {', '.join(report.name for report in wrong)}")


def _plain(report: PartitionReport) -> dict[str, Any]:
    def problems(items: Any) -> list[dict[str, Any]]:
        return [{"path": str(item.path), "position": item.position, "reason": item.reason} for item in items]

    return {
        "partition": report.name,
        "path": str(report.path),
        "sound": report.ok,
        "log_start_offset": report.log_start_offset,
        "log_end_offset": report.log_end_offset,
        "segments": report.segments,
        "segment_reports": [{**segment._asdict(), "path": str(segment.path)} for segment in report.segment_reports],
        "batches": report.batches,
        "records": report.records,
        "damaged": problems(report.damaged),
        "index_problems": problems(report.index_problems),
        "holes": [list(hole) for hole in report.holes],
        "producers": report.producers,
        "producer_states": [producer._asdict() for producer in report.producer_states],
        "open_transactions": [list(item) for item in report.open_transactions],
        "would_cut": [{"path": str(cut.path), "from": cut.start, "size": cut.size, "reason": cut.reason} for cut in report.would_cut],
    }


def _print(reports: list[PartitionReport]) -> None:
    from rich.table import Table

    table = Table("partition", "start", "end", "segments", "batches", "records", "holes", "producers", "open transactions", "state")
    # many begin alike
    table.columns[0].no_wrap = True
    for column in table.columns[1:-1]:
        column.justify = "right"
    for report in sorted(reports, key=_place):
        numbers = (
            *(report.log_start_offset, report.log_end_offset, report.segments, report.batches, report.records),
            *(len(report.holes), report.producers, len(report.open_transactions)),
        )
        state = styled("sound", "green") if report.ok else styled("damaged" if report.damaged else "index", "red")
        table.add_row(report.name, *(f"{number:,}" for number in numbers), state)
    draw(table)
    for report in reports:
        for problem in [*report.damaged, *report.index_problems]:
            say(f"{problem.path}, byte {problem.position:,}: {problem.reason}")
        for cut in report.would_cut:
            say(f"{cut.path}: opening it after an unclean stop would cut it at byte {cut.start:,} of {cut.size:,}: {cut.reason}")
    records, sound = sum(report.records for report in reports), sum(1 for report in reports if report.ok)
    say(f"{counted(records, 'record')}; {_of(sound, reports)} sound. Holes are offsets without a batch.")


def _place(report: PartitionReport) -> tuple[str, int]:
    topic, _, partition = report.name.rpartition("-")
    return topic, int(partition) if partition.isdecimal() else 0


def _of(some: int, reports: list[PartitionReport]) -> str:
    return f"{some:,} of {counted(len(reports), 'partition')} {'is' if some == 1 else 'are'}"
