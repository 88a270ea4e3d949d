"""A client's end of an HTTP connection and of a WebSocket, with bytes made by hand: as cheap as a socket."""

from __future__ import annotations

import json
import re
import socket
from typing import TYPE_CHECKING

import attrs

from bench.calls.wires import FIRST_ID, Request, Wire
from bench.running import INTRODUCTION, Unmeasurable

if TYPE_CHECKING:
    from collections.abc import Mapping

LOOPBACK = "127.0.0.1"

MODERN = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
}
"""The `_meta` of each request of that revision."""

OK = ord("2")
"""The first digit of a success status, the tenth byte of an answer."""

NO_MASK = bytes(4)
"""A mask that leaves the payload unchanged; the server unmasks it all the same."""

TEXT, MASKED, LENGTH_16, LENGTH_64 = 0x81, 0x80, 126, 127
"""Values of a frame's first two bytes (RFC 6455, 5.2)."""

_LENGTH = re.compile(rb"(?i)\r\ncontent-length: ?(\d+)")
_SESSION = re.compile(rb"(?i)\r\nmcp-session-id: ?([^\r]+)")


@attrs.frozen
class Place:
    """An HTTP server's address and token."""

    port: int
    path: str
    token: str = attrs.field(default="", repr=False)

    def head(self, method: str, headers: Mapping[str, str]) -> bytes:
        """The head of a request."""
        every = {"Host": f"{LOOPBACK}:{self.port}", **headers}
        if self.token:
            every["Authorization"] = f"Bearer {self.token}"
        lines = [f"{method} {self.path} HTTP/1.1", *(f"{name}: {value}" for name, value in every.items())]
        return "\r\n".join([*lines, "", ""]).encode()


class _TcpWire(Wire):
    """A TCP connection."""

    def __init__(self, place: Place) -> None:
        link = socket.create_connection((LOOPBACK, place.port))
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().__init__(link.fileno(), link.fileno(), link.close)
        self.place = place

    def wrap(self, request: Request) -> Request:
        """A call with its envelope, which fits all calls, as they have one length."""
        text = request.template.removesuffix(b"\n")
        return Request(self._envelope(len(text % FIRST_ID)).replace(b"%", b"%%") + text)

    def _envelope(self, size: int) -> bytes:
        raise NotImplementedError

    def _say(self, message: Mapping[str, object]) -> None:
        text = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.send(self._envelope(len(text)) + text)


class HttpWire(_TcpWire):
    """POSTs over one persistent connection, each answered with one body."""

    def __init__(self, place: Place) -> None:
        """Connect."""
        super().__init__(place)
        self.headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        """Headers of each request."""

    def greet(self, hello: Mapping[str, object] | None = None) -> None:
        """Begin a session."""
        self.ask("initialize", INTRODUCTION)
        self.headers["Mcp-Protocol-Version"] = str(INTRODUCTION["protocolVersion"])
        self._say({"method": "notifications/initialized"})
        self._next()
        self.ask("tools/list", {})

    def stream(self) -> None:
        """Open the session's stream; the connection then takes no other request."""
        self.send(self.place.head("GET", {**self.headers, "Accept": "text/event-stream"}))
        self._stream_opened()

    def subscribe(self) -> None:
        """Open a stream of MCP 2026-07-28, without a session."""
        method = "subscriptions/listen"
        self.modern(method)
        params = {"notifications": {"toolsListChanged": True}, "_meta": META}
        self._say({"id": 1, "method": method, "params": params})
        self._stream_opened()

    def modern(self, method: str, name: str = "") -> None:
        """Use MCP 2026-07-28 from now on, without a session, and only for this method."""
        self.headers |= {"Mcp-Protocol-Version": MODERN, "Mcp-Method": method}
        if name:
            self.headers["Mcp-Name"] = name

    def _stream_opened(self) -> None:
        head = self._until(b"\r\n\r\n")
        if head[9] != OK or b"text/event-stream" not in head:
            raise Unmeasurable(f"a stream was refused: {head + self._held!r}")

    def is_over(self, piece: memoryview) -> bool:
        """Whether the piece begins a refusal, whose rest is not read."""
        return piece[:5].tobytes() == b"HTTP/" and piece[9] != OK

    def _envelope(self, size: int) -> bytes:
        return self.place.head("POST", {**self.headers, "Content-Length": str(size)})

    def _next(self) -> tuple[int, bytes]:
        head = self._until(b"\r\n\r\n")
        length = _LENGTH.search(head)
        if head[9] != OK or length is None:
            raise Unmeasurable(f"a request was answered with {head + self._held!r}")
        if session := _SESSION.search(head):
            self.headers["Mcp-Session-Id"] = session[1].decode()
        body = self._exactly(int(length[1]))
        return len(head) + len(body), body


class WebSocketWire(_TcpWire):
    """A WebSocket connection, with a message in each frame."""

    def __init__(self, place: Place) -> None:
        """Connect and shake hands."""
        super().__init__(place)
        upgrade = {
            "Connection": "Upgrade",
            "Upgrade": "websocket",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
            "Sec-WebSocket-Protocol": "mcp",
        }
        self.send(place.head("GET", upgrade))
        head = self._until(b"\r\n\r\n")
        if b" 101 " not in head[:16]:
            raise Unmeasurable(f"no WebSocket: {head!r}")

    def is_over(self, piece: memoryview) -> bool:
        """False: a piece does not show its frame's end."""
        return False

    def _envelope(self, size: int) -> bytes:
        return envelope(size)

    def _next(self) -> tuple[int, bytes]:
        _, size = self._exactly(2)
        extended = {LENGTH_16: 2, LENGTH_64: 8}.get(size, 0)
        if extended:
            size = int.from_bytes(self._exactly(extended), "big")
        return 2 + extended + size, self._exactly(size)


def envelope(size: int) -> bytes:
    """The head of a client's text frame with this many bytes."""
    if size < LENGTH_16:
        return bytes((TEXT, MASKED | size)) + NO_MASK
    if size < 1 << 16:
        return bytes((TEXT, MASKED | LENGTH_16)) + size.to_bytes(2, "big") + NO_MASK
    return bytes((TEXT, MASKED | LENGTH_64)) + size.to_bytes(8, "big") + NO_MASK
