"""Events that are not in the store yet, and a reader of those that are."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from daemon.history.event import Event, EventKind
from daemon.state.event_rows import LastLife, away_since, find_events, last_life
from daemon.state.faults import StoreFault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from daemon.history.journal import History
    from daemon.history.query import EventQuery
    from daemon.state.store_access import Broadcast, StoreAccess


EVENTS_AT_ONCE = 500
"""The most events in one batch: some 10 ms in which nobody else writes."""

GATHER_SECONDS = 0.5
"""Seconds that events wait for others to be written with: what a daemon that is killed may lose of its last."""

CROWD = 2000
"""Events after which to look for old ones and for too many at once: a store may exceed its bounds by these."""


class EventNotes:
    """The events of this daemon's life, as far as the store has them. Their queue is the history itself."""

    def __init__(self, history: History) -> None:
        """Start with nothing written."""
        self.history = history
        self.dropped = 0
        """How many the store has never got, because newer ones took their places in memory."""
        self._written = 0
        self._since_look = 0

    async def follow(self, later: Callable[[], bool], moved: Broadcast) -> None:
        """Have new events written soon, until cancelled.

        Args:
            later: notes that there are some; False if that was known.
            moved: wakes who writes.
        """
        seen = None
        while True:
            seen = await self.history.newest.wait_changed(seen)
            if later():
                moved.notify()

    @property
    def waiting(self) -> int:
        """How many are not in the store."""
        return self.history.number - self._written

    def next_batch(self) -> tuple[Event, ...]:
        """The oldest events that are not in the store."""
        fresh = self.history.after(self._written)
        if fresh and (lost := fresh[0].number - self._written - 1) > 0:
            self.dropped += lost
            self._written += lost
            self.history.note(Event(kind=EventKind.LOST, details={"count": lost}))
        return tuple(fresh[:EVENTS_AT_ONCE])

    def were_written(self, events: Sequence[Event]) -> None:
        """Note that the store has these."""
        if events:
            self._written = max(self._written, events[-1].number)
            self._since_look += len(events)

    def crowd(self) -> bool:
        """Whether so many were written since the last look that the next one is due."""
        return self._since_look >= CROWD

    def looked(self) -> None:
        """Note that old ones, and those that were too many, have been deleted."""
        self._since_look = 0

    def start_over(self) -> None:
        """Note that the store is empty: what memory has is written again."""
        self._written = max(0, self.history.number - len(self.history.after(0)))


class StoredEvents:
    """Reads events from the store."""

    def __init__(self, access: StoreAccess) -> None:
        """Read from the store that is open."""
        self._access = access

    async def find(self, query: EventQuery) -> Sequence[Event] | None:
        """Read events; None if the store cannot be read now."""
        try:
            return await self._access.ask(lambda store: store.within(partial(find_events, query)))
        except StoreFault:
            return None

    async def follow(self, history: History) -> None:
        """Have readers look again whenever somebody may have written, until cancelled."""
        while True:
            await self._access.moved.wait()
            history.news.set(object())

    async def last_life(self, host: str, socket: str) -> LastLife | None:
        """How the last daemon on a socket ended, if known."""
        try:
            return await self._access.ask(lambda store: store.within(partial(last_life, host, socket)))
        except StoreFault:
            return None

    async def away_since(self, servers: Iterable[str], life: str) -> Mapping[str, float]:
        """Since when each server was away that a daemon left behind so, as far as that is known."""
        names = list(servers)
        try:
            return await self._access.ask(lambda store: store.within(partial(away_since, names, life)))
        except StoreFault:
            return {}
