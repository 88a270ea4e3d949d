"""A link over a pair of descriptors, without a task, channel or event per message.

A ready link reads a chunk and hands its lines synchronously to its owner, which queues frames on other links;
one flush then writes each touched link. trio's streams would checkpoint on every call (10 to 20 us).

- A link does not read from a slow peer while more than `pause_at` bytes wait for the peer. Above `max_queue`
  bytes the peer is behind (`wire.outbox`).
- Lines arrive in order and only while `run` runs; an exception of the owner ends `run` and nothing else.
- A frame is queued whole, in order and without an await, so frames are never mixed. While the kernel accepts no
  bytes (`is_blocked`), only the poll's callback writes.
- After a failure or a close nothing is written, every queue is empty, and the poll watches neither descriptor.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from typing import Protocol

import trio

from daemon.causes import Cause
from daemon.errors import ConnectionLost
from daemon.wire.envelope import Buffer, Line, LineBuffer
from daemon.wire.outbox import IN, OUT, Outbox, Receiver

JOIN_BELOW = 64 * 1024
"""Bytes below which a queue is joined for one `write`; a larger one goes through `writev` uncopied."""
IOV_MAX = 1024  # buffers in one writev (writev(2))
LOOK_SECONDS = 5.0  # seconds between two checks of a peer that is behind
STUCK_SECONDS = 30.0
"""Seconds without progress after which a peer that is behind is disconnected: a busy one pauses for less."""
HELD_BYTES = 5 * 1024 * 1024  # bytes that a peer must take between two checks while other links are held for it
CLOSED = -1  # marks a closed descriptor


class WriterOwner(Protocol):
    """The link, or the HTTP connection, that owns a writer."""

    def rewatch(self) -> None:
        """Make the poll watch for reading, writing, both or neither."""

    def look_again(self) -> None:
        """Read again, after every other link's turn: the peer has caught up."""


class FdWriter:
    """Writes frames to a non-blocking descriptor, which its owner reads."""

    def __init__(
        self, owner: WriterOwner, fd: int, *, outbox: Outbox, max_queue: int, pause_at: int | None
    ) -> None:
        """Take over the descriptor. Without `pause_at` (bytes), the peer is always read and holds no links."""
        self.queued = 0
        self.max_queue = max_queue
        self.fd = fd
        self.pause_at = math.inf if pause_at is None else pause_at
        self.holds_others = pause_at is not None
        self.out: list[Buffer] = []  # buffers that wait for the peer, oldest first
        self.taken = 0  # bytes that the peer took in partial writes
        self.is_blocked = self.is_paused = False
        self.is_deaf = False  # whether the peer reads no more; it may have sent something before
        self.failure: str | None = None
        self.reason: Exception | None = None  # the reason for the end of the connection; None while it lasts
        self.on_written: Callable[[], None] | None = None
        """Called after a write, and when the kernel accepts no bytes."""
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
        if self.failure is not None or self.fd == CLOSED:
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
        if self.failure is None and self.fd != CLOSED:
            self.out += parts
            self.queued += sum(map(len, parts))
            self._note_queued()

    def _note_queued(self) -> None:
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
            self.fail(f"cannot watch its descriptor: {error.strerror}")

    def close(self) -> None:
        """Close a descriptor that is used for writing only. Idempotent."""
        if self.fd != CLOSED:
            self._clear()
            os.close(self.fd)
            self.fd = CLOSED

    def note(self, blocked: bool) -> None:  # noqa: FBT001 - its only argument
        """Note whether the kernel accepts no more; notify the owner, and links that may now continue."""
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
        """Drop all buffers except the one that the peer may have received in part."""
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
        """End the link for a reason other than writing; the queue is still written."""
        if self.reason is None:
            self.reason = reason
            self._ended.set()
            self._woken.set()
            if self.on_ended is not None:
                self.on_ended()
        self._owner.rewatch()

    async def until_ended(self) -> None:
        """Return when the link has ended; end it if the peer is behind and accepts nothing, or too little."""
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


READ_BYTES = 256 * 1024
"""Bytes per read: more than the default buffer of a pipe or unix socket, so that one read empties it."""
SHORT_READ = 16 * 1024  # Bytes of the first read. A shorter result means that the kernel's buffer is empty.
LINES_PER_TURN = 128  # lines per turn: a few milliseconds, even if each is refused
READS_PER_TURN = 4  # full reads per turn; without a bound a fast peer would own the loop
LINES_AT_ONCE = 16  # lines between two checks of the peer's queue: each may ask for a list of 4 MiB
LAST_READS = 64  # last reads from a peer that reads no more: 16 MiB, the largest message
_view = memoryview(bytearray(READ_BYTES))
_views = (_view,)
"""The buffer for large reads, shared by all links: one per read would be mapped and unmapped each time."""


class FdLink:
    """A link over two non-blocking descriptors (or one socket as both) that it owns; limits are in bytes."""

    def __init__(
        self,
        read_fd: int,
        write_fd: int,
        *,
        outbox: Outbox,
        max_line: int,
        max_queue: int,
        pause_at: int | None = None,
        is_guest: bool = False,
    ) -> None:
        """Take over the descriptors; guests are served after other links (`wire.outbox`)."""
        self.writer = FdWriter(self, write_fd, outbox=outbox, max_queue=max_queue, pause_at=pause_at)
        self.send = self.writer.send  # the writer's own method: a call through the daemon sends two frames
        self.turns = 0
        self.is_held = False
        self._outbox = outbox
        self._poll = outbox.poll.guests if is_guest else outbox.poll
        self._is_socket = read_fd == write_fd
        self._read_fd = read_fd
        self._lines = LineBuffer(max_line)
        self._rest: list[Line] = []
        self._reading = self._behind = self._turn_over = False
        self._receiver: Receiver | None = None

    @property
    def queued(self) -> int:
        """Bytes that wait for the peer."""
        return self.writer.queued

    async def run(self, receiver: Receiver) -> None:
        """Read and write until the peer disconnects, breaks, or is disconnected."""
        self._receiver = receiver
        try:
            self.rewatch()
            await self.writer.until_ended()
            if self.writer.is_deaf:
                await self._take_last_words(receiver)
        except OSError as error:
            raise ConnectionLost(f"cannot watch its descriptor: {error.strerror}") from None
        finally:
            self._receiver = None
            self.rewatch()
        assert self.writer.reason is not None
        raise self.writer.reason

    def close_write(self) -> None:
        """Close the writing side, so that a child sees EOF on stdin. Only for links over two descriptors."""
        if not self._is_socket:
            self.writer.close()

    def close(self) -> None:
        """Close the descriptors. Idempotent."""
        if self._read_fd == CLOSED:
            return
        self.writer.fail("the connection was closed here")
        self._lines.drop()
        self._rest.clear()
        self._outbox.forget(self.resume)
        self.close_write()
        self.writer.fd = CLOSED
        os.close(self._read_fd)
        self._read_fd = CLOSED

    def waiting(self, _request_id: bytes | None = None, /) -> float:
        """Bytes that wait for the peer, whose requests share one queue (`wire.outbox.Link.waiting`)."""
        return self.writer.queued

    def resume(self) -> None:
        """Read again: the links that were behind have caught up."""
        self.is_held = False
        self.rewatch()

    def _on_ready(self, ready: int) -> None:
        try:
            if self._reading and ready & ~OUT:
                self._read_on()
            if self.writer.is_blocked and ready & ~IN:
                self.writer.note(not self.writer.write())
        except Exception as error:  # noqa: BLE001 - the boundary: an exception of the owner ends this link alone
            self.writer.end(error)

    def rewatch(self) -> None:
        """Make the poll watch for reading, writing, both or neither."""
        runs = self._receiver is not None and self.writer.reason is None
        self._reading = runs and not (self._behind or self.writer.is_paused or self.is_held or self._rest)
        reads, writes = IN if self._reading else 0, OUT if self.writer.is_blocked else 0
        if self._is_socket:
            self._poll.watch(self._read_fd, reads | writes, self._on_ready)
        else:
            self._poll.watch(self._read_fd, reads, self._on_ready)
            self._poll.watch(self.writer.fd, writes, self._on_ready)

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
            if self.writer.queued > self.writer.pause_at:
                break
            most = READ_BYTES
        self.look_again()

    def _read(self, most: int) -> bytes:
        """Read the available bytes, maybe none; raises ConnectionLost at the end of the stream."""
        try:
            # Most messages are short; reading them without the view saves 5 us of each call.
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

    def look_again(self) -> None:
        """Read again after every other link's turn, even if nothing has arrived, which ends the turn."""
        if not self._behind:
            self._behind = True
            self._poll.soon(self._catch_up)
        self.rewatch()

    def _catch_up(self) -> None:
        self._behind = False
        self.writer.is_paused = self.writer.is_paused or self.writer.queued > self.writer.pause_at
        if (
            self._rest
            and not self.writer.is_paused
            and self._receiver is not None
            and self.writer.reason is None
        ):
            rest, self._rest = self._rest, []
            self._outbox.slow.clear()
            try:
                self._hand_over(rest)
            except Exception as error:  # noqa: BLE001 - the boundary, as in `_on_ready`
                self.writer.end(error)
        self.rewatch()
        self._on_ready(IN)

    def _hand_over(self, lines: list[Line]) -> None:
        """Hand lines over in portions, so that no peer blocks the loop or asks for more than it reads."""
        receiver = self._receiver
        assert receiver is not None
        start = 0
        if 0 < len(lines) <= LINES_AT_ONCE and self.writer.queued <= self.writer.pause_at:
            receiver.on_lines(lines)
            start = len(lines)
        while start < len(lines):
            if start >= LINES_PER_TURN or self.writer.queued > self.writer.pause_at:
                self._rest = lines[start:]
                self.look_again()
                break
            receiver.on_lines(lines[start : start + LINES_AT_ONCE])
            start += LINES_AT_ONCE
        if self._lines.oversized and not self._rest:
            for head in self._lines.oversized:
                receiver.on_oversized(head)
            self._lines.oversized.clear()
        if self._outbox.slow and not self.writer.holds_others and self._outbox.hold(self.resume):
            self.is_held = True
            self.rewatch()

    async def _take_last_words(self, receiver: Receiver) -> None:
        """Read the last lines of a peer that reads no more: an answer may be among them."""
        lines, self._rest = self._rest, []
        for _ in range(LAST_READS):
            try:
                chunk = self._read(READ_BYTES)
            except ConnectionLost:
                chunk = b""
            lines += self._lines.feed(chunk)
            for start in range(0, len(lines), LINES_PER_TURN):
                receiver.on_lines(lines[start : start + LINES_PER_TURN])
                self._outbox.flush()
                await trio.lowlevel.checkpoint()
            if not chunk:
                return
            lines = []
