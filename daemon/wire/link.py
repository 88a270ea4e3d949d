"""Where bytes are moved: a pair of descriptors under trio, without a task, channel or event per message.

Theory of operation. One `pump` per link reads a chunk, splits it into lines and hands them all, synchronously,
to its owner; whoever they are for gets them queued on its own link, and one flush at the end of the chunk
writes each touched link once. trio's streams checkpoint on every call even when they need not wait (10 to 20 us
each, and they are the cost of a small call); here the loop is entered only when the kernel has nothing more.

Invariants.
- A frame is queued whole and written in order; nobody awaits in the middle of one, so none is ever torn.
- While the writer task owns the queue (`_blocked`), nobody else writes.
- The queue is bounded: a peer that does not read is cut off at `max_queue`; one that reads slowly is not read
  from while more than `pause_at` waits for it.
- After `close` nothing is written and every queue is empty.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

import trio

from daemon.errors import ConnectionLost, leaf
from daemon.wire.frames import LineBuffer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from daemon.wire.envelope import Buffer

    OnLines = Callable[[list[bytes]], None]
    OnOversized = Callable[[bytes], None]

READ_BYTES = 256 * 1024
"""One read: larger than a pipe's or a unix socket's default buffer, so one call usually drains it."""
SHORT_READ = 16 * 1024
"""A read below this has emptied the kernel's buffer: waiting at once saves a read that would say EAGAIN."""
LINES_PER_TURN = 128
"""Lines handled between two turns of the loop: a few milliseconds, even if every one of them is refused."""
READS_PER_TURN = 16
"""After so many full reads everybody else gets a turn, or a fast peer would own the loop."""
JOIN_BELOW = 64 * 1024
"""Small queues are joined and written by one `write`; larger ones go through `writev` uncopied."""
CLOSED = -1
"""The number of no descriptor."""
IOV_MAX = 1024
"""Linux's limit on buffers in one writev (writev(2))."""


_view = memoryview(bytearray(READ_BYTES))
_views = (_view,)
"""Where every link reads to, one after the other: a new buffer for each read would be mapped and unmapped."""


class Link(Protocol):
    """A frame-by-frame connection to a peer, whatever carries it."""

    queued: int
    lulls: int
    """How often the peer had said all that it had to say: what comes in between two of these was written before
    any of it was answered."""

    def send(self, frame: Iterable[Buffer]) -> None:
        """Queue one frame. Never blocks; it is written at the next `Outbox.flush`."""

    def flush(self) -> None:
        """Write what is queued, as far as the peer takes it now."""

    async def run(self, on_lines: OnLines, on_oversized: OnOversized) -> None:
        """Move bytes until the connection ends.

        Raises:
            ConnectionLost: always, in the end, with the reason.
        """


class Outbox:
    """The links that were written to since the last flush."""

    def __init__(self) -> None:
        self._touched: list[Link] = []

    def touch(self, link: Link) -> None:
        """Remember to flush a link."""
        self._touched.append(link)

    def flush(self) -> None:
        """Write every touched link once."""
        while self._touched:
            touched, self._touched = self._touched, []
            for link in touched:
                link.flush()


class FdLink:
    """A link over two non-blocking descriptors, or over one twice (a socket). Owns them."""

    def __init__(
        self,
        read_fd: int,
        write_fd: int,
        *,
        outbox: Outbox,
        max_line: int,
        max_queue: int,
        pause_at: int | None = None,
    ) -> None:
        """Take the descriptors over.

        Args:
            read_fd: where lines come from.
            write_fd: where frames go.
            outbox: the daemon's one outbox.
            max_line: bytes of the longest line taken from the peer.
            max_queue: bytes that may wait for the peer before it is cut off.
            pause_at: bytes waiting for the peer above which it is not read from; None: always read.
        """
        self.queued = 0
        self.lulls = 0
        self._read_fd = read_fd
        self._write_fd = write_fd
        self._outbox = outbox
        self._lines = LineBuffer(max_line)
        self._max_queue = max_queue
        self._pause_at = pause_at
        self._out: list[Buffer] = []
        self._touched = False
        self._blocked = False
        self._kick = trio.Event()
        self._drained = trio.Event()
        self._failure: str | None = None
        self._write_closed = False
        self._closed = False

    def send(self, frame: Iterable[Buffer]) -> None:
        """Queue one frame and its newline. A frame of any size fits an empty queue."""
        if self._failure is not None or self._write_closed:
            return
        if self.queued > self._max_queue:
            self._fail(f"the peer does not read: {self.queued} bytes are waiting for it")
            return
        out = self._out
        size = 1
        for part in frame:
            out.append(part)
            size += len(part)
        out.append(b"\n")
        self.queued += size
        if not self._touched:
            self._touched = True
            self._outbox.touch(self)

    def flush(self) -> None:
        """Write without waiting; what the kernel does not take goes to the writer task."""
        self._touched = False
        if self._blocked or not self._out:
            return
        if not self._write_some():
            self._blocked = True
            self._kick.set()

    async def run(self, on_lines: OnLines, on_oversized: OnOversized) -> None:
        """Read and write until the peer hangs up, breaks or is cut off."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._write_when_blocked)
                await self._pump(on_lines, on_oversized)
        except BaseExceptionGroup as group:
            raise leaf(group) from None

    def close(self) -> None:
        """Give the descriptors back. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self._failure = self._failure or "the connection was closed here"
        fds = {self._read_fd} if self._write_closed else {self._read_fd, self._write_fd}
        # Whoever is woken must not find a stranger's descriptor under our old number.
        self._read_fd = self._write_fd = CLOSED
        self._write_closed = True
        self._clear()
        for fd in fds:
            trio.lowlevel.notify_closing(fd)
            os.close(fd)
        self._kick.set()

    def close_write(self) -> None:
        """End our direction only: a child sees EOF on its stdin. Only for links over two descriptors."""
        if not self._write_closed and self._write_fd != self._read_fd:
            self._write_closed = True
            self._clear()
            trio.lowlevel.notify_closing(self._write_fd)
            os.close(self._write_fd)
            self._write_fd = CLOSED

    async def _pump(self, on_lines: OnLines, on_oversized: OnOversized) -> None:
        turns = 0
        while True:
            chunk = await self._read()
            if not chunk:
                raise ConnectionLost("the peer closed the connection")
            lines = self._lines.feed(chunk)
            await self._hand_over(lines, on_lines)
            for head in self._lines.oversized:
                on_oversized(head)
            self._lines.oversized.clear()
            size = len(chunk)
            # A link may wait for hours now: the last message, of whatever size, is not kept that long.
            del chunk, lines
            self._outbox.flush()
            await self._let_drain()
            turns += 1
            if size < SHORT_READ:
                turns = 0
                await self._readable()
            elif turns >= READS_PER_TURN:
                turns = 0
                await trio.lowlevel.checkpoint()

    async def _hand_over(self, lines: list[bytes], on_lines: OnLines) -> None:
        """In portions: a peer that sends nothing but line ends must not own the loop."""
        for start in range(0, len(lines), LINES_PER_TURN):
            if start:
                self._outbox.flush()
                await trio.lowlevel.checkpoint()
            on_lines(lines[start : start + LINES_PER_TURN])

    async def _read(self) -> bytes:
        while True:
            try:
                return bytes(_view[: os.readv(self._read_fd, _views)])
            except BlockingIOError:
                await self._readable()
            except OSError as error:
                raise ConnectionLost(self._failure or f"reading failed: {error.strerror}") from None

    async def _readable(self) -> None:
        self._require_unbroken()
        try:
            await trio.lowlevel.wait_readable(self._read_fd)
        except trio.ClosedResourceError:
            self._require_unbroken()
            raise ConnectionLost("the connection was closed") from None
        self.lulls += 1

    def _require_unbroken(self) -> None:
        if self._failure is not None:
            raise ConnectionLost(self._failure)

    async def _let_drain(self) -> None:
        while self._pause_at is not None and self.queued > self._pause_at:
            self._drained = trio.Event()
            await self._drained.wait()

    async def _write_when_blocked(self) -> None:
        while not self._write_closed:
            await self._kick.wait()
            self._kick = trio.Event()
            while self._has_more_to_write():
                with suppress(trio.ClosedResourceError):
                    await trio.lowlevel.wait_writable(self._write_fd)
            self._blocked = False
            self._require_unbroken()

    def _has_more_to_write(self) -> bool:
        return not self._write_closed and self._failure is None and not self._write_some()

    def _write_some(self) -> bool:
        """One write. Returns whether the queue is empty now (or will never be written)."""
        out = self._out
        try:
            if len(out) > 1 and self.queued < JOIN_BELOW:
                out[:] = [b"".join(out)]
            one = len(out) == 1
            written = os.write(self._write_fd, out[0]) if one else os.writev(self._write_fd, out[:IOV_MAX])
        except BlockingIOError:
            return False
        except OSError as error:
            self._fail(f"writing failed: {error.strerror}")
            return True
        self._consume(written)
        return not out

    def _consume(self, written: int) -> None:
        self.queued -= written
        out = self._out
        done = 0
        while written and written >= len(out[done]):
            written -= len(out[done])
            done += 1
        del out[:done]
        if written:
            out[0] = memoryview(out[0])[written:]
        if self._pause_at is not None and self.queued <= self._pause_at:
            self._drained.set()

    def _fail(self, reason: str) -> None:
        self._failure = self._failure or reason
        self._clear()
        self._kick.set()
        if self._blocked:
            # The writer waits for a peer that will not read: this wakes it, and the reader of a socket.
            trio.lowlevel.notify_closing(self._write_fd)

    def _clear(self) -> None:
        self._out.clear()
        self.queued = 0
        self._drained.set()
