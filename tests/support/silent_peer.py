"""A peer that is silent instead of closed: it accepts connections, and its answers do not come."""

from __future__ import annotations

import random
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Literal, Self

Mode = Literal["nothing", "half", "one_in_ten", "all", "black_hole"]

_API_VERSIONS = 18
_REQUESTS_AN_ANSWER = 10
# More than the queue of a listening socket with backlog 0 holds, so that the system ignores the next connection.
_FILLERS = 4


class SilentPeer:
    """A server on loopback with its own threads; a context manager. `mode` may be changed at any time, for open connections as well.

    | mode | answers |
    |---|---|
    | `nothing` | none |
    | `half` | the first half of a frame to the first request of each connection, then none |
    | `one_in_ten` | about one of ten, of `upstream`; those of ApiVersions always. A connection with a request that is not answered stays silent |
    | `all` | every one, of `upstream`: a healthy node |
    | `black_hole` | none, and no connection is accepted any more: the handshake of TCP is not answered. Not to be changed back |

    Args:
        mode: See above.
        upstream: `HOST:PORT` of the listener that answers; it has to advertise `address`.
        port: Where to listen; 0: a free port.

    Attributes:
        address: `127.0.0.1:PORT`.
        requests: The API keys of the requests that were read, in order.
        connections: How many connections were accepted.
    """

    def __init__(self, mode: Mode, upstream: str | None = None, *, port: int = 0) -> None:
        if upstream is None and mode in ("one_in_ten", "all"):
            raise ValueError(f"mode {mode} needs an upstream that answers")
        self._mode: Mode = mode
        self.upstream = upstream
        self.requests: list[int] = []
        self.connections = 0
        # By chance: clients that take turns between two requests could have every answer to the same one.
        self._random = random.Random(0)
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._is_closed = False
        self._listening = socket.create_server(("127.0.0.1", port))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self._start(self._accept)
        if mode == "black_hole":
            self._stop_accepting()

    @property
    def mode(self) -> Mode:
        """What it does with requests from now on."""
        return self._mode

    @mode.setter
    def mode(self, mode: Mode) -> None:
        self._mode = mode
        if mode == "black_hole":
            self._stop_accepting()

    @property
    def port(self) -> int:
        """The port of `address`."""
        return int(self.address.rpartition(":")[2])

    def close(self) -> None:
        """Closes all connections and ends its threads."""
        with self._lock:
            self._is_closed = True
            sockets = [self._listening, *self._sockets]
        for one in sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        for thread in self._threads:
            thread.join(10)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None) -> None:
        self.close()

    def _start(self, run: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=run, args=arguments, daemon=True)
        with self._lock:
            self._threads.append(thread)
        thread.start()

    def _keep(self, one: socket.socket) -> bool:
        """Remembers a socket for `close`. False: it is closed already."""
        with self._lock:
            if self._is_closed:
                one.close()
                return False
            self._sockets.append(one)
            return True

    def _stop_accepting(self) -> None:
        """Fills the queue of connections that nobody accepts."""
        self._listening.listen(0)
        for _ in range(_FILLERS):
            filler = socket.socket()
            filler.setblocking(False)
            with suppress(BlockingIOError):
                filler.connect(("127.0.0.1", self.port))
            self._keep(filler)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                if not self._keep(connection):
                    return
                self.connections += 1
                self._start(self._serve, connection)
                if self._mode == "black_hole":
                    return

    def _serve(self, client: socket.socket) -> None:
        """Reads the requests of one connection."""
        upstream: socket.socket | None = None
        is_silent = False
        with suppress(OSError, EOFError):
            while True:
                frame = _frame(client)
                (api_key,) = struct.unpack_from(">h", frame, 4)
                self.requests.append(api_key)
                is_silent = is_silent or not self._answers(api_key)
                if is_silent:
                    if self._mode == "half":
                        # A frame of 64 bytes with the right correlation id, of which 32 come.
                        client.sendall(struct.pack(">i", 60) + frame[8:12] + bytes(24))
                    continue
                if upstream is None:
                    upstream = self._connect(client)
                upstream.sendall(frame)
        if upstream is not None:
            with suppress(OSError):
                upstream.shutdown(socket.SHUT_RDWR)

    def _answers(self, api_key: int) -> bool:
        """Whether this request goes to the upstream."""
        if self._mode == "one_in_ten" and api_key != _API_VERSIONS:
            with self._lock:
                return self._random.random() < 1 / _REQUESTS_AN_ANSWER
        return self._mode in ("all", "one_in_ten")

    def _connect(self, client: socket.socket) -> socket.socket:
        assert self.upstream is not None
        host, _, port = self.upstream.rpartition(":")
        upstream = socket.create_connection((host, int(port)))
        if not self._keep(upstream):
            raise EOFError
        self._start(self._return, upstream, client)
        return upstream

    def _return(self, upstream: socket.socket, client: socket.socket) -> None:
        """Passes answers on."""
        with suppress(OSError, EOFError):
            while True:
                frame = _frame(upstream)
                if self._mode in ("all", "one_in_ten"):
                    client.sendall(frame)
        with suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)


def _frame(connection: socket.socket) -> bytes:
    """The next frame with its length."""
    length = _exactly(connection, 4)
    return length + _exactly(connection, int.from_bytes(length))


def _exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        chunk = connection.recv(count - len(data))
        if not chunk:
            raise EOFError
        data += chunk
    return data
