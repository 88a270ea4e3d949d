"""Sessions that nobody uses are forgotten; never those that somebody does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio
from loguru import logger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from daemon.keeping.custody import Custody
    from daemon.keeping.session_notes import SessionNotes

FORGET_SECONDS = 600.0
"""Between looks for sessions that nobody uses, at most."""

LOOKS = 2
"""Looks in the time after which a session is forgotten: it is gone half as long again after its last use."""

SHORTEST_SECONDS = 1.0
"""Between looks at least: each writes."""

CLOCK_JUMP = 60.0
"""Seconds by which the wall clock may differ from the monotonic one between two such looks. Beyond, it was set,
or the machine slept: expiry waits for the next look, when the sessions in use have said so by the new time."""


class Expiry:
    """Looks for idle sessions."""

    def __init__(
        self,
        notes: SessionNotes,
        custody: Custody,
        *,
        idle: float,
        shared: bool,
        live_keys: Callable[[], Iterable[str]],
        wall: Callable[[], float],
    ) -> None:
        """Begin.

        Args:
            notes: sessions in memory.
            custody: has the store.
            idle: seconds after which a session that nobody uses is forgotten.
            shared: whether other daemons may use sessions of the same store.
            live_keys: keys of the sessions that somebody uses now.
            wall: seconds since the epoch.
        """
        self._notes = notes
        self._custody = custody
        # Another daemon says only at its own looks which sessions it has in use.
        self._idle = max(idle, 2 * FORGET_SECONDS) if shared else idle
        self.period = min(FORGET_SECONDS, max(SHORTEST_SECONDS, self._idle / LOOKS))
        """Seconds between looks."""
        self._live_keys = live_keys
        self._wall = wall
        self._clocks = (0.0, 0.0)

    def start(self) -> None:
        """Compare clocks from here on."""
        self._clocks = (self._wall(), trio.current_time())

    async def look(self, write: Callable[[], Awaitable[None]]) -> None:
        """Say which sessions are in use, and forget the others that are idle.

        Args:
            write: writes times of use.
        """
        now, live = self._wall(), frozenset(self._live_keys())
        for key in live:
            self._notes.touch(key, now)
        await write()
        if self._clock_jumped():
            logger.warning("the clock was set, or the machine slept: idle sessions are looked for later")
            return
        gone = await self._custody.use(lambda store: store.forget_sessions(now - self._idle, live))
        self._notes.forget(now - self._idle, live)
        if gone:
            logger.info("{} sessions were forgotten: nobody has used them for {:g} s", gone, self._idle)
        for key in frozenset(self._live_keys()) - live:
            # Somebody came for it while it was being forgotten.
            if (known := self._notes.known(key)) is not None:
                self._notes.keep(known)

    def _clock_jumped(self) -> bool:
        before = self._clocks
        self.start()
        return abs((self._clocks[0] - before[0]) - (self._clocks[1] - before[1])) > CLOCK_JUMP
