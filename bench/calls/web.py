"""A client's end of an HTTP connection and of a WebSocket, as cheap as that of a socket: bytes made by hand."""

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
"""What each request of that revision says in its `_meta`."""

OK = ord("2")
"""The first digit of a status, in the tenth byte of an answer."""

NO_MASK = bytes(4)
"""Leaves the payload as it is. The server cannot know that, and unmasks it all the same."""

TEXT, MASKED, LENGTH_16, LENGTH_64 = 0x81, 0x80, 126, 127
"""What a frame's first two bytes say (RFC 6455, 5.2)."""

_LENGTH = re.compile(rb"(?i)\r\ncontent-length: ?(\d+)")
_SESSION = re.compile(rb"(?i)\r\nmcp-session-id: ?([^\r]+)")


@attrs.frozen
class Place:
    """Where an HTTP server is, and how it lets one in."""

    port: int
    path: str
    token: str = attrs.field(default="", repr=False)

    def head(self, method: str, headers: Mapping[str, str]) -> bytes:
        """A request as far as its body."""
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
        """A call in its envelope, whose length is that of all calls."""
        text = request.template.removesuffix(b"\n")
        return Request(self._envelope(len(text % FIRST_ID)).replace(b"%", b"%%") + text)

    def _envelope(self, size: int) -> bytes:
        raise NotImplementedError

    def _say(self, message: Mapping[str, object]) -> None:
        text = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.send(self._envelope(len(text)) + text)


class HttpWire(_TcpWire):
    """POSTs over one connection that is kept, each answered with one body."""

    def __init__(self, place: Place) -> None:
        """Connect."""
        super().__init__(place)
        self.headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        """Of each request."""

    def greet(self, hello: Mapping[str, object] | None = None) -> None:
        """Begin a session as clients do."""
        self.ask("initialize", INTRODUCTION)
        self.headers["Mcp-Protocol-Version"] = str(INTRODUCTION["protocolVersion"])
        self._say({"method": "notifications/initialized"})
        self._next()
        self.ask("tools/list", {})

    def stream(self) -> None:
        """Open the stream of the session; nothing more can be asked on this connection."""
        self.send(self.place.head("GET", {**self.headers, "Accept": "text/event-stream"}))
        self._stream_opened()

    def subscribe(self) -> None:
        """The same as MCP 2026-07-28 has it, without a session."""
        method = "subscriptions/listen"
        self.modern(method)
        params = {"notifications": {"toolsListChanged": True}, "_meta": META}
        self._say({"id": 1, "method": method, "params": params})
        self._stream_opened()

    def modern(self, method: str, name: str = "") -> None:
        """Speak MCP 2026-07-28 from here on, without a session, and ask for nothing but this."""
        self.headers |= {"Mcp-Protocol-Version": MODERN, "Mcp-Method": method}
        if name:
            self.headers["Mcp-Name"] = name

    def _stream_opened(self) -> None:
        head = self._until(b"\r\n\r\n")
        if head[9] != OK or b"text/event-stream" not in head:
            raise Unmeasurable(f"a stream was refused: {head + self._held!r}")

    def is_over(self, piece: memoryview) -> bool:
        """Of a refusal nothing more is wanted."""
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
    """A message in each frame."""

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
        """Not to be seen from a piece."""
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
    """The head of a client's frame with a text of so many bytes."""
    if size < LENGTH_16:
        return bytes((TEXT, MASKED | size)) + NO_MASK
    if size < 1 << 16:
        return bytes((TEXT, MASKED | LENGTH_16)) + size.to_bytes(2, "big") + NO_MASK
    return bytes((TEXT, MASKED | LENGTH_64)) + size.to_bytes(8, "big") + NO_MASK
