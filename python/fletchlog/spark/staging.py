"""What tasks hand to the driver: rows as Arrow, in the commit message or, if they are many, in a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.datasource import WriterCommitMessage

from fletchlog.spark.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from fletchlog.spark.sink_options import SinkOptions

_SUFFIX = ".arrow"


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """Rows of one task. `run` is the query, or a token of one batch write; `batch` the number of a micro-batch."""

    task: int
    run: str
    batch: int | None
    data: bytes | None
    file: str | None

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, in the task's order."""
        import pyarrow as pa

        if self.file is not None:
            with pa.memory_map(self.file) as source:
                yield from pa.ipc.open_stream(source)
        elif self.data is not None:
            yield from pa.ipc.open_stream(pa.BufferReader(self.data))


def stage(options: SinkOptions, rows: Iterable[pa.RecordBatch], *, task: int, attempt: int, run: str, batch: int | None) -> Staged:
    """Keeps the rows of one attempt of a task. A file has its final name only when it is complete."""
    import pyarrow as pa

    small: list[pa.RecordBatch] = []
    size = 0
    iterator = (rows_of for rows_of in rows if rows_of.num_rows)
    for rows_of in iterator:
        small.append(rows_of)
        size += rows_of.nbytes
        if size > options.max_inline_bytes:
            if options.staging_path is None:
                raise OptionError(
                    "option stagingPath is missing: a task has more than maxInlineBytes to hand over; name a directory that every executor and the driver see"
                )
            name = f"{run}-{'all' if batch is None else batch}-{task}-{attempt}{_SUFFIX}"
            return Staged(task, run, batch, None, _to_file(Path(options.staging_path) / name, small, iterator))
    if not small:
        return Staged(task, run, batch, None, None)
    memory = pa.BufferOutputStream()
    with pa.ipc.new_stream(memory, small[0].schema) as writer:
        for rows_of in small:
            writer.write_batch(rows_of)
    return Staged(task, run, batch, memory.getvalue().to_pybytes(), None)


def _to_file(file: Path, first: list[pa.RecordBatch], rest: Iterator[pa.RecordBatch]) -> str:
    import pyarrow as pa

    temporary = file.with_name(file.name + ".tmp")
    schema = first[0].schema
    with _created(temporary) as sink, pa.ipc.new_stream(sink, schema) as writer:
        while first:
            writer.write_batch(first.pop(0))
        for rows_of in rest:
            writer.write_batch(rows_of)
    temporary.rename(file)
    return str(file)


def _created(file: Path) -> pa.OSFile:
    import pyarrow as pa

    while True:
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            return pa.OSFile(str(file), "wb")
        except FileNotFoundError:  # another query has just removed the empty directory
            continue


def clear(options: SinkOptions, run: str, up_to_batch: int | None) -> None:
    """Removes the files of a run, with those of killed and repeated attempts; for a stream, those of batches up to this one."""
    if options.staging_path is None:
        return
    directory = Path(options.staging_path)
    if not directory.is_dir():
        return
    for file in directory.glob(f"{run}-*"):
        number = file.name.removeprefix(f"{run}-").partition("-")[0]
        if up_to_batch is None or (number.isdecimal() and int(number) <= up_to_batch):
            file.unlink(missing_ok=True)
    try:
        directory.rmdir()
    except OSError:  # other runs have files there
        return
