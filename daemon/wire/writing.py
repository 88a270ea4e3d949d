"""The writing half of a link: a queue of frames, written as fast as the peer reads.

Invariants.
- A frame is queued whole, in order, without an await in the middle, so none is ever torn.
- While the kernel takes no more (`_blocked`), only the poll's callback writes.
- After a failure, and after the descriptor is closed, nothing is queued or written.
"""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import trio

from daemon.causes import Cause
from daemon.errors import ConnectionLost

if TYPE_CHECKING:
    from collections.abc import Sequence

    from daemon.wire.envelope import Buffer
    from daemon.wire.outbox import Outbox, Watching

JOIN_BELOW = 64 * 1024
"""Small queues are joined and written by one `write`; larger ones go through `writev` uncopied."""
IOV_MAX = 1024  # of buffers in one writev (writev(2))
LOOK_SECONDS = 5.0
"""Seconds between looks at how much a peer that is behind takes."""
STUCK_SECONDS = 30.0
"""Seconds without taking anything after which a peer that is behind is cut off: a busy one pauses for less."""
HELD_BYTES = 5 * 1024 * 1024
"""Bytes that a peer must take between two looks if other links are held for it: they must not wait for long."""
CLOSED = -1
"""Stands in place of a closed descriptor."""


class FdWriter(ABC):
    """Writes frames to a non-blocking descriptor; the subclass reads, and says what the poll watches for."""

    _is_socket: bool
    """Whether the same descriptor is read from."""

    def __init__(self, fd: int, *, outbox: Outbox, max_queue: int, pause_at: int | None) -> None:
        """Take over the descriptor.

        Args:
            fd: where frames go.
            outbox: the daemon's one outbox.
            max_queue: bytes that may wait for the peer before it counts as behind.
            pause_at: bytes waiting for the peer above which it is not read from; None: it is always read from,
                and never has other links held.
        """
        self.queued = 0
        self.max_queue = max_queue
        self._write_fd = fd
        self._outbox = outbox
        self._poll: Watching = outbox.poll
        """Watches the descriptor; another one before `run`, where a guest is at the other end."""
        self._pause_at = math.inf if pause_at is None else pause_at
        self._holds_others = pause_at is not None
        self._out: list[Buffer] = []
        self._taken = 0
        """Bytes that the peer took in partial writes, ever."""
        self._touched = self._blocked = self._paused = False
        self._deaf = False
        """Whether the peer no longer reads; it may have sent something before."""
        self._failure: str | None = None
        self._write_closed = False
        self._woken = trio.Event()
        """Set when the peer falls behind or the link ends."""
        self._ended = trio.Event()
        self._reason: Exception | None = None

    def send(self, frame: Sequence[Buffer], request_id: bytes | None = None, *, ends: bool = False) -> None:
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
        # Most frames need no more than a look: their link is touched already, and not behind.
        if not self._touched or self.queued > self.max_queue:
            self._note_queued()

    def queue(self, parts: Sequence[Buffer]) -> None:
        """Queue bytes that are framed already."""
        if self._failure is None and not self._write_closed:
            self._out += parts
            self.queued += sum(map(len, parts))
            self._note_queued()

    def _note_queued(self) -> None:
        """Have what was queued written, and notice a peer that is behind."""
        if not self._touched:
            self._touched = True
            self._outbox.touch(self)
        if self.queued > self.max_queue:
            self._woken.set()
            if self._holds_others:
                self._outbox.fall_behind(self)

    def flush(self) -> None:
        """Write without waiting; what the kernel does not take now is written when it does."""
        self._touched = False
        try:
            self._note(self._blocked or (bool(self._out) and not self._write()))
        except OSError as error:  # not raised: the other links are still to be flushed
            self._fail(f"waiting for it failed: {error.strerror}")

    def close_write(self) -> None:
        """End our direction only: a child sees EOF on its stdin. Only for links over two descriptors."""
        if not self._write_closed and not self._is_socket:
            self._clear()
            self._write_closed = True
            os.close(self._write_fd)
            self._write_fd = CLOSED

    @abstractmethod
    def _rewatch(self) -> None:
        """Have the poll watch for what is wanted now."""

    @abstractmethod
    def _look_again(self) -> None:
        """Read again, after every other link's turn."""

    def _note(self, blocked: bool) -> None:  # noqa: FBT001 - its only argument
        paused = self.queued > self._pause_at
        if blocked is not self._blocked or paused is not self._paused:
            resumes = self._paused and not paused
            self._blocked, self._paused = blocked, paused
            if resumes:
                self._look_again()
            else:
                self._rewatch()
        if self._outbox.behind:
            self._outbox.catch_up(self)

    def _write(self) -> bool:
        """Write once; the poll calls for the next. Returns whether the queue is empty."""
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

    def _fail(self, reason: str, cause: Cause = Cause.CONNECTION_LOST) -> None:
        """End the link, and write nothing from now on."""
        self._failure = self._failure or reason
        self._clear()
        self._end(ConnectionLost(reason, cause))

    def _end(self, reason: Exception) -> None:
        if self._reason is None:
            self._reason = reason
            self._ended.set()
            self._woken.set()
        self._rewatch()

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
                    self._fail(f"the peer does not read: {self.queued} bytes wait for it", Cause.NOT_READING)
