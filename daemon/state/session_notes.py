"""Records of sessions, and counts, that are not on disk yet: bookkeeping without I/O.

A record leaves the list only after it was written, never while it is being written: a write that fails, hangs
or is cut off changes nothing. A record that changed meanwhile is another object, and stays.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import attrs

from daemon.catalog.loaded import is_anonymous
from daemon.kit.waiting import keep_latest

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from daemon.catalog.loaded import SessionRecord

MAX_SESSIONS = 10_000
"""The most records of sessions in memory, written or not; some 30 MB with ten loaded tools each. Written
records are dropped before unwritten ones."""

MAX_BATCH = 1000
"""The most sessions in one transaction: the backlog of an outage must not make one that takes minutes."""


class SessionNotes:
    """Records of sessions: those not on disk yet, and those that this run has read or written."""

    def __init__(self, most: int = MAX_SESSIONS) -> None:
        """Start without records.

        Args:
            most: the most records in memory.
        """
        self._most = most
        self.waiting: dict[str, SessionRecord] = {}
        """The records that are not on disk yet, by key."""
        self._written: dict[str, SessionRecord] = {}
        self.touched: dict[str, float] = {}
        """Times of use that wait to be written, by key, in seconds since the epoch."""
        self.dropped = 0
        """The number of records that were dropped unwritten because memory was full."""

    def keep(self, record: SessionRecord) -> None:
        """Keep the current record of a session, to be written."""
        self._written.pop(record.key, None)
        self.waiting.pop(record.key, None)
        self.waiting[record.key] = record
        self._bound()

    def touch(self, key: str, at: float) -> None:
        """Note when a session was used, in seconds since the epoch."""
        keep_latest(self.touched, key, max(at, self.touched.get(key, at)), self._most)

    def read(self, record: SessionRecord) -> None:
        """Note a record that the store has, unless a newer one waits to be written."""
        if record.key not in self.waiting:
            self._written.pop(record.key, None)
            self._written[record.key] = record
            self._bound()

    def joined(self, record: SessionRecord) -> SessionRecord:
        """Merge a record that another daemon wrote with the one that waits here, which is then written."""
        ours = self.waiting.get(record.key)
        if ours is None:
            self.read(record)
            return record
        both = _whole(ours, record)
        self.keep(both)
        return both

    def complete(self, key: str, stored: SessionRecord | None) -> SessionRecord | None:
        """The current record of a session, given the stored one."""
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
        """The unwritten record of a session; None if there is none or it is partial."""
        ours = self.waiting.get(key)
        return None if ours is None or ours.partial else ours

    def known(self, key: str) -> SessionRecord | None:
        """The record of a session that this run knows, maybe partial; None if it is unknown."""
        return self.waiting.get(key) or self._written.get(key)

    def next_batch(self) -> tuple[tuple[SessionRecord, ...], Mapping[str, float]]:
        """The records to write next, longest waiting first, and the times of use of other sessions."""
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
        """Note that the store has lost everything, so that all known records are written again."""
        self.waiting = {**self._written, **self.waiting}
        self._written = {}

    def forget(self, before: float, live: Collection[str], *, anonymous: float) -> None:
        """Drop sessions last used before a time, as the store does, except live ones.

        Args:
            before: the time in seconds since the epoch.
            live: keys of sessions that stay in any case.
            anonymous: the time for sessions without a name.
        """
        for notes in (self._written, self.waiting):
            for key, each in list(notes.items()):
                if self._seen(each).seen_at < (anonymous if is_anonymous(key) else before) and key not in live:
                    del notes[key]

    def merged(self, stored: Iterable[SessionRecord] | None, most: int) -> tuple[SessionRecord, ...]:
        """The stored records with newer ones in their place, most recently used first.

        Args:
            stored: the stored records; None if the store cannot be read, then known records are used.
            most: the most records to return.
        """
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
    """Counts that go on over restarts: the stored counts and the increments since.

    The store is given increments, so several daemons on one store add up. A write whose outcome is unknown may
    be counted twice.
    """

    def __init__(self, count: Callable[[], Mapping[str, int]]) -> None:
        """Start with the counters of this run.

        Args:
            count: returns the current counters by name; they never decrease.
        """
        self.since = 0.0
        """When the first count was written, in seconds since the epoch; 0 if none was."""
        self._count = count
        self._stored: dict[str, int] = {}
        self._written: dict[str, int] = {}

    @property
    def known(self) -> dict[str, int]:
        """All counts by name, as far as they are known here."""
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
        """Note that the store has lost everything, so that all known counts are written again."""
        now, known = self._count(), self.known
        self._written = {name: now.get(name, 0) - known[name] for name in known}
        self._stored = {}

    def were_written(self, news: Mapping[str, int], at: float) -> None:
        """Note that these increments are in the store."""
        for name, more in news.items():
            self._stored[name] = self._stored.get(name, 0) + more
            self._written[name] = self._written.get(name, 0) + more
        if news:
            self.since = self.since or at


def _whole(ours: SessionRecord, stored: SessionRecord | None) -> SessionRecord:
    """Our record, joined with the stored one that it follows."""
    if stored is None:
        return attrs.evolve(ours, partial=False)
    begun = stored.created_at if ours.partial else ours.created_at
    return attrs.evolve(ours, loaded=stored.loaded.joined(ours.loaded), created_at=begun, partial=False)
