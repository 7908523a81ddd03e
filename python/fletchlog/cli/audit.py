"""`fletchlog audit`: what is wrong with the order, and whether it exceeds thresholds."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from fletchlog._place import CLUSTER, STORE
from fletchlog.cli.arguments import option
from fletchlog.cli.common import CommandError, configured, opened, topics_of
from fletchlog.cli.delivery import write_file
from fletchlog.cli.options import COMMAND_CONFIG, CONFIG, JSON, PLACE, TOPICS
from fletchlog.cli.tables import draw
from fletchlog.cli.terminal import out, styled
from fletchlog.cli.text import counted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from fletchlog._place import Place
    from fletchlog.audit import AuditReport


SHOWN = {
    "records": "records", "gaps_unexplained": "missing", "gaps_compaction": "compacted", "gaps_markers": "markers", "duplicate_records": "repeated",
    "duplicate_sequences": "sent\ntwice", "timestamp_inversions": "steps\nback", "inversion_max_ms": "by up\nto", "lateness_p99_ms": "delay\n99 %",
    "skew": "skew", "behind_ms": "behind",
}  # fmt: skip


def audit(
    directory: Place = PLACE,
    topics: str = TOPICS,
    most: list[str] | None = option("--max", "Fail if a partition exceeds this, e.g. gaps_unexplained=0; may be repeated.", metavar="COLUMN=N"),
    keys: int = option("--keys", "How many keys to list.", 20),
    html: Path | None = option("--html", "Write one page.", writes=True),
    as_json: bool = JSON,
    config: list[str] | None = CONFIG,
    command_config: Path | None = COMMAND_CONFIG,
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
    client = configured(command_config, config)
    if directory.kind != CLUSTER and client:
        raise CommandError(f"{directory} is a directory, and --config and --command-config are for clients of a cluster")
    names = topics_of(directory, topics, client)
    if directory.kind == STORE:
        with opened(directory, read_only=True) as broker:
            report = auditing.run(broker, names, keys=keys)
    else:
        report = auditing.run(directory.name if directory.kind == CLUSTER else directory, names, keys=keys, config=client)
    # a mistake in a threshold is said before anything is written
    breaches = report.breaches(limits)
    if as_json:
        print(json.dumps(report.to_dict(), indent=2))
    elif str(html) != "-":
        _print(report, limits)
    if html is not None:
        write_file(html, report.html(limits))
    if breaches:
        raise CommandError("\n  ".join([f"{counted(len(breaches), 'value exceeds', 'values exceed')} a threshold:", *breaches]))


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


def _print(report: AuditReport, limits: Mapping[str, float]) -> None:
    from rich.table import Table

    from fletchlog.audit.words import shown

    console = out()
    # what is held to a threshold is shown
    names = [*SHOWN, *(name for name in limits if name not in SHOWN)]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), title=report.source, title_justify="left")
    table.add_column("partition", no_wrap=True)
    for name in names:
        table.add_column(SHOWN.get(name, name), justify="right", no_wrap=True)
    for p in report.partitions:
        cells = [(name, getattr(p, name)) for name in names]
        exceeds = [name in limits and (value or 0) > limits[name] for name, value in cells]
        table.add_row(f"{p.topic}-{p.partition}", *(styled(shown(*cell), "bold red" if wrong else "") for cell, wrong in zip(cells, exceeds, strict=True)))
    draw(table)
    for topic, count in report.keys_in_several_partitions.items():
        if count:
            console.print(f"{topic}: {counted(count, 'key is', 'keys are')} in more than one partition")
    if report.keys:
        worst = Table("key", "topic", box=None, pad_edge=False, title="Keys with most to complain about", title_justify="left")
        for name in ("records", "partitions", "repeated", "steps back", "by up to"):
            worst.add_column(name, justify="right")
        for key in report.keys:
            numbers = (key.records, key.partitions, key.duplicate_records, key.timestamp_inversions)
            last = shown("inversion_max_ms", key.inversion_max_ms)
            worst.add_row(key.key.decode("utf-8", "backslashreplace")[:40], key.topic, *(f"{n:,}" for n in numbers), last)
        draw(worst)
