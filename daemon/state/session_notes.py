"""Records of sessions, and counts, that are not on disk yet: bookkeeping, without I/O.

Nothing is taken off the list because it is being written, only because it was: a write that fails, hangs or is
cut off leaves everything where it is. What became newer meanwhile is another object, and stays.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import attrs

from daemon.catalog.remembered import is_anonymous

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from daemon.catalog.remembered import SessionRecord

MAX_SESSIONS = 10_000
"""Records of sessions in memory, written or not; with ten loaded tools each some 30 MB. Those that wait for a
store that does not work are kept rather than those that are on disk."""

MAX_BATCH = 1000
"""Sessions written in one transaction: what piled up during an outage must not make one that takes minutes."""


class SessionNotes:
    """Records of sessions: those that are not on disk yet, and those of this life that are."""

    def __init__(self, most: int = MAX_SESSIONS) -> None:
        """Begin with none.

        Args:
            most: records in memory.
        """
        self._most = most
        self.waiting: dict[str, SessionRecord] = {}
        """What is not on disk yet, by key."""
        self._written: dict[str, SessionRecord] = {}
        self.touched: dict[str, float] = {}
        """Times of use that wait to be written, by key, in seconds since the epoch."""
        self.dropped = 0
        """Records that were never written: the memory was full."""

    def keep(self, record: SessionRecord) -> None:
        """This is how a session is now."""
        self._written.pop(record.key, None)
        self.waiting.pop(record.key, None)
        self.waiting[record.key] = record
        self._bound()

    def touch(self, key: str, at: float) -> None:
        """It was used at this time (seconds since the epoch)."""
        self.touched[key] = max(at, self.touched.pop(key, at))
        while len(self.touched) > self._most:
            del self.touched[next(iter(self.touched))]

    def read(self, record: SessionRecord) -> None:
        """The store has this one; what was kept meanwhile counts more."""
        if record.key not in self.waiting:
            self._written.pop(record.key, None)
            self._written[record.key] = record
            self._bound()

    def joined(self, record: SessionRecord) -> SessionRecord:
        """Another daemon wrote this: with what was kept here meanwhile, which is then to be written."""
        ours = self.waiting.get(record.key)
        if ours is None:
            self.read(record)
            return record
        both = _whole(ours, record)
        self.keep(both)
        return both

    def complete(self, key: str, stored: SessionRecord | None) -> SessionRecord | None:
        """A session as it is now, given what the store has of it."""
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
        """What is not on disk yet of a session; None if that is only a part of it."""
        ours = self.waiting.get(key)
        return None if ours is None or ours.partial else ours

    def known(self, key: str) -> SessionRecord | None:
        """What this life knows of a session, if that is all of it."""
        return self.unwritten(key) or self._written.get(key)

    def next_batch(self) -> tuple[tuple[SessionRecord, ...], Mapping[str, float]]:
        """What to write next: records, those that have waited longest first, and times of use of others."""
        records = tuple(self._seen(each) for each in islice(self.waiting.values(), MAX_BATCH))
        keys = {record.key for record in records}
        return records, {key: at for key, at in self.touched.items() if key not in keys}

    def were_written(self, records: Sequence[SessionRecord], touched: Mapping[str, float]) -> None:
        """A batch is on disk."""
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
        """The store has lost everything: all that is known is to be written."""
        self.waiting = {**self._written, **self.waiting}
        self._written = {}

    def forget(self, before: float, live: Collection[str], *, anonymous: float) -> None:
        """Leave out what the store forgets, too: sessions last used before a time, but for live ones.

        Args:
            before: seconds since the epoch.
            live: keys of sessions that stay in any case.
            anonymous: the time for those that nobody has named.
        """
        for notes in (self._written, self.waiting):
            for key, each in list(notes.items()):
                if self._seen(each).seen_at < (anonymous if is_anonymous(key) else before) and key not in live:
                    del notes[key]

    def merged(self, stored: Iterable[SessionRecord] | None, most: int) -> tuple[SessionRecord, ...]:
        """What the store has, with newer ones in place of its own; those used last come first.

        Args:
            stored: None where the store cannot be read: what this life knows stands for it.
            most: how many at most.
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
    """Counts that go on over restarts: what the store has, and what was counted since.

    The store is told increments, so several daemons on one add up. A write of which nobody knows whether it
    came to its end may be counted twice.
    """

    def __init__(self, count: Callable[[], Mapping[str, int]]) -> None:
        """Begin with what this life has counted.

        Args:
            count: the counters as they are now, by name; they never fall.
        """
        self.since = 0.0
        """When the first of them was written, in seconds since the epoch; 0: nothing was."""
        self._count = count
        self._stored: dict[str, int] = {}
        self._written: dict[str, int] = {}

    @property
    def known(self) -> dict[str, int]:
        """All that was ever counted, as far as it is known here."""
        known = dict(self._stored)
        for name, more in self.news.items():
            known[name] = known.get(name, 0) + more
        return known

    @property
    def news(self) -> dict[str, int]:
        """What is to be added to what the store has."""
        counted = ((name, now - self._written.get(name, 0)) for name, now in self._count().items())
        return {name: more for name, more in counted if more}

    def read(self, stored: Mapping[str, int], since: float) -> None:
        """The store has this much."""
        self._stored, self.since = dict(stored), since

    def start_over(self) -> None:
        """The store has lost everything: all that is known is to be written."""
        now, known = self._count(), self.known
        self._written = {name: now.get(name, 0) - known[name] for name in known}
        self._stored = {}

    def were_written(self, news: Mapping[str, int], at: float) -> None:
        """These increments are in the store."""
        for name, more in news.items():
            self._stored[name] = self._stored.get(name, 0) + more
            self._written[name] = self._written.get(name, 0) + more
        if news:
            self.since = self.since or at


def _whole(ours: SessionRecord, stored: SessionRecord | None) -> SessionRecord:
    """What was kept here after what is stored."""
    if stored is None:
        return attrs.evolve(ours, partial=False)
    begun = stored.created_at if ours.partial else ours.created_at
    return attrs.evolve(ours, loaded=stored.loaded.joined(ours.loaded), created_at=begun, partial=False)
