"""An HTTP server in threads of its own: what `fletchlog serve --control` and the schema registry share.

Its application gets whole requests and returns whole responses.
"""

from __future__ import annotations

import contextlib
import socket
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from urllib.parse import parse_qsl, urlsplit

from fletchlog._closing import Closing

if TYPE_CHECKING:
    import ssl
    from email.message import Message

# Most bytes of the body of a request.
LARGEST = 16 << 20


class Request(NamedTuple):
    """A request, read whole.

    Attributes:
        method: Its method, such as "GET".
        path: The path as it came, with its escapes; what is before the query.
        query: Names and values of the query, in its order.
        headers: The headers.
        body: The body, empty without one.
    """

    method: str
    path: str
    query: list[tuple[str, str]]
    headers: Message
    body: bytes


class Response(NamedTuple):
    """What is sent back.

    Attributes:
        status: HTTP's status.
        body: The body.
        content_type: Its type.
        headers: Further headers.
    """

    status: int
    body: bytes
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()


class Application(Protocol):
    """What answers requests. Each connection has a thread, and all of them call."""

    def respond(self, request: Request) -> Response:
        """The response to a request. It raises nothing."""

    def refuse(self, status: int, message: str) -> Response:
        """The response to what is no request that can be read."""


class HttpServer(Closing):
    """Serves an application until it is closed."""

    def __init__(self, application: Application, host: str, port: int, name: str, tls: ssl.SSLContext | None = None) -> None:
        """Listens at once. `name` is that of the thread that accepts connections; with `tls` it serves HTTPS.

        Raises:
            OSError: The address cannot be used.
        """
        self._server = _Server((host, port), _handler(application))
        self._scheme = "http"
        if tls is not None:
            # the handshake is done by the thread of the connection, with its first read
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
            self._scheme = "https"
        Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, name=name, daemon=True).start()

    @property
    def url(self) -> str:
        """Where it is: `http://HOST:PORT`."""
        host, port = self._server.server_address[:2]
        return f"{self._scheme}://{host!s}:{port}"

    def close(self) -> None:
        """Ends it, and its connections."""
        self._server.shutdown()
        self._server.server_close()
        for connection in list(self._server.connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self.connections: set[socket.socket] = set()
        super().__init__(address, handler)

    def get_request(self) -> tuple[socket.socket, Any]:
        """The next connection, which is open from here on."""
        connection, address = super().get_request()
        self.connections.add(connection)
        return connection, address

    def shutdown_request(self, request: Any) -> None:
        """Ends a connection."""
        self.connections.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: object, client_address: object) -> None:
        """A connection that its client has broken is no one's concern."""


def _handler(application: Application) -> type[BaseHTTPRequestHandler]:
    """The class that the server makes an object of for each connection."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # One write a response: without it the client waits for the acknowledgement of the first packet.
        wbufsize = -1

        def _serve(self) -> None:
            self._send(self._response())

        do_GET = do_POST = do_DELETE = do_PUT = do_PATCH = do_HEAD = _serve  # noqa: N815 - names of the base class

        def _response(self) -> Response:
            # what is not read would be the beginning of the next request
            text = self.headers.get("Content-Length") or "0"
            length = int(text) if text.isdecimal() else -1
            if "Transfer-Encoding" in self.headers:
                self.close_connection = True
                return application.refuse(411, "a body needs a Content-Length")
            if not 0 <= length <= LARGEST:
                self.close_connection = True
                return application.refuse(400, f"a body has at most {LARGEST} bytes, not {text}")
            body = self.rfile.read(length)
            url = urlsplit(self.path)
            return application.respond(Request(self.command, url.path, parse_qsl(url.query, keep_blank_values=True), self.headers, body))

        def _send(self, response: Response) -> None:
            self.send_response(response.status)
            self.send_header("Content-Type", response.content_type)
            self.send_header("Content-Length", str(len(response.body)))
            for name, value in response.headers:
                self.send_header(name, value)
            if self.close_connection:
                self.send_header("Connection", "close")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(response.body)
            self.wfile.flush()

        def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
            """Of a request that is no HTTP, or has an unknown method."""
            self.close_connection = True
            self._send(application.refuse(code, message or explain or self.responses[code][0]))

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
            pass

    return Handler
