"""Produce, consume, poll and stream 336,776 real flights, with every total checked: `make demo`, or `python examples/demo`."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import fletchlog as fl
from demo import flights as source
from demo.group import share
from demo.order import compare
from demo.pages import write_pages
from demo.produce import NODES, WAYS, produce
from demo.report import Report
from demo.stream import audits, delays, session

MARKER = "report.json"
# of all flights, on two cores that are otherwise idle
DURATION = "two and a half minutes"
DESCRIPTION = """Run the whole story on 336,776 real flights: produce under faults, share among a group, poll in two orders, stream with Spark.
Writes log/ (the broker's directory), report.json (every number), poll-order.png, the pages explain.html, audit.html and delays.html, delays/ and
audit/ (Parquet), spark.log. Every total is checked against the input; the exit code is 1 if one of them disagrees."""


def main() -> None:
    """Reads the command line and runs it."""
    parser = argparse.ArgumentParser("demo", description=DESCRIPTION)
    parser.add_argument("--output", "-o", type=Path, default=Path("demo-out"), help="Directory for everything; a former run in it is replaced.")
    parser.add_argument("--flights", type=int, help="Only the first so many flights; default: all 336,776.")
    parser.add_argument("--seed", type=int, default=7, help="Seed of the faults. Other seeds lose other acknowledgements.")
    asked = parser.parse_args()
    if asked.flights is not None and asked.flights < 1:
        raise SystemExit(f"--flights is at least 1, not {asked.flights}")
    started = time.monotonic()
    print(f"this takes about {DURATION if asked.flights is None else 'a minute'}, most of it in Spark", file=sys.stderr)
    _clear(asked.output)
    report = Report(Console(highlight=False, markup=False, emoji=False, width=None if sys.stdout.isatty() else 120))
    pages = _run(asked.output, asked.flights, asked.seed, report)
    report.data["seconds"] = round(time.monotonic() - started, 1)
    report.write(asked.output / MARKER)
    report.heading(f"{len(report.data['checks'])} checks in {report.data['seconds']} s")
    report.say(f"{asked.output}/report.json      every number\n{asked.output}/poll-order.png   the two orders")
    for path, what in pages.items():
        report.say(f"open {path}: {what}")
    report.say(f"{asked.output}/delays, {asked.output}/audit   Parquet\n{asked.output}/spark.log   what Spark has said")
    report.say(f"{asked.output}/log   the broker's directory: `fletchlog topics list {asked.output}/log` looks around")
    if report.failures:
        print("\n".join(f"wrong: {failure}" for failure in report.failures), file=sys.stderr)
        raise SystemExit(f"{len(report.failures)} checks failed; see {asked.output / MARKER}")
    report.say("All totals agree with the input.")


def _run(output: Path, flights: int | None, seed: int, report: Report) -> dict[Path, str]:
    """All parts; returns the pages."""
    log = output / "log"
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("records"), TimeElapsedColumn())
    with Progress(
        *columns, console=report.console, transient=True, redirect_stdout=False, redirect_stderr=False, disable=not report.console.is_terminal
    ) as bar:
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
    return pages


def _clear(output: Path) -> None:
    """Removes a former run, and nothing else."""
    if output.exists():
        if not output.is_dir() or (any(output.iterdir()) and not (output / MARKER).exists() and not (output / "log").exists()):
            raise SystemExit(f"{output} exists and is not a former run of the demo; choose another --output")
        shutil.rmtree(output)
    output.mkdir(parents=True)
