"""`fletchlog audit`: what is wrong with the order, and whether it exceeds thresholds."""

from __future__ import annotations

import json
from itertools import accumulate
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated

import typer

from fletchlog.cli.common import CommandError, cluster_of, command, configured, takes_clusters
from fletchlog.cli.delivery import write_file
from fletchlog.cli.options import CommandConfig, Config  # noqa: TC001 - typer reads the annotations
from fletchlog.cli.terminal import out
from fletchlog.cli.text import counted, note

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fletchlog.audit import AuditReport

SHOWN = (
    "records", "gaps_unexplained", "gaps_compaction", "gaps_markers", "duplicate_records", "duplicate_keys", "duplicate_sequences", "timestamp_inversions",
    "inversion_max_ms", "lateness_p99_ms", "lateness_p999_ms", "lateness_p9999_ms", "skew", "behind_ms",
)  # fmt: skip


@command
@takes_clusters
def audit(
    directory: Annotated[Path, typer.Argument(help="The broker's directory, or kafka://HOST:PORT of a cluster.", metavar="DIR")],
    topics: Annotated[str, typer.Option("--topics", "-t", help="Topics, separated by commas; default: all.")] = "",
    most: Annotated[
        list[str] | None, typer.Option("--max", help="Fail if a partition exceeds this, e.g. gaps_unexplained=0; may be repeated.", metavar="COLUMN=N")
    ] = None,
    keys: Annotated[int, typer.Option(help="How many keys to list.")] = 20,
    html: Annotated[Path | None, typer.Option(help="Write one page.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of tables.")] = False,
    config: Config = None,
    command_config: CommandConfig = None,
) -> None:
    """Look for gaps, repeats, steps back in time, late and idle partitions; exit code 1 if a threshold is exceeded.

    Gaps are counted by cause: transaction markers, compaction, unexplained. The watermark delay that keeps 99 %, 99.9 % and 99.99 % of
    the records is the lateness of that rank. Nothing is changed; a real broker's directory is read too.
    A cluster shows only records: the causes of gaps and repeated sequences are left empty there, since only files show them.

    fletchlog audit data/

    fletchlog audit data/ --html audit.html --max gaps_unexplained=0

    fletchlog audit kafka://h1:9092 --topics orders
    """
    from fletchlog import audit as auditing

    limits = _limits(most or [])
    if keys < 0:
        raise CommandError(f"--keys is {keys}; give 0 or more")
    address, client = cluster_of(directory), configured(command_config, config)
    if address is None and client:
        raise CommandError(f"{directory} is a directory, and --config and --command-config are for clients of a cluster")
    report = auditing.audit(address or directory, [name.strip() for name in topics.split(",") if name.strip()], keys=keys, config=client)
    # a mistake in a threshold is said before anything is written
    breaches = report.breaches(limits)
    if as_json:
        print(json.dumps(report.to_dict(), indent=2))
    else:
        _print(report)
    if html is not None:
        write_file(html, report.html())
        note(f"wrote {html}")
    if breaches:
        raise CommandError("; ".join(breaches))


def _limits(pairs: Sequence[str]) -> dict[str, float]:
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        try:
            found[name.strip()] = float(value)
        except ValueError:
            raise CommandError(f"--max wants COLUMN=NUMBER, got {pair}") from None
        if not equals:
            raise CommandError(f"--max wants COLUMN=NUMBER, got {pair}")
    return found


def _fitting(widths: Sequence[int], room: int) -> int:
    """How many columns fit beside each other, two blanks before each; one at least."""
    ends = accumulate(width + 2 for width in widths)
    return max(1, sum(end <= room for end in ends))


def _print(report: AuditReport) -> None:
    from rich.table import Table

    console = out()
    columns = [[f"{p.topic}-{p.partition}", *("" if (value := getattr(p, name)) is None else f"{value:,}" for name in SHOWN)] for p in report.partitions]
    shown = _fitting([max(map(len, column)) for column in columns], console.width - max(map(len, SHOWN)))
    table = Table("", box=None, pad_edge=False, title=report.source, title_justify="left")
    for column in columns[:shown]:
        table.add_column(column[0], justify="right", no_wrap=True)
    for number, name in enumerate(SHOWN, 1):
        table.add_row(name, *(column[number] for column in columns[:shown]))
    console.print(table)
    if len(columns) > shown:
        console.print(f"and {counted(len(columns) - shown, 'more partition')}; --json and --html have all")
    for topic, count in report.keys_in_several_partitions.items():
        if count:
            console.print(f"{topic}: {counted(count, 'key is', 'keys are')} in more than one partition")
    if report.keys:
        worst = Table("key", "topic", box=None, pad_edge=False, title="Keys with most to complain about", title_justify="left")
        for name in ("records", "partitions", "duplicate_records", "timestamp_inversions", "inversion_max_ms"):
            worst.add_column(name, justify="right")
        for key in report.keys:
            numbers = (key.records, key.partitions, key.duplicate_records, key.timestamp_inversions)
            last = "" if key.inversion_max_ms is None else f"{key.inversion_max_ms:,}"
            worst.add_row(key.key.decode("utf-8", "backslashreplace")[:40], key.topic, *(f"{n:,}" for n in numbers), last)
        console.print(worst)
