"""A client that comes in by HTTP, to the fault suite a stream of lines like any other.

Each line is posted in one session over a connection of its own, as SDKs do; what is answered is a line again.
"""

import json
from collections.abc import Iterator
from contextlib import suppress

import h11
import trio

TOKEN = "0123456789abcdef0123"
"""Of the daemon on the stage."""

GOODBYE_SECONDS = 5.0
"""Seconds that the end of a session may take to be said."""

GONE = (OSError, trio.BrokenResourceError, trio.ClosedResourceError, h11.RemoteProtocolError)
"""What comes of a connection that has ended."""

_READ = 1 << 20

_INITIALIZE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "faults", "version": "1"},
}


class _Exchange:
    """A connection, and what is under way on it."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self.session = ""
        self._http = h11.Connection(h11.CLIENT)

    async def send(self, method: str, session: str, body: bytes = b"") -> None:
        headers = [
            ("host", "localhost"),
            ("authorization", f"Bearer {TOKEN}"),
            ("accept", "application/json, text/event-stream"),
            ("content-type", "application/json"),
            ("content-length", str(len(body))),
            *([("mcp-session-id", session)] if session else []),
        ]
        parts = [
            self._http.send(h11.Request(method=method, target="/mcp", headers=headers)),
            self._http.send(h11.Data(data=body)),
            self._http.send(h11.EndOfMessage()),
        ]
        await self.stream.send_all(b"".join(part or b"" for part in parts))

    async def receive(self) -> list[bytes]:
        """The lines of the response."""
        kind, pieces = b"", []
        while not isinstance(event := self._http.next_event(), h11.EndOfMessage):
            if event is h11.NEED_DATA:
                self._http.receive_data(await self.stream.receive_some(_READ))
            elif isinstance(event, h11.Response):
                headers = dict(event.headers)
                kind, self.session = (
                    headers.get(b"content-type", b""),
                    headers.get(b"mcp-session-id", b"").decode(),
                )
            elif isinstance(event, h11.Data):
                pieces.append(bytes(event.data))
            else:
                raise trio.BrokenResourceError("the daemon closed the connection")
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
        return list(_lines(kind, b"".join(pieces)))

    @property
    def is_reusable(self) -> bool:
        return self._http.our_state is h11.IDLE


def _lines(kind: bytes, body: bytes) -> Iterator[bytes]:
    if kind == b"application/json":
        yield body
    elif kind == b"text/event-stream":
        for line in body.split(b"\n"):
            name, _, data = line.partition(b": ")
            if name == b"data" and data:
                yield data
    elif body:
        raise trio.BrokenResourceError(f"refused: {body[:200]!r}")


class HttpLines(trio.abc.HalfCloseableStream):
    """One session, as a stream of lines."""

    def __init__(self, port: int, nursery: trio.Nursery) -> None:
        """Begin with the first line that is sent; `nursery` has a task for each request under way."""
        self._port = port
        self._nursery = nursery
        self._session = ""
        self._rest = b""
        self._open: set[_Exchange] = set()
        self._idle: list[_Exchange] = []
        self._heard, self._hears = trio.open_memory_channel[bytes](float("inf"))

    async def begin(self) -> None:
        """Open the session."""
        exchange = await self._free()
        request = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": _INITIALIZE}
        await exchange.send("POST", "", json.dumps(request).encode())
        await exchange.receive()
        self._session = exchange.session
        self._idle.append(exchange)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Post what has become lines; each is written before this returns, so their order is kept."""
        *lines, self._rest = (self._rest + bytes(data)).split(b"\n")
        for line in lines:
            exchange = await self._free()
            await exchange.send("POST", self._session, line)
            self._nursery.start_soon(self._finish, exchange)

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Answers."""
        try:
            return await self._hears.receive()
        except trio.EndOfChannel:
            return b""

    async def wait_send_all_might_not_block(self) -> None:
        """Be ready."""
        await trio.lowlevel.checkpoint()

    async def send_eof(self) -> None:
        """Leave: there is no half of a session."""
        await self.aclose()

    async def aclose(self) -> None:
        """End the session and all its connections."""
        session, self._session = self._session, ""
        if session:
            with trio.CancelScope(shield=True), suppress(*GONE), trio.move_on_after(GOODBYE_SECONDS):
                exchange = await self._free()
                await exchange.send("DELETE", session)
                await exchange.receive()
        for each in self._open:
            each.stream.socket.close()  # Without a checkpoint, at which only the first would be closed.
        self._heard.close()
        self._hears.close()

    async def _free(self) -> _Exchange:
        if self._idle:
            return self._idle.pop()
        exchange = _Exchange(await trio.open_tcp_stream("127.0.0.1", self._port))
        self._open.add(exchange)
        return exchange

    async def _finish(self, exchange: _Exchange) -> None:
        try:
            for line in await exchange.receive():
                self._heard.send_nowait(line + b"\n")
        except GONE:
            self._heard.close()
            return
        if exchange.is_reusable:
            self._idle.append(exchange)
