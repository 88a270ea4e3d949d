"""Who may start now: so many starts at once as the machine can take, the others in line.

A start has a *place* until it is over, or until it is seen to wait rather than to work: who waits for the
network, or hangs, keeps nobody from working. What has given its place away goes on without one, also if it
works later: to stop what runs already would help nobody. Who is called, or was in use until just now, does not
wait for those that nobody misses yet (`URGENT_PLACES`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from enum import IntEnum

import trio
from loguru import logger

from daemon.processes.marks import Effort

LOOK_SECONDS = 0.5
"""Seconds between two looks at what starts are doing, while others wait for a place; one takes some 10 ms."""

IDLE_LOOKS = 2
"""Looks in a row that see a start wait, and its place goes to the next: a server that hangs delays others by no
more than 1.5 s, and who works is seen to wait twice only if it really does."""

WORKING_SHARE = 0.1
"""Of a CPU, since the last look: who uses more works. Servers that wait for a download use a few hundredths."""

HOLD_SECONDS = 30.0
"""Seconds after which a place goes to the next even if its start works: longer than healthy servers work when
so many start at once as may, and short enough that some that never finish do not keep all others down."""

BRIEF_SECONDS = 1.0
"""Likewise where a start is no process of this machine: what it costs is over by then."""

URGENT_PLACES = 1
"""Places of the urgent, as a multiple of all: what others hold is not counted against them. So a boot delays no
call and no crash, many that are lost at once start no more at a time than others do, and twice as many start
only where the two meet."""

Look = Callable[[frozenset[int]], Awaitable[Mapping[int, Effort]]]
"""Tells the effort of some servers by their marks; who is left out cannot be seen."""


class Rank(IntEnum):
    """Who goes first; of the same rank, who came first."""

    CALLED = 0
    """Somebody waits for it: a call, or an operator."""
    SERVED = 1
    """It was in use until just now: the others have not been missed yet."""
    OTHER = 2

    @property
    def is_urgent(self) -> bool:
        """Whether somebody misses it now."""
        return self is not Rank.OTHER


class QueuedStart:
    """One start: in line, then at its place, then without one."""

    def __init__(self, starts: StartQueue, rank: Rank, on_line: Callable[[int], None], hold: float) -> None:
        """Made by `StartQueue.ask`."""
        self.rank = rank
        self.on_line = on_line
        self.granted = trio.Event()
        """Set once it may begin."""
        self.mark: int | None = None
        self._starts = starts
        self._hold = hold
        self._since = 0.0
        self._seen: tuple[float, Effort] | None = None
        self._idle = 0

    def begin(self) -> None:
        """It has its place."""
        self._since = trio.current_time()
        self.granted.set()

    def runs_as(self, mark: int) -> None:
        """What it starts is the tree of processes with this mark (`processes.marks`)."""
        self.mark, self._seen, self._idle = mark, None, 0

    def hurry(self) -> None:
        """Somebody waits for it: let it go before the others in line."""
        # The place that it may have was given to it as it was: it must not count as one of the urgent.
        if self.rank is not Rank.CALLED and not self.granted.is_set():
            self.rank = Rank.CALLED
            self._starts.advance()

    def leave(self) -> None:
        """Give the place, or the one in line, to the next; doing so again changes nothing."""
        self._starts.leave(self)

    def keeps(self, effort: Effort | None) -> bool:
        """Whether it keeps its place, by what was seen of it now."""
        now = trio.current_time()
        if now - self._since >= self._hold:
            return False
        if self.mark is None:
            return True
        before, self._seen = self._seen, None if effort is None else (now, effort)
        # Less than before: one of its processes has ended, which is not waiting either.
        works = effort is not None and (
            effort.wants_more
            or before is None
            or abs(effort.cpu - before[1].cpu) >= WORKING_SHARE * (now - before[0])
        )
        self._idle = 0 if works else self._idle + 1
        return self._idle < IDLE_LOOKS


class StartQueue:
    """All starts of the daemon."""

    def __init__(self, places: int, look: Look) -> None:
        """Nobody starts yet.

        Args:
            places: how many may start at once; urgent ones beside a boot come on top (`URGENT_PLACES`).
            look: tells the effort of those that have a place.
        """
        self._places = places
        self._look = look
        self._line: list[QueuedStart] = []
        self._placed: list[QueuedStart] = []
        self._anyone_waits = trio.Event()

    def ask(self, rank: Rank, on_line: Callable[[int], None], *, spawns: bool = True) -> QueuedStart:
        """A start, in line or granted at once.

        Args:
            rank: where it stands in line.
            on_line: told how many are before it, now and whenever the line moves, until it is granted.
            spawns: whether it is processes of this machine.
        """
        start = QueuedStart(self, rank, on_line, HOLD_SECONDS if spawns else BRIEF_SECONDS)
        self._line.append(start)
        self.advance()
        return start

    def leave(self, start: QueuedStart) -> None:
        """See `QueuedStart.leave`."""
        for row in (self._line, self._placed):
            if start in row:
                row.remove(start)
                self.advance()

    def advance(self) -> None:
        """Give places to the first in line, and tell the others where they stand."""
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
        """Take places from those that wait, for those that wait for a place, until cancelled."""
        while True:
            await self._anyone_waits.wait()
            await trio.sleep(LOOK_SECONDS)
            marks = frozenset(start.mark for start in self._placed if start.mark is not None)
            try:
                efforts = await self._look(marks) if marks else {}
            except (OSError, RuntimeError) as error:
                # Without a thread or a descriptor nobody is seen; `HOLD_SECONDS` still holds.
                logger.warning("what starting servers do cannot be seen: {}", error)
                continue
            for start in list(self._placed):
                # A mark of after the look was not looked for.
                seen = start.mark is None or start.mark in marks
                if seen and not start.keeps(efforts.get(start.mark or 0)):
                    self.leave(start)
