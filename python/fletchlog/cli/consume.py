"""`fletchlog consume`: records in the order that a Kafka consumer would see."""

from __future__ import annotations

import sys
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fletchlog.cli.common import CommandError, Config, command, err, out, progress, properties
from fletchlog.cli.rows import cell, json_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

FORMATS = ("table", "jsonl", "parquet")
TABLE_ROWS = 50


@command
def consume(
    directory: Annotated[Path, typer.Argument(help="The broker's directory.", metavar="DIR")],
    topics: Annotated[list[str], typer.Argument(help="Topics to read.", metavar="TOPIC...")],
    form: Annotated[str, typer.Option("--format", "-f", help=f"{', '.join(FORMATS)}.")] = "table",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File to write; needed for parquet.")] = None,
    most: Annotated[int | None, typer.Option("--max", "-n", help=f"Stop after this many records (table: {TABLE_ROWS}).")] = None,
    start: Annotated[str, typer.Option("--from", help="Where a group without a commit starts: earliest, latest.")] = "earliest",
    group: Annotated[str | None, typer.Option(help="Consumer group; its offsets are committed. Opens the directory for writing.")] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Wait for more records at the end; Ctrl-C ends it.")] = False,
    config: Config = None,
) -> None:
    """Print or save records, in the order in which poll() returns them.

    Without --group nothing is committed and the directory is opened for reading only, also beside a running writer.

      fletchlog consume data/ orders -n 20                              a look at the first records

      fletchlog consume data/ orders --format jsonl | jq .value         for other tools

      fletchlog consume data/ orders payments -f parquet -o all.parquet

      fletchlog consume data/ orders -c fletchlog.consumer.version=4.2  as a newer Java client would
    """
    import fletchlog as fl

    if form not in FORMATS:
        raise CommandError(f"--format is one of {', '.join(FORMATS)}, not {form}")
    if form == "parquet" and output is None:
        raise CommandError("--format parquet needs --output FILE")
    if follow and form == "table":
        raise CommandError("--follow never ends, and a table is printed at the end: use --format jsonl")
    if most is not None and most < 1:
        raise CommandError(f"--max is at least 1, not {most}")
    limit = most if most is not None else TABLE_ROWS if form == "table" else None
    given = {"auto.offset.reset": start, **properties(config)}
    if group is not None:
        given |= {"group.id": group, "enable.auto.commit": "false"}
    with fl.Broker(directory, read_only=group is None) as broker:
        known = [broker.describe_topic(name) for name in topics]
        with fl.Consumer(broker, given) as consumer:
            if group is not None:
                consumer.subscribe(topics)
            else:
                consumer.assign([fl.TopicPartition(t.name, p.partition) for t in known for p in t.partitions])
            batches = _polls(consumer, known, limit, follow=follow)
            written = _WRITERS[form](batches, output)
            if group is not None:
                consumer.commit()
    if output is not None:
        err().print(f"wrote {written:,} records to {output}")


def _polls(consumer: Any, described: list[Any], limit: int | None, *, follow: bool) -> Iterator[pa.RecordBatch]:
    """Polls until the ends that the partitions had at the beginning, `limit`, or for ever."""
    import fletchlog as fl

    ends = {fl.TopicPartition(t.name, p.partition): p.high_watermark for t in described for p in t.partitions}
    left = limit
    total = sum(p.high_watermark - p.log_start_offset for t in described for p in t.partitions)
    with progress() as bar:
        task = bar.add_task("consuming", total=None if follow else total if left is None else min(left, total))
        while left is None or left > 0:
            records = consumer.poll(timeout_ms=200)
            for batch in records.to_pyarrow().to_batches() if len(records) else ():
                taken = batch if left is None else batch.slice(0, left)
                if taken.num_rows:
                    yield taken
                bar.advance(task, taken.num_rows)
                left = None if left is None else left - taken.num_rows
            if not follow and not len(records):
                mine = consumer.assignment()
                if mine and all(consumer.position(tp) >= ends.get(tp, 0) for tp in mine):
                    return


def _to_lines(batches: Iterator[pa.RecordBatch], output: Path | None) -> int:
    count = 0
    target = output.open("w", encoding="utf-8") if output is not None else sys.stdout
    try:
        for batch in batches:
            for row in batch.to_pylist():
                target.write(json_line(row) + "\n")
            count += batch.num_rows
        target.flush()
    finally:
        if output is not None:
            target.close()
    return count


def _to_table(batches: Iterator[pa.RecordBatch], output: Path | None) -> int:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table("topic", "partition", "offset", "timestamp", "key", "value")
    for column in table.columns[1:3]:
        column.justify = "right"
    count = 0
    for batch in batches:
        for row in batch.to_pylist():
            texts = (Text(cell(row[name])) for name in ("timestamp", "key", "value"))
            table.add_row(row["topic"], str(row["partition"]), str(row["offset"]), *texts)
        count += batch.num_rows
    if output is None:
        out().print(table)
    else:
        with output.open("w", encoding="utf-8") as file:
            Console(file=file, width=160).print(table)
    return count


def _to_parquet(batches: Iterator[pa.RecordBatch], output: Path | None) -> int:
    import pyarrow.parquet as pq

    count, writer = 0, None
    try:
        for batch in batches:
            writer = writer or pq.ParquetWriter(output, batch.schema)
            writer.write_batch(batch)
            count += batch.num_rows
    finally:
        if writer is not None:
            writer.close()
    if writer is None:
        raise CommandError(f"there was no record to write, {output} was not created")
    return count


_WRITERS = {"table": _to_table, "jsonl": _to_lines, "parquet": _to_parquet}
