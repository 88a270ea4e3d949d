"""Expiry of sessions, never of one in use, and of events: what is old, and the oldest of too many."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import trio
from loguru import logger

from daemon.state.event_rows import FORGOTTEN_EVENTS, KEPT_SECONDS, forget_events
from daemon.state.values import FORGOTTEN_AT_ONCE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from daemon.state.access import StoreAccess
    from daemon.state.session_notes import SessionNotes

FORGET_SECONDS = 600.0
"""The most seconds between two looks for idle sessions."""

ANONYMOUS_SECONDS = 600.0
"""Seconds that a session without a name is kept after its last use: its bridge returns within seconds of the
start of a new daemon, and nobody else can use it. It is deleted up to `FORGET_SECONDS` later."""

MAX_STORED = 10_000
"""The most sessions in the store, the most recently used: 20 MB with twenty loaded tools each, and a changed
tool is marked in all of them within the time that others wait for the store. Clients may name any number of
keys."""

MAX_BEGUN = 500
"""New sessions after which to look at once: the store may exceed `MAX_STORED` by as many for a moment."""

LOOKS = 2
"""Looks per idle period: a session is deleted within one and a half periods of its last use."""

SHORTEST_SECONDS = 1.0
"""The fewest seconds between two looks: each one writes."""

CLOCK_JUMP = 60.0
"""Seconds by which the wall clock may drift from the monotonic clock between two looks. Beyond that, the clock
was set or the machine slept: expiry waits for the next look, when sessions in use are marked with the new
time."""


class Expiry:
    """Deletes idle sessions, old events, and the oldest of too many."""

    def __init__(
        self,
        notes: SessionNotes,
        access: StoreAccess,
        *,
        idle: float,
        wall: Callable[[], float],
    ) -> None:
        """Start without having looked.

        Args:
            notes: sessions in memory.
            access: holds the store.
            idle: seconds after which an unused session is deleted.
            wall: returns seconds since the epoch.
        """
        self._notes = notes
        self._access = access
        # Another daemon marks the sessions that it has in use only at its own looks.
        shortest = 2 * FORGET_SECONDS if access.opener.shared else 0.0
        self._idle = max(idle, shortest)
        self._anonymous_idle = min(self._idle, max(ANONYMOUS_SECONDS, shortest))
        self.period = min(FORGET_SECONDS, max(SHORTEST_SECONDS, self._idle / LOOKS))
        """Seconds between looks."""
        self._wall = wall
        self._clocks = (0.0, 0.0)
        self._begun = 0

    def start(self) -> None:
        """Start comparing the clocks."""
        self._clocks = (self._wall(), trio.current_time())

    def is_crowded(self, begun: int) -> bool:
        """Count new sessions; returns whether there are enough for a look."""
        self._begun += begun
        return self._begun >= MAX_BEGUN

    async def look(self, live_keys: Callable[[], Iterable[str]], write: Callable[[], Awaitable[None]]) -> float:
        """Mark the sessions in use, and delete others that are idle or too many, and events.

        Args:
            live_keys: returns the keys of the sessions in use.
            write: writes times of use.

        Returns:
            Seconds until the next look.
        """
        self._begun = 0
        now, live = self._wall(), frozenset(live_keys())
        for key in live:
            self._notes.touch(key, now)
        await write()
        if self._clock_jumped():
            logger.warning("the clock was set, or the machine slept: idle sessions are looked for later")
            return self.period
        before, anonymous = now - self._idle, now - self._anonymous_idle
        gone = await self._access.use(
            lambda store: store.forget_sessions(before, live, most=MAX_STORED, anonymous=anonymous)
        )
        self._notes.forget(before, live, anonymous=anonymous)
        if gone:
            why = (
                "{} sessions were forgotten: unused for {:g} s ({:g} s without a key), or {} others used later"
            )
            logger.info(why, gone, self._idle, self._anonymous_idle, MAX_STORED)
        before = now - KEPT_SECONDS
        old = await self._access.use(lambda store: store.within(partial(forget_events, before), writes=True))
        for key in frozenset(live_keys()) - live:
            # A client came back to it while it was being deleted.
            if (known := self._notes.known(key)) is not None:
                self._notes.keep(known)
        more = gone >= FORGOTTEN_AT_ONCE or old >= FORGOTTEN_EVENTS
        return SHORTEST_SECONDS if more else self.period

    def _clock_jumped(self) -> bool:
        before = self._clocks
        self.start()
        return abs((self._clocks[0] - before[0]) - (self._clocks[1] - before[1])) > CLOCK_JUMP
