"""`fletchlog demo`: produce, consume, poll and stream real flights, with every total checked."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Annotated

import typer

from fletchlog.cli.common import CommandError, command
from fletchlog.cli.terminal import out, progress
from fletchlog.cli.text import note

MARKER = "report.json"
# of all flights, on two cores that are otherwise idle
DURATION = "two and a half minutes"


@command
def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Directory for everything; a former run in it is replaced.")] = Path("demo-out"),
    flights: Annotated[int | None, typer.Option(help="Only the first so many flights; default: all 336,776.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the faults. Other seeds lose other acknowledgements.")] = 7,
) -> None:
    """Run the whole story on 336,776 real flights: produce under faults, share among a group, poll in two orders, stream with Spark.

    Writes log/ (the broker's directory), report.json (every number), poll-order.png, the pages explain.html, audit.html and delays.html, delays/
    and audit/ (Parquet), spark.log. All flights take two and a half minutes on two idle cores. Every total is checked against the input; the
    exit code is 1 if one of them disagrees.

      fletchlog demo

      fletchlog topics list demo-out/log  # and look around afterwards
    """
    import fletchlog as fl
    from fletchlog.cli.demo import flights as source
    from fletchlog.cli.demo.group import share
    from fletchlog.cli.demo.order import compare
    from fletchlog.cli.demo.pages import write_pages
    from fletchlog.cli.demo.produce import NODES, WAYS, produce
    from fletchlog.cli.demo.report import Report
    from fletchlog.cli.demo.stream import audits, delays, session

    if flights is not None and flights < 1:
        raise CommandError(f"--flights is at least 1, not {flights}")
    started = time.monotonic()
    note(f"this takes about {DURATION if flights is None else 'a minute'}, most of it in Spark")
    _clear(output)
    report = Report(out())
    log = output / "log"
    with progress(console=report.console) as bar:
        loaded = source.load(bar, flights)
        report.say(f"{loaded.count:,} flights from New York in 2013 ({loaded.cancelled:,} cancelled), by scheduled departure")
        report.data["input"] = {"flights": loaded.count, "cancelled": loaded.cancelled, "delay_minutes": loaded.delay_minutes}
        with fl.Broker(log, create=True, nodes=NODES) as broker:
            produce(broker, loaded, report, bar, seed)
            share(broker, WAYS[0].topic, report, bar)
            compare(broker, WAYS[0].topic, report, bar, output / "poll-order.png")
            report.heading("4. Spark: the idempotent topic as a stream, delay per carrier and hour of departure")
            task = bar.add_task("starting Spark", total=None)
            spark = session(output / "spark.log")
            bar.update(task, total=1, completed=1)
            try:
                delays(spark, broker, log, output, loaded, report, bar)
                audits(spark, broker, log, output, report, bar)
            finally:
                spark.stop()
        report.heading("5. Pages to open")
        pages = write_pages(log, [way.topic for way in WAYS], output, report)
    shutil.rmtree(output / "checkpoint")
    report.data["seconds"] = round(time.monotonic() - started, 1)
    report.write(output / MARKER)
    report.heading(f"{len(report.data['checks'])} checks in {report.data['seconds']} s")
    report.say(f"{output}/report.json      every number\n{output}/poll-order.png   the two orders")
    for path, what in pages.items():
        report.say(f"open {path}: {what}")
    report.say(f"{output}/delays, {output}/audit   Parquet\n{output}/spark.log   what Spark has said\n{log}   the broker's directory")
    if report.failures:
        for failure in report.failures:
            note(f"wrong: {failure}")
        raise CommandError(f"{len(report.failures)} checks failed; see {output / MARKER}")
    report.say("All totals agree with the input.")


def _clear(output: Path) -> None:
    """Removes a former run, and nothing else."""
    if output.exists():
        if not output.is_dir() or (any(output.iterdir()) and not (output / MARKER).exists() and not (output / "log").exists()):
            raise CommandError(f"{output} exists and is not a former run of the demo; choose another --output")
        shutil.rmtree(output)
    output.mkdir(parents=True)
