"""Sessions that nobody uses are forgotten, and the oldest of too many; never those that somebody uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio
from loguru import logger

from daemon.state.values import FORGOTTEN_AT_ONCE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from daemon.state.access import StoreAccess
    from daemon.state.session_notes import SessionNotes

FORGET_SECONDS = 600.0
"""Between looks for sessions that nobody uses, at most."""

ANONYMOUS_SECONDS = 600.0
"""How long a session that nobody has named is kept after its last use: its bridge comes back within seconds of
the start of a new daemon, and nobody else can. It is gone up to `FORGET_SECONDS` later."""

MAX_STORED = 10_000
"""Sessions in the store, those used last: with twenty loaded tools each 20 MB, and a changed tool is marked in
all of them within the time that others wait for the store. Anybody may name any number of keys."""

MAX_BEGUN = 500
"""New sessions after which is looked at once: so much more than `MAX_STORED` may be there for a moment."""

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
        access: StoreAccess,
        *,
        idle: float,
        wall: Callable[[], float],
    ) -> None:
        """Begin.

        Args:
            notes: sessions in memory.
            access: has the store.
            idle: seconds after which a session that nobody uses is forgotten.
            wall: seconds since the epoch.
        """
        self._notes = notes
        self._access = access
        # Another daemon says only at its own looks which sessions it has in use.
        shortest = 2 * FORGET_SECONDS if access.opener.shared else 0.0
        self._idle = max(idle, shortest)
        self._anonymous_idle = min(self._idle, max(ANONYMOUS_SECONDS, shortest))
        self.period = min(FORGET_SECONDS, max(SHORTEST_SECONDS, self._idle / LOOKS))
        """Seconds between looks."""
        self._wall = wall
        self._clocks = (0.0, 0.0)
        self._begun = 0

    def start(self) -> None:
        """Compare clocks from here on."""
        self._clocks = (self._wall(), trio.current_time())

    def is_crowded(self, begun: int) -> bool:
        """So many sessions are new: whether that is worth a look."""
        self._begun += begun
        return self._begun >= MAX_BEGUN

    async def look(self, live_keys: Callable[[], Iterable[str]], write: Callable[[], Awaitable[None]]) -> float:
        """Say which sessions are in use, and forget others that are idle, or too many.

        Args:
            live_keys: keys of the sessions that somebody uses now.
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
        for key in frozenset(live_keys()) - live:
            # Somebody came for it while it was being forgotten.
            if (known := self._notes.known(key)) is not None:
                self._notes.keep(known)
        return SHORTEST_SECONDS if gone >= FORGOTTEN_AT_ONCE else self.period

    def _clock_jumped(self) -> bool:
        before = self._clocks
        self.start()
        return abs((self._clocks[0] - before[0]) - (self._clocks[1] - before[1])) > CLOCK_JUMP
