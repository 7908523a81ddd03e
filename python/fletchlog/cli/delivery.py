"""Writes lines to standard output or a file and counts what was written: a group commits only that."""

from __future__ import annotations

import fcntl
import select
import stat
import struct
import sys
import termios
from collections import deque
from os import fstat
from typing import TYPE_CHECKING, Any

from fletchlog.types import TopicPartition
from fletchlog_shell.interrupts import held

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

Offsets = dict[TopicPartition, int]
"""Per partition, the offset behind the last record."""
# what a pipe takes at once if it takes anything
_PIPE_BUF = 4096


def advance(offsets: Offsets, row: Mapping[str, Any]) -> None:
    """Notes that the record `row` has been shown."""
    offsets[TopicPartition(row["topic"], row["partition"])] = row["offset"] + 1


class Lines:
    """Writes lines without a buffer of its own, so that it knows which of them are written.

    Ctrl-C comes between two writes. What is left in a pipe that its reader has closed counts as not written.
    """

    def __init__(self, path: Path | None) -> None:
        """Opens `path`; None: standard output."""
        self._path = path
        if path is None:
            sys.stdout.flush()
            buffer: Any = sys.stdout.buffer
            self._file = getattr(buffer, "raw", buffer)
        else:
            self._file = path.open("wb", buffering=0)
        self._pipe = _is_pipe(self._file)
        self._poll = _poll(self._file)
        self._written = 0
        self._waiting: deque[tuple[int, Mapping[str, Any]]] = deque()
        self._offsets: Offsets = {}

    def close(self) -> None:
        """Closes the file."""
        if self._path is not None:
            self._file.close()

    def write(self, lines: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
        """Writes lines, each with the record that it shows.

        Raises:
            fletchlog.cli.streams.PipeClosedError: The reader has gone.
            OSError: It cannot be written.
        """
        data = bytearray()
        for line, row in lines:
            data += line.encode() + b"\n"
            self._waiting.append((self._written + len(data), row))
        rest = memoryview(bytes(data))
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
        gone = self._poll is not None and any(events & select.POLLERR for _, events in self._poll.poll(0))
        return self.taken() if gone else self._settle(self._written)

    def _settle(self, position: int) -> Offsets:
        while self._waiting and self._waiting[0][0] <= position:
            advance(self._offsets, self._waiting.popleft()[1])
        return dict(self._offsets)

    def _write(self, data: memoryview) -> int:
        try:
            # None: a terminal or pipe that was made not to block, and is full
            return self._file.write(data) or 0
        except OSError as error:
            raise OSError(error.errno, error.strerror, error.filename or str(self._path)) from None

    def _unread(self) -> int:
        if not self._pipe:
            return 0
        (waiting,) = struct.unpack("i", fcntl.ioctl(self._file, termios.FIONREAD, bytes(4)))
        return int(waiting)


def _is_pipe(file: Any) -> bool:
    try:
        return stat.S_ISFIFO(fstat(file.fileno()).st_mode)
    except OSError:
        return False


def _poll(file: Any) -> select.poll | None:
    try:
        poll = select.poll()
        poll.register(file.fileno(), select.POLLOUT)
    except OSError:  # kept in memory, by a test
        return None
    return poll
