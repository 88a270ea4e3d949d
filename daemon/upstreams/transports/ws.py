"""A server behind a WebSocket: one JSON-RPC message per WebSocket message, subprotocol `mcp`.

The library assembles messages and answers the protocol's own pings; whether the server is alive is asked at
the level of MCP. A message over the limit ends the connection with close code 1009: the library skips none.
"""

from __future__ import annotations

import math
import ssl
from collections import deque
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import h11
import trio
import wsproto.utilities
from trio_websocket import ConnectionClosed, ConnectionRejected, wrap_client_stream

from daemon.causes import Cause
from daemon.errors import ConnectionLost, leaf
from daemon.upstreams.transports.network import connect, host_and_port, place_of, refused
from daemon.upstreams.transports.raw import UPSTREAM_QUEUE_BYTES, RawConnection
from daemon.wire.frames import HEAD_BYTES, as_line

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from trio_websocket import CloseReason, WebSocketConnection

    from daemon.config.model import Server
    from daemon.upstreams.transports.network import Stream
    from daemon.upstreams.transports.opening import OpenContext
    from daemon.wire.envelope import Buffer
    from daemon.wire.outbox import Outbox, Receiver

SUBPROTOCOL = "mcp"

GOODBYE_SECONDS = 1.0
"""How long the server has to answer our close frame: it is a courtesy, and a stop waits for it."""

UNHEARD_SECONDS = 0.1
"""For sending it when we are being cancelled: so is the library's reader, and no answer would be heard."""

RECEIVE_BYTES = 256 * 1024
"""One read from the socket; the library's 4 KiB would make 4000 reads of one large message."""

POLICY, TOO_BIG = 1008, 1009
"""The close codes for a client that is not wanted, and for a message over the limit (RFC 6455, 7.4.1)."""


@asynccontextmanager
async def open_connection(context: OpenContext) -> AsyncIterator[RawConnection]:
    """Connect and shake hands; say goodbye on the way out.

    Raises:
        CannotStart: the url is wrong, or the server's certificate is not trusted.
        NeedsAuth: the server answered 401 or 403.
        ConnectionLost: it could not be reached just now, or what answers there is no WebSocket server.
    """
    server = context.server
    host, port = host_and_port(server.url or "", "ws", "wss")
    place = place_of(host, port)
    link: MessageLink | None = None
    try:
        async with trio.open_nursery() as nursery:
            stream, socket = await _open(nursery, server, host, port)
            link = MessageLink(
                socket, outbox=context.outbox, place=place, max_message=server.limits.message_bytes
            )
            try:
                yield RawConnection(link, outbox=context.outbox, events=context.events)
            finally:
                await _say_goodbye(socket, stream)
                nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        error = leaf(group)
        if isinstance(error, ConnectionRejected):
            raise refused(error.status_code, place) from None
        if link is None and isinstance(error, h11.ProtocolError | wsproto.utilities.ProtocolError):
            text = f"{place} does not speak WebSocket: {error}"
            raise ConnectionLost(text, Cause.CANNOT_CONNECT, place=place, error=str(error)) from None
        raise error from None


async def _open(
    nursery: trio.Nursery, server: Server, host: str, port: int
) -> tuple[Stream, WebSocketConnection]:
    """Both handshakes. The library reads in the nursery, where a rejection comes up."""
    seconds = server.timeouts.connect
    parts = urlsplit(server.url or "")
    stream: Stream | None = None
    try:
        with trio.fail_after(seconds):
            tls = ssl.create_default_context() if parts.scheme == "wss" else None
            stream = await connect(host, port, tls)
            socket = await wrap_client_stream(
                nursery,
                stream,
                parts.netloc.rpartition("@")[2],
                (parts.path or "/") + (f"?{parts.query}" if parts.query else ""),
                subprotocols=[SUBPROTOCOL],
                extra_headers=[(name.encode(), value.encode()) for name, value in server.headers.items()],
                max_message_size=server.limits.message_bytes,
                receive_buffer_size=RECEIVE_BYTES,
            )
    except BaseException as error:
        if stream is not None:
            await trio.aclose_forcefully(stream)
        if isinstance(error, trio.TooSlowError):
            place = place_of(host, port)
            text = f"{place} did not open a WebSocket within {seconds:g} s"
            raise ConnectionLost(text, Cause.CONNECT_TIMEOUT, place=place) from None
        raise
    return stream, socket


async def _say_goodbye(socket: WebSocketConnection, stream: Stream) -> None:
    """Close politely for a moment, then for good. Shielded: a stop is no reason to leave without a word."""
    unheard = trio.current_effective_deadline() == -math.inf
    with trio.move_on_after(UNHEARD_SECONDS if unheard else GOODBYE_SECONDS, shield=True):
        await socket.aclose()
    # The library leaves the stream open when it has refused a message that was too big.
    await trio.aclose_forcefully(stream)


class MessageLink:
    """`wire.link.Link` over a WebSocket. A frame is one text message."""

    def __init__(
        self,
        socket: WebSocketConnection,
        *,
        outbox: Outbox,
        place: str,
        max_message: int,
        max_queue: int = UPSTREAM_QUEUE_BYTES,
    ) -> None:
        """Attach to an open socket that somebody else closes.

        Args:
            socket: an open WebSocket.
            outbox: the daemon's one outbox.
            place: the server's name in texts.
            max_message: bytes of the longest message taken from the server.
            max_queue: bytes that may wait for the server before it is cut off.
        """
        self.queued = 0
        self.turns = 0
        self.is_held = False
        self._outbox = outbox
        self._socket = socket
        self._place = place
        self._max_message = max_message
        self._max_queue = max_queue
        self._out: deque[bytes] = deque()
        self._kick = trio.Event()
        self._cut = trio.Event()
        self._resumed = trio.Event()
        self._done = False

    def send(self, frame: Sequence[Buffer], request_id: bytes | None = None, *, ends: bool = False) -> None:
        """Queue one frame, of any size if the queue is empty. A task writes it, as masking takes long."""
        if self._done:
            return
        if self.queued > self._max_queue:
            self._cut.set()
            return
        message = b"".join(frame)
        self._out.append(message)
        self.queued += len(message)
        self._kick.set()

    async def run(self, receiver: Receiver) -> None:
        """Read and write until either side closes."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._write)
                nursery.start_soon(self._watch_queue)
                await self._read(receiver)
        except BaseExceptionGroup as group:
            error = leaf(group)
            if isinstance(error, ConnectionClosed):
                raise self._farewell(error.reason) from None
            raise error from None
        finally:
            self._done = True
            self._outbox.forget(self)
            self._out.clear()
            self.queued = 0

    async def _read(self, receiver: Receiver) -> None:
        while True:
            received = await self._socket.get_message()
            message = received.encode() if isinstance(received, str) else received
            # The library counts characters, we count bytes.
            if len(message) > self._max_message:
                receiver.on_oversized(message[:HEAD_BYTES])
            else:
                self._outbox.slow.clear()
                receiver.on_lines([as_line(message)])
                if self._outbox.slow and self._outbox.hold(self):
                    self.is_held, self._resumed = True, trio.Event()
                    await self._resumed.wait()

    def resume(self) -> None:
        """Read again: those who were behind have caught up (`wire.outbox.Pausable`)."""
        self.is_held = False
        self._resumed.set()

    async def _write(self) -> None:
        while True:
            await self._kick.wait()
            self._kick = trio.Event()
            while self._out:
                message = self._out.popleft()
                await self._socket.send_message(message.decode())
                self.queued -= len(message)

    async def _watch_queue(self) -> None:
        """The writer cannot cut off a server that does not read: it is waiting for it."""
        await self._cut.wait()
        text = f"{self._place} does not read: {self.queued} bytes are waiting for it"
        raise ConnectionLost(text, Cause.NOT_READING)

    def _farewell(self, closing: CloseReason | None) -> ConnectionLost:
        if closing is None:
            return ConnectionLost(f"{self._place} closed the WebSocket")
        if closing.code == TOO_BIG:
            text = f"a message of {self._place} or to it was over the limit: {closing.reason} (close code 1009)"
            return ConnectionLost(text, Cause.MESSAGE_TOO_LARGE)
        said = f": {closing.reason}" if closing.reason else ""
        text = f"{self._place} closed the WebSocket with code {closing.code} ({closing.name}){said}"
        cause = Cause.WEBSOCKET_REFUSED if closing.code == POLICY else Cause.CONNECTION_LOST
        return ConnectionLost(text, cause, place=self._place)
