"""Inputs as bytes: pipes, compressed files, files whose beginning has been read."""

from __future__ import annotations

import gzip
import io
import os
import select
import zlib
from typing import TYPE_CHECKING, Any, BinaryIO

from fletchlog.cli.common import CommandError

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Buffer

# how long an input may make wait before the records in hand are sent
_PATIENCE_MS = 100


def waiting(file: io.RawIOBase | BinaryIO, before: Callable[[], None]) -> BinaryIO:
    """The same input; `before` is called before it is waited for.

    What is behind a pipe may take its time, or never end: what has come from it is not kept meanwhile.
    """
    raw: Any = getattr(file, "raw", file)
    try:
        poll = select.poll()
        poll.register(raw.fileno(), select.POLLIN)
        patient = raw.seekable()
    except (OSError, AttributeError):  # kept in memory, by a test
        patient = True
    # reading a file does not wait
    return file if patient else io.BufferedReader(_Waiting(raw, poll, before))  # type: ignore[return-value]


class _Waiting(io.RawIOBase):
    """A pipe or a terminal."""

    def __init__(self, raw: Any, poll: select.poll, before: Callable[[], None]) -> None:
        self._raw = raw
        self._poll = poll
        self._before = before

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer) -> int:
        if not self._poll.poll(_PATIENCE_MS):
            self._before()
            # a pipe may have been made not to block
            self._poll.poll()
        data = os.read(self._raw.fileno(), len(memoryview(buffer)))
        memoryview(buffer)[: len(data)] = data
        return len(data)


class Rejoined(io.RawIOBase):
    """The first bytes of a file, which were read, and the rest of it."""

    def __init__(self, head: bytes, rest: BinaryIO) -> None:
        self._head = io.BytesIO(head)
        self._rest: Any = rest

    def readable(self) -> bool:
        """Yes."""
        return True

    def readinto(self, buffer: Buffer) -> int:
        """Bytes of the one or of the other."""
        view = memoryview(buffer)
        # what has come, not more: the writer of a pipe may take its time
        data = self._head.read(len(view)) or self._rest.read1(len(view))
        view[: len(data)] = data
        return len(data)


class Decompressed(io.RawIOBase):
    """The content of a compressed file."""

    def __init__(self, file: BinaryIO, compression: str, where: str) -> None:
        self._file = file
        self._compression = compression
        self._wrong = f"{where}: not a {compression} file, or one that is cut off or damaged"
        self._content = self._opened()
        self._given = 0
        self._bytewise = False

    def _opened(self) -> Any:
        import pyarrow as pa

        return gzip.GzipFile(fileobj=self._file) if self._compression == "gzip" else pa.CompressedInputStream(self._file, self._compression)

    def readable(self) -> bool:
        """Yes."""
        return True

    def readinto(self, buffer: Buffer) -> int:
        """What comes before the damage, if there is any; then a CommandError."""
        import pyarrow as pa

        view = memoryview(buffer)
        try:
            data = self._content.read(1 if self._bytewise else len(view))
        except (OSError, EOFError, zlib.error, pa.ArrowException) as error:
            if self._bytewise:
                raise CommandError(f"{self._wrong}: {error}") from None
            self._again()
            return self.readinto(buffer)
        view[: len(data)] = data
        self._given += len(data)
        return len(data)

    def _again(self) -> None:
        """Continues byte by byte: a read that fails gives nothing, also not what comes before the damage."""
        self._bytewise = True
        self._file.seek(0)
        # a stream of pyarrow closes its file when it is dropped
        self._first, self._content = self._content, self._opened()
        left = self._given
        while left > 0:
            data = self._content.read(min(left, io.DEFAULT_BUFFER_SIZE))
            if not data:
                raise CommandError(f"{self._wrong}: it became shorter while it was read")
            left -= len(data)
