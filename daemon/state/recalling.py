"""Turns the store's content into facts for the registry, and deletes idle sessions and old events."""

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
    from daemon.state.notes import SessionNotes
    from daemon.state.server_notes import ServerNotes, Switches
    from daemon.state.store_access import StoreAccess


FORGET_SECONDS = 600.0
"""Most seconds between two sweeps."""

ANONYMOUS_SECONDS = 600.0
"""Seconds that an unnamed session is kept after its last use: its bridge, the only user, returns within seconds
of the start of a new daemon. It is deleted up to `FORGET_SECONDS` later."""

MAX_STORED = 10_000
"""Most sessions in the store, the most recently used: 20 MB with twenty loaded tools each, and a changed tool
is marked in all of them while others wait for the store. Clients may name any number of keys."""

MAX_BEGUN = 500
"""New sessions after which a sweep is due at once: the store may exceed `MAX_STORED` by as many for a
moment."""

SWEEPS = 2
"""Sweeps per idle period: a session is deleted within one and a half periods of its last use."""

SHORTEST_SECONDS = 1.0
"""Fewest seconds between two sweeps: each one writes."""

CLOCK_JUMP = 60.0
"""Seconds of drift between the wall clock and the monotonic clock from sweep to sweep. Beyond them, the clock
was set or the machine slept: expiry waits for the next sweep, when sessions in use have the new time."""


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
        """Start without a sweep; `idle` is the seconds after which an unused session is deleted."""
        self._notes = notes
        self._access = access
        # Another daemon marks the sessions that it has in use only at its own sweeps.
        shortest = 2 * FORGET_SECONDS if access.opener.shared else 0.0
        self._idle = max(idle, shortest)
        self._anonymous_idle = min(self._idle, max(ANONYMOUS_SECONDS, shortest))
        self.period = min(FORGET_SECONDS, max(SHORTEST_SECONDS, self._idle / SWEEPS))
        """Seconds between sweeps."""
        self._wall = wall
        self._clocks = (0.0, 0.0)
        self._begun = 0

    def start(self) -> None:
        """Start comparing the clocks."""
        self._clocks = (self._wall(), trio.current_time())

    def is_crowded(self, begun: int) -> bool:
        """Count new sessions; returns whether there are enough for a sweep."""
        self._begun += begun
        return self._begun >= MAX_BEGUN

    async def sweep(
        self, live_keys: Callable[[], Iterable[str]], write: Callable[[], Awaitable[None]]
    ) -> float:
        """Mark sessions in use, delete idle or excess ones, and events; returns seconds to the next."""
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
"""Seconds that the catalog may take at shutdown to apply the last facts: it has nothing else to do."""


class Recalling:
    """Sends news of the store to the registry, and knows whether the catalog has applied it."""

    def __init__(
        self,
        notes: ServerNotes,
        *,
        catalog: Watch[Catalog],
        tell: Callable[[Fact], None],
        settle: Callable[[], Awaitable[None]],
        where: str,
    ) -> None:
        """Start without facts; `settle` returns once every fact is in the catalog."""
        self.untaken = False
        """Whether the catalog may lack a fact, whose subject would then look as if it had been removed."""
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
        """Send the store's server records (`by_another` daemon); log each unreadable row once."""
        for record in records:
            if self._notes.heard(record):
                self._recalled(record, by_another=by_another)
        for text in unreadable:
            if text not in self._complained:
                self._complained.add(text)
                logger.warning("left out of what the store {} remembers: {}", self._where, text)

    def names(self, stored: Iterable[GivenName], *, shared: bool) -> None:
        """Send the store's names and URIs; `shared` says that other daemons give names, too."""
        names = tuple(stored)
        self._notes.heard_names(names, shared=shared)
        if names:
            self._tell(NamesRecalled(names=names, shared=shared))
            self.untaken = True

    def switches(self, stored: Switches, counting: Switches | None = None, *, certainly: bool = False) -> None:
        """Send the store's switches, or those that count instead; `certainly` even if the same."""
        off = self._notes.heard_switches(stored, stored if counting is None else counting, self._catalog.value)
        if certainly or off != self._catalog.value.switched:
            self._tell(Switched(off=off))
            self.untaken = True

    def epochs(self, asked: Iterable[ServerRecord], given: Mapping[str, int]) -> None:
        """Send the epochs that the store gave instead of those asked for: another daemon had used these."""
        for record in asked:
            if record.server in given:
                bare = attrs.evolve(record, epoch=given[record.server], lists={})
                self._recalled(bare, by_another=True)

    def _recalled(self, record: ServerRecord, *, by_another: bool) -> None:
        self._tell(attrs.evolve(record, by_another=by_another))
        self.untaken = True
