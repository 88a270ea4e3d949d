"""Cuts bytes into lines, and keeps lines until the daemon has been sent all of each."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket
    from typing import TypeVar

    AnyBytes = TypeVar("AnyBytes", bytes, bytearray)

LONG_BYTES = 256 * 1024
"""Longest line of a client that is kept whole until its last byte is sent; longer ones pass in parts."""

Piece = tuple[bytes, bool, bool]
"""Bytes of a line, whether they begin it, and whether they end it (with its newline)."""


def cut(lines: AnyBytes) -> list[AnyBytes]:
    """Split whole lines; each keeps its newline."""
    if lines.find(b"\n") + 1 == len(lines):
        return [lines]
    return [line + b"\n" for line in lines.split(b"\n")[:-1]]


class Gatherer:
    """Collects a daemon's bytes into whole lines: a client would take the next message for an answer's rest."""

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, data: bytes) -> list[bytes] | list[bytearray]:
        """The lines that `data` completes, each with its newline."""
        end = data.rfind(b"\n") + 1
        if end == len(data) and not self._held:
            return cut(data)
        self._held += data[:end] if end else data
        if not end:
            return []
        whole, self._held = self._held, bytearray(data[end:])
        return cut(whole)

    @property
    def is_between(self) -> bool:
        """Whether the next byte begins a line."""
        return not self._held

    def clear(self) -> None:
        """Drop the unfinished line."""
        self._held.clear()


class Cutter:
    """Cuts a client's bytes into lines, long ones into parts."""

    def __init__(self) -> None:
        self.midway = False  # whether a long line has been passed on in part
        self._held = bytearray()

    def feed(self, data: bytes) -> list[Piece]:
        """The pieces that can be passed on after `data`."""
        end = data.find(b"\n") + 1
        if end == len(data) > 0 and self.is_between:
            return [(data, True, True)]
        pieces: list[Piece] = []
        start = 0
        while end:
            pieces.append(self._ended(data[start:end]))
            start, end = end, data.find(b"\n", end) + 1
        if start < len(data):
            self._held += data[start:] if start else data
            if self.midway or len(self._held) > LONG_BYTES:
                pieces.append((bytes(self._held), not self.midway, False))
                self._held.clear()
                self.midway = True
        return pieces

    @property
    def is_between(self) -> bool:
        """Whether the next byte begins a line."""
        return not self._held and not self.midway

    def rest(self) -> bytes:
        """Take the unfinished line, and start over."""
        held = bytes(self._held)
        self._held.clear()
        self.midway = False
        return held

    def _ended(self, end: bytes) -> Piece:
        piece = bytes(self._held) + end if self._held else end
        begins = not self.midway
        self._held.clear()
        self.midway = False
        return piece, begins, True


class Outgoing:
    """The bytes for one connection after another; a line stays whole until its newline is sent."""

    def __init__(self) -> None:
        self.deaf = False  # whether the other side takes nothing more, though it may still speak
        self._buffer = bytearray()
        self._sent = 0
        self._midway = False
        self._total = 0

    def put(self, data: bytes) -> None:
        """Queue bytes."""
        self._buffer += data
        self._total += len(data)

    def pass_on(self, lines: bytes, link: socket) -> bool:
        """`put` and `send` whole lines without a copy while nothing else waits. True if all was sent."""
        size = len(lines)
        self._total += size
        sent = 0
        try:
            sent = link.send(lines)
        except BlockingIOError:
            pass
        except OSError:
            self.deaf = True
        if sent == size:
            return True
        self._buffer += lines
        self._sent = sent
        self._let_go()
        return False

    @property
    def unsent(self) -> int:
        """Number of queued bytes that have not been sent."""
        return len(self._buffer) - self._sent

    @property
    def total(self) -> int:
        """Number of bytes ever queued."""
        return self._total

    @property
    def gone(self) -> int:
        """Number of bytes whose line was sent completely, or whose beginning was let go."""
        return self._total - len(self._buffer)

    def send(self, link: socket) -> bool:
        """Give a connection the bytes that it takes now. True if it has everything."""
        if self.deaf:
            return False
        try:
            while self._sent < len(self._buffer):
                self._sent += link.send(memoryview(self._buffer)[self._sent :] if self._sent else self._buffer)
        except BlockingIOError:
            pass
        except OSError:
            self.deaf = True
        if self._sent == len(self._buffer) and self._buffer.endswith(b"\n"):
            self._buffer.clear()
            self._sent = 0
            self._midway = False
            return True
        self._let_go()
        return self._sent == len(self._buffer)

    def withdraw(self) -> list[bytes]:
        """Take back the lines that a lost connection did not get completely, except long ones."""
        start = self._buffer.find(b"\n") + 1 or len(self._buffer) if self._midway else 0
        lines = bytes(self._buffer[start:]).split(b"\n")[:-1]
        self._buffer.clear()
        self._sent = 0
        self._midway = self.deaf = False
        return [line + b"\n" for line in lines if len(line) <= LONG_BYTES]

    def _let_go(self) -> None:
        end = self._buffer.rfind(b"\n", 0, self._sent) + 1
        self._midway = (self._midway and not end) or self._sent - end > LONG_BYTES
        if self._midway:
            end = self._sent
        if end:
            del self._buffer[:end]
            self._sent -= end
