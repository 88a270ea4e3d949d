"""A link over a WebSocket, from either side: the link over a descriptor, with frames in place of newlines.

Most messages are one frame that comes whole, and cost one slice and one XOR; the pieces of all others go into a
`LineBuffer` as they come. No extension is offered, so no frame is compressed (RFC 6455, section 5).

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

import msgspec
import trio

from daemon.causes import Cause
from daemon.errors import ConnectionLost, ProtocolFault
from daemon.wire.envelope import is_utf8
from daemon.wire.frames import LineBuffer, as_line
from daemon.wire.link import LINES_AT_ONCE, READ_BYTES, SHORT_READ, FdLink

if TYPE_CHECKING:
    from collections.abc import Sequence

    from daemon.wire.envelope import Buffer
    from daemon.wire.frames import Line
    from daemon.wire.outbox import Outbox, Receiver


NORMAL, GOING_AWAY, PROTOCOL_ERROR, UNSUPPORTED = 1000, 1001, 1002, 1003
NO_CODE = 1005
"""Stands for a close frame without a code; it is never sent."""
NOT_TEXT, POLICY, TOO_BIG, OUR_FAULT = 1007, 1008, 1009, 1011

NAMES = {
    1000: "NORMAL_CLOSURE",
    1001: "GOING_AWAY",
    1002: "PROTOCOL_ERROR",
    1003: "UNSUPPORTED_DATA",
    1005: "NO_STATUS_RCVD",
    1007: "INVALID_FRAME_PAYLOAD_DATA",
    1008: "POLICY_VIOLATION",
    1009: "MESSAGE_TOO_BIG",
    1010: "MANDATORY_EXT",
    1011: "INTERNAL_ERROR",
    1012: "SERVICE_RESTART",
    1013: "TRY_AGAIN_LATER",
    1014: "BAD_GATEWAY",
}
"""The codes of RFC 6455, 7.4.1, and those that were registered after it."""

_SENDABLE = frozenset(NAMES) - {NO_CODE}
_PRIVATE = range(3000, 5000)
"""Codes of libraries and applications."""

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = _OPCODES = (0x0, 0x1, 0x2, 0x8, 0x9, 0xA)
FIN, RESERVED, OPCODE, CONTROL = 0x80, 0x70, 0x0F, 0x08
MASKED, LENGTH = 0x80, 0x7F
WHOLE_TEXT = FIN | TEXT

SHORT, TWO_BYTES = 125, 126
"""The longest length that stands in its own byte, as that of each control frame does; and what says that two
bytes follow."""
KEY_BYTES = 4

MAX_ODD = 1024
"""Control frames and fragments taken from one read, a millisecond; who sends more keeps the loop busy with
nothing. A read that is not the middle of a message has 16 KiB."""

MAX_REASON = SHORT - 2
"""Bytes of a reason in a close frame."""

SHORT_MASKED = 8192
"""Bytes up to which one XOR of integers is quicker than four tables of bytes."""

_TABLES = tuple(bytes(byte ^ key for byte in range(256)) for key in range(256))


class Closing(msgspec.Struct, frozen=True):
    """Why a WebSocket is closed: what its close frame says."""

    code: int
    reason: str

    def __str__(self) -> str:
        said = f": {self.reason}" if self.reason else ""
        return f"code {self.code} ({NAMES.get(self.code, 'not registered')}){said}"

    def frame(self, *, masked: bool) -> bytes:
        """The close frame that says so; a code that stands for none is answered with none."""
        if self.code == NO_CODE:
            return control(CLOSE, b"", masked=masked)
        reason = self.reason.encode()[:MAX_REASON].decode(errors="ignore").encode()
        return control(CLOSE, self.code.to_bytes(2, "big") + reason, masked=masked)


def unmasked(data: bytes, key: bytes) -> bytes:
    """The payload without its mask, or with it (RFC 6455, 5.3); as it is if there is no key."""
    if not key:
        return data
    size = len(data)
    if size <= SHORT_MASKED:
        mask = int.from_bytes((key * (size // KEY_BYTES + 1))[:size], "little")
        return (int.from_bytes(data, "little") ^ mask).to_bytes(size, "little")
    found = bytearray(size)
    for first, each in enumerate(key):
        found[first::KEY_BYTES] = data[first::KEY_BYTES].translate(_TABLES[each])
    return bytes(found)


def head_of(first: int, size: int, mask: int) -> bytes:
    """The beginning of a frame: its first byte, its length, and whether a mask follows."""
    if size <= SHORT:
        return bytes((first, mask | size))
    if size < 1 << 16:
        return bytes((first, mask | TWO_BYTES)) + size.to_bytes(2, "big")
    return bytes((first, mask | LENGTH)) + size.to_bytes(8, "big")


def control(opcode: int, payload: bytes, *, masked: bool) -> bytes:
    """A control frame."""
    return b"".join(framed((payload,), FIN | opcode, masked=masked))


def framed(parts: tuple[Buffer, ...], first: int = WHOLE_TEXT, *, masked: bool) -> tuple[Buffer, ...]:
    """One whole frame, in parts: what a client sends is masked, what a server sends is not."""
    if masked:
        payload = b"".join(parts)
        key = os.urandom(KEY_BYTES)
        return (head_of(first, len(payload), MASKED), key, unmasked(payload, key))
    if len(parts) == 1 and len(parts[0]) <= SHORT_MASKED:
        return (b"".join((head_of(first, len(parts[0]), 0), parts[0])),)
    return (head_of(first, sum(map(len, parts)), 0), *parts)


class MessageBuffer:
    """Turns chunks into messages, each as a line; stops at whatever closes the WebSocket.

    It stands where a `LineBuffer` does, and has none that are `oversized`: they close the WebSocket.
    """

    def __init__(self, max_line: int, *, is_client: bool) -> None:
        """Start between two messages.

        Args:
            max_line: bytes of the longest message taken.
            is_client: whether we are the client: a server's frames are not masked, and a binary message of a
                server may be JSON.
        """
        self.max_line = max_line
        self.oversized: list[bytes] = []
        self.closing: Closing | None = None
        """What closes the WebSocket; nothing after it is taken."""
        self.is_closed_by_peer = False
        self.ping: bytes | None = None
        """The newest ping without an answer; older ones need none (RFC 6455, 5.5.3)."""
        self.missing = 0
        """Bytes of the frame under way that have not come."""
        self._is_client = is_client
        self._head = b""
        self._pieces = LineBuffer(max_line)
        self._key = b""
        self._open = self._is_last = False

    @property
    def held(self) -> int:
        """Bytes of the unfinished message in memory."""
        return self._pieces.held + len(self._head)

    def next_read(self, _most: int) -> int:
        """Much at once only within a message: a read may hold as many messages as it has room for."""
        return max(min(self.missing, READ_BYTES), SHORT_READ)

    def drop(self) -> None:
        """Forget the unfinished message."""
        self._head = b""
        self._pieces.drop()

    def feed(self, chunk: bytes) -> list[Line]:
        """Add a chunk; return the messages that it completed, oldest first."""
        lines: list[Line] = []
        if self._head:
            chunk, self._head = self._head + chunk, b""
        at, size, odd = self._go_on(chunk, lines) if self.missing else 0, len(chunk), 0
        while at < size and self.closing is None:
            first, length, start = _read_head(chunk, at)
            if not start:
                self._head = chunk[at:]
                break
            end, is_masked = start + length, chunk[at + 1] >= MASKED
            key = chunk[start - KEY_BYTES : start] if is_masked else b""
            is_usual = first == WHOLE_TEXT and is_masked is not self._is_client and not self._open
            if is_usual and end <= size and length <= self.max_line:
                self._take(as_line(unmasked(chunk[start:end], key)), lines)
                at = end
                continue
            odd += 1
            if fault := self._fault_of(first, length, is_masked=is_masked):
                self._refuse(*fault)
            elif odd > MAX_ODD:
                self._refuse(POLICY, "too many control frames or fragments at once")
            elif not first & CONTROL:
                self._open, self._is_last = True, first & FIN != 0
                self.missing, self._key = length, key
                at = start + self._go_on(chunk[start:end], lines, fresh=True)
            elif end > size:
                self._head = chunk[at:]
                break
            else:
                self._control(first & OPCODE, unmasked(chunk[start:end], key))
                at = end
        return lines

    def _go_on(self, chunk: bytes, lines: list[Line], *, fresh: bool = False) -> int:
        """Take what belongs to the frame under way. Returns how many bytes did."""
        piece = chunk[: self.missing]
        taken = len(piece)
        if not taken and not fresh:
            return 0
        self.missing -= taken
        if piece:
            self._pieces.feed(as_line(unmasked(piece, self._key)))
            turn = taken % KEY_BYTES
            self._key = self._key[turn:] + self._key[:turn]
        if self._is_last and not self.missing:
            self._open = self._is_last = False
            (line,) = self._pieces.feed(b"\n")
            self._take(line, lines)
        return taken

    def _take(self, line: Line, lines: list[Line]) -> None:
        """A message is complete."""
        if not is_utf8(line):
            self._refuse(NOT_TEXT, "a text message must be UTF-8")
        else:
            lines.append(line)

    def _fault_of(self, first: int, length: int, *, is_masked: bool) -> tuple[int, str] | None:
        """What is wrong with a frame by its head; None if nothing is."""
        opcode, fault = first & OPCODE, ""
        if first & RESERVED or opcode not in _OPCODES:
            fault = "a reserved bit or opcode was used"
        elif is_masked is self._is_client:
            fault = "a server's frame was masked" if is_masked else "a client's frame was not masked"
        elif opcode & CONTROL:
            fault = "" if first & FIN and length <= SHORT else "a control frame was fragmented or too long"
        elif self._open is not (opcode == CONTINUATION):
            fault = "a message began within another, or a fragment belongs to none"
        elif opcode == BINARY and not self._is_client:
            return UNSUPPORTED, "messages must be text"
        elif self._pieces.held + length > self.max_line:
            return TOO_BIG, f"a message may have at most {self.max_line} bytes"
        return (PROTOCOL_ERROR, fault) if fault else None

    def _control(self, opcode: int, payload: bytes) -> None:
        if opcode == PING:
            self.ping = payload
        elif opcode == CLOSE:
            self._close(payload)

    def _close(self, payload: bytes) -> None:
        code = int.from_bytes(payload[:2], "big") if payload else NO_CODE
        if payload and code not in _SENDABLE and code not in _PRIVATE:
            self._refuse(PROTOCOL_ERROR, "a close frame without a valid code")
        elif not is_utf8(payload[2:]):
            self._refuse(NOT_TEXT, "the reason in a close frame must be UTF-8")
        else:
            self.closing, self.is_closed_by_peer = Closing(code, payload[2:].decode()), True

    def _refuse(self, code: int, reason: str) -> None:
        self.closing = Closing(code, reason)


def _read_head(chunk: bytes, at: int) -> tuple[int, int, int]:
    """First byte and length of the frame there, and where its payload begins; 0 if that has not come."""
    if len(chunk) - at < 2:  # noqa: PLR2004 - the first byte and the length's
        return 0, 0, 0
    length, start = chunk[at + 1] & LENGTH, at + 2
    if length > SHORT:
        start += 2 if length == TWO_BYTES else 8
        length = int.from_bytes(chunk[at + 2 : start], "big")
    if chunk[at + 1] >= MASKED:
        start += KEY_BYTES
    return chunk[at], length, start if start <= len(chunk) else 0


GOODBYE_SECONDS = 1.0
"""How long the peer has to take our close frame and to hang up: it is a courtesy, and others wait for it."""

HURRIED_SECONDS = 0.1
"""The same when we are being cancelled: a stop waits for all links."""

MARK_BYTES = 64 * 1024
"""Bytes between ends of frames that are noted while the peer does not read: only one of them is needed."""


class WebSocketLink:
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
        self.closing: Closing | None = None
        """Why it is closed, as far as that was decided here or by the peer."""
        self.was_heard = False
        """Whether anything has come from the peer since this was last cleared."""
        self._is_client = is_client
        self._place = place
        self._unread = unread
        self._messages = MessageBuffer(max_message, is_client=is_client)
        self._link = FdLink(
            fd,
            fd,
            outbox=outbox,
            max_line=max_message,
            max_queue=max_queue,
            pause_at=pause_at,
            framing=self._messages,
            is_guest=not is_client,
        )
        self._link.after_lines = self._after_lines
        self._writer = self._link.writer
        self._writer.on_stuck = self._cut_off
        self._outbox = outbox
        self._written = 0
        """Bytes queued, ever."""
        self._ends: list[int] = []
        """While the peer does not read: values of `_written` between two frames."""

    @property
    def queued(self) -> int:
        """Bytes that wait for the peer."""
        return self._writer.queued

    @property
    def turns(self) -> int:
        """How often everything that the peer had sent was read (`wire.outbox.Link`)."""
        return self._link.turns

    @property
    def is_held(self) -> bool:
        """Whether reading is suspended because another link is behind (`wire.outbox.Link`)."""
        return self._link.is_held

    @property
    def is_read(self) -> bool:
        """Whether the peer is read from now."""
        return self._link.statistics().is_read

    def waiting(self, _request_id: bytes | None = None, /) -> float:
        """Bytes that wait for the peer (`wire.outbox.Link.waiting`)."""
        return self._writer.queued

    def send(self, frame: Sequence[Buffer], request_id: bytes | None = None, *, ends: bool = False) -> None:
        """Queue one message. A message of any size fits an empty queue."""
        self._queue(framed(tuple(frame), masked=self._is_client))

    def close(self) -> None:
        """Close the descriptor. Idempotent."""
        self._link.close()

    def ping(self) -> None:
        """Have the peer show that it is there."""
        self._queue((control(PING, b"", masked=self._is_client),))
        self._writer.flush()

    async def run(self, receiver: Receiver) -> None:
        """Read and write until the peer hangs up, breaks, is cut off, or either side closes the WebSocket."""
        lines = self._messages.feed(self._unread)
        self._unread = b""
        for start in range(0, len(lines), LINES_AT_ONCE):
            receiver.on_lines(lines[start : start + LINES_AT_ONCE])
            self._outbox.flush()
            await trio.lowlevel.checkpoint()
        self._obey()
        await self._link.run(receiver)

    def give_up(self, closing: Closing) -> None:
        """End the link from here."""
        self.closing = closing
        self._writer.end(ConnectionLost(f"closed here: {closing}"))

    async def leave(self, closing: Closing) -> None:
        """Say why we go, with `closing` if nothing else was decided, and wait a moment for the peer to hang up.

        Shielded: a stop is no reason to leave without a word. The caller closes the link afterwards.
        """
        if self._writer.failure is not None or self._writer.is_closed:
            return
        hurried = trio.current_effective_deadline() == -math.inf
        with trio.move_on_after(HURRIED_SECONDS if hurried else GOODBYE_SECONDS, shield=True):
            why = self._why()
            if isinstance(self._writer.reason, ConnectionLost) and why is None:
                return
            self._queue(((why or closing).frame(masked=self._is_client),))
            self._writer.flush()
            while self._writer.queued and self._writer.failure is None:
                await trio.lowlevel.wait_writable(self._writer.fd)
                self._writer.note(not self._writer.write())
            if self._writer.failure is None:
                await _until_hung_up(self._writer.fd)

    def _why(self) -> Closing | None:
        """Why the link has ended, as far as it knows."""
        if self.closing is None and isinstance(self._writer.reason, ProtocolFault):
            return Closing(POLICY, str(self._writer.reason))
        if (
            self.closing is None
            and self._writer.reason is not None
            and not isinstance(self._writer.reason, ConnectionLost)
        ):
            return Closing(OUR_FAULT, "a fault of the program's own")
        return self.closing

    def _queue(self, frame: tuple[Buffer, ...]) -> None:
        if self._writer.failure is not None or self._writer.is_closed:
            return
        if self._writer.is_blocked:
            if not self._ends or self._written - self._ends[-1] >= MARK_BYTES:
                self._ends.append(self._written)
        elif self._ends:
            self._ends.clear()
        self._written += sum(map(len, frame))
        self._writer.queue(frame)

    def _after_lines(self) -> None:
        self.was_heard = True
        self._obey()

    def _obey(self) -> None:
        """Do what control frames ask for, once the messages before them are handed over."""
        messages = self._messages
        if messages.ping is not None:
            self._queue((control(PONG, messages.ping, masked=self._is_client),))
            messages.ping = None
        if messages.closing is not None and not self._link.has_more:
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

    def _cut_off(self, reason: str) -> None:
        """End the link to a peer that does not read, which still gets the rest of the frame it has begun."""
        taken = self._written - self._writer.queued
        end = next((end for end in self._ends if end >= taken), self._written)
        self._written -= self._writer.keep(end - taken)
        self.closing = Closing(POLICY, "you do not read what you are sent")
        self._writer.end(ConnectionLost(reason, Cause.NOT_READING))


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
