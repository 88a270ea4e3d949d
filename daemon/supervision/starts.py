"""The queue of starts: as many as the machine can take run at once; the others wait.

A start keeps its *place* until it ends or its server is idle. Servers that clients call, or used until just
now, go before servers that nobody needs yet.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from enum import IntEnum

import trio
from loguru import logger

from daemon.processes.marks import Effort

LOOK_SECONDS = 0.5
"""Seconds between two checks, of some 10 ms, of the CPU time of starts while others wait for a place."""

IDLE_LOOKS = 2
"""Idle checks in a row that cost a start its place: a server that hangs delays others by at most 1.5 s."""

WORKING_SHARE = 0.1
"""The share of a CPU since the last check from which a start is working; a download uses a few hundredths."""

HOLD_SECONDS = 30.0
"""Seconds after which even a working start loses its place: longer than healthy servers take when all places
are in use, short enough that a few endless starts do not hold up all others."""

BRIEF_SECONDS = 1.0
"""The same for a start without a process on this machine: its work is over by then."""

URGENT_PLACES = 1
"""Places for urgent starts, as a multiple of all places, so that a boot delays neither calls nor restarts."""

Look = Callable[[frozenset[int]], Awaitable[Mapping[int, Effort]]]
"""Returns the activity of servers by mark; servers that cannot be observed are missing."""


class Rank(IntEnum):
    """The order of starts in the queue; starts of equal rank keep their order."""

    CALLED = 0
    """A call or an operator waits for the server."""
    LISTED = 1
    """A client waits for the server's list. It waits for many servers at once, so calls go first."""
    SERVED = 2
    """The server was in use until just now."""
    OTHER = 3
    """Nobody waits for the server."""

    @property
    def is_urgent(self) -> bool:
        """Whether somebody needs the server now."""
        return self is not Rank.OTHER


class QueuedStart:
    """One start: first queued, then with a place, then without one."""

    def __init__(self, starts: StartQueue, rank: Rank, on_line: Callable[[int], None], hold: float) -> None:
        self.rank = rank
        self.on_line = on_line
        self.granted = trio.Event()
        self.mark: int | None = None
        self._starts = starts
        self._hold = hold
        self._since = 0.0
        self._seen: tuple[float, Effort] | None = None
        self._idle = 0

    def begin(self) -> None:
        """Grant the place."""
        self._since = trio.current_time()
        self.granted.set()

    def runs_as(self, mark: int) -> None:
        """Set the mark of its process tree (`processes.marks`)."""
        self.mark, self._seen, self._idle = mark, None, 0

    def hurry(self, rank: Rank = Rank.CALLED) -> None:
        """Move the start forward in the queue, because somebody waits for it."""
        # A place that was already granted must not count as an urgent one.
        if rank < self.rank and not self.granted.is_set():
            self.rank = rank
            self._starts.advance()

    def leave(self) -> None:
        """Give up the place, or the position in the queue. Idempotent."""
        self._starts.leave(self)

    def keeps(self, effort: Effort | None) -> bool:
        """Whether the start keeps its place, judged by its present activity; None if unknown."""
        now = trio.current_time()
        if now - self._since >= self._hold:
            return False
        if self.mark is None:
            return True
        before, self._seen = self._seen, None if effort is None else (now, effort)
        # Less CPU than before means that one of its processes has ended, which is not waiting either.
        works = effort is not None and (
            effort.wants_more
            or before is None
            or abs(effort.cpu - before[1].cpu) >= WORKING_SHARE * (now - before[0])
        )
        self._idle = 0 if works else self._idle + 1
        return self._idle < IDLE_LOOKS


class StartQueue:
    """The queue of all starts of the daemon."""

    def __init__(self, places: int, look: Look) -> None:
        self._places = places
        self._look = look
        self._line: list[QueuedStart] = []
        self._placed: list[QueuedStart] = []
        self._anyone_waits = trio.Event()

    def ask(self, rank: Rank, on_line: Callable[[int], None], *, spawns: bool = True) -> QueuedStart:
        """Queue a start, or grant it at once; `on_line` gets each new number of starts before it."""
        start = QueuedStart(self, rank, on_line, HOLD_SECONDS if spawns else BRIEF_SECONDS)
        self._line.append(start)
        self.advance()
        return start

    def leave(self, start: QueuedStart) -> None:
        """Remove a start from its place or from the queue."""
        for row in (self._line, self._placed):
            if start in row:
                row.remove(start)
                self.advance()

    def advance(self) -> None:
        """Grant free places in order, and report the others' positions."""
        self._line.sort(key=lambda start: start.rank)
        while self._line and self._has_place_for(self._line[0].rank):
            self._placed.append(self._line.pop(0))
            self._placed[-1].begin()
        for before, start in enumerate(self._line):
            start.on_line(before)
        if self._line:
            self._anyone_waits.set()
        elif self._anyone_waits.is_set():
            self._anyone_waits = trio.Event()

    def _has_place_for(self, rank: Rank) -> bool:
        if len(self._placed) < self._places:
            return True
        urgent = sum(start.rank.is_urgent for start in self._placed)
        return rank.is_urgent and urgent < URGENT_PLACES * self._places

    async def watch(self) -> None:
        """Take places from idle starts while others wait for one, until cancelled."""
        while True:
            await self._anyone_waits.wait()
            await trio.sleep(LOOK_SECONDS)
            marks = frozenset(start.mark for start in self._placed if start.mark is not None)
            try:
                efforts = await self._look(marks) if marks else {}
            except (OSError, RuntimeError) as error:
                # Out of threads or descriptors: nothing is observed, but `HOLD_SECONDS` still applies.
                logger.warning("cannot see whether starting servers are at work: {}", error)
                continue
            for start in list(self._placed):
                # A mark set after the look was not looked for.
                seen = start.mark is None or start.mark in marks
                if seen and not start.keeps(efforts.get(start.mark or 0)):
                    self.leave(start)
