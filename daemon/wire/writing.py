"""The writing half of a link: a queue of frames, written as fast as the peer reads.

- A frame is queued whole, in order and without an await, so none is ever torn.
- While the kernel takes no more (`is_blocked`), only the poll's callback writes.
- After a failure or a close, nothing is queued or written.
"""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Protocol

import trio

from daemon.causes import Cause
from daemon.errors import ConnectionLost

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from daemon.wire.envelope import Buffer
    from daemon.wire.outbox import Outbox

JOIN_BELOW = 64 * 1024
"""Bytes below which a queue is joined for one `write`; a larger one goes through `writev` uncopied."""
IOV_MAX = 1024  # buffers in one writev (writev(2))
LOOK_SECONDS = 5.0  # seconds between two checks of a peer that is behind
STUCK_SECONDS = 30.0
"""Seconds without progress after which a peer that is behind is cut off: a busy one pauses for less."""
HELD_BYTES = 5 * 1024 * 1024  # bytes that a peer must take between two checks while other links are held for it
CLOSED = -1  # marks a closed descriptor


class WriterOwner(Protocol):
    """The link, or the HTTP connection, that owns a writer."""

    def rewatch(self) -> None:
        """Have the poll watch for reading, writing, both or neither."""

    def look_again(self) -> None:
        """Read again, after every other link's turn: the peer has caught up."""


class FdWriter:
    """Writes frames to a non-blocking descriptor; its owner reads."""

    def __init__(
        self, owner: WriterOwner, fd: int, *, outbox: Outbox, max_queue: int, pause_at: int | None
    ) -> None:
        """Take over the descriptor. Without `pause_at` (bytes) the peer is always read, and holds no others."""
        self.queued = 0
        self.max_queue = max_queue
        self.fd = fd
        self.pause_at = math.inf if pause_at is None else pause_at
        self.holds_others = pause_at is not None
        self.out: list[Buffer] = []  # buffers that wait for the peer, oldest first
        self.taken = 0  # bytes that the peer took in partial writes
        self.is_blocked = self.is_paused = False
        self.is_deaf = False  # whether the peer reads no more; it may have sent something before
        self.is_closed = False
        self.failure: str | None = None
        self.reason: Exception | None = None  # the reason for the end of the connection; None while it lasts
        self.on_written: Callable[[], None] | None = None
        """Called after a write, and when the kernel takes nothing."""
        self.on_ended: Callable[[], None] | None = None  # called once, at the end of the connection
        self.on_stuck: Callable[[str], None] | None = None
        """Ends the connection of a peer that does not read, in place of `fail`."""
        self._owner = owner
        self._outbox = outbox
        self._touched = False
        self._woken = trio.Event()  # set when the peer falls behind or the link ends
        self._ended = trio.Event()

    def send(self, frame: Sequence[Buffer], request_id: bytes | None = None, *, ends: bool = False) -> None:
        """Queue one frame and its newline. A frame of any size fits an empty queue."""
        if self.failure is not None or self.is_closed:
            return
        out = self.out
        if len(frame) == 1:
            out += frame[0], b"\n"
            self.queued += len(frame[0]) + 1
        else:
            out += frame
            out.append(b"\n")
            self.queued += sum(map(len, frame)) + 1
        # Most frames need no more: their link is touched already, and not behind.
        if not self._touched or self.queued > self.max_queue:
            self._note_queued()

    def queue(self, parts: Sequence[Buffer]) -> None:
        """Queue framed bytes."""
        if self.failure is None and not self.is_closed:
            self.out += parts
            self.queued += sum(map(len, parts))
            self._note_queued()

    def _note_queued(self) -> None:
        """Have the queue written, and notice a peer that is behind."""
        if not self._touched:
            self._touched = True
            self._outbox.touch(self.flush)
        if self.queued > self.max_queue:
            self._woken.set()
            if self.holds_others:
                self._outbox.fall_behind(self)

    def flush(self) -> None:
        """Write without waiting; the poll writes the rest."""
        self._touched = False
        try:
            self.note(self.is_blocked or (bool(self.out) and not self.write()))
        except OSError as error:  # not raised: the other links are still to be flushed
            self.fail(f"waiting for it failed: {error.strerror}")

    def close(self) -> None:
        """Close a descriptor that nobody reads. Idempotent."""
        if not self.is_closed:
            self._clear()
            self.is_closed = True
            os.close(self.fd)
            self.fd = CLOSED

    def note(self, blocked: bool) -> None:  # noqa: FBT001 - its only argument
        """Note whether the kernel takes no more; tell the owner and all links whose turn it is now."""
        paused = self.queued > self.pause_at
        if blocked is not self.is_blocked or paused is not self.is_paused:
            resumes = self.is_paused and not paused
            self.is_blocked, self.is_paused = blocked, paused
            if resumes:
                self._owner.look_again()
            else:
                self._owner.rewatch()
        if self._outbox.behind:
            self._outbox.catch_up(self)
        if self.on_written is not None:
            self.on_written()

    def write(self) -> bool:
        """Write once; the poll calls again. Returns whether the queue is empty."""
        out = self.out
        try:
            if self.queued < JOIN_BELOW:
                whole = out[0] if len(out) == 1 else b"".join(out)
                out[:] = (whole,)
                written = os.write(self.fd, whole)
            else:
                written = os.writev(self.fd, out[:IOV_MAX])
        except BlockingIOError:
            return False
        except OSError as error:
            self.is_deaf = True
            self.fail(f"writing failed: {error.strerror}")
            return True
        if written == self.queued:
            out.clear()
            self.queued = 0
            return True
        self._consume(written)
        return False

    def _consume(self, written: int) -> None:
        self.queued -= written
        self.taken += written
        out = self.out
        done = 0
        while written and written >= len(out[done]):
            written -= len(out[done])
            done += 1
        del out[:done]
        if written:
            out[0] = memoryview(out[0])[written:]

    def keep_first(self) -> None:
        """Drop everything but the buffer that the peer may have the beginning of."""
        del self.out[1:]
        self.queued = sum(map(len, self.out))
        self._outbox.catch_up(self)

    def _clear(self) -> None:
        self.out.clear()
        self.queued = 0
        self.is_blocked = self.is_paused = False
        self._outbox.catch_up(self)
        self._owner.rewatch()

    def fail(self, reason: str, cause: Cause = Cause.CONNECTION_LOST) -> None:
        """End the link, and write nothing from now on."""
        self.failure = self.failure or reason
        self._clear()
        self.end(ConnectionLost(reason, cause))

    def end(self, reason: Exception) -> None:
        """End the link for a reason other than writing: the queue is still written."""
        if self.reason is None:
            self.reason = reason
            self._ended.set()
            self._woken.set()
            if self.on_ended is not None:
                self.on_ended()
        self._owner.rewatch()

    async def until_ended(self) -> None:
        """Return when the link has ended; end it if the peer is behind and takes nothing, or too little."""
        while self.reason is None:
            await self._woken.wait()
            self._woken = trio.Event()
            moved = trio.current_time()
            while self.queued > self.max_queue and not self._ended.is_set():
                before, held = self.taken, self in self._outbox.held
                with trio.move_on_after(LOOK_SECONDS):
                    await self._ended.wait()
                taken, now = self.taken - before, trio.current_time()
                moved = now if taken else moved
                late = now - moved >= STUCK_SECONDS or (held and taken < HELD_BYTES)
                if late and self.queued > self.max_queue:
                    self._cut_off(f"the peer does not read: {self.queued} bytes wait for it")

    def _cut_off(self, reason: str) -> None:
        if self.on_stuck is not None:
            self.on_stuck(reason)
        else:
            self.fail(reason, Cause.NOT_READING)
