"""Our format with a mark while it commits, and pauses around the commit: so that kills find it. Spark's Python workers import this by name."""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyspark import TaskContext

from fletchlog.spark.sink_options import SinkOptions
from fletchlog.spark.source import LogSource
from fletchlog.spark.staging import clear
from fletchlog.spark.writer import BatchWriter, StreamWriter, append

SLOWED, DROPPED = "fletchlog-slowed", "fletchlog-without-ledger"
# Seconds before and after a commit.
PAUSE = 0.15


def marks(path: str | Path, doing: str) -> Path:
    """Where each process that commits, that writes as a task or has written, has a file of its name."""
    return Path(f"{path}.{doing}")


def place(options: SinkOptions) -> str:
    """The directory, or where rows for a cluster would be staged: beside it are the marks."""
    return str(options.path if options.path is not None else options.staging_path)


@contextlib.contextmanager
def marked(options: SinkOptions, doing: str = "commit") -> Iterator[None]:
    """The mark of this process, from before the commit until after it, between pauses; or while a task writes."""
    folder = marks(place(options), doing)
    folder.mkdir(exist_ok=True)
    mark = folder / str(os.getpid())
    mark.touch()
    time.sleep(random.uniform(0, PAUSE))
    try:
        yield
        time.sleep(random.uniform(0, PAUSE))
    finally:
        mark.unlink(missing_ok=True)


def note(file: Path, line: str) -> None:
    """One line, whole or not at all if the process is killed."""
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(descriptor, line.encode() + b"\n")
    os.close(descriptor)


def tasks(path: str | Path) -> Path:
    """Where each task that writes has a line: the process of the executor's that it was forked from, and the number of the attempt."""
    return Path(f"{path}.tasks")


def written(writer: Any, write: Callable[[Iterator[Any]], Any], iterator: Iterator[Any]) -> Any:
    """What the product's task does, with a note and marks: one while it writes, one when it has written and Spark does not know it yet."""
    context = TaskContext.get()
    assert context is not None
    note(tasks(place(writer._options)), f"{os.getppid()} {context.attemptNumber()}")
    with marked(writer._options, "task"):
        done = write(iterator)
        with marked(writer._options, "written task"):
            return done


class SlowedBatch(BatchWriter):
    """`df.write`."""

    def write(self, iterator: Iterator[Any]) -> Any:
        """The product's, with a note and a mark."""
        return written(self, super().write, iterator)

    def commit(self, messages: list[Any]) -> None:
        """The product's, between pauses."""
        with marked(self._options):
            super().commit(messages)


class SlowedStream(StreamWriter):
    """`df.writeStream`."""

    def write(self, iterator: Iterator[Any]) -> Any:
        """The product's, with a note and a mark."""
        return written(self, super().write, iterator)

    def commit(self, messages: list[Any], batchId: int) -> None:
        """The product's, between pauses."""
        with marked(self._options):
            super().commit(messages, batchId)


class DroppedBatch(BatchWriter):
    """Without the ledger: a planted defect."""

    def commit(self, messages: list[Any]) -> None:
        """Appends whatever was appended before."""
        with marked(self._options):
            append(self._options, [item for item in messages if item is not None], None, self._run)
            clear(self._options, {self._run})


class DroppedStream(SlowedStream):
    """Without the ledger: a planted defect."""

    def _ledger(self, context: Any) -> tuple[str, int]:
        """Each attempt of a task has another one."""
        name, number = super()._ledger(context)
        return f"{name}-{context.taskAttemptId()}-{os.getpid()}", number

    def commit(self, messages: list[Any], batchId: int) -> None:
        """Appends whatever was appended before."""
        with marked(self._options):
            append(self._options, [item for item in messages if item is not None], None, self._run)
            self._clear(messages)


class Slowed(LogSource):
    """The format for the campaign."""

    batch_writer: type[BatchWriter] = SlowedBatch
    stream_writer: type[StreamWriter] = SlowedStream

    @classmethod
    def name(cls) -> str:
        """Its name in Spark."""
        return SLOWED

    def writer(self, schema: Any, overwrite: bool) -> BatchWriter:
        """The product's, with another commit."""
        made = super().writer(schema, overwrite)
        made.__class__ = self.batch_writer
        return made

    def streamWriter(self, schema: Any, overwrite: bool) -> StreamWriter:
        """The product's, with another commit."""
        made = super().streamWriter(schema, overwrite)
        made.__class__ = self.stream_writer
        return made


class LedgerDropped(Slowed):
    """The format with a planted defect."""

    batch_writer = DroppedBatch
    stream_writer = DroppedStream

    @classmethod
    def name(cls) -> str:
        """Its name in Spark."""
        return DROPPED
