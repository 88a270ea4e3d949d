"""The I/O loop of all links: one epoll that reads them, and the outbox that writes them.

trio watches this epoll's descriptor (epoll(7)). One task calls all ready links in the same step, because a
round of trio costs 20 to 30 us. The task then lingers in the epoll, as the answer of a quick server usually
follows: only while no other task can run, at most `LINGER_SECONDS` within `TURN_SECONDS`, and after a fruitless
try not for 2, 4, 8 ... turns.

Guests are scripts, and clients over HTTP and WebSockets: anybody may be one, and an HTTP head costs ten times a
line. They are served one by one, only while no other link and no task is ready.

A client that reads more slowly than servers answer fills memory. If such clients together exceed a bound, the
links whose lines go to one of them are held until that client has caught up or disconnected.

- A descriptor has at most one owner in the epoll; the owner removes it before closing it.
- Callbacks neither block nor raise. One that raises is logged and disturbs no other link.
"""

from __future__ import annotations

import os
import select
from collections import deque
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Protocol

import trio
from loguru import logger

from daemon.wire.envelope import Buffer, Envelope, Line

OnReady = Callable[[int], None]

IN = select.EPOLLIN
OUT = select.EPOLLOUT

EVENTS_AT_ONCE = 64
"""Most descriptors served between writes: enough to share a write, few enough not to delay the first."""

TURN_SECONDS = 0.001  # longest turn while there is more to do: a fifth of the longest delay allowed

GUESTS_SECONDS = 0.0003
"""Longest service of guests before their output is written, and longest turn of one guest."""

LINGER_SECONDS = 0.001
"""Longest sleep in this epoll, and epoll_wait(2)'s shortest; later answers can afford a round of trio."""

MAX_SKIPS = 64  # most turns without lingering after a fruitless try: each try may cost the others a millisecond


class Watching:
    """The descriptors of one epoll and the owners to call when they are ready."""

    def __init__(self, poll: Poll) -> None:
        self.epoll: select.epoll | None = None
        self.watched: dict[int, tuple[int, OnReady]] = {}
        self._poll = poll

    def watch(self, fd: int, events: int, on_ready: OnReady) -> None:
        """Call `on_ready` each time a descriptor has ready events or hang-ups, until `events` is 0.

        Raises OSError: the kernel cannot watch the descriptor, or has no room for another (epoll_ctl(2)).
        """
        known = self.watched.get(fd)
        if not events:
            if known is not None:
                assert self.epoll is not None
                del self.watched[fd]
                self.epoll.unregister(fd)
                self._poll.close_if_idle()
            return
        if self.epoll is None:
            self._poll.start()
        epoll = self.epoll
        assert epoll is not None
        if known is None:
            epoll.register(fd, events)
        elif known[0] != events:
            epoll.modify(fd, events)
        self.watched[fd] = events, on_ready

    def call(self, fd: int, ready: int) -> None:
        """Call the owner of a ready descriptor."""
        watched = self.watched.get(fd)
        # An earlier callback may have closed a ready descriptor.
        if watched is not None:
            try:
                watched[1](ready)
            except Exception as error:  # noqa: BLE001 - the boundary of each callback
                _tell(error)


class Guests(Watching):
    """Descriptors that are served after all others, one at a time."""

    def __init__(self, poll: Poll) -> None:
        super().__init__(poll)
        self.later: deque[Callable[[], None]] = deque()  # postponed calls of guests, oldest first

    def soon(self, call: Callable[[], None]) -> None:
        """Run `call` once after the other guests' turns. Tasks may use this method, too."""
        self.later.append(call)
        self._poll.ring()

    def serve(self, is_over: Callable[[], bool]) -> bool:
        """Serve guests in order until `is_over` or none is ready; return whether any was served."""
        served = False
        while self.epoll is not None:
            ready = self.epoll.poll(0, 1)
            for fd, events in ready:
                self.call(fd, events)
            if self.later:
                contain(self.later.popleft())
            elif not ready:
                break
            served = True
            if is_over():
                break
        return served


class Poll(Watching):
    """Calls back when descriptors are ready; `after` then writes what the callbacks have queued."""

    def __init__(self, after: Callable[[], None]) -> None:
        super().__init__(self)
        self.guests = Guests(self)  # the descriptors that are served after all others
        self._both: select.epoll | None = None  # ready when either epoll is; trio waits for this one
        self._after = after
        self._soon: list[Callable[[], None]] = []
        self._turns = False
        self._bell: int | None = None  # an eventfd(2) that causes a turn although nothing is ready
        self._is_rung = False
        self._skips = 0
        self._misses = 0

    def soon(self, call: Callable[[], None]) -> None:
        """Run `call` once after every other link's turn. Use this only from `on_ready` or such a call."""
        self._soon.append(call)

    def start(self) -> None:
        """Create the epolls and start to serve."""
        own, guests, both = self.epoll, self.guests.epoll, self._both = [select.epoll() for _ in range(3)]
        both.register(own, IN)
        both.register(guests, IN)
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        both.register(self._bell, IN)
        trio.lowlevel.spawn_system_task(self._drive, own, both, name="daemon.wire.outbox")

    def close_if_idle(self) -> None:
        """Close the epolls if nothing is watched; during a turn, the end of the turn does this."""
        busy = self._turns or self.watched or self.guests.watched or self._soon or self.guests.later
        if self._both is not None and not busy:
            trio.lowlevel.notify_closing(self._both.fileno())
            self._close()

    def ring(self) -> None:
        """Wake the outbox to write, unless it is awake already."""
        if not (self._turns or self._is_rung):
            if self._both is None:
                self.start()
            assert self._bell is not None
            self._is_rung = True
            os.eventfd_write(self._bell, 1)

    def _close(self) -> None:
        for each in (self._both, self.epoll, self.guests.epoll):
            if each is not None:
                each.close()
        if self._bell is not None:
            os.close(self._bell)
        self._is_rung = False
        self._both = self.epoll = self.guests.epoll = self._bell = None

    async def _drive(self, epoll: select.epoll, both: select.epoll) -> None:
        others = _Others(trio.lowlevel.current_task())
        trio.lowlevel.add_instrument(others)
        try:
            while not both.closed:
                if self._soon or self.guests.later:
                    await trio.lowlevel.checkpoint()
                else:
                    await trio.lowlevel.wait_readable(both.fileno())
                # The epoll may have been closed between becoming ready and this step.
                if not both.closed:
                    self._turns = True
                    self._take_turn(epoll, both, others)
                    self._turns = False
                    self.close_if_idle()
        except trio.ClosedResourceError:
            return
        finally:
            trio.lowlevel.remove_instrument(others)
            if not both.closed:
                for each in (self.watched, self._soon, self.guests.watched, self.guests.later):
                    each.clear()
                self._close()

    def _take_turn(self, epoll: select.epoll, both: select.epoll, others: _Others) -> None:
        """Serve ready links, guests when no link is ready, and linger for the answers."""
        if self._is_rung and self._bell is not None:
            self._is_rung = False
            os.eventfd_read(self._bell)
        soon, self._soon = self._soon, []
        for call in soon:
            contain(call)
        until, linger, guests_served = perf_counter() + TURN_SECONDS, 0.0, False
        while True:
            events = epoll.poll(linger, EVENTS_AT_ONCE)
            for fd, ready in events:
                self.call(fd, ready)
            contain(self._after)
            if linger:
                self._learn(paid=bool(events))
            served = not events and self._serve_guests(epoll, others)
            guests_served = guests_served or not events
            if not (events or served) or self._soon or others.woken or perf_counter() >= until:
                break
            linger = self._next_linger()
            if linger and self.guests.watched:  # without guests one system call is enough
                self._learn(paid=bool(both.poll(linger, 1)))
                linger = 0.0
        if not guests_served:
            self._serve_guests(epoll, others)

    def _serve_guests(self, epoll: select.epoll, others: _Others) -> bool:
        if not self.guests.watched and not self.guests.later:
            return False
        until = perf_counter() + GUESTS_SECONDS
        served = self.guests.serve(lambda: others.woken or bool(epoll.poll(0, 1)) or perf_counter() >= until)
        contain(self._after)
        return served

    def _next_linger(self) -> float:
        if self._skips:
            self._skips -= 1
            return 0.0
        return LINGER_SECONDS

    def _learn(self, *, paid: bool) -> None:
        """After a fruitless try, skip lingering for twice as many turns as before."""
        if paid:
            self._misses = 0
        else:
            self._misses += 1
            self._skips = min(2**self._misses, MAX_SKIPS)


class _Others(trio.abc.Instrument):
    """Notices whether another task was scheduled since the loop last slept."""

    def __init__(self, ours: trio.lowlevel.Task) -> None:
        self.woken = False
        self._ours = ours

    def task_scheduled(self, task: trio.lowlevel.Task) -> None:
        if task is not self._ours:
            self.woken = True

    def before_io_wait(self, timeout: float) -> None:
        if timeout > 0:
            self.woken = False


def contain(call: Callable[[], None]) -> None:
    """Run `call`; log a fault, which disturbs no other link."""
    try:
        call()
    except Exception as error:  # noqa: BLE001 - the boundary: the loop of all links goes on
        _tell(error)


def _tell(error: Exception) -> None:
    logger.opt(exception=error).error("internal error in mcpd while bytes were moved")


MAX_WAITING = 512 * 1024 * 1024
"""Most bytes waiting for all clients that are behind: more than one client usually has in flight."""


class Receiver(Protocol):
    """Receives synchronously what a link has read; an exception ends the link's `run`."""

    def on_lines(self, lines: list[Line]) -> None:
        """Take undecoded messages, oldest first."""

    def on_oversized(self, head: bytes) -> None:
        """Take the head of a message over the limit, whose rest was dropped."""

    def on_message(self, message: Envelope, line: Line) -> None:
        """Take a message that the link has already decoded."""


class Link(Protocol):
    """A frame-by-frame connection to a peer over any transport."""

    @property
    def queued(self) -> int:
        """Bytes that wait for the peer."""

    @property
    def turns(self) -> int:
        """The count of reading turns: the peer wrote a turn's lines before it got any answer to them."""

    @property
    def is_held(self) -> bool:
        """Whether reading is suspended because another link is behind, so that silence is no sign."""

    def send(self, frame: Sequence[Buffer], request_id: bytes | None = None, *, ends: bool = False) -> None:
        """Queue one frame for `Outbox.flush`; `request_id`: the peer's request; `ends`: its last frame."""

    def waiting(self, request_id: bytes | None = None, /) -> float:
        """Bytes queued before a frame for this request; infinite if the link can no longer deliver one."""

    async def run(self, receiver: Receiver) -> None:
        """Move bytes until the connection ends; always raises ConnectionLost in the end."""


class Sink(Protocol):
    """A link that receives lines from other links."""

    queued: int
    max_queue: int  # bytes that may wait before the peer counts as behind


class Outbox:
    """The links with frames to flush, and the poll that flushes them after reading."""

    def __init__(self, max_waiting: int = MAX_WAITING) -> None:
        self.poll = Poll(after=self.flush)
        self.slow: set[Sink] = set()
        """Links that are behind and got frames after a reading link last cleared this set."""
        self.behind: set[Sink] = set()  # all links that are behind
        self.held: dict[Sink, set[Callable[[], None]]] = {}
        """For each link that is behind, the calls that resume reading from the links held for it."""
        self._max_waiting = max_waiting
        self._touched: list[Callable[[], None]] = []

    def __len__(self) -> int:
        return len(self._touched)

    def touch(self, write: Callable[[], None]) -> None:
        """Write a link's queue at the next flush."""
        self._touched.append(write)

    def flush(self) -> None:
        """Write every touched link once."""
        while self._touched:
            touched, self._touched = self._touched, []
            for write in touched:
                write()

    def fall_behind(self, sink: Sink) -> None:
        """Note that more than `max_queue` bytes wait for a link."""
        self.behind.add(sink)
        self.slow.add(sink)

    def hold(self, resume: Callable[[], None]) -> bool:
        """Whether to stop reading a link because of the slow links it has written to; `resume` ends that."""
        if not self._is_full():
            return False
        for sink in self.slow:
            self.held.setdefault(sink, set()).add(resume)
        return bool(self.slow)

    def catch_up(self, sink: Sink) -> None:
        """Note that a link's queue has shrunk, and resume the links held for it."""
        if sink.queued <= sink.max_queue:
            self.behind.discard(sink)
        if not self.held:
            return
        full = self._is_full()
        for each in list(self.held):
            if each not in self.behind or not full:
                sources = self.held.pop(each)
                for resume in sources.difference(*self.held.values()):
                    resume()

    def forget(self, resume: Callable[[], None]) -> None:
        """Drop a link that has ended."""
        for sources in self.held.values():
            sources.discard(resume)

    def _is_full(self) -> bool:
        return sum(each.queued for each in self.behind) > self._max_waiting
