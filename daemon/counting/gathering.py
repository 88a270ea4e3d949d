"""Reports events that may come by the thousand, such as refusals: at once, then once a minute with a count."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import attrs
import trio

from daemon.history.event import Event, EventKind

GATHER_SECONDS = 60.0
"""Seconds in which events of one sort become one event with a count, so that a flood makes 1,440 a day."""

MAX_SORTS = 100
"""Most sorts (door and reason) counted separately; any further ones are counted by kind only."""

Sort: TypeAlias = "tuple[EventKind, str, object, object]"


class Gathering:
    """Notes the first event of a sort, and once a minute the number of further ones."""

    def __init__(self, note: Callable[[Event], None]) -> None:
        self._note = note
        self._since: dict[Sort, tuple[Event, int]] = {}
        self._some = trio.Event()

    def add(self, event: Event) -> None:
        """Count an event of a kind that has a `count`; never blocks."""
        why = event.details.get("reason") or event.details.get("bound")
        whither = event.details.get("door") or event.details.get("host")
        sort = (event.kind, event.server, whither, why)
        if sort not in self._since and len(self._since) >= MAX_SORTS:
            sort = (event.kind, "", None, None)
        if sort in self._since:
            self._since[sort] = event, self._since[sort][1] + 1
            return
        self._since[sort] = event, 0
        self._some.set()
        self._tell(event, 1)

    async def run(self) -> None:
        """Note the counts of each minute until cancelled."""
        while True:
            await self._some.wait()
            await trio.sleep(GATHER_SECONDS)
            self.note_counts()
            if not self._since:
                self._some = trio.Event()

    def note_counts(self) -> None:
        """Note the counts so far."""
        gathered, self._since = self._since, {}
        for sort, (event, count) in gathered.items():
            if count:
                # It goes on, perhaps: the next one is counted as well.
                self._since[sort] = event, 0
                self._tell(event, count)

    def _tell(self, event: Event, count: int) -> None:
        self._note(attrs.evolve(event, details={**event.details, "count": count}))
