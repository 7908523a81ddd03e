"""`fletchlog consume`: records in the order that a Kafka consumer would see."""

from __future__ import annotations

import contextlib
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from fletchlog.cli.common import CommandError, cluster_of, command, opened, properties, takes_clusters
from fletchlog.cli.delivery import Lines, Offsets, advance
from fletchlog.cli.options import Config  # noqa: TC001 - typer reads the annotations
from fletchlog.cli.rows import cell, json_line, plain
from fletchlog.cli.terminal import in_file, out, progress
from fletchlog.cli.text import counted, note
from fletchlog_shell.interrupts import held

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

FORMATS = ("table", "jsonl", "parquet")
TABLE_ROWS = 50


@command
@takes_clusters
def consume(
    directory: Annotated[Path, typer.Argument(help="The broker's directory, or kafka://HOST:PORT of a cluster.", metavar="DIR")],
    topics: Annotated[list[str], typer.Argument(help="Topics to read.", metavar="TOPIC...")],
    form: Annotated[str, typer.Option("--format", "-f", help=f"{', '.join(FORMATS)}.")] = "table",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File to write; needed for parquet.")] = None,
    most: Annotated[int | None, typer.Option("--max", "-n", help=f"Stop after this many records (table: {TABLE_ROWS}).")] = None,
    start: Annotated[str, typer.Option("--from", help="Where a group without a commit starts: earliest, latest.")] = "earliest",
    group: Annotated[str | None, typer.Option(help="Consumer group: commits what was shown, goes on behind it. Opens the directory for writing.")] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Wait for more records at the end; Ctrl-C ends it.")] = False,
    config: Config = None,
) -> None:
    """Print or save records, in the order in which poll() returns them.

    Without --group nothing is committed and the directory is opened for reading only, also beside a running writer.

    With --group the next call continues behind the last record that this one wrote, also after Ctrl-C or `| head`. What was in a pipe when its reader
    ended comes again; a table counts when all of it was printed, Parquet when the file was closed.

      fletchlog consume data/ orders -n 20                              a look at the first records

      fletchlog consume data/ orders --format jsonl | jq .value         for other tools

      fletchlog consume data/ orders payments -f parquet -o all.parquet

      fletchlog consume kafka://h1:9092 orders -n 20                    from a cluster

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
    with opened(directory, read_only=group is None) as broker:
        known = [broker.describe_topic(name) for name in topics]
        with fl.Consumer(broker if isinstance(broker, fl.Broker) else cluster_of(directory), given) as consumer:
            if group is not None:
                consumer.subscribe(topics)
            else:
                consumer.assign([fl.TopicPartition(t.name, p.partition) for t in known for p in t.partitions])
            writer = _WRITERS[form](output)
            group_offsets = _Committed(consumer) if group is not None else None
            try:
                with contextlib.closing(writer):
                    for batch in _polls(consumer, known, limit, follow=follow):
                        if batch is not None:
                            writer.add(batch)
                        if follow and group_offsets is not None:
                            group_offsets.commit(writer.taken())
                    writer.finish()
            finally:
                if group_offsets is not None:
                    group_offsets.commit(writer.shown())
    if output is not None:
        note(f"wrote {counted(writer.count, 'record')} to {output}")


class _Committed:
    """What a group has been told to have read."""

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer
        self._offsets: Offsets = {}

    def commit(self, offsets: Offsets) -> None:
        """Commits what is new."""
        new = {tp: offset for tp, offset in offsets.items() if self._offsets.get(tp) != offset}
        if new:
            with held():
                self._consumer.commit(new)
            self._offsets |= new


def _polls(consumer: Any, described: list[Any], limit: int | None, *, follow: bool) -> Iterator[pa.RecordBatch | None]:
    """Polls until the ends that the partitions had at the beginning, `limit`, or for ever; then None means a poll without records."""
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
            if follow and not len(records):
                yield None
            if not follow and not len(records):
                mine = consumer.assignment()
                if mine and all(consumer.position(tp) >= ends.get(tp, 0) for tp in mine):
                    return


class _Lines:
    """JSON lines."""

    def __init__(self, output: Path | None) -> None:
        self._lines = Lines(output)
        self.count = 0
        self.taken, self.shown, self.close = self._lines.taken, self._lines.shown, self._lines.close

    def add(self, batch: pa.RecordBatch) -> None:
        self._lines.write((json_line(row), row) for row in plain(batch))
        self.count += batch.num_rows

    def finish(self) -> None:
        """Nothing: every line is written at once."""


class _Table:
    """A table, printed at the end."""

    def __init__(self, output: Path | None) -> None:
        self._output = output
        self._rows: list[dict[str, Any]] = []
        self._shown: Offsets = {}
        self.count = 0

    def add(self, batch: pa.RecordBatch) -> None:
        self._rows += plain(batch)
        self.count += batch.num_rows

    def finish(self) -> None:
        from rich.table import Table

        table = Table("topic", "partition", "offset", "timestamp", "key", "value")
        for column in table.columns[1:3]:
            column.justify = "right"
        for row in self._rows:
            table.add_row(row["topic"], str(row["partition"]), str(row["offset"]), *(cell(row[name]) for name in ("timestamp", "key", "value")))
        if self._output is None:
            out().print(table)
        else:
            with self._output.open("w", encoding="utf-8") as file:
                in_file(file).print(table)
        for row in self._rows:
            advance(self._shown, row)

    def taken(self) -> Offsets:
        return self._shown

    shown = taken

    def close(self) -> None:
        """Nothing is open."""


class _Parquet:
    """A Parquet file, complete when it is closed."""

    def __init__(self, output: Path) -> None:
        self._output = output
        self._file: BinaryIO | None = None
        self._writer: Any = None
        self._written: Offsets = {}
        self._shown: Offsets = {}
        self.count = 0

    def add(self, batch: pa.RecordBatch) -> None:
        import pyarrow.parquet as pq

        if self._writer is None:
            self._file = self._output.open("wb")
            self._writer = pq.ParquetWriter(self._file, batch.schema)
        self._writer.write_batch(batch)
        self.count += batch.num_rows
        for row in batch.select(["topic", "partition", "offset"]).to_pylist():
            advance(self._written, row)

    def finish(self) -> None:
        if self._writer is None:
            raise CommandError(f"there was no record to write, {self._output} was not created")

    def taken(self) -> Offsets:
        return {}

    def shown(self) -> Offsets:
        return self._shown

    def close(self) -> None:
        # also what was read up to a Ctrl-C or an error becomes a file that can be read
        if self._writer is not None and self._file is not None:
            with held(), self._file:
                self._writer.close()
            self._shown = self._written


_WRITERS: dict[str, Callable[[Any], Any]] = {"table": _Table, "jsonl": _Lines, "parquet": _Parquet}
