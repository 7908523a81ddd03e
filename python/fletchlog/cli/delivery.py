"""Writes records to standard output or a file and counts what was written: a group commits only that."""

from __future__ import annotations

import fcntl
import os
import select
import shutil
import stat
import struct
import sys
import termios
import time
from bisect import bisect_right
from collections import deque
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fletchlog.cli.interrupts import held
from fletchlog.cli.streams import PipeClosedError
from fletchlog.cli.text import note
from fletchlog.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

Offsets = dict[TopicPartition, int]
"""Per partition, the offset behind the last record."""
# what a pipe takes at once if it takes anything
_PIPE_BUF = 4096
# between two looks at what a pipe holds
_LOOK_S = 0.002


def behind(batch: pa.RecordBatch) -> Offsets:
    """The offsets behind the last records of a batch, in which those of a partition follow each other."""
    topics, partitions, offsets = (batch.column(name).to_pylist() for name in ("topic", "partition", "offset"))
    if len(set(partitions)) == 1 == len(set(topics)):
        return {TopicPartition(topics[0], partitions[0]): offsets[-1] + 1}
    last = dict(zip(zip(topics, partitions, strict=True), offsets, strict=True))
    return {TopicPartition(*place): offset + 1 for place, offset in last.items()}


def no_records(_count: int) -> Offsets:
    """The offsets of what is no record, for `Output.write`."""
    return {}


class _Written(NamedTuple):
    """What was written and has not been read yet.

    Attributes:
        start: Where it begins in the output.
        ends: Where each of its pieces ends, from there on.
        offsets: By a number of pieces, the offsets behind their records.
    """

    start: int
    ends: Sequence[int]
    offsets: Callable[[int], Offsets]


class Output:
    """Writes without a buffer of its own, so that it knows what is written.

    Ctrl-C comes between two writes. What is left in a pipe that its reader has closed counts as not written. A file is written aside and
    gets its name when it is closed, unless somebody is to follow it.
    """

    def __init__(self, path: Path | None, *, follow: bool = False) -> None:
        """Opens `path`; None: standard output."""
        self.path = path
        self._place, self._aside = _where(path, follow=follow)
        if self._place is None:
            sys.stdout.flush()
            buffer: Any = sys.stdout.buffer
            self._file = getattr(buffer, "raw", buffer)
        else:
            try:
                self._file = (self._aside or self._place).open("wb", buffering=0)
            except OSError as error:
                raise OSError(error.errno, error.strerror, str(path)) from None
        self.terminal = bool(self._file.isatty())
        self._pipe = _is_pipe(self._file)
        self._poll = _poll(self._file)
        self._written = 0
        self._whole = 0
        self._waiting: deque[_Written] = deque()
        self._offsets: Offsets = {}

    def close(self, *, keep: bool) -> None:
        """Closes the file; one that is not to be kept is as it was before. A record that did not fit the disk is not begun."""
        if self._place is None:
            return
        if self._aside is not None and self._waiting:
            self._file.truncate(self._whole)
        self._file.close()
        if self._aside is None:
            return
        if keep:
            if self._place.exists():
                shutil.copymode(self._place, self._aside)
            self._aside.replace(self._place)
        else:
            self._aside.unlink(missing_ok=True)
        self._aside = None

    def write(self, pieces: Sequence[bytes], offsets: Callable[[int], Offsets] = no_records) -> None:
        """Writes pieces; by a number of pieces `offsets` gives the offsets behind their records.

        Raises:
            fletchlog.cli.streams.PipeClosedError: The reader has gone.
            OSError: It cannot be written.
        """
        if pieces:
            self._waiting.append(_Written(self._written, list(accumulate(map(len, pieces))), offsets))
        rest = memoryview(b"".join(pieces))
        while rest:
            if self._poll is not None:
                self._poll.poll()
            with held():
                done = self._write(rest[:_PIPE_BUF] if self._pipe else rest)
                self._written += done
            rest = rest[done:]
        self.taken()

    def taken(self) -> Offsets:
        """What a reader has taken, or a file has got, for certain."""
        return self._settle(self._written - self._unread())

    def shown(self) -> Offsets:
        """The same at the end: while there is a reader, what the pipe holds counts as written."""
        return self.taken() if self._is_gone() else self._settle(self._written)

    def wait_until_taken(self) -> None:
        """Waits until the reader of a pipe has read what was written.

        Raises:
            fletchlog.cli.streams.PipeClosedError: It ended before.
        """
        while self._unread():
            if self._is_gone():
                raise PipeClosedError
            # nothing reports that a pipe is empty
            time.sleep(_LOOK_S)

    def _is_gone(self) -> bool:
        return self._poll is not None and any(events & select.POLLERR for _, events in self._poll.poll(0))

    def _settle(self, position: int) -> Offsets:
        while self._waiting:
            start, ends, offsets = self._waiting[0]
            count = bisect_right(ends, position - start)
            if count:
                self._whole = start + ends[count - 1]
                self._offsets |= offsets(count)
            if count < len(ends):
                break
            self._waiting.popleft()
        return dict(self._offsets)

    def _write(self, data: memoryview) -> int:
        try:
            # None: a terminal or pipe that was made not to block, and is full
            return self._file.write(data) or 0
        except OSError as error:
            name = error.filename if self.path is None else str(self.path)
            raise OSError(error.errno, error.strerror, name) from None

    def _unread(self) -> int:
        if not self._pipe or self._file.closed:
            return 0
        (waiting,) = struct.unpack("i", fcntl.ioctl(self._file, termios.FIONREAD, bytes(4)))
        return int(waiting)


def write_file(path: Path, content: str | bytes) -> None:
    """Writes a whole file, and says so; `-` is standard output. Where that fails, what was there before is left.

    Raises:
        OSError: It cannot be written.
    """
    is_stdout = str(path) == "-"
    output, complete = Output(None if is_stdout else path), False
    try:
        output.write([content.encode() if isinstance(content, str) else content])
        complete = True
    finally:
        output.close(keep=complete)
    if not is_stdout:
        note(f"wrote {path}")


def _where(path: Path | None, *, follow: bool) -> tuple[Path | None, Path | None]:
    """The file that is written, and under which name until it is complete; None for what is no ordinary file."""
    if path is None:
        return None, None
    if follow or (os.path.lexists(path) and not path.is_file()):
        return path, None
    real = Path(os.path.realpath(path))
    return real, real.with_name(f".{real.name}.{os.getpid()}")


def _is_pipe(file: Any) -> bool:
    try:
        return stat.S_ISFIFO(os.fstat(file.fileno()).st_mode)
    except OSError:
        return False


def _poll(file: Any) -> select.poll | None:
    try:
        poll = select.poll()
        poll.register(file.fileno(), select.POLLOUT)
    except OSError:  # kept in memory, by a test
        return None
    return poll
