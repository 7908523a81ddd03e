"""What fetches a client sends and what it gets, seen by a proxy in front of a listener, in the words of `golden/poll-traces`."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import struct
import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

FETCH = 1
# from these versions on: session fields, compact lengths and tags, topic ids
FLEXIBLE, TOPIC_IDS = 12, 13
# a session's first request, and one without a session
FULL = (0, -1)

# An answer takes so long: our listener is quick enough to answer within the call that asked, which the recorded broker was not
ANSWER_SECONDS = 0.001

Event = list[Any]


class Reader:
    """Kafka's types from the bytes of one Fetch of a version from 11 on (the oldest client here sends that one)."""

    def __init__(self, data: bytes, version: int) -> None:
        self._data, self._at = data, 0
        self.version, self.flexible = version, version >= FLEXIBLE

    def take(self, form: str) -> Any:
        """One number."""
        (value,) = struct.unpack_from(f">{form}", self._data, self._at)
        self._at += struct.calcsize(f">{form}")
        return value

    def skip(self, form: str) -> None:
        """Fields that no recording has."""
        self._at += struct.calcsize(f">{form}")

    def varint(self) -> int:
        """An unsigned one."""
        value, shift = 0, 0
        while True:
            byte = self.take("B")
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def length(self, form: str = "i") -> int:
        """Of an array, string or bytes; -1 is null."""
        return self.varint() - 1 if self.flexible else int(self.take(form))

    def bytes(self, size: int) -> bytes:
        """So many."""
        self._at += max(size, 0)
        return self._data[self._at - max(size, 0) : self._at]

    def string(self) -> str:
        """A name."""
        return self.bytes(self.length("h")).decode()

    def tags(self) -> None:
        """Skips them."""
        for _ in range(self.varint() if self.flexible else 0):
            self.varint()
            self.bytes(self.varint())

    def topic(self, names: Mapping[str, str]) -> str:
        """A topic by name or id."""
        if self.version < TOPIC_IDS:
            return self.string()
        return names[base64.urlsafe_b64encode(self.bytes(16)).decode().rstrip("=")]


def request(data: bytes, version: int, names: Mapping[str, str]) -> Event:
    """["req", 0 full | 1 incremental, [[t, p, offset]..], [[t, p]..] forgotten, sorted] of a body."""
    of = Reader(data, version)
    of.skip("iiib" if version >= 15 else "iiiib")  # the replica id is a tag from 15 on
    of.skip("i")
    epoch = of.take("i")
    asked = []
    for _ in range(of.length()):
        topic = of.topic(names)
        for _ in range(of.length()):
            partition = of.take("i")
            of.skip("i")
            asked.append([topic, partition, of.take("q")])
            of.skip("iqi" if version >= 12 else "qi")
            of.tags()
        of.tags()
    forgotten = []
    for _ in range(of.length()):
        topic = of.topic(names)
        forgotten += [[topic, of.take("i")] for _ in range(of.length())]
        of.tags()
    return ["req", 0 if epoch in FULL else 1, asked, sorted(forgotten)]


def response(data: bytes, version: int, names: Mapping[str, str]) -> Event:
    """["resp", [[t, p, bytes, whole batches, records in them(, error)]..](, error)] of a body."""
    of = Reader(data, version)
    of.skip("i")
    refused = of.take("h")
    of.skip("i")
    answered = []
    for _ in range(of.length()):
        topic = of.topic(names)
        for _ in range(of.length()):
            partition, error = of.take("i"), of.take("h")
            of.skip("qqq")
            for _ in range(of.length()):
                of.skip("qq")
                of.tags()
            of.skip("i")
            records = of.bytes(of.length())
            of.tags()
            answered.append([topic, partition, len(records), *batches(records), *([error] if error else [])])
        of.tags()
    return ["resp", answered, *([refused] if refused else [])]


def batches(data: bytes) -> tuple[int, int]:
    """Whole batches, and the records in them."""
    at, count, records = 0, 0, 0
    while at + 61 <= len(data) and at + 12 + (size := struct.unpack_from(">i", data, at + 8)[0]) <= len(data):
        records += struct.unpack_from(">i", data, at + 57)[0]
        count += 1
        at += 12 + size
    return count, records


class Proxies:
    """Proxies in a thread of their own. `events[client id]` are pairs of the time in microseconds and what went over the wire."""

    def __init__(self) -> None:
        self.events: dict[str, list[tuple[int, Event]]] = defaultdict(list)
        self._servers: list[asyncio.Server] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def open(self, target: dict[str, Any]) -> str:
        """The address of a new proxy. `target` may be filled later: `address` of the broker, `names` of its topics by id."""

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            host, port = target["address"].rsplit(":", 1)
            server_reader, server_writer = await asyncio.open_connection(host, int(port))
            asked: list[tuple[str, int] | None] = []
            pumps = [self._requests(reader, server_writer, asked, target), self._responses(server_reader, writer, asked, target)]
            try:
                await asyncio.gather(*pumps)
            finally:
                writer.close()
                server_writer.close()

        server = asyncio.run_coroutine_threadsafe(asyncio.start_server(connected, "127.0.0.1", 0), self._loop).result(10)
        self._servers.append(server)
        return f"127.0.0.1:{server.sockets[0].getsockname()[1]}"

    def close(self) -> None:
        """Ends every connection and the thread."""
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _end(self) -> None:
        for server in self._servers:
            server.close()
        pumps = asyncio.all_tasks() - {asyncio.current_task()}
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)

    def _saw(self, client: str, event: Event) -> None:
        self.events[client].append((time.time_ns() // 1000, event))

    async def _requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: list[Any], target: dict[str, Any]) -> None:
        async for frame in frames(reader):
            key, version, _, size = struct.unpack_from(">hhih", frame, 4)
            client = frame[14 : 14 + max(size, 0)].decode()
            asked.append((client, version) if key == FETCH else None)
            if key == FETCH:
                body = frame[14 + max(size, 0) + (version >= FLEXIBLE) :]  # the header's tags are none
                self._saw(client, request(body, version, target["names"]))
            writer.write(frame)
        writer.close()

    async def _responses(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: list[Any], target: dict[str, Any]) -> None:
        async for frame in frames(reader):
            if (fetch := asked.pop(0)) is not None:
                client, version = fetch
                self._saw(client, response(frame[8 + (version >= FLEXIBLE) :], version, target["names"]))
            await asyncio.sleep(ANSWER_SECONDS)
            writer.write(frame)
        writer.close()


async def frames(reader: asyncio.StreamReader) -> Any:
    """Every frame with its size, until the connection ends."""
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            size = await reader.readexactly(4)
            yield size + await reader.readexactly(struct.unpack(">i", size)[0])
