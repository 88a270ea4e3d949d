"""Counts that go on over restarts: what the store has, and what was counted since and is not written yet.

The store is told increments, so several daemons on one add up. A write of which nobody knows whether it came to
its end may be counted twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Counts = Mapping[str, int]


class Totals:
    """Keeps account. Without I/O."""

    def __init__(self, count: Callable[[], Counts]) -> None:
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
        return {name: more for name, now in self._count().items() if (more := now - self._written.get(name, 0))}

    def read(self, stored: Counts, since: float) -> None:
        """The store has this much."""
        self._stored, self.since = dict(stored), since

    def start_over(self) -> None:
        """The store has lost everything: all that is known is to be written."""
        now, known = self._count(), self.known
        self._written = {name: now.get(name, 0) - known[name] for name in known}
        self._stored = {}

    def were_written(self, news: Counts, at: float) -> None:
        """These increments are in the store."""
        for name, more in news.items():
            self._stored[name] = self._stored.get(name, 0) + more
            self._written[name] = self._written.get(name, 0) + more
        if news:
            self.since = self.since or at
