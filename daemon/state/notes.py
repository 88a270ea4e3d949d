"""Keeps track of sessions, events and counts that are not in the store yet, without I/O.

A record leaves the list only once it was written; a record that changed meanwhile is another object, and stays.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

import attrs
import trio

from daemon.catalog.loaded import SessionRecord, is_anonymous
from daemon.history.event import Event, EventKind
from daemon.kit.waiting import keep_latest
from daemon.state import event_rows
from daemon.state.sql import StoreFault

if TYPE_CHECKING:
    from daemon.history.journal import EventQuery, History
    from daemon.state.event_rows import Increments
    from daemon.state.sql import Transaction
    from daemon.state.store_access import StoreAccess

    ByName = dict[str, list[tuple[int, int]]]
    """For each count's name, the hours' starts in seconds since the epoch with their counts, oldest first."""


T = TypeVar("T")

EVENTS_AT_ONCE = 500
"""Most events in one batch: some 10 ms while nobody else writes."""

GATHER_SECONDS = 0.5
"""Seconds that events wait for others to be written with them; a killed daemon may lose its last events."""

CROWD = 2000
"""Events after which a sweep is due early: a store may exceed its bounds by as many."""


class EventNotes:
    """The unwritten events of this daemon; the history itself is their queue."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.dropped = 0
        """Events that were never stored, because newer ones replaced them in memory."""
        self._written = 0
        self._since_expiry = 0

    async def follow(self, later: Callable[[], bool], moved: trio.lowlevel.ParkingLot) -> None:
        """Schedule a write after new events, until cancelled; `moved` wakes the writer."""
        seen = None
        while True:
            seen = await self.history.newest.wait_changed(seen)
            if later():
                moved.unpark_all()

    @property
    def waiting(self) -> int:
        """The number of events that are not stored yet."""
        return self.history.number - self._written

    def next_batch(self) -> tuple[Event, ...]:
        """The oldest events that are not stored yet."""
        fresh = self.history.after(self._written)
        if fresh and (lost := fresh[0].number - self._written - 1) > 0:
            self.dropped += lost
            self._written += lost
            self.history.note(Event(kind=EventKind.LOST, details={"count": lost}))
        return tuple(fresh[:EVENTS_AT_ONCE])

    def were_written(self, events: Sequence[Event]) -> None:
        """Note that these events are stored."""
        if events:
            self._written = max(self._written, events[-1].number)
            self._since_expiry += len(events)

    @property
    def is_crowded(self) -> bool:
        """Whether so many new events are stored that a sweep is due early."""
        return self._since_expiry >= CROWD

    def were_expired(self) -> None:
        """Note that old and excess events have been deleted."""
        self._since_expiry = 0

    def start_over(self) -> None:
        """Write the events in memory again: the store is empty."""
        self._written = max(0, self.history.number - len(self.history.after(0)))


class StoredEvents:
    """Reads events from the store."""

    def __init__(self, access: StoreAccess) -> None:
        self._access = access

    async def find(self, query: EventQuery) -> Sequence[Event] | None:
        """Read events; None if the store cannot be read now."""
        return await self._read(partial(event_rows.find_events, query))

    async def follow(self, history: History) -> None:
        """Wake readers after every write, until cancelled."""
        while True:
            await self._access.moved.park()
            history.news.set(object())

    async def last_life(self, host: str, socket: str) -> event_rows.LastLife | None:
        """The end of the last daemon on a socket, if known."""
        return await self._read(partial(event_rows.last_life, host, socket))

    async def away_since(self, servers: Iterable[str], life: str) -> Mapping[str, float]:
        """When each server went away that was away at the end of a daemon's life, as far as that is known."""
        return await self._read(partial(event_rows.away_since, list(servers), life)) or {}

    async def _read(self, work: Callable[[Transaction], T]) -> T | None:
        try:
            return await self._access.ask(lambda store: store.within(work))
        except StoreFault:
            return None


WAITING = 48
"""Most hours of counts that wait for the store: enough for an outage of a weekend."""


class HourlyCounts:
    """Unwritten counts of this daemon, by the hour."""

    def __init__(self, count: Callable[[], Mapping[str, int]], wall: Callable[[], float]) -> None:
        """Count from the counters' current values, which fall only if a removed server is configured again."""
        self._count = count
        self._wall = wall
        self._seen = dict(count())
        self._waiting: Counter[tuple[int, str]] = Counter()
        self._written: Counter[tuple[int, str]] = Counter()

    def gather(self) -> dict[tuple[int, str], int]:
        """The increments to add to the stored counts; those since the last call go to the current hour."""
        now, hour = self._count(), _hour(self._wall())
        for name, count in now.items():
            before = self._seen.get(name, 0)
            # A server that was taken out of the configuration and put back counts from zero.
            self._waiting[hour, name] += count - before if count >= before else count
        self._seen = dict(now)
        self._waiting = _newest(self._waiting, hour)
        return dict(self._waiting)

    def were_written(self, news: Increments) -> None:
        """Note that these increments are stored."""
        self._waiting.subtract(news)
        self._written.update(news)
        self._written = _newest(self._written, _hour(self._wall()))

    def start_over(self) -> None:
        """Write the latest counts again: the store has lost everything."""
        self._waiting.update(self._written)
        self._written.clear()

    def joined(self, stored: Increments, first: int) -> ByName:
        """All counts from an hour on, stored or not, by name."""
        every, found = Counter(stored), defaultdict(list)
        every.update({key: more for key, more in self.gather().items() if key[0] >= first})
        for (hour, name), count in sorted(every.items()):
            found[name].append((hour * event_rows.SECONDS, count))
        return dict(found)


def _hour(at: float) -> int:
    """The number of the hour of a time in seconds since the epoch."""
    return int(at) // event_rows.SECONDS


def _newest(counts: Counter[tuple[int, str]], hour: int) -> Counter[tuple[int, str]]:
    return Counter({key: more for key, more in counts.items() if more and key[0] > hour - WAITING})


async def hours_since(
    access: StoreAccess, ours: HourlyCounts, since: float
) -> dict[str, list[tuple[int, int]]]:
    """All counts from the hour of a time (seconds since the epoch) on; raises `StoreFault`."""
    first = _hour(since)
    stored = await access.ask(lambda store: store.within(partial(event_rows.read_hours, first)))
    return ours.joined(stored, first)


MAX_SESSIONS = 10_000
"""Most records of sessions in memory, 30 MB with ten loaded tools each. Written ones are dropped first."""

MAX_BATCH = 1000
"""Most sessions in one transaction: the backlog of an outage must not take minutes."""


class SessionNotes:
    """Records of sessions: unwritten ones, and those that this daemon has read or written."""

    def __init__(self, most: int = MAX_SESSIONS) -> None:
        self._most = most
        self.waiting: dict[str, SessionRecord] = {}
        self._written: dict[str, SessionRecord] = {}
        self.touched: dict[str, float] = {}
        """Unwritten times of use by key, in seconds since the epoch."""
        self.dropped = 0
        """Records that were dropped unwritten because memory was full."""

    def keep(self, record: SessionRecord) -> None:
        """Keep a session's current record until it is written."""
        self._written.pop(record.key, None)
        self.waiting.pop(record.key, None)
        self.waiting[record.key] = record
        self._bound()

    def touch(self, key: str, at: float) -> None:
        """Note the last use of a session, in seconds since the epoch."""
        keep_latest(self.touched, key, max(at, self.touched.get(key, at)), self._most)

    def read(self, record: SessionRecord) -> None:
        """Note a record from the store, unless a newer one waits to be written."""
        if record.key not in self.waiting:
            self._written.pop(record.key, None)
            self._written[record.key] = record
            self._bound()

    def joined(self, record: SessionRecord) -> SessionRecord:
        """Merge another daemon's record with the waiting one, which is written later."""
        ours = self.waiting.get(record.key)
        if ours is None:
            self.read(record)
            return record
        both = _whole(ours, record)
        self.keep(both)
        return both

    def complete(self, key: str, stored: SessionRecord | None) -> SessionRecord | None:
        """The current record of a session; `stored` is the store's."""
        ours = self.waiting.get(key)
        if ours is None:
            if stored is not None:
                self.read(stored)
            return stored
        if ours.partial:
            ours = _whole(ours, stored)
            self.keep(ours)
        return ours

    def unwritten(self, key: str) -> SessionRecord | None:
        """The unwritten record of a session; None if there is none, or a partial one."""
        ours = self.waiting.get(key)
        return None if ours is None or ours.partial else ours

    def known(self, key: str) -> SessionRecord | None:
        """The record of a session that this daemon knows; it may be partial."""
        return self.waiting.get(key) or self._written.get(key)

    def next_batch(self) -> tuple[tuple[SessionRecord, ...], Mapping[str, float]]:
        """The records to write next, longest waiting first, and the last uses of other sessions."""
        records = tuple(self._seen(each) for each in islice(self.waiting.values(), MAX_BATCH))
        keys = {record.key for record in records}
        return records, {key: at for key, at in self.touched.items() if key not in keys}

    def were_written(self, records: Sequence[SessionRecord], touched: Mapping[str, float]) -> None:
        """Note that a batch is on disk."""
        for record in records:
            waiting = self.waiting.get(record.key)
            if waiting is not None and attrs.evolve(waiting, seen_at=record.seen_at) == record:
                del self.waiting[record.key]
                self._written[record.key] = record
        for key, at in touched.items():
            if key in self._written:
                self._written[key] = attrs.evolve(self._written[key], seen_at=at)
        for key, at in (*((record.key, record.seen_at) for record in records), *touched.items()):
            if self.touched.get(key, at + 1) <= at:
                del self.touched[key]

    def start_over(self) -> None:
        """Write all known records again: the store has lost everything."""
        self.waiting = {**self._written, **self.waiting}
        self._written = {}

    def forget(self, before: float, live: Collection[str], *, anonymous: float) -> None:
        """Drop sessions last used before a time (unnamed ones: before `anonymous`), except those in `live`."""
        for notes in (self._written, self.waiting):
            for key, each in list(notes.items()):
                if self._seen(each).seen_at < (anonymous if is_anonymous(key) else before) and key not in live:
                    del notes[key]

    def merged(self, stored: Iterable[SessionRecord] | None, most: int) -> tuple[SessionRecord, ...]:
        """Stored records, unwritten changes merged in, newest first; the known ones if `stored` is None."""
        found = self._written if stored is None else {record.key: record for record in stored}
        records = [self._seen(each) for each in {**found, **self.waiting}.values()]
        return tuple(sorted(records, key=lambda record: -record.seen_at)[:most])

    def _seen(self, record: SessionRecord) -> SessionRecord:
        at = self.touched.get(record.key, 0.0)
        return record if at <= record.seen_at else attrs.evolve(record, seen_at=at)

    def _bound(self) -> None:
        while len(self._written) + len(self.waiting) > self._most:
            if self._written:
                del self._written[next(iter(self._written))]
            else:
                del self.waiting[next(iter(self.waiting))]
                self.dropped += 1


class Totals:
    """Counts that survive restarts: stored counts plus increments, so that several daemons add up."""

    def __init__(self, count: Callable[[], Mapping[str, int]]) -> None:
        self.since = 0.0
        """The time of the first written count, in seconds since the epoch; 0 without one."""
        self._count = count
        self._stored: dict[str, int] = {}
        self._written: dict[str, int] = {}

    @property
    def known(self) -> dict[str, int]:
        """All counts by name, as far as this daemon knows them."""
        known = dict(self._stored)
        for name, more in self.news.items():
            known[name] = known.get(name, 0) + more
        return known

    @property
    def news(self) -> dict[str, int]:
        """The increments to add to the stored counts, by name."""
        counted = ((name, now - self._written.get(name, 0)) for name, now in self._count().items())
        return {name: more for name, more in counted if more}

    def read(self, stored: Mapping[str, int], since: float) -> None:
        """Note the stored counts."""
        self._stored, self.since = dict(stored), since

    def start_over(self) -> None:
        """Write all known counts again: the store has lost everything."""
        now, known = self._count(), self.known
        self._written = {name: now.get(name, 0) - known[name] for name in known}
        self._stored = {}

    def were_written(self, news: Mapping[str, int], at: float) -> None:
        """Note that these increments are stored."""
        for name, more in news.items():
            self._stored[name] = self._stored.get(name, 0) + more
            self._written[name] = self._written.get(name, 0) + more
        if news:
            self.since = self.since or at


def _whole(ours: SessionRecord, stored: SessionRecord | None) -> SessionRecord:
    if stored is None:
        return attrs.evolve(ours, partial=False)
    begun = stored.created_at if ours.partial else ours.created_at
    return attrs.evolve(ours, loaded=stored.loaded.joined(ours.loaded), created_at=begun, partial=False)
