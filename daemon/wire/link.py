"""Where bytes are moved: a pair of descriptors, without a task, channel or event per message.

Theory of operation. When the poll finds a descriptor ready, its link reads a chunk, splits it into lines and
hands them all, synchronously, to its owner; whoever they are for gets them queued on its own link, and when all
who were ready have been served, one flush writes each touched link once. trio's streams checkpoint on every
call even when they need not wait (10 to 20 us each); here trio is entered when the kernel has nothing more.

Invariants.
- A frame is queued whole and written in order; nobody awaits in the middle of one, so none is ever torn.
- While the kernel takes no more (`_blocked`), only the poll's call writes.
- A peer that reads slowly is not read from while more than `pause_at` waits for it. With more than `max_queue`
  it is behind: it is cut off if it takes nothing, and all such queues are bounded together (`wire.outbox`).
- Lines are handed over in order, and only while `run` runs; what its owner raises ends `run`, and nothing else.
- After `close` nothing is written, every queue is empty, nothing unfinished is kept, and the poll does not know
  the descriptors.
"""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING

import trio

from daemon.errors import ConnectionLost
from daemon.wire.frames import LineBuffer
from daemon.wire.poll import IN, OUT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from daemon.wire.envelope import Buffer
    from daemon.wire.frames import Line
    from daemon.wire.outbox import OnLines, OnOversized, Outbox

READ_BYTES = 256 * 1024
"""One read: larger than a pipe's or a unix socket's default buffer, so one call usually drains it."""
SHORT_READ = 16 * 1024
"""What is read first. Less than this has emptied the kernel's buffer: looking again would only say EAGAIN."""
LINES_PER_TURN = 128
"""Lines handled before everybody else gets a turn: a few milliseconds, even if every one of them is refused."""
READS_PER_TURN = 4
"""After so many full reads everybody else gets a turn, or a fast peer would own the loop."""
LINES_AT_ONCE = 16
"""Lines handed over before it is seen how much waits for their peer: each may ask for a list of 4 MiB."""
LOOK_SECONDS = 5.0
"""Between looks at how much a peer takes that is behind."""
STUCK_SECONDS = 30.0
"""Who is behind and takes nothing for so long does not read: a busy one stops for less."""
HELD_BYTES = 5 * 1024 * 1024
"""What a peer has to take a look if others are held for it: they must not wait for long."""
LAST_READS = 64
"""Reads of a peer that takes nothing any more: 16 MiB, the largest message."""
JOIN_BELOW = 64 * 1024
"""Small queues are joined and written by one `write`; larger ones go through `writev` uncopied."""
CLOSED = -1
IOV_MAX = 1024  # of buffers in one writev (writev(2))
_view = memoryview(bytearray(READ_BYTES))
_views = (_view,)
"""Where every link reads much to, one after the other: a new buffer for each would be mapped and unmapped."""


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
            max_queue: bytes that may wait for the peer before it is behind.
            pause_at: bytes waiting for it above which it is not read from; None: it is, and holds nobody.
        """
        self.queued = 0
        self.turns = 0
        self.is_held = False
        self.max_queue = max_queue
        self._read_fd = read_fd
        self._write_fd = write_fd
        self._outbox = outbox
        self._lines = LineBuffer(max_line)
        self._pause_at = math.inf if pause_at is None else pause_at
        self._holds_others = pause_at is not None
        self._taken = 0
        self._out: list[Buffer] = []
        self._touched = self._blocked = self._paused = self._behind = False
        self._rest: list[Line] = []
        self._reading = False
        self._turn_over = False
        self._deaf = False
        self._failure: str | None = None
        self._on_lines: OnLines | None = None
        self._on_oversized: OnOversized | None = None
        self._ended = trio.Event()
        self._woken = trio.Event()
        self._reason: Exception | None = None
        self._write_closed = False
        self._closed = False

    def send(self, frame: Sequence[Buffer]) -> None:
        """Queue one frame and its newline. A frame of any size fits an empty queue."""
        if self._failure is not None or self._write_closed:
            return
        out = self._out
        if len(frame) == 1:
            out += frame[0], b"\n"
            self.queued += len(frame[0]) + 1
        else:
            out += frame
            out.append(b"\n")
            self.queued += sum(map(len, frame)) + 1
        if not self._touched:
            self._touched = True
            self._outbox.touch(self)
        if self.queued > self.max_queue:
            self._fall_behind()

    def _fall_behind(self) -> None:
        self._woken.set()
        if self._holds_others:
            self._outbox.fall_behind(self)

    def flush(self) -> None:
        """Write without waiting; what the kernel does not take is written when it does."""
        self._touched = False
        try:
            if self._out and not self._blocked:
                self._write_on()
            else:
                self._note(self._blocked)
        except OSError as error:  # not raised: the others are to be flushed, too
            self._fail(f"waiting for it failed: {error.strerror}")

    async def run(self, on_lines: OnLines, on_oversized: OnOversized) -> None:
        """Read and write until the peer hangs up, breaks or is cut off."""
        self._on_lines, self._on_oversized = on_lines, on_oversized
        try:
            self._rewatch()
            await self._until_ended()
            if self._deaf:
                await self._take_last_words(on_lines)
        except OSError as error:
            raise ConnectionLost(f"waiting for it failed: {error.strerror}") from None
        finally:
            self._on_lines = self._on_oversized = None
            self._rewatch()
        assert self._reason is not None
        raise self._reason

    def close(self) -> None:
        """Give the descriptors back. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self._fail("the connection was closed here")
        self._lines = LineBuffer(self._lines.max_line)
        self._rest.clear()
        self._outbox.forget(self)
        fds = {self._read_fd} if self._write_closed else {self._read_fd, self._write_fd}
        self._read_fd = self._write_fd = CLOSED
        self._write_closed = True
        for fd in fds:
            os.close(fd)

    def close_write(self) -> None:
        """End our direction only: a child sees EOF on its stdin. Only for links over two descriptors."""
        if not self._write_closed and self._write_fd != self._read_fd:
            self._clear()
            self._write_closed = True
            os.close(self._write_fd)
            self._write_fd = CLOSED

    def resume(self) -> None:
        """Read again: those who were behind have caught up (`wire.outbox.Pausable`)."""
        self.is_held = False
        self._rewatch()

    # --- called by the poll --------------------------------------------------------------------------------

    def _on_ready(self, ready: int) -> None:
        try:
            if self._reading and ready & ~OUT:
                self._read_on()
            if self._blocked and ready & ~IN:
                self._write_on()
        except Exception as error:  # noqa: BLE001 - the boundary: what its owner raises ends this link alone
            self._end(error)

    def _rewatch(self) -> None:
        """Have the poll call for what is wanted now: to read, to write, both or neither."""
        runs = self._on_lines is not None and self._reason is None
        self._reading = runs and not (self._behind or self._paused or self.is_held or self._rest)
        reads, writes = IN if self._reading else 0, OUT if self._blocked else 0
        if self._read_fd == self._write_fd:
            self._outbox.poll.watch(self._read_fd, reads | writes, self._on_ready)
        else:
            self._outbox.poll.watch(self._read_fd, reads, self._on_ready)
            self._outbox.poll.watch(self._write_fd, writes, self._on_ready)

    # --- reading -------------------------------------------------------------------------------------------

    def _read_on(self) -> None:
        if self._turn_over:
            self._turn_over = False
            self.turns += 1
        if self._outbox.slow:
            self._outbox.slow.clear()
        most = SHORT_READ
        for _ in range(READS_PER_TURN):
            chunk = self._read(most)
            if chunk:
                self._hand_over(self._lines.feed(chunk))
            if len(chunk) < SHORT_READ:
                self._turn_over = True
                return
            if not self._reading:
                return
            if self.queued > self._pause_at:
                break
            most = READ_BYTES
        self._look_again()

    def _read(self, most: int) -> bytes:
        """What there is now; empty if there is nothing. Raises `ConnectionLost` if it has ended."""
        try:
            # Most messages are short, and to read them so takes 5 us less of each call than by way of the view.
            if most <= SHORT_READ:
                chunk = os.read(self._read_fd, most)
            else:
                chunk = bytes(_view[: os.readv(self._read_fd, _views)])
        except BlockingIOError:
            return b""
        except OSError as error:
            raise ConnectionLost(f"reading failed: {error.strerror}") from None
        if not chunk:
            raise ConnectionLost("the peer closed the connection")
        return chunk

    def _look_again(self) -> None:
        """Read after everybody else's turn, also if nothing more has come: that would end the turn."""
        self._behind = True
        self._rewatch()
        self._outbox.poll.soon(self._catch_up)

    def _catch_up(self) -> None:
        self._behind = False
        self._paused = self._paused or self.queued > self._pause_at
        if self._rest and not self._paused and self._on_lines is not None and self._reason is None:
            rest, self._rest = self._rest, []
            self._outbox.slow.clear()
            try:
                self._hand_over(rest)
            except Exception as error:  # noqa: BLE001 - the boundary, as in `_on_ready`
                self._end(error)
        self._rewatch()
        self._on_ready(IN)

    def _hand_over(self, lines: list[Line]) -> None:
        """In portions: nobody may own the loop with mere line ends, nor ask for more than he reads."""
        assert self._on_lines is not None and self._on_oversized is not None  # noqa: PT018
        start = 0
        if 0 < len(lines) <= LINES_AT_ONCE and self.queued <= self._pause_at:
            self._on_lines(lines)
            start = len(lines)
        while start < len(lines):
            if start >= LINES_PER_TURN or self.queued > self._pause_at:
                self._rest = lines[start:]
                self._look_again()
                break
            self._on_lines(lines[start : start + LINES_AT_ONCE])
            start += LINES_AT_ONCE
        if self._lines.oversized and not self._rest:
            for head in self._lines.oversized:
                self._on_oversized(head)
            self._lines.oversized.clear()
        if self._outbox.slow and not self._holds_others and self._outbox.hold(self):
            self.is_held = True
            self._rewatch()

    async def _take_last_words(self, on_lines: OnLines) -> None:
        """What the peer said before it stopped listening: an answer may be among it."""
        lines, self._rest = self._rest, []
        for _ in range(LAST_READS):
            try:
                chunk = self._read(READ_BYTES)
            except ConnectionLost:
                chunk = b""
            lines += self._lines.feed(chunk)
            for start in range(0, len(lines), LINES_PER_TURN):
                on_lines(lines[start : start + LINES_PER_TURN])
                self._outbox.flush()
                await trio.lowlevel.checkpoint()
            if not chunk:
                return
            lines = []

    async def _until_ended(self) -> None:
        """Return when the link has ended; end it if the peer is behind and takes nothing, or too little."""
        while self._reason is None:
            await self._woken.wait()
            self._woken = trio.Event()
            moved = trio.current_time()
            while self.queued > self.max_queue and not self._ended.is_set():
                before, held = self._taken, self in self._outbox.held
                with trio.move_on_after(LOOK_SECONDS):
                    await self._ended.wait()
                taken, now = self._taken - before, trio.current_time()
                moved = now if taken else moved
                late = now - moved >= STUCK_SECONDS or (held and taken < HELD_BYTES)
                if late and self.queued > self.max_queue:
                    self._fail(f"the peer does not read: {self.queued} bytes are waiting for it")

    # --- writing -------------------------------------------------------------------------------------------

    def _write_on(self) -> None:
        """One write; the poll calls for the next."""
        self._note(not self._write_some())

    def _note(self, blocked: bool) -> None:  # noqa: FBT001 - the one thing that is said
        paused = self.queued > self._pause_at
        if blocked is not self._blocked or paused is not self._paused:
            resumes = self._paused and not (paused or self._behind)
            self._blocked, self._paused = blocked, paused
            if resumes:
                self._look_again()
            else:
                self._rewatch()
        if self._outbox.behind:
            self._outbox.catch_up(self)

    def _write_some(self) -> bool:
        """Returns whether the queue is empty now (or will never be written)."""
        out = self._out
        try:
            if self.queued < JOIN_BELOW:
                whole = out[0] if len(out) == 1 else b"".join(out)
                out[:] = (whole,)
                written = os.write(self._write_fd, whole)
            else:
                written = os.writev(self._write_fd, out[:IOV_MAX])
        except BlockingIOError:
            return False
        except OSError as error:
            self._deaf = True
            self._fail(f"writing failed: {error.strerror}")
            return True
        if written == self.queued:
            out.clear()
            self.queued = 0
            return True
        self._consume(written)
        return False

    def _consume(self, written: int) -> None:
        self.queued -= written
        self._taken += written
        out = self._out
        done = 0
        while written and written >= len(out[done]):
            written -= len(out[done])
            done += 1
        del out[:done]
        if written:
            out[0] = memoryview(out[0])[written:]

    def _clear(self) -> None:
        self._out.clear()
        self.queued = 0
        self._blocked = self._paused = False
        self._outbox.catch_up(self)
        self._rewatch()

    # --- ending --------------------------------------------------------------------------------------------

    def _fail(self, reason: str) -> None:
        """Nothing is written from now on, and `run` ends."""
        self._failure = self._failure or reason
        self._clear()
        self._end(ConnectionLost(reason))

    def _end(self, reason: Exception) -> None:
        if self._reason is None:
            self._reason = reason
            self._ended.set()
            self._woken.set()
        self._rewatch()
