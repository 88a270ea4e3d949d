"""Turns what the store holds into facts for the registry: at the start, and when other daemons have written."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING

import attrs
import trio
from loguru import logger

from daemon.facts import NamesRecalled, ServerRecord, Switched
from daemon.kit.waiting import ActorGone
from daemon.state.event_rows import FORGOTTEN_EVENTS, KEPT_SECONDS, forget_events
from daemon.state.sql import FORGOTTEN_AT_ONCE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from daemon.catalog.snapshot import Catalog
    from daemon.facts import Fact, ServerRecord
    from daemon.kit.waiting import Watch
    from daemon.model import GivenName
    from daemon.state.server_notes import ServerNotes, Switches
    from daemon.state.session_notes import SessionNotes
    from daemon.state.store_access import StoreAccess


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


LAST_SETTLE_SECONDS = 0.5
"""Seconds that the catalog may take at shutdown to apply what was just recalled: it has nothing else to do."""


class Recalling:
    """Tells the registry what is new in the store, and knows whether the catalog has applied it."""

    def __init__(
        self,
        notes: ServerNotes,
        *,
        catalog: Watch[Catalog],
        tell: Callable[[Fact], None],
        settle: Callable[[], Awaitable[None]],
        where: str,
    ) -> None:
        """Start with nothing told.

        Args:
            notes: what the store holds.
            catalog: the newest catalog.
            tell: leaves a fact for the registry.
            settle: returns once every fact told is in the catalog.
            where: the store's location, for the log.
        """
        self.untaken = False
        """Whether the catalog may lack a fact that was told: what it lacks would then look as if it had been
        removed."""
        self._notes = notes
        self._catalog = catalog
        self._tell = tell
        self._settle = settle
        self._where = where
        self._complained: set[str] = set()

    async def settle(self) -> None:
        """Return once the catalog has applied every fact."""
        if self.untaken:
            await self._settle()
            self.untaken = False

    async def settle_at_last(self) -> None:
        """Settle at shutdown: the catalog may be gone, and the wait for it is short."""
        with trio.move_on_after(LAST_SETTLE_SECONDS), contextlib.suppress(ActorGone):
            await self.settle()

    def servers(
        self, records: Iterable[ServerRecord], unreadable: Iterable[str], *, by_another: bool = True
    ) -> None:
        """Tell the server records that the store holds.

        Args:
            records: the servers.
            unreadable: rows that could not be read, each with the reason; logged once.
            by_another: whether another daemon has written them meanwhile.
        """
        for record in records:
            if self._notes.heard(record):
                self._recalled(record, by_another=by_another)
        for text in unreadable:
            if text not in self._complained:
                self._complained.add(text)
                logger.warning("left out of what the store {} remembers: {}", self._where, text)

    def names(self, stored: Iterable[GivenName], *, shared: bool) -> None:
        """Tell the names and URIs that the store holds.

        Args:
            stored: all given names.
            shared: whether other daemons give names, too.
        """
        names = tuple(stored)
        self._notes.heard_names(names, shared=shared)
        if names:
            self._tell(NamesRecalled(names=names, shared=shared))
            self.untaken = True

    def switches(self, stored: Switches, counting: Switches | None = None, *, certainly: bool = False) -> None:
        """Tell the switches that the store holds, or those that count in place of them.

        Args:
            stored: everything that is switched off there.
            counting: what counts in place of it, and is to be written; None: nothing else does.
            certainly: whether to tell it even if the catalog says the same.
        """
        off = self._notes.heard_switches(stored, stored if counting is None else counting, self._catalog.value)
        if certainly or off != self._catalog.value.switched:
            self._tell(Switched(off=off))
            self.untaken = True

    def epochs(self, asked: Iterable[ServerRecord], given: Mapping[str, int]) -> None:
        """Tell the epochs that the store gave instead of those asked for: another daemon had used these."""
        for record in asked:
            if record.server in given:
                bare = attrs.evolve(record, epoch=given[record.server], lists={})
                self._recalled(bare, by_another=True)

    def _recalled(self, record: ServerRecord, *, by_another: bool) -> None:
        self._tell(attrs.evolve(record, by_another=by_another))
        self.untaken = True
