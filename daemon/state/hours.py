"""What this daemon has counted by the hour, until that is stored, and all that was counted (`event_rows`)."""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import partial
from typing import TYPE_CHECKING

from daemon.state.event_rows import SECONDS, first_hour, read_hours

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from daemon.state.store_access import StoreAccess

    Increments = Mapping[tuple[int, str], int]
    """What was counted, by the number of the hour since the epoch and the name of the count."""
    ByName = dict[str, list[tuple[int, int]]]
    """When each hour began, in seconds since the epoch, and what was counted in it, oldest first."""


WAITING = 48
"""Hours whose counts wait for a store that cannot be written, and are written again to one that has lost them,
the newest: an outage over a weekend."""


class HourlyCounts:
    """What this daemon has counted and the store does not have yet, by the hour."""

    def __init__(self, count: Callable[[], Mapping[str, int]], wall: Callable[[], float]) -> None:
        """Start with the counters as they are.

        Args:
            count: returns the current counters by name: as few as servers that are measured. They never fall.
            wall: returns seconds since the epoch.
        """
        self._count = count
        self._wall = wall
        self._seen = dict(count())
        self._waiting: Counter[tuple[int, str]] = Counter()
        self._written: Counter[tuple[int, str]] = Counter()

    def gather(self) -> dict[tuple[int, str], int]:
        """The increments to add to the stored counts; those since the last time belong to the hour of now."""
        now, hour = self._count(), first_hour(self._wall())
        for name, count in now.items():
            before = self._seen.get(name, 0)
            # A server that was taken out of the configuration and put back counts from zero.
            self._waiting[hour, name] += count - before if count >= before else count
        self._seen = dict(now)
        self._waiting = _newest(self._waiting, hour)
        return dict(self._waiting)

    def were_written(self, news: Increments) -> None:
        """Note that these increments are in the store."""
        self._waiting.subtract(news)
        self._written.update(news)
        self._written = _newest(self._written, first_hour(self._wall()))

    def start_over(self) -> None:
        """Note that the store has lost everything: what this daemon has counted lately is written again."""
        self._waiting.update(self._written)
        self._written.clear()

    def joined(self, stored: Increments, since: float) -> ByName:
        """All counts, stored or not, by the names of the counts."""
        every, found = Counter(stored), defaultdict(list)
        every.update({key: more for key, more in self.gather().items() if key[0] >= first_hour(since)})
        for (hour, name), count in sorted(every.items()):
            found[name].append((hour * SECONDS, count))
        return dict(found)


def _newest(counts: Counter[tuple[int, str]], hour: int) -> Counter[tuple[int, str]]:
    """The counts of the last `WAITING` hours that are not zero."""
    return Counter({key: more for key, more in counts.items() if more and key[0] > hour - WAITING})


async def hours_since(
    access: StoreAccess, ours: HourlyCounts, since: float
) -> dict[str, list[tuple[int, int]]]:
    """All counts of the hour that a time falls into, and of later ones (`HourlyCounts.joined`).

    Args:
        access: holds the store.
        ours: what the store does not have yet.
        since: seconds since the epoch.

    Raises:
        StoreFault: the store cannot be read now.
    """
    stored = await access.ask(lambda store: store.within(partial(read_hours, since)))
    return ours.joined(stored, since)
