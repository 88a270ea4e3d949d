"""A link over a WebSocket, from either side: the link over a descriptor, with frames in place of newlines.

Invariants, besides those of `wire.link`.
- After the last message before a close frame, or before a fault of the peer, nothing is handed over.
- `leave` sends a close frame, unless the connection is broken, behind the last frame that was begun: none is
  torn, and a peer that was cut off is told why as soon as it reads again.
"""

from __future__ import annotations

import math
import os
import socket
from typing import TYPE_CHECKING

import trio

from daemon.causes import Cause
from daemon.errors import ConnectionLost, ProtocolFault
from daemon.wire.link import LINES_AT_ONCE, READ_BYTES, SHORT_READ, FdLink
from daemon.wire.messages import (
    OUR_FAULT,
    PING,
    POLICY,
    PONG,
    TOO_BIG,
    Closing,
    MessageBuffer,
    control,
    framed,
)
from daemon.wire.outbox import GUESTS_SECONDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from daemon.wire.envelope import Buffer
    from daemon.wire.frames import Line
    from daemon.wire.outbox import Outbox, Receiver

GOODBYE_SECONDS = 1.0
"""How long the peer has to take our close frame and to hang up: it is a courtesy, and others wait for it."""

HURRIED_SECONDS = 0.1
"""The same when we are being cancelled: a stop waits for all links."""

MARK_BYTES = 64 * 1024
"""Bytes between ends of frames that are noted while the peer does not read: only one of them is needed."""


class WebSocketLink(FdLink):
    """A link over an open WebSocket. A frame of ours is one text message."""

    def __init__(
        self,
        fd: int,
        *,
        outbox: Outbox,
        max_message: int,
        max_queue: int,
        pause_at: int | None = None,
        is_client: bool = False,
        place: str = "the peer",
        unread: bytes = b"",
    ) -> None:
        """Take over the descriptor.

        Args:
            fd: a connected, non-blocking socket, the opening handshake done.
            outbox: the daemon's one outbox.
            max_message: bytes of the longest message taken from the peer.
            max_queue: bytes that may wait for the peer before it counts as behind.
            pause_at: as for any link (`FdLink`).
            is_client: whether the peer is the server.
            place: what texts call the peer.
            unread: bytes that were read from the peer together with its handshake: they come first.
        """
        super().__init__(fd, fd, outbox=outbox, max_line=max_message, max_queue=max_queue, pause_at=pause_at)
        self.closing: Closing | None = None
        """Why it is closed, as far as that was decided here or by the peer."""
        self.was_heard = False
        """Whether anything has come from the peer since this was last cleared."""
        self._is_client = is_client
        if not is_client:
            self._poll, self._turn_seconds = outbox.poll.guests, GUESTS_SECONDS
        self._place = place
        self._unread = unread
        self._messages = self._lines = MessageBuffer(max_message, is_client=is_client)
        self._written = 0
        """Bytes queued, ever."""
        self._ends: list[int] = []
        """While the peer does not read: values of `_written` between two frames."""

    @property
    def is_read(self) -> bool:
        """Whether the peer is read from now."""
        return self._reading

    def send(self, frame: Sequence[Buffer], request_id: bytes | None = None, *, ends: bool = False) -> None:
        """Queue one message. A message of any size fits an empty queue."""
        self._queue(framed(tuple(frame), masked=self._is_client))

    def ping(self) -> None:
        """Have the peer show that it is there."""
        self._queue((control(PING, b"", masked=self._is_client),))
        self.flush()

    async def run(self, receiver: Receiver) -> None:
        """Read and write until the peer hangs up, breaks, is cut off, or either side closes the WebSocket."""
        lines = self._messages.feed(self._unread)
        self._unread = b""
        for start in range(0, len(lines), LINES_AT_ONCE):
            receiver.on_lines(lines[start : start + LINES_AT_ONCE])
            self._outbox.flush()
            await trio.lowlevel.checkpoint()
        self._obey()
        await super().run(receiver)

    def give_up(self, closing: Closing) -> None:
        """End the link from here."""
        self.closing = closing
        self._end(ConnectionLost(f"closed here: {closing}"))

    async def leave(self, closing: Closing) -> None:
        """Say why we go, with `closing` if nothing else was decided, and wait a moment for the peer to hang up.

        Shielded: a stop is no reason to leave without a word. The caller closes the link afterwards.
        """
        if self._failure is not None or self._closed:
            return
        hurried = trio.current_effective_deadline() == -math.inf
        with trio.move_on_after(HURRIED_SECONDS if hurried else GOODBYE_SECONDS, shield=True):
            why = self._why()
            if isinstance(self._reason, ConnectionLost) and why is None:
                return
            self._queue(((why or closing).frame(masked=self._is_client),))
            self.flush()
            while self.queued and self._failure is None:
                await trio.lowlevel.wait_writable(self._write_fd)
                self._note(not self._write())
            if self._failure is None:
                await _until_hung_up(self._read_fd)

    def _why(self) -> Closing | None:
        """Why the link has ended, as far as it knows."""
        if self.closing is None and isinstance(self._reason, ProtocolFault):
            return Closing(POLICY, str(self._reason))
        if self.closing is None and self._reason is not None and not isinstance(self._reason, ConnectionLost):
            return Closing(OUR_FAULT, "a fault of the program's own")
        return self.closing

    def _queue(self, frame: tuple[Buffer, ...]) -> None:
        if self._failure is not None or self._write_closed:
            return
        if self._blocked:
            if not self._ends or self._written - self._ends[-1] >= MARK_BYTES:
                self._ends.append(self._written)
        elif self._ends:
            self._ends.clear()
        size = sum(map(len, frame))
        self._out += frame
        self.queued += size
        self._written += size
        self._note_queued()

    def _read(self, most: int) -> bytes:
        """Read much at once only within a message: a read may hold as many messages as it has room for."""
        missing = min(self._messages.missing, READ_BYTES)
        return super()._read(max(missing, SHORT_READ))

    def _hand_over(self, lines: list[Line]) -> None:
        self.was_heard = True
        super()._hand_over(lines)
        self._obey()

    def _obey(self) -> None:
        """Do what control frames ask for, once the messages before them are handed over."""
        messages = self._messages
        if messages.ping is not None:
            self._queue((control(PONG, messages.ping, masked=self._is_client),))
            messages.ping = None
        if messages.closing is not None and not self._rest:
            self.closing = messages.closing
            raise self._farewell(messages.closing, by_peer=messages.is_closed_by_peer)

    def _farewell(self, closing: Closing, *, by_peer: bool) -> ConnectionLost:
        if closing.code == TOO_BIG:
            said = f"{closing.reason} (close code {TOO_BIG})"
            text = f"a message of {self._place} or to it was over the limit: {said}"
            return ConnectionLost(text, Cause.MESSAGE_TOO_LARGE)
        if not by_peer:
            return ConnectionLost(f"{self._place} broke the WebSocket protocol: {closing.reason}")
        text = f"{self._place} closed the WebSocket with {closing}"
        cause = Cause.WEBSOCKET_REFUSED if closing.code == POLICY else Cause.CONNECTION_LOST
        return ConnectionLost(text, cause, place=self._place)

    def _fail(self, reason: str, cause: Cause = Cause.CONNECTION_LOST) -> None:
        """End the link; a peer that is cut off still gets the rest of the frame that it has begun to read."""
        if cause is not Cause.NOT_READING:
            super()._fail(reason, cause)
            return
        taken = self._written - self.queued
        end = next((end for end in self._ends if end >= taken), self._written)
        self._cut(end - taken)
        self.closing = Closing(POLICY, "you do not read what you are sent")
        self._end(ConnectionLost(reason, cause))

    def _cut(self, size: int) -> None:
        """Keep so many bytes of the queue."""
        kept: list[Buffer] = []
        for each in self._out:
            if size <= 0:
                break
            kept.append(memoryview(each)[:size])
            size -= len(each)
        dropped = self.queued - sum(map(len, kept))
        self._out[:] = kept
        self.queued -= dropped
        self._written -= dropped
        self._outbox.catch_up(self)


async def _until_hung_up(fd: int) -> None:
    """Close our direction, and read until the peer has closed its own.

    Bytes left unread would reset the connection, and the peer could lose our close frame.
    """
    with socket.socket(fileno=os.dup(fd)) as connection:
        try:
            connection.shutdown(socket.SHUT_WR)
            while True:
                await trio.lowlevel.wait_readable(connection)
                if not connection.recv(READ_BYTES):
                    return
        except OSError:
            return
