"""Requests to a registry over HTTP: several addresses, kept connections, retries, authentication and TLS."""

from __future__ import annotations

import base64
import http.client
import json
import random
import socket
import ssl
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from fletchlog.errors import InvalidArgumentError, SchemaRegistryError, SchemaRegistryUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

TYPE = "application/vnd.schemaregistry.v1+json"
# A response of one of these is worth another try.
RETRIED = frozenset((408, 429, 500, 502, 503, 504))
# Most bytes of a response.
LARGEST = 64 << 20
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.1, 2.0


class Connections:
    """Connections to the addresses of one registry. All threads may use them; each request has one to itself."""

    def __init__(
        self,
        urls: Sequence[str],
        *,
        auth: tuple[str, str] | None,
        token: str | Callable[[], str] | None,
        tls: ssl.SSLContext | None,
        timeout_s: float,
        retries: int,
    ) -> None:
        self._addresses = [_Address(url) for url in urls]
        self._auth, self._token, self._tls, self._timeout, self._retries = auth, token, tls, timeout_s, retries
        self._idle: dict[_Address, list[http.client.HTTPConnection]] = {address: [] for address in self._addresses}
        self._lock = threading.Lock()
        # serializers and deserializers end without being closed
        weakref.finalize(self, _close, self._idle)

    def close(self) -> None:
        """Closes what is idle."""
        with self._lock:
            _close(self._idle)

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """The body of the response to a request, from the first address that has one.

        Raises:
            SchemaRegistryError: The registry refuses it.
            SchemaRegistryUnavailableError: No address has a response in time.
        """
        data = None if body is None else json.dumps(body).encode()
        failures: list[str] = []
        for round_ in range(self._retries + 1):
            if round_:
                # between nothing and twice as long in each round, so that clients do not come together
                time.sleep(random.uniform(0, min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2**round_)))  # noqa: S311 - no secret
            failures = []
            for address in self._addresses:
                try:
                    status, text = self._one(address, method, path, data)
                except (OSError, http.client.HTTPException) as error:
                    failures.append(f"{address.shown}: {_reason(error)}")
                    continue
                if status < 300:  # noqa: PLR2004 - HTTP's own number
                    return _json(text, address, path)
                problem = _problem(status, text, f"{method} {address.shown}{path}")
                if status not in RETRIED:
                    raise problem
                failures.append(str(problem))
        raise SchemaRegistryUnavailableError(f"the schema registry does not answer {method} {path}: {'; '.join(failures)}")

    def _one(self, address: _Address, method: str, path: str, data: bytes | None) -> tuple[int, bytes]:
        """Status and body of one response."""
        with self._lock:
            connection = self._idle[address].pop() if self._idle[address] else None
        if connection is not None:
            try:
                return self._exchange(address, connection, method, path, data)
            except (OSError, http.client.HTTPException):
                connection.close()
                # the registry may have closed it while it was idle; what must not be done twice is not sent again
                if method == "DELETE":
                    raise
        connection = address.connection(self._timeout, self._tls)
        try:
            connection.connect()
            connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return self._exchange(address, connection, method, path, data)
        except BaseException:
            connection.close()
            raise

    def _exchange(self, address: _Address, connection: http.client.HTTPConnection, method: str, path: str, data: bytes | None) -> tuple[int, bytes]:
        connection.request(method, address.path + path, data, self._headers(address))
        response = connection.getresponse()
        text = response.read(LARGEST + 1)
        if len(text) > LARGEST:
            raise http.client.HTTPException(f"the response has more than {LARGEST} bytes")
        if response.will_close:
            connection.close()
        else:
            with self._lock:
                self._idle[address].append(connection)
        return response.status, text

    def _headers(self, address: _Address) -> dict[str, str]:
        headers = {"Accept": f"{TYPE}, application/json", "Content-Type": TYPE, "User-Agent": "fletchlog"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token() if callable(self._token) else self._token}"
        elif auth := self._auth or address.auth:
            headers["Authorization"] = "Basic " + base64.b64encode(f"{auth[0]}:{auth[1]}".encode()).decode()
        return headers


class _Address:
    """One address of a registry."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidArgumentError(f"the URL of a schema registry is http://HOST:PORT or https://HOST:PORT, not {url.rpartition('@')[2]!r}")
        self.is_https = parts.scheme == "https"
        self.host, self.path = parts.hostname, parts.path.rstrip("/")
        try:
            self.port = parts.port or (443 if self.is_https else 80)
        except ValueError as error:
            raise InvalidArgumentError(f"the URL {url.rpartition('@')[2]!r}: {error}") from None
        self.auth = (unquote(parts.username), unquote(parts.password or "")) if parts.username else None
        # as it may be in messages: without user and password
        self.shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{self.path}"

    def connection(self, timeout_s: float, tls: ssl.SSLContext | None) -> http.client.HTTPConnection:
        """A connection that is not open yet."""
        if self.is_https:
            return http.client.HTTPSConnection(self.host, self.port, timeout=timeout_s, context=tls or ssl.create_default_context())
        return http.client.HTTPConnection(self.host, self.port, timeout=timeout_s)


def _close(idle: dict[_Address, list[http.client.HTTPConnection]]) -> None:
    for connections in idle.values():
        while connections:
            connections.pop().close()


def _reason(error: Exception) -> str:
    """Why a request failed, in words."""
    if isinstance(error, TimeoutError):
        return "no response in time"
    return f"{type(error).__name__}: {error}".removeprefix("OSError: ")


def _json(text: bytes, address: _Address, path: str) -> Any:
    try:
        return json.loads(text) if text else None
    except ValueError:
        raise SchemaRegistryError(f"{address.shown}{path} is no schema registry: its response is no JSON, it begins with {text[:60]!r}") from None


def _problem(status: int, text: bytes, place: str) -> SchemaRegistryError:
    """What an error response says."""
    try:
        found = json.loads(text)
        code, message = found["error_code"], found.get("message", "")
    except (ValueError, KeyError, TypeError, AttributeError):
        code, message = None, text[:200].decode("utf-8", "replace")
    error = SchemaRegistryError(f"{place}: {status} {message}" + (f" (error code {code})" if code is not None else ""))
    error.status, error.error_code = status, code
    return error
