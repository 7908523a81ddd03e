"""Produce requests by hand: a Java producer cannot be made to repeat a batch, or to go on with another producer's sequence."""

from __future__ import annotations

import socket
import struct
from types import TracebackType
from typing import NamedTuple, Self

PRODUCE, VERSION = 0, 8


class Answer(NamedTuple):
    """What a broker answered for one partition."""

    error: int
    base_offset: int
    log_append_time: int
    log_start_offset: int


def string(text: str | None) -> bytes:
    """NULLABLE_STRING."""
    return struct.pack(">h", -1) if text is None else struct.pack(">h", len(text.encode())) + text.encode()


class Connection:
    """A connection to a broker."""

    def __init__(self, address: str) -> None:
        host, port = address.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), 30)
        self._correlation = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._socket.close()

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self._socket.recv(size - len(data))
            assert more, "the broker closed the connection"
            data += more
        return data

    def produce(self, topic: str, partition: int, records: bytes) -> Answer:
        """One batch, acks=all."""
        self._correlation += 1
        body = struct.pack(">hhi", PRODUCE, VERSION, self._correlation) + string("interop")
        body += string(None) + struct.pack(">hii", -1, 30_000, 1) + string(topic) + struct.pack(">iii", 1, partition, len(records)) + records
        self._socket.sendall(struct.pack(">i", len(body)) + body)
        answer = self._read(struct.unpack(">i", self._read(4))[0])
        correlation, _, name = struct.unpack_from(">iih", answer)
        assert correlation == self._correlation
        _, _, error, base_offset, log_append_time, log_start_offset = struct.unpack_from(">iihqqq", answer, 10 + name)
        return Answer(error, base_offset, log_append_time, log_start_offset)
