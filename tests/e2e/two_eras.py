"""A stand-in for a daemon behind a balancer: it begins sessions, and does to its connections what a test says.

What the balancer makes of a daemon's answers, and of one that breaks off, is seen with this; that mcpd gives
these answers, `test_balancer` sees.
"""

import base64
import contextlib
import hashlib
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import attrs

from tests.e2e.harness import free_port
from tests.waiting import WAIT, eventually

WEBSOCKET_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
"""RFC 6455, 1.3."""


@attrs.define(eq=False)
class StandIn:
    """One daemon, as the test sees it."""

    name: str
    port: int = attrs.field(factory=free_port)
    drains: bool = False
    """Whether /readyz says 503."""
    requests: list[tuple[str, str, dict[str, str]]] = attrs.field(factory=list)
    """Method, path and headers of what has reached it, without the checks."""
    hosts: list[str] = attrs.field(factory=list)
    """The Host of each check."""
    go_on: threading.Event = attrs.field(factory=threading.Event)
    """Has a call to `/mcp/wait` answered, and a stream go on."""
    waiting: threading.Event = attrs.field(factory=threading.Event)
    """A call to `/mcp/wait` has begun."""
    left: threading.Event = attrs.field(factory=threading.Event)
    """Its client has hung up."""
    _server: "_Server | None" = None

    def start(self) -> None:
        """Listen."""
        self._server = _Server(("127.0.0.1", self.port), _handler(self))
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}).start()

    def stop(self) -> None:
        """Be gone: connections to it are refused."""
        if self._server is not None:
            self.go_on.set()
            self._server.shutdown()
            self._server.server_close()
            self._server.hang_up()
            self._server = None


class _Server(ThreadingHTTPServer):
    request_queue_size = 64
    # Connections that the balancer keeps end with it, after the stand-in.
    daemon_threads = True
    block_on_close = False

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._open: set[socket.socket] = set()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection."""
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """A connection has ended."""
        self._open.discard(request)
        super().shutdown_request(request)

    def hang_up(self) -> None:
        """End all connections, and wait until the balancer has."""
        # It would give one that is just ending another call, which nobody could answer.
        for each in list(self._open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_WR)
        eventually(lambda: not self._open)

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: the balancer resets connections that it does not need."""


def _handler(owner: StandIn) -> type[BaseHTTPRequestHandler]:
    class Handler(_Handler):
        daemon = owner

    return Handler


class _Handler(BaseHTTPRequestHandler):
    daemon: StandIn
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Checks, streams and upgrades."""
        if self.path == "/readyz":
            self.daemon.hosts.append(self.headers["Host"])
            self._answer(503 if self.daemon.drains else 200)
            return
        self._note()
        if "upgrade" in self.headers:
            self._echo()
        else:
            self._stream()

    def do_POST(self) -> None:
        """A call."""
        self.rfile.read(int(self.headers["Content-Length"]))
        self._note()
        if self.path == "/mcp/begin":
            self._answer(200, **{"Mcp-Session-Id": f"session-of-{self.daemon.name}"})
        elif self.path == "/mcp/die":
            # As if it was killed while it worked: the connection ends without an answer.
            self.close_connection = True
        elif self.path == "/mcp/wait":
            self._wait()
        else:
            self._answer(200)

    def _wait(self) -> None:
        self.daemon.waiting.set()
        self.connection.settimeout(0.01)
        for _ in range(int(WAIT / 0.01)):
            if self.daemon.go_on.is_set():
                break
            try:
                gone = not self.connection.recv(1)
            except TimeoutError:
                gone = False
            except ConnectionResetError:
                gone = True
            if gone:
                self.daemon.left.set()
                self.close_connection = True
                return
        self.connection.settimeout(None)
        self._answer(200)

    def _stream(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for event in (b": first\n\n", b"data: second\n\n"):
            self.wfile.write(b"%x\r\n%b\r\n" % (len(event), event))
            assert self.daemon.go_on.wait(WAIT)
        self.wfile.write(b"0\r\n\r\n")

    def _echo(self) -> None:
        key = self.headers["Sec-WebSocket-Key"] + WEBSOCKET_GUID
        accepted = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Sec-WebSocket-Accept", accepted)
        self.send_header("Connection", "upgrade")
        self.end_headers()
        self.wfile.write(self.rfile.readline())
        self.close_connection = True

    def _note(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.daemon.requests.append((self.command, self.path, headers))

    def _answer(self, status: int, **headers: str) -> None:
        body = json.dumps({"by": self.daemon.name}).encode()
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is http.server's
        """Say nothing."""


@contextmanager
def standing_in(*names: str) -> Iterator[list[StandIn]]:
    """Stand-ins that listen."""
    made = [StandIn(name) for name in names]
    try:
        for each in made:
            each.start()
        yield made
    finally:
        for each in made:
            each.stop()
