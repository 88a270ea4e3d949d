"""A link over a WebSocket, from either side: trio-websocket reads it, and an `FdWriter` writes it.

The library's task shakes hands, joins frames and answers pings; mcpd's frames, made by wsproto, share one
bounded queue with the library's, unmixed. After a close frame or a fault of the peer nothing is handed over.
"""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from time import perf_counter
from typing import Any

import trio
from trio_websocket import CloseReason, ConnectionClosed, WebSocketConnection
from wsproto import ConnectionType, WSConnection
from wsproto.connection import Connection
from wsproto.events import BytesMessage, CloseConnection, Event, Ping, Pong, TextMessage

from daemon import protocol
from daemon.causes import Cause
from daemon.errors import ConnectionLost, ProtocolFault
from daemon.wire.envelope import Buffer, as_line
from daemon.wire.link import CLOSED, FdWriter
from daemon.wire.outbox import GUESTS_SECONDS, IN, OUT, TURN_SECONDS, Outbox, Receiver

Headers = Iterable[tuple[str, str]]

NORMAL, GOING_AWAY, UNSUPPORTED, ABNORMAL = 1000, 1001, 1003, 1006
POLICY, TOO_BIG, OUR_FAULT = 1008, 1009, 1011
"""Codes of RFC 6455, 7.4.1; `ABNORMAL` means that no close frame came."""

CLOSE_FRAME = 0x88  # first byte of a close frame

READ_BYTES = 16 * 1024  # bytes of one read

MAX_PIECES = 64 * 1024  # pieces of a message, 4 MiB of objects: 16 MiB in packets of 1,500 bytes are 11,000

GOODBYE_SECONDS = 1.0  # time for the peer to take our close frame and hang up: a courtesy that others wait for

HURRIED_SECONDS = 0.1  # the same during cancellation: a stop waits for all links


class WebSocketStream(trio.abc.Stream):
    """Presents a connected socket to trio-websocket, after the bytes `opening`; guests are served last."""

    def __init__(
        self,
        fd: int,
        *,
        outbox: Outbox,
        max_queue: int,
        pause_at: int | None = None,
        is_guest: bool = False,
        opening: bytes = b"",
    ) -> None:
        self.outbox = outbox
        self.writer = FdWriter(self, fd, outbox=outbox, max_queue=max_queue, pause_at=pause_at)
        self.reads = 0
        self.was_heard = False  # whether the peer has sent anything since this was last cleared
        self.said_goodbye = False  # whether the library has sent a close frame
        self.lost = ""  # the reason why nothing more comes from the peer; empty while something may
        self.over = trio.Event()  # set when nothing more comes, or the library has closed the stream
        self._is_guest = is_guest
        self._poll = outbox.poll.guests if is_guest else outbox.poll
        self._read = opening
        self._is_watched = False
        self._waits = False  # whether the library waits for bytes
        self._arrived = trio.Event()
        self._turn_seconds = GUESTS_SECONDS if is_guest else TURN_SECONDS
        self._turn_ends = math.inf
        self._moved = trio.Event()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Some of the peer's bytes, once it is this link's turn; empty at the end."""
        if not self._read:
            self.outbox.flush()
            await self._until_read()
        data, self._read = self._read, b""
        if not data:
            self.over.set()
        return data

    async def end_turn(self) -> None:
        """End this link's turn if it has lasted long enough."""
        if perf_counter() >= self._turn_ends:
            self.outbox.flush()
            if self._is_guest:
                next_turn = trio.Event()
                self.outbox.poll.guests.soon(next_turn.set)
                await next_turn.wait()
            else:
                await trio.lowlevel.checkpoint()
            self._turn_ends = perf_counter() + self._turn_seconds

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Queue a frame of the library, and wait while too many bytes wait for the peer."""
        if self.writer.reason is None:
            self.said_goodbye = self.said_goodbye or data[0] == CLOSE_FRAME
            self.writer.queue((bytes(data),))
            self.writer.flush()
            await self.wait_send_all_might_not_block()

    async def wait_send_all_might_not_block(self) -> None:
        """Wait while too many bytes wait for the peer."""
        await self.until_taken(min(self.writer.pause_at, self.writer.max_queue))

    async def aclose(self) -> None:
        """Note that the library has closed the stream; `close` closes the socket."""
        self.over.set()

    def close(self) -> None:
        """Close the socket. Idempotent."""
        self.writer.fail("the connection was closed here")
        self.writer.close()

    async def until_taken(self, most: float) -> None:
        """Return when at most `most` bytes wait for the peer, or the connection has ended."""
        while self.writer.queued > most and self.writer.reason is None:
            await self.until_moved()

    async def until_moved(self) -> None:
        """Return when the peer has caught up, `look_again` was called, or the connection has ended."""
        self._moved = trio.Event()
        await self._moved.wait()

    def rewatch(self) -> None:
        """Make the poll watch for reading, writing, both or neither (`wire.link.WriterOwner`)."""
        writer = self.writer
        if writer.reason is not None:
            self._is_watched, self._waits, self._read = False, False, b""
            self._arrived.set()
            self._moved.set()
        if writer.fd != CLOSED:
            reads = IN if self._is_watched else 0
            writes = OUT if writer.is_blocked else 0
            self._poll.watch(writer.fd, reads | writes, self._on_ready)

    def look_again(self) -> None:
        """Continue: the peer or the links that were behind have caught up (`wire.link.WriterOwner`)."""
        self._moved.set()
        self.rewatch()

    async def _until_read(self) -> None:
        if self.writer.reason is None:
            self._waits, self._arrived = True, trio.Event()
            if not self._is_watched:
                self._is_watched = True
                try:
                    self.rewatch()
                except OSError as error:
                    self.writer.end(ConnectionLost(f"cannot watch its descriptor: {error.strerror}"))
            await self._arrived.wait()
            self._turn_ends = perf_counter() + self._turn_seconds

    def _on_ready(self, ready: int) -> None:
        try:
            if not self._waits:
                self._is_watched = False  # until the library waits again
                self.rewatch()
            elif ready & ~OUT and self._read_once():
                self._waits = False
                self._arrived.set()
            if self.writer.is_blocked and ready & ~IN:
                self.writer.note(not self.writer.write())
        except Exception as error:  # noqa: BLE001 - the boundary: a fault ends this link alone
            self.writer.end(error)

    def _read_once(self) -> bool:
        """Read once; return whether bytes or the end arrived."""
        try:
            self._read = os.read(self.writer.fd, READ_BYTES)
        except BlockingIOError:
            return False
        except OSError as error:
            self.lost = f"reading failed: {error.strerror}"
            return True
        self.was_heard = True
        self.reads += 1
        if not self._read:
            self.lost = "the peer closed the connection"
        return True


class PacedConnection(WebSocketConnection):
    """A trio-websocket connection that lets others run: one read may hold many pongs, at 50 to 100 us each."""

    def __init__(
        self,
        stream: WebSocketStream,
        max_message: int,
        *,
        host: str = "",
        target: str = "",
        headers: Headers = (),
    ) -> None:
        super().__init__(
            stream,
            WSConnection(ConnectionType.CLIENT if host else ConnectionType.SERVER),
            host=host,
            path=target,
            client_subprotocols=[protocol.SUBPROTOCOL],
            client_extra_headers=[(name.encode(), value.encode()) for name, value in headers],
            max_message_size=max_message,
            receive_buffer_size=READ_BYTES,
        )
        self.stream = stream
        self.max_message = max_message
        self.is_open = False  # whether the opening handshake is done
        self._take: Callable[[str | bytes], Awaitable[None]] | None = None
        self._has_taker = trio.Event()

    def hand_to(self, take: Callable[[str | bytes], Awaitable[None]]) -> None:
        """Let the library's task hand over each message: its channel costs two task switches for each."""
        self._take = take
        self._has_taker.set()

    async def shake_hands(self, nursery: trio.Nursery) -> None:
        """Answer the handshake at the beginning of the stream, or send one; the answer may never come."""
        nursery.start_soon(self._reader_task)
        if self.is_client:
            await self._open_handshake.wait()
        else:
            await (await self._get_request()).accept(subprotocol=protocol.SUBPROTOCOL)
        self.is_open = True

    async def _handle_message_event(self, event: BytesMessage | TextMessage) -> None:
        await self.stream.end_turn()
        if len(self._message_parts) >= MAX_PIECES:
            await self._close_web_socket(TOO_BIG, f"a message may have at most {MAX_PIECES} pieces")
            raise ConnectionClosed(self.closed)
        is_too_big = self._message_size + len(event.data) > self.max_message
        if is_too_big or not event.message_finished:
            await super()._handle_message_event(event)
            return
        parts: list[Any] = [*self._message_parts, event.data]
        self._message_parts, self._message_size = [], 0
        if self._take is None:
            await self._has_taker.wait()
            assert self._take is not None
        await self._take(parts[0][:0].join(parts))

    async def _handle_ping_event(self, event: Ping) -> None:
        await self.stream.end_turn()
        await super()._handle_ping_event(event)

    async def _handle_pong_event(self, event: Pong) -> None:
        await self.stream.end_turn()
        await super()._handle_pong_event(event)


class WebSocketLink:
    """A link over an open WebSocket. Each frame is one text message."""

    def __init__(self, connection: PacedConnection, *, place: str = "the peer", hello: bytes = b"") -> None:
        """Take over a connection, which must shake hands first; `hello` precedes the peer's lines."""
        self.is_held = False
        self.closing: CloseReason | None = None  # the close code and reason decided here or by the peer
        self._connection = connection
        self._stream = stream = connection.stream
        self._writer = stream.writer
        self._writer.on_stuck = self._cut_off
        self._outbox = stream.outbox
        self._place = place
        self._hello = hello
        self._frames = Connection(ConnectionType.CLIENT if connection.is_client else ConnectionType.SERVER)

    @property
    def queued(self) -> int:
        """Bytes that wait for the peer."""
        return self._writer.queued

    @property
    def turns(self) -> int:
        """The count of reads from the peer (`wire.outbox.Link`)."""
        return self._stream.reads

    def waiting(self, _request_id: bytes | None = None, /) -> float:
        """Bytes that wait for the peer (`wire.outbox.Link.waiting`)."""
        return self._writer.queued

    def send(self, frame: Sequence[Buffer], request_id: bytes | None = None, *, ends: bool = False) -> None:
        """Queue one message. A message of any size fits an empty queue."""
        text = b"".join(frame).decode(errors="replace")
        self._queue(TextMessage(data=text))

    def ping(self) -> None:
        """Ask the peer for a sign of life."""
        self._queue(Ping())
        self._writer.flush()

    def resume(self) -> None:
        """Read again: the links that were behind have caught up."""
        self.is_held = False
        self._stream.look_again()

    async def run(self, receiver: Receiver) -> None:
        """Read and write until the connection breaks, or either side closes it or the WebSocket."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._receive, receiver)
            await self._writer.until_ended()
        assert self._writer.reason is not None
        raise self._writer.reason

    async def _receive(self, receiver: Receiver) -> None:
        try:
            if self._hello:
                receiver.on_lines([self._hello])
                self._outbox.flush()
            self._connection.hand_to(partial(self._take, receiver))
            await self._connection.get_message()
        except ConnectionClosed as closed:
            self._writer.end(self._farewell(closed.reason))
        except Exception as error:  # noqa: BLE001 - the boundary: an exception of the owner ends this link alone
            self._writer.end(error)

    async def _take(self, receiver: Receiver, message: str | bytes) -> None:
        if self._writer.reason is not None:
            return
        try:
            await self._hand_over(receiver, message)
        except ConnectionClosed as closed:
            self._writer.end(self._farewell(closed.reason))
        except Exception as error:  # noqa: BLE001 - the boundary: an exception of the owner ends this link alone
            self._writer.end(error)

    async def _hand_over(self, receiver: Receiver, message: str | bytes) -> None:
        """Hand a message over, and wait while the peer, or a link that receives its lines, is behind."""
        if isinstance(message, str):
            line = as_line(message.encode())
        elif self._connection.is_client:
            line = as_line(message)
        else:
            raise ConnectionClosed(CloseReason(UNSUPPORTED, "messages must be text"))
        if len(line) > self._connection.max_message:
            text = f"a message may have at most {self._connection.max_message} bytes"
            raise ConnectionClosed(CloseReason(TOO_BIG, text))
        self._outbox.slow.clear()
        receiver.on_lines([line])
        if self._outbox.slow or self._writer.queued > self._writer.pause_at:
            self._outbox.flush()
        if self._outbox.slow and not self._writer.holds_others:
            self.is_held = self._outbox.hold(self.resume)
        while self.is_held and self._writer.reason is None:
            await self._stream.until_moved()
        await self._stream.until_taken(self._writer.pause_at)

    def give_up(self, closing: CloseReason) -> None:
        """End the link from this side."""
        self.closing = closing
        self._writer.end(ConnectionLost(f"closed here: {_words(closing)}"))

    async def leave(self, closing: CloseReason) -> None:
        """Send a close frame (`closing` unless another is set), and wait a moment for the peer to hang up.

        Shielded, so that a stop still sends the frame. The caller closes the stream afterwards.
        """
        writer = self._writer
        why = self._why()
        self._outbox.forget(self.resume)
        if writer.failure is not None or (isinstance(writer.reason, ConnectionLost) and why is None):
            return
        hurried = trio.current_effective_deadline() == -math.inf
        with trio.move_on_after(HURRIED_SECONDS if hurried else GOODBYE_SECONDS, shield=True):
            writer.end(ConnectionLost("the connection was closed here"))
            if not self._stream.said_goodbye:
                self._queue(CloseConnection((why or closing).code, (why or closing).reason))
            writer.flush()
            while writer.queued and writer.failure is None:
                await trio.lowlevel.wait_writable(writer.fd)
                writer.note(not writer.write())
            if writer.failure is None:
                await _until_hung_up(writer.fd)

    def _why(self) -> CloseReason | None:
        reason = self._writer.reason
        if self.closing is None and isinstance(reason, ProtocolFault):
            return CloseReason(POLICY, str(reason))
        if self.closing is None and reason is not None and not isinstance(reason, ConnectionLost):
            return CloseReason(OUR_FAULT, "internal error")
        return self.closing

    def _queue(self, event: Event) -> None:
        if not self._stream.said_goodbye:
            self._writer.queue((self._frames.send(event),))

    def _farewell(self, reason: CloseReason | None) -> ConnectionLost:
        if reason is None or reason.code == ABNORMAL:
            return ConnectionLost(self._stream.lost or "the connection broke")
        self.closing = reason
        if reason.code == TOO_BIG:
            detail = f"{reason.reason} (close code {TOO_BIG})"
            text = f"a message from {self._place} or to it was over the limit: {detail}"
            return ConnectionLost(text, Cause.MESSAGE_TOO_LARGE)
        if not self._stream.said_goodbye:
            return ConnectionLost(f"{self._place} broke the WebSocket protocol: {reason.reason}")
        text = f"{self._place} closed the WebSocket with {_words(reason)}"
        cause = Cause.WEBSOCKET_REFUSED if reason.code == POLICY else Cause.CONNECTION_LOST
        return ConnectionLost(text, cause, place=self._place)

    def _cut_off(self, reason: str) -> None:
        """Disconnect a peer that does not read; it still gets the rest of the frame begun."""
        self._writer.keep_first()
        self.closing = CloseReason(POLICY, "you do not read the messages sent to you")
        self._writer.end(ConnectionLost(reason, Cause.NOT_READING))


def _words(reason: CloseReason) -> str:
    return f"code {reason.code} ({reason.name})" + (f": {reason.reason}" if reason.reason else "")


async def _until_hung_up(fd: int) -> None:
    """Close the writing side and read on: unread bytes would reset the connection and lose the close frame."""
    with socket.socket(fileno=os.dup(fd)) as connection:
        try:
            connection.shutdown(socket.SHUT_WR)
            while True:
                await trio.lowlevel.wait_readable(connection)
                if not connection.recv(READ_BYTES):
                    return
        except OSError:
            return
