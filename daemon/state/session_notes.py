"""Records of sessions that are not on disk yet: bookkeeping, without I/O.

Nothing is taken off the list because it is being written, only because it was: a write that fails, hangs or is
cut off leaves everything where it is. What became newer meanwhile is another object, and stays.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import attrs

from daemon.catalog.remembered import is_anonymous

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

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
        self._unwritten: dict[str, SessionRecord] = {}
        self._written: dict[str, SessionRecord] = {}
        self._touched: dict[str, float] = {}
        self.dropped = 0
        """Records that were never written: the memory was full."""

    def __len__(self) -> int:
        """How many are not on disk."""
        return len(self._unwritten)

    def __contains__(self, key: str) -> bool:
        """Whether what was kept of a key is not on disk yet."""
        return key in self._unwritten

    @property
    def touched(self) -> bool:
        """Whether times of use wait to be written."""
        return bool(self._touched)

    def keep(self, record: SessionRecord) -> None:
        """This is how a session is now."""
        self._written.pop(record.key, None)
        self._unwritten.pop(record.key, None)
        self._unwritten[record.key] = record
        self._bound()

    def touch(self, key: str, at: float) -> None:
        """It was used at this time (seconds since the epoch)."""
        self._touched[key] = max(at, self._touched.pop(key, at))
        while len(self._touched) > self._most:
            del self._touched[next(iter(self._touched))]

    def read(self, record: SessionRecord) -> None:
        """The store has this one; what was kept meanwhile counts more."""
        if record.key not in self._unwritten:
            self._written.pop(record.key, None)
            self._written[record.key] = record
            self._bound()

    def keys(self) -> tuple[str, ...]:
        """Of what is not on disk yet."""
        return tuple(self._unwritten)

    def joined(self, record: SessionRecord) -> SessionRecord:
        """Another daemon wrote this: with what was kept here meanwhile, which is then to be written."""
        ours = self._unwritten.get(record.key)
        if ours is None:
            self.read(record)
            return record
        both = _whole(ours, record)
        self.keep(both)
        return both

    def partial(self) -> tuple[str, ...]:
        """Keys of what is not on disk, and was begun without what is there."""
        return tuple(key for key, each in self._unwritten.items() if each.partial)

    def complete(self, key: str, stored: SessionRecord | None) -> SessionRecord | None:
        """A session as it is now, given what the store has of it."""
        ours = self._unwritten.get(key)
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
        ours = self._unwritten.get(key)
        return None if ours is None or ours.partial else ours

    def known(self, key: str) -> SessionRecord | None:
        """What this life knows of a session, if that is all of it."""
        return self.unwritten(key) or self._written.get(key)

    def next_batch(self) -> tuple[tuple[SessionRecord, ...], Mapping[str, float]]:
        """What to write next: records, those that have waited longest first, and times of use of others."""
        records = tuple(self._seen(each) for each in islice(self._unwritten.values(), MAX_BATCH))
        keys = {record.key for record in records}
        return records, {key: at for key, at in self._touched.items() if key not in keys}

    def were_written(self, records: Iterable[SessionRecord], touched: Mapping[str, float]) -> None:
        """A batch is on disk."""
        for record in records:
            self._touch_is_written(record.key, record.seen_at)
            waiting = self._unwritten.get(record.key)
            if waiting is not None and attrs.evolve(waiting, seen_at=record.seen_at) == record:
                del self._unwritten[record.key]
                self._written[record.key] = record
        for key, at in touched.items():
            self._touch_is_written(key, at)
            if key in self._written:
                self._written[key] = attrs.evolve(self._written[key], seen_at=at)

    def start_over(self) -> None:
        """The store has lost everything: all that is known is to be written."""
        self._unwritten = {**self._written, **self._unwritten}
        self._written = {}

    def forget(self, before: float, live: Collection[str], *, anonymous: float) -> None:
        """Leave out what the store forgets, too: sessions last used before a time, but for live ones.

        Args:
            before: seconds since the epoch.
            live: keys of sessions that stay in any case.
            anonymous: the time for those that nobody has named.
        """
        for notes in (self._written, self._unwritten):
            for key, each in list(notes.items()):
                if self._idle(each, anonymous if is_anonymous(key) else before) and key not in live:
                    del notes[key]

    def merged(self, stored: Iterable[SessionRecord], most: int) -> tuple[SessionRecord, ...]:
        """What the store has, with newer ones in place of its own; those used last come first."""
        found = {record.key: record for record in stored}
        records = [self._seen(each) for each in {**found, **self._unwritten}.values()]
        return tuple(sorted(records, key=lambda record: -record.seen_at)[:most])

    def all_known(self, most: int) -> tuple[SessionRecord, ...]:
        """What this life knows; those used last come first."""
        return self.merged(self._written.values(), most)

    def _seen(self, record: SessionRecord) -> SessionRecord:
        at = self._touched.get(record.key, 0.0)
        return record if at <= record.seen_at else attrs.evolve(record, seen_at=at)

    def _idle(self, record: SessionRecord, before: float) -> bool:
        return self._seen(record).seen_at < before

    def _touch_is_written(self, key: str, at: float) -> None:
        if self._touched.get(key, at + 1) <= at:
            del self._touched[key]

    def _bound(self) -> None:
        while len(self._written) + len(self._unwritten) > self._most:
            if self._written:
                del self._written[next(iter(self._written))]
            else:
                del self._unwritten[next(iter(self._unwritten))]
                self.dropped += 1


def _whole(ours: SessionRecord, stored: SessionRecord | None) -> SessionRecord:
    """What was kept here after what is stored."""
    if stored is None:
        return attrs.evolve(ours, partial=False)
    begun = stored.created_at if ours.partial else ours.created_at
    return attrs.evolve(ours, loaded=stored.loaded.joined(ours.loaded), created_at=begun, partial=False)
