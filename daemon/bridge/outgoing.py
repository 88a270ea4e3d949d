"""What is on its way to the daemon, kept until it is sent to the end of its line."""

from __future__ import annotations

from daemon.bridge.lines import LONG_BYTES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket


class Outgoing:
    """The bytes for one connection after the other.

    A line stays here whole until its newline is sent: until then no daemon has executed anything of it, and the
    next one can be given all of it. Only of a line over `LONG_BYTES` the beginning is let go.
    """

    def __init__(self) -> None:
        self.deaf = False
        """Whether the other side takes nothing any more, though it may still have something to say."""
        self._buffer = bytearray()
        self._sent = 0
        self._midway = False
        self._total = 0

    def put(self, data: bytes) -> None:
        """Queue some bytes."""
        self._buffer += data
        self._total += len(data)

    def pass_on(self, lines: bytes, link: socket) -> bool:
        """As `put` and `send` of whole lines, while nothing else waits: without a copy. True: they are sent."""
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
        """Bytes that are not sent."""
        return len(self._buffer) - self._sent

    @property
    def total(self) -> int:
        """Bytes that were ever queued."""
        return self._total

    @property
    def gone(self) -> int:
        """How many of them were sent to the end of their line, or in part where it was let go."""
        return self._total - len(self._buffer)

    def send(self, link: socket) -> bool:
        """Give a connection what it takes now. True: it has everything."""
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
        """The connection is gone: take back the lines of which it did not get all, but for the long ones."""
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
