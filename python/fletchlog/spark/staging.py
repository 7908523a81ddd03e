"""What tasks hand to the driver: rows as Arrow, in the commit message or, if they are many, in a file.

The driver makes a directory for each batch under `stagingPath` before the first task, and removes it with everything in it when the batch is
committed or given up. Tasks never make it, so an attempt that is late finds no place any more. What a killed driver left is removed by the next
batch of the same query, if its checkpoint can be read here, or after `stagingRetention` by any write.
"""

from __future__ import annotations

import contextlib
import re
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.datasource import WriterCommitMessage

from fletchlog.spark.compat import query_of_checkpoint
from fletchlog.spark.errors import OptionError
from fletchlog.spark.options import log

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from fletchlog.spark.sink_options import SinkOptions

_SUFFIX = ".arrow"
_TEMPORARY = ".tmp"
# The id of a query or `write`, and a number of its own. Nothing else under stagingPath is touched.
_RUN = re.compile(r"fletchlog-([0-9a-f]{32}|write)-[0-9a-f]{32}")
# An attempt that is late may put a file into a directory that is being removed.
_REMOVALS = 10


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """Rows of one task. `run` is the name of the batch's directory, `query` the id of a streaming query."""

    task: int
    run: str
    query: str | None
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


def new_run(options: SinkOptions) -> str:
    """In the driver: a name for a batch, and the directory where its tasks put files."""
    query = _query(options)
    run = f"fletchlog-{query.hex if query else 'write'}-{uuid.uuid4().hex}"
    if options.staging_path is None:
        return run
    directory = Path(options.staging_path) / run
    while True:
        try:
            directory.mkdir(parents=True)
        except FileNotFoundError:  # another query has just removed the empty directory above
            continue
        except OSError as error:
            log.warning("option stagingPath: %s; a task with more than maxInlineBytes will fail", error)
        return run


def stage(options: SinkOptions, rows: Iterable[pa.RecordBatch], *, task: int, attempt: int, run: str, query: str | None) -> Staged:
    """Keeps the rows of one attempt of a task. A file has its final name only when it is complete.

    Raises:
        OptionError: There are many rows, and no directory for them.
    """
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
            return Staged(task, run, query, None, _to_file(Path(options.staging_path) / run / f"{task}-{attempt}{_SUFFIX}", small, iterator))
    if not small:
        return Staged(task, run, query, None, None)
    memory = pa.BufferOutputStream()
    with pa.ipc.new_stream(memory, small[0].schema) as writer:
        for rows_of in small:
            writer.write_batch(rows_of)
    return Staged(task, run, query, memory.getvalue().to_pybytes(), None)


def _to_file(file: Path, first: list[pa.RecordBatch], rest: Iterator[pa.RecordBatch]) -> str:
    import pyarrow as pa

    temporary = file.with_name(file.name + _TEMPORARY)
    schema = first[0].schema
    try:
        with _created(temporary) as sink, pa.ipc.new_stream(sink, schema) as writer:
            while first:
                writer.write_batch(first.pop(0))
            for rows_of in rest:
                writer.write_batch(rows_of)
        temporary.rename(file)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return str(file)


def _created(file: Path) -> pa.OSFile:
    import pyarrow as pa

    try:
        return pa.OSFile(str(file), "wb")
    except FileNotFoundError:
        raise OptionError(
            f"option stagingPath: there is no directory {file.parent}, which the driver makes: name one that every executor and the driver see, and may "
            "write to. An attempt of a task that comes when the write has ended finds none either"
        ) from None


def clear(options: SinkOptions, runs: Iterable[str]) -> None:
    """In the driver: removes the directories of these batches, all others of the same query, and those that are older than `stagingRetention`."""
    if options.staging_path is None:
        return
    root = Path(options.staging_path)
    oldest, query, ended = time.time() - options.staging_retention_ms / 1000, _query(options), set(runs)
    for directory in root.glob("fletchlog-*"):
        found = _RUN.fullmatch(directory.name)
        if found and (directory.name in ended or (query is not None and found[1] == query.hex) or _last_change(directory) < oldest):
            _remove(directory)
    with contextlib.suppress(OSError):  # other runs have files there
        root.rmdir()


def query_id(options: SinkOptions) -> str | None:
    """The id of the streaming query, if its checkpoint is named and can be read here."""
    found = _query(options)
    return None if found is None else str(found)


def _query(options: SinkOptions) -> uuid.UUID | None:
    return None if options.checkpoint is None else query_of_checkpoint(options.checkpoint)


def _last_change(directory: Path) -> float:
    times = []
    for path in (directory, *directory.glob("*")):
        with contextlib.suppress(FileNotFoundError):
            times.append(path.stat().st_mtime)
    return max(times, default=time.time())


def _remove(directory: Path) -> None:
    for _ in range(_REMOVALS):
        for file in directory.glob("*"):
            if file.name.endswith((_SUFFIX, _SUFFIX + _TEMPORARY)):
                file.unlink(missing_ok=True)
        try:
            directory.rmdir()
        except FileNotFoundError:  # another commit did it
            return
        except OSError:
            continue
        return
    log.warning("%s is not removed: something else is in it, or still writes to it", directory)
