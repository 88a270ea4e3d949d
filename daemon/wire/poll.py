"""One epoll for every link, and the one task that waits for it.

Theory of operation. trio watches a single descriptor, that of our epoll (epoll(7): an epoll is itself readable
when something in it is ready). Its task then calls whoever is ready, in the same step, and looks again, until
nothing more comes: what 32 clients say at once costs one step of one task, not 32. A round of trio's own takes
20 to 30 us, as long as everything else about a small call, so the task does not go back to trio at once. It
lingers in the epoll for a moment, asleep, since the answer of a quick server, or the next call of a busy
client, is usually there by then.

What lingering may cost others is bounded. It happens only when no other task can run; a turn ends when one can,
and after `TURN_SECONDS`; what trio itself watches (timers, threads, other sockets) waits for at most that and
one `LINGER_SECONDS`. When nothing came of it, it is not tried again for a while, twice as long each time.

Invariants.
- A descriptor has at most one owner here, who takes it out before it is closed.
- Who is called neither blocks nor raises. A fault that comes here all the same is logged and is nobody else's.
"""

from __future__ import annotations

import select
from time import perf_counter
from typing import TYPE_CHECKING

import trio
from loguru import logger

if TYPE_CHECKING:
    from collections.abc import Callable

    OnReady = Callable[[int], None]

IN = select.EPOLLIN
OUT = select.EPOLLOUT

EVENTS_AT_ONCE = 64
"""Descriptors served before anything is written: enough to write once for many, soon enough for the first."""
TURN_SECONDS = 0.001
"""How long we keep the loop while there is always something to do: a fifth of what may delay anybody."""
LINGER_SECONDS = 0.001
"""How long we sleep in our own epoll: the shortest time that epoll_wait(2) knows, and no server's answer that
takes longer feels a round of trio's."""
MAX_SKIPS = 64
"""Turns without lingering after it has brought nothing for long: a try may cost the others a millisecond."""


class Poll:
    """Watches descriptors. Everything but the waiting is synchronous."""

    def __init__(self, after: Callable[[], None]) -> None:
        """Watch nothing yet.

        Args:
            after: called when all that were ready have been; writes what they left to be written.
        """
        self._after = after
        self._epoll: select.epoll | None = None
        self._watched: dict[int, tuple[int, OnReady]] = {}
        self._soon: list[Callable[[], None]] = []
        self._turns = False
        self._skips = 0
        self._misses = 0

    def watch(self, fd: int, events: int, on_ready: OnReady) -> None:
        """Call `on_ready` with what a descriptor is ready for, again and again, until `events` is 0.

        Errors and hang-ups are told whatever `events` asks for, except 0.

        Raises:
            OSError: the kernel cannot watch it (epoll_ctl(2)), or no more.
        """
        known = self._watched.get(fd)
        if not events:
            if known is not None:
                self._forget(fd)
            return
        epoll = self._epoll or self._start()
        if known is None:
            epoll.register(fd, events)
        elif known[0] != events:
            epoll.modify(fd, events)
        self._watched[fd] = events, on_ready

    def soon(self, call: Callable[[], None]) -> None:
        """Call this once after everybody else has had a turn. Only from within `on_ready` or such a call."""
        self._soon.append(call)

    def _start(self) -> select.epoll:
        epoll = self._epoll = select.epoll()
        trio.lowlevel.spawn_system_task(self._drive, epoll, name="daemon.wire.poll")
        return epoll

    def _forget(self, fd: int) -> None:
        assert self._epoll is not None
        del self._watched[fd]
        self._epoll.unregister(fd)
        if not self._turns:
            self._close_if_idle(self._epoll)

    def _close_if_idle(self, epoll: select.epoll) -> None:
        """Hold nothing for nobody, so that no one has to say which link was the last."""
        if not self._watched and not self._soon:
            self._epoll = None
            trio.lowlevel.notify_closing(epoll.fileno())
            epoll.close()

    async def _drive(self, epoll: select.epoll) -> None:
        """Until the last descriptor is forgotten, or the run ends."""
        others = _Others(trio.lowlevel.current_task())
        trio.lowlevel.add_instrument(others)
        try:
            while not epoll.closed:
                if self._soon:
                    await trio.lowlevel.checkpoint()
                else:
                    await trio.lowlevel.wait_readable(epoll.fileno())
                # It may have been closed between its being ready and our step.
                if not epoll.closed:
                    self._turns = True
                    self._take_turn(epoll, others)
                    self._turns = False
                    self._close_if_idle(epoll)
        except trio.ClosedResourceError:
            return
        finally:
            trio.lowlevel.remove_instrument(others)
            if not epoll.closed:
                self._watched.clear()
                self._soon.clear()
                self._epoll = None
                epoll.close()

    def _take_turn(self, epoll: select.epoll, others: _Others) -> None:
        soon, self._soon = self._soon, []
        for call in soon:
            _contain(call)
        until = perf_counter() + TURN_SECONDS
        linger = 0.0
        while True:
            events = epoll.poll(linger, EVENTS_AT_ONCE)
            for fd, ready in events:
                watched = self._watched.get(fd)
                # One that was ready may have been closed by one that was ready before it.
                if watched is not None:
                    try:
                        watched[1](ready)
                    except Exception as error:  # noqa: BLE001 - the boundary, of each alone
                        _tell(error)
            _contain(self._after)
            if linger:
                self._learn(paid=bool(events))
            if not events or self._soon or others.woken or perf_counter() >= until:
                return
            linger = self._next_linger()

    def _next_linger(self) -> float:
        if self._skips:
            self._skips -= 1
            return 0.0
        return LINGER_SECONDS

    def _learn(self, *, paid: bool) -> None:
        """Lingering that brought nothing is left out for a while, twice as long each time."""
        if paid:
            self._misses = 0
        else:
            self._misses += 1
            self._skips = min(2**self._misses, MAX_SKIPS)


class _Others(trio.abc.Instrument):
    """Sees whether a task besides ours was made to run since the loop last slept."""

    def __init__(self, ours: trio.lowlevel.Task) -> None:
        self.woken = False
        self._ours = ours

    def task_scheduled(self, task: trio.lowlevel.Task) -> None:
        if task is not self._ours:
            self.woken = True

    def before_io_wait(self, timeout: float) -> None:
        if timeout > 0:
            self.woken = False


def _contain(call: Callable[[], None]) -> None:
    try:
        call()
    except Exception as error:  # noqa: BLE001 - the boundary: the loop of all links goes on
        _tell(error)


def _tell(error: Exception) -> None:
    logger.opt(exception=error).error("a fault of mcpd's own while bytes were moved")
