"""A link over an open WebSocket, from either side: wsproto frames, the poll of all links reads and writes.

A ready link reads a chunk and hands its messages synchronously to its owner. It ends its turn after
`TURN_SECONDS`, as one read holds many pongs, and continues after every other link. After a close frame or a
fault of the peer nothing is handed over; no frame is torn.
"""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import trio
from wsproto.connection import Connection, ConnectionState
from wsproto.events import BytesMessage, CloseConnection, Event, Ping, TextMessage
from wsproto.frame_protocol import CloseReason

from daemon.causes import Cause
from daemon.errors import ConnectionLost, ProtocolFault
from daemon.wire.envelope import Buffer, as_line
from daemon.wire.link import CLOSED, FdWriter
from daemon.wire.outbox import IN, OUT, TURN_SECONDS, Outbox, Receiver

READ_BYTES = 16 * 1024  # bytes of one read

MAX_PIECES = 64 * 1024  # pieces of a message, 4 MiB of objects: 16 MiB in packets of 1,500 bytes are 11,000

GOODBYE_SECONDS = 1.0  # time for the peer to take our close frame and hang up: a courtesy that others wait for

HURRIED_SECONDS = 0.1  # the same during cancellation: a stop waits for all links


class _Messages:
    """Joins the pieces of a peer's messages."""

    def __init__(self, most: int, *, takes_bytes: bool) -> None:
        self._most = most
        self._takes_bytes = takes_bytes
        self._pieces: list[Any] = []
        self._size = 0

    def take(self, event: TextMessage | BytesMessage) -> bytes | CloseConnection | None:
        """Take a piece; return the message that it ends, if any, or what closes the link of a faulty peer."""
        self._pieces.append(event.data)
        self._size += len(event.data)
        if isinstance(event, BytesMessage) and not self._takes_bytes:
            return CloseConnection(CloseReason.UNSUPPORTED_DATA, "messages must be text")
        if len(self._pieces) > MAX_PIECES:
            text = f"a message may have at most {MAX_PIECES} pieces"
            return CloseConnection(CloseReason.MESSAGE_TOO_BIG, text)
        message = b""
        if event.message_finished:
            joined = self._pieces[0][:0].join(self._pieces)
            message = joined.encode() if isinstance(joined, str) else joined
            self._pieces, self._size = [], 0
        if max(self._size, len(message)) > self._most:
            text = f"a message may have at most {self._most} bytes"
            return CloseConnection(CloseReason.MESSAGE_TOO_BIG, text)
        return message if event.message_finished else None


class WebSocketLink:
    """A link over a non-blocking descriptor, which it owns. Each frame is one text message."""

    def __init__(
        self,
        fd: int,
        frames: Connection,
        *,
        outbox: Outbox,
        max_message: int,
        max_queue: int,
        pause_at: int | None = None,
        place: str = "the peer",
        hello: bytes = b"",
    ) -> None:
        """Take over a descriptor after the opening handshake; `hello` precedes the peer's lines.

        `frames` may hold bytes that came with the handshake. Bounds are bytes.
        """
        self.writer = FdWriter(self, fd, outbox=outbox, max_queue=max_queue, pause_at=pause_at)
        self.writer.on_stuck = self._cut_off
        self.turns = 0
        self.is_held = False
        self.was_heard = False  # whether the peer has sent anything since this was last cleared
        self.closing: CloseConnection | None = None  # the close code and reason decided here or by the peer
        self._frames = frames
        self._outbox = outbox
        self._poll = outbox.poll if frames.client else outbox.poll.guests  # anybody may be a client
        self._messages = _Messages(max_message, takes_bytes=frames.client)
        self._place = place
        self._hello = hello
        self._receiver: Receiver | None = None
        self._reads = self._behind = False

    @property
    def queued(self) -> int:
        """Bytes that wait for the peer."""
        return self.writer.queued

    def waiting(self, _request_id: bytes | None = None, /) -> float:
        """Bytes that wait for the peer (`wire.outbox.Link.waiting`)."""
        return self.writer.queued

    def send(self, frame: Sequence[Buffer], request_id: bytes | None = None, *, ends: bool = False) -> None:
        """Queue one message. A message of any size fits an empty queue."""
        self._queue(TextMessage(data=b"".join(frame).decode(errors="replace")))

    def ping(self) -> None:
        """Ask the peer for a sign of life."""
        self._queue(Ping())
        self.writer.flush()

    async def run(self, receiver: Receiver) -> None:
        """Read and write until the peer hangs up, breaks or is cut off, or either side closes the WebSocket."""
        self._receiver = receiver
        try:
            self.rewatch()
            if self._hello:
                _attempt(self.writer, lambda: receiver.on_lines([self._hello]))
            _attempt(self.writer, self._take_frames)
            self._outbox.flush()
            await self.writer.until_ended()
        except OSError as error:
            raise ConnectionLost(f"waiting for it failed: {error.strerror}") from None
        finally:
            self._receiver = None
            self.rewatch()
        assert self.writer.reason is not None
        raise self.writer.reason

    def resume(self) -> None:
        """Read again: the links that were behind have caught up."""
        self.is_held = False
        self.look_again()

    def look_again(self) -> None:
        """Go on after every other link's turn (`wire.link.WriterOwner`)."""
        if not self._behind:
            self._behind = True
            self._poll.soon(self._catch_up)
            self._outbox.poll.ring()
        self.rewatch()

    def rewatch(self) -> None:
        """Have the poll watch for reading, writing, both or neither (`wire.link.WriterOwner`)."""
        self._reads = self._may_go_on() and not self._behind
        reads, writes = IN if self._reads else 0, OUT if self.writer.is_blocked else 0
        if self.writer.fd != CLOSED:
            self._poll.watch(self.writer.fd, reads | writes, self._on_ready)

    def give_up(self, closing: CloseConnection, error: ConnectionLost | None = None) -> None:
        """End the link from here, or for an error of the peer's."""
        self.closing = closing
        self.writer.end(error or ConnectionLost(f"closed here: {_said(closing)}"))

    async def leave(self, closing: CloseConnection) -> None:
        """Send a close frame, `closing` unless another was decided, and wait a moment for the peer to hang up.

        Shielded: a stop still says goodbye. The caller closes the link afterwards.
        """
        writer = self.writer
        why = self.closing or _why(writer.reason)
        self._outbox.forget(self.resume)
        if writer.failure is not None or (isinstance(writer.reason, ConnectionLost) and why is None):
            return
        hurried = trio.current_effective_deadline() == -math.inf
        with trio.move_on_after(HURRIED_SECONDS if hurried else GOODBYE_SECONDS, shield=True):
            writer.end(ConnectionLost("the connection was closed here"))
            self._queue(why or closing)
            writer.flush()
            while writer.queued and writer.failure is None:
                await trio.lowlevel.wait_writable(writer.fd)
                writer.note(not writer.write())
            if writer.failure is None:
                await _until_hung_up(writer.fd)

    def close(self) -> None:
        """Close the descriptor. Idempotent."""
        self.writer.fail("the connection was closed here")
        self.writer.close()

    def _on_ready(self, ready: int) -> None:
        if self._reads and ready & ~OUT:
            _attempt(self.writer, self._read)
        if self.writer.is_blocked and ready & ~IN:
            _attempt(self.writer, lambda: self.writer.note(not self.writer.write()))

    def _may_go_on(self) -> bool:
        runs = self._receiver is not None and self.writer.reason is None
        return runs and not (self.writer.is_paused or self.is_held)

    def _catch_up(self) -> None:
        self._behind = False
        self.writer.is_paused = self.writer.is_paused or self.writer.queued > self.writer.pause_at
        if self._may_go_on():
            _attempt(self.writer, self._take_frames)
        self.rewatch()

    def _read(self) -> None:
        try:
            data = os.read(self.writer.fd, READ_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            raise ConnectionLost(f"reading failed: {error.strerror}") from None
        if not data:
            raise ConnectionLost("the peer closed the connection")
        self.was_heard = True
        self.turns += 1
        self._frames.receive_data(data)
        self._take_frames()

    def _take_frames(self) -> None:
        """Take what has been read, until the turn is over, or the peer or a link that takes lines is behind."""
        until = perf_counter() + TURN_SECONDS
        for event in self._frames.events():
            taken = self._messages.take(event) if isinstance(event, (TextMessage, BytesMessage)) else event
            if isinstance(taken, bytes):
                self._hand_over(taken)
            elif isinstance(taken, Ping):
                self._queue(taken.response())
            elif isinstance(taken, CloseConnection):
                self.give_up(taken, _lost(taken, self._place, self._frames.state))
            if not self._may_go_on():
                break
            if perf_counter() >= until or self.writer.queued > self.writer.pause_at:
                self.look_again()
                break

    def _hand_over(self, message: bytes) -> None:
        assert self._receiver is not None
        self._outbox.slow.clear()
        self._receiver.on_lines([as_line(message)])
        if self._outbox.slow and not self.writer.holds_others and self._outbox.hold(self.resume):
            self.is_held = True
            self.rewatch()

    def _queue(self, event: Event) -> None:
        state = self._frames.state
        is_answer = state is ConnectionState.REMOTE_CLOSING and isinstance(event, CloseConnection)
        if state is ConnectionState.OPEN or is_answer:
            self.writer.queue((self._frames.send(event),))

    def _cut_off(self, reason: str) -> None:
        """End the link to a peer that does not read; it still gets the rest of the frame that was begun."""
        self.writer.keep_first()
        self.closing = CloseConnection(CloseReason.POLICY_VIOLATION, "you do not read what you are sent")
        self.writer.end(ConnectionLost(reason, Cause.NOT_READING))


def _attempt(writer: FdWriter, act: Callable[[], None]) -> None:
    try:
        act()
    except Exception as error:  # noqa: BLE001 - the boundary: an exception of the owner ends this link alone
        writer.end(error)


def _lost(closing: CloseConnection, place: str, state: ConnectionState) -> ConnectionLost:
    """The loss of a link to the peer's close frame, or to a fault of the peer that one is to tell."""
    if closing.code == CloseReason.MESSAGE_TOO_BIG:
        said = f"{closing.reason} (close code {CloseReason.MESSAGE_TOO_BIG.value})"
        text = f"a message of {place} or to it was over the limit: {said}"
        return ConnectionLost(text, Cause.MESSAGE_TOO_LARGE)
    if state is ConnectionState.OPEN:
        return ConnectionLost(f"{place} broke the WebSocket protocol: {closing.reason}")
    text = f"{place} closed the WebSocket with {_said(closing)}"
    is_refusal = closing.code == CloseReason.POLICY_VIOLATION
    return ConnectionLost(text, Cause.WEBSOCKET_REFUSED if is_refusal else Cause.CONNECTION_LOST, place=place)


def _why(reason: Exception | None) -> CloseConnection | None:
    if isinstance(reason, ProtocolFault):
        return CloseConnection(CloseReason.POLICY_VIOLATION, str(reason))
    if reason is not None and not isinstance(reason, ConnectionLost):
        return CloseConnection(CloseReason.INTERNAL_ERROR, "a fault of the program's own")
    return None


def _said(closing: CloseConnection) -> str:
    name = f" ({closing.code.name})" if isinstance(closing.code, CloseReason) else ""
    return f"code {closing.code:d}{name}" + (f": {closing.reason}" if closing.reason else "")


async def _until_hung_up(fd: int) -> None:
    """Close our direction and read on: unread bytes would reset the connection and lose our close frame."""
    with socket.socket(fileno=os.dup(fd)) as connection:
        try:
            connection.shutdown(socket.SHUT_WR)
            while True:
                await trio.lowlevel.wait_readable(connection)
                if not connection.recv(READ_BYTES):
                    return
        except OSError:
            return
