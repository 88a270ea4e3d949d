"""The I/O loop of all links: one epoll that reads them, and the outbox that writes what they were given.

Theory of operation. trio watches a single descriptor, that of our epoll (epoll(7): an epoll is itself readable
when something in it is ready). Its task then calls every link that is ready, in the same step, and looks again,
until nothing more comes: what 32 clients say at once costs one step of one task, not 32. A round of trio's own
takes 20 to 30 us, as long as everything else about a small call, so the task does not go back to trio at once.
It lingers in the epoll for a moment, asleep, since the answer of a quick server, or the next call of a busy
client, is usually there by then.

Guests, the clients over HTTP and WebSockets, are anybody, many, and costly: a head of HTTP takes ten times what
a line takes. They wait in an epoll of their own. A turn is for all others first, lingering included; then one
guest after the other is served, in the order in which they became ready, until anybody else is waiting, or a
task of trio's. So what a thousand guests send delays a local client, a server or an operator by the turn of one
guest, which its owner bounds.

What lingering may cost others is bounded. It happens only when no other task can run; a turn ends when one can,
and after `TURN_SECONDS`; what trio itself watches (timers, threads, other sockets) waits for at most that and
one `LINGER_SECONDS`. After a try that brought nothing, turns go without lingering, twice as many each time.

A client that reads more slowly than servers answer fills the daemon's memory. As long as there is room, nobody
else notices: its servers are read from, and others' calls to them pass. When too much is queued for all clients
that are behind, the links whose lines go to one of them are not read from until it has caught up, or is gone.

Invariants.
- A descriptor has at most one owner in the epoll, and the owner removes it before it is closed.
- Callbacks neither block nor raise. One that raises all the same is logged and disturbs no other link.
"""

from __future__ import annotations

import os
import select
from abc import ABC, abstractmethod
from collections import deque
from time import perf_counter
from typing import TYPE_CHECKING, Protocol

import trio
from loguru import logger

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from daemon.wire.envelope import Buffer, Envelope
    from daemon.wire.frames import Line

    OnReady = Callable[[int], None]

IN = select.EPOLLIN
OUT = select.EPOLLOUT

EVENTS_AT_ONCE = 64
"""Descriptors served before anything is written: enough to write once for many, few enough not to delay the
first."""

TURN_SECONDS = 0.001
"""How long a turn may keep the loop while there is always more to do: a fifth of the longest delay allowed."""

GUESTS_SECONDS = 0.002
"""How long guests may be served, one after the other, before what they have asked for is written, and how long
the turn of one may be."""

LINGER_SECONDS = 0.001
"""How long we sleep in our own epoll: the shortest time that epoll_wait(2) takes, and for an answer
that takes longer a round of trio does not matter."""

MAX_SKIPS = 64
"""Most turns without lingering after it has brought nothing: each try may cost the others a millisecond."""


class Watching(ABC):
    """Descriptors in one epoll, and the owners that are called when they are ready."""

    def __init__(self) -> None:
        """Start with no descriptor watched."""
        self.epoll: select.epoll | None = None
        self.watched: dict[int, tuple[int, OnReady]] = {}

    def watch(self, fd: int, events: int, on_ready: OnReady) -> None:
        """Call `on_ready` with what a descriptor is ready for, each time, until `events` is 0.

        Errors and hang-ups are reported whatever `events` asks for, unless it is 0.

        Raises:
            OSError: the kernel cannot watch it (epoll_ctl(2)), or has no room for another.
        """
        known = self.watched.get(fd)
        if not events:
            if known is not None:
                assert self.epoll is not None
                del self.watched[fd]
                self.epoll.unregister(fd)
                self._close_if_idle()
            return
        epoll = self.epoll or self._start()
        if known is None:
            epoll.register(fd, events)
        elif known[0] != events:
            epoll.modify(fd, events)
        self.watched[fd] = events, on_ready

    @abstractmethod
    def soon(self, call: Callable[[], None]) -> None:
        """Call this once after every other link has had a turn. Only from within `on_ready` or such a call."""

    @abstractmethod
    def _start(self) -> select.epoll:
        """Make the epoll, when the first descriptor comes."""

    @abstractmethod
    def _close_if_idle(self) -> None:
        """Close the epoll when nothing is watched, so that no link has to know that it was the last."""

    def call(self, fd: int, ready: int) -> None:
        """Call the owner of a descriptor that is ready."""
        watched = self.watched.get(fd)
        # A ready descriptor may have been closed by the callback of one before it.
        if watched is not None:
            try:
                watched[1](ready)
            except Exception as error:  # noqa: BLE001 - the boundary of each callback
                _tell(error)


class Guests(Watching):
    """Descriptors that are served after all others, one at a time."""

    def __init__(self, poll: Poll) -> None:
        """Start with no descriptor watched; `poll` gives them their turns."""
        super().__init__()
        self.later: deque[Callable[[], None]] = deque()
        """What guests have left for later, oldest first."""
        self._poll = poll

    def soon(self, call: Callable[[], None]) -> None:
        """Call this once when the other guests had a turn. A task may say so, too."""
        self.later.append(call)
        self._poll.ring()

    def serve(self, is_over: Callable[[], bool]) -> bool:
        """Give turns, in order, until it is over or no guest is ready. Returns whether one had a turn."""
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

    def _start(self) -> select.epoll:
        self._poll.start()
        assert self.epoll is not None
        return self.epoll

    def _close_if_idle(self) -> None:
        self._poll.close_if_idle()


class Poll(Watching):
    """Calls back when descriptors are ready. Everything but the waiting is synchronous."""

    def __init__(self, after: Callable[[], None]) -> None:
        """Start with no descriptor watched.

        Args:
            after: called once all ready descriptors have been served; writes what they queued.
        """
        super().__init__()
        self.guests = Guests(self)
        """The descriptors of those who come after all others."""
        self._both: select.epoll | None = None
        """Is ready when ours or that of the guests is: what trio waits for."""
        self._after = after
        self._soon: list[Callable[[], None]] = []
        self._turns = False
        self._bell: int | None = None
        """An eventfd(2) that has a turn taken although nothing is ready."""
        self._is_rung = False
        self._skips = 0
        self._misses = 0

    def soon(self, call: Callable[[], None]) -> None:
        """Call this once after every other link has had a turn. Only from within `on_ready` or such a call."""
        self._soon.append(call)

    def start(self) -> select.epoll:
        """Make what is waited for, and begin to take turns."""
        own, guests, both = self.epoll, self.guests.epoll, self._both = [select.epoll() for _ in range(3)]
        both.register(own, IN)
        both.register(guests, IN)
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        both.register(self._bell, IN)
        trio.lowlevel.spawn_system_task(self._drive, own, both, name="daemon.wire.outbox")
        return own

    def close_if_idle(self) -> None:
        """Close the epolls when nothing is watched, unless a turn is being taken, which does so in the end."""
        busy = self._turns or self.watched or self.guests.watched or self._soon or self.guests.later
        if self._both is not None and not busy:
            trio.lowlevel.notify_closing(self._both.fileno())
            self._close()

    def ring(self) -> None:
        """Have a turn taken, if none is."""
        if not (self._turns or self._is_rung):
            if self._both is None:
                self.start()
            assert self._bell is not None
            self._is_rung = True
            os.eventfd_write(self._bell, 1)

    _start, _close_if_idle = start, close_if_idle

    def _close(self) -> None:
        for each in (self._both, self.epoll, self.guests.epoll):
            if each is not None:
                each.close()
        if self._bell is not None:
            os.close(self._bell)
        self._is_rung = False
        self._both = self.epoll = self.guests.epoll = self._bell = None

    async def _drive(self, epoll: select.epoll, both: select.epoll) -> None:
        """Take turns until the last descriptor is removed, or the run ends."""
        others = _Others(trio.lowlevel.current_task())
        trio.lowlevel.add_instrument(others)
        try:
            while not both.closed:
                if self._soon or self.guests.later:
                    await trio.lowlevel.checkpoint()
                else:
                    await trio.lowlevel.wait_readable(both.fileno())
                # It may have been closed between becoming ready and our step.
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
        """Serve what is ready, guests when nobody else is, and wait a moment for what follows from it."""
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
            if linger and self.guests.watched:  # without guests one call of the kernel is enough
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
        """Skip lingering for a while after it brought nothing, twice as long each time."""
        if paid:
            self._misses = 0
        else:
            self._misses += 1
            self._skips = min(2**self._misses, MAX_SKIPS)


class _Others(trio.abc.Instrument):
    """Notices whether a task other than ours was scheduled since the loop last slept."""

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
    """Call it; a fault is logged and disturbs no other link."""
    try:
        call()
    except Exception as error:  # noqa: BLE001 - the boundary: the loop of all links goes on
        _tell(error)


def _tell(error: Exception) -> None:
    logger.opt(exception=error).error("a fault of mcpd's own while bytes were moved")


MAX_WAITING = 512 * 1024 * 1024
"""Bytes that may wait for all clients that are behind together: a fraction of the memory of a machine that runs
dozens of servers, and more than the answers to all calls that one client usually has in flight."""


class Receiver(Protocol):
    """Takes what a link has read, synchronously; an exception ends the link's `run`."""

    def on_lines(self, lines: list[Line]) -> None:
        """Take messages as they came, oldest first."""

    def on_oversized(self, head: bytes) -> None:
        """Take the beginning of a message over the limit; the rest was dropped."""

    def on_message(self, message: Envelope, line: Line) -> None:
        """Take a message that the link has decoded already, because it had to know what it is."""


class Link(Protocol):
    """A frame-by-frame connection to a peer, whatever carries it."""

    @property
    def queued(self) -> int:
        """Bytes that wait for the peer."""

    @property
    def turns(self) -> int:
        """How often all was read that the peer had sent: it wrote lines of one turn before any was answered."""

    @property
    def is_held(self) -> bool:
        """Whether reading is suspended because another link is behind: its silence is then our doing."""

    def send(self, frame: Sequence[Buffer], request_id: bytes | None = None, *, ends: bool = False) -> None:
        """Queue one frame. Never blocks: the next `Outbox.flush`, or a task, writes it.

        Args:
            frame: its parts.
            request_id: the request of the peer's that it belongs to, raw JSON; None if it belongs to none. Only
                a link that carries each request apart, as HTTP does, has a use for it.
            ends: whether it is the answer to that request.
        """

    def waiting(self, request_id: bytes | None = None, /) -> float:
        """Bytes that wait where a frame would be queued; infinite where nobody takes one.

        Args:
            request_id: the request of the peer's that the frame would belong to (`send`).
        """

    async def run(self, receiver: Receiver) -> None:
        """Move bytes until the connection ends.

        Raises:
            ConnectionLost: always, in the end, with the reason.
        """


class Flushable(Protocol):
    """A link that the outbox has written."""

    def flush(self) -> None:
        """Write as much of the queue as the peer takes now."""


class Sink(Protocol):
    """A link that other links' lines are queued for."""

    queued: int
    """Bytes waiting for its peer."""
    max_queue: int
    """Bytes that may wait before it counts as behind."""


class Pausable(Protocol):
    """A link that is not read from while a link that its lines go to is behind."""

    def resume(self) -> None:
        """Read again: the links that were behind have caught up."""


class Outbox:
    """The links that were written to since the last flush, and the poll that flushes them when it has read."""

    def __init__(self, max_waiting: int = MAX_WAITING) -> None:
        """Start with no links; `max_waiting` is how many bytes may wait for all that are behind."""
        self.poll = Poll(after=self.flush)
        self.slow: set[Sink] = set()
        """Links that are behind and were written to since this was last cleared, as each link does before it
        reads."""
        self.behind: set[Sink] = set()
        """All links that are behind."""
        self.held: dict[Sink, set[Pausable]] = {}
        """The links that are not read from, by the link that is behind."""
        self._max_waiting = max_waiting
        self._touched: list[Flushable] = []

    def __len__(self) -> int:
        """How many links were written to since the last flush."""
        return len(self._touched)

    def touch(self, link: Flushable) -> None:
        """Mark a link to be flushed."""
        self._touched.append(link)

    def flush(self) -> None:
        """Write every touched link once."""
        while self._touched:
            touched, self._touched = self._touched, []
            for link in touched:
                link.flush()

    def fall_behind(self, sink: Sink) -> None:
        """Note that a link was written to although more than `max_queue` bytes wait for it."""
        self.behind.add(sink)
        self.slow.add(sink)

    def hold(self, source: Pausable) -> bool:
        """Return whether a source must wait for the links it has just written to; `resume` ends the wait."""
        if not self._is_full():
            return False
        for sink in self.slow:
            self.held.setdefault(sink, set()).add(source)
        return bool(self.slow)

    def catch_up(self, sink: Sink) -> None:
        """Note that the queue of a link has shrunk: sources that need no longer wait for it are resumed."""
        if sink.queued <= sink.max_queue:
            self.behind.discard(sink)
        if not self.held:
            return
        full = self._is_full()
        for each in list(self.held):
            if each not in self.behind or not full:
                sources = self.held.pop(each)
                for source in sources.difference(*self.held.values()):
                    source.resume()

    def forget(self, source: Pausable) -> None:
        """Drop a source that has ended."""
        for sources in self.held.values():
            sources.discard(source)

    def _is_full(self) -> bool:
        return sum(each.queued for each in self.behind) > self._max_waiting
