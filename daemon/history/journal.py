"""The history of this daemon's life, in memory: the newest events, in order, for readers and for the store."""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING

import attrs
import msgspec

from daemon.history.encoding import body_of
from daemon.kit.waiting import Watch

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from daemon.history.event import Detail, Event
    from daemon.history.query import EventQuery


TEXT = 2048
"""The most characters of an event's text: a reason quotes some lines of a server at most."""

DETAIL = 500
"""The most characters of a text among the details, such as a name or a line of stderr: a few lines of text."""

NAMES = 100
"""The most entries of a list, or of a mapping, among the details: `mcpd tools` has all tools."""

DETAILS = 32 * 1024
"""The bytes of JSON beyond which the lists among an event's details are cut shorter: a server that changes
all of its tools again and again would fill the store with their names."""

SHORTER = (NAMES, 10, 3)
"""The most entries of those lists: one bound after the other until the details fit, or the last."""

LEVELS = 3
"""How deep details nest: a list by kind of change by kind of list."""


def bounded(event: Event, redact: Callable[[str, int], str]) -> Event:
    """The event without secrets, and no larger than the bounds above.

    Args:
        event: the event.
        redact: takes secrets out of a text and cuts it to a number of characters.
    """
    return attrs.evolve(
        event,
        server=redact(event.server, DETAIL),
        instance=redact(event.instance, DETAIL),
        session=redact(event.session, DETAIL),
        text=redact(event.text, TEXT),
        cause_data={
            name: redact(value, DETAIL) if isinstance(value, str) else value
            for name, value in event.cause_data.items()
        },
        details=_details(event.details, redact),
    )


def _details(details: Mapping[str, Detail], redact: Callable[[str, int], str]) -> dict[str, Detail]:
    kept: dict[str, Detail] = {}
    for most in SHORTER:
        kept = _mapping(details, redact, LEVELS, most)
        if len(msgspec.json.encode(kept)) <= DETAILS:
            break
    return kept


def _mapping(
    details: Mapping[str, Detail], redact: Callable[[str, int], str], levels: int, most: int
) -> dict[str, Detail]:
    # The outermost names are ours, and few.
    entries = NAMES if levels == LEVELS else most
    kept: dict[str, Detail] = {}
    for name, value in list(details.items())[:entries]:
        kept[redact(name, DETAIL)] = _value(value, redact, levels, most)
        if isinstance(value, (list, tuple)) and len(value) > most:
            kept[f"{name}More"] = len(value) - most
    if len(details) > entries:
        kept["more"] = len(details) - entries
    return kept


def _value(value: Detail, redact: Callable[[str, int], str], levels: int, most: int) -> Detail:
    if isinstance(value, str):
        return redact(value, DETAIL)
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if levels == 0:
        return None
    if isinstance(value, (list, tuple)):
        return [_value(each, redact, levels - 1, most) for each in value[:most]]
    assert isinstance(value, dict), "a detail is what JSON has"
    return _mapping(value, redact, levels - 1, most)


KEPT = 10_000
"""Events that are kept in memory: a busy hour of fifty servers, in a few megabytes. What the store has not
taken by then it never gets."""

KEPT_BYTES = 16 * 1024 * 1024
"""What the events in memory have as JSON, at most, but for the newest: a hostile server's have tens of
kilobytes each."""


def _cut(_server: str, text: str, most: int) -> str:
    return text[:most]


async def _nothing_stored(_query: EventQuery) -> Sequence[Event] | None:
    return None


class History:
    """Takes events, numbers them, and keeps the newest."""

    def __init__(
        self,
        wall: Callable[[], float],
        life: str = "",
        redact: Callable[[str, str, int], str] = _cut,
    ) -> None:
        """Start empty.

        Args:
            wall: returns seconds since the epoch.
            life: names this life of this daemon among others on the same store.
            redact: takes the secrets that a server (empty: the daemon) may know out of a text, and cuts it to a
                number of characters.
        """
        self.newest: Watch[Event | None] = Watch(None)
        """The newest event; None before the first."""
        self.news: Watch[object] = Watch(None)
        """Another object whenever there may be new events, here or from others in the store."""
        self.life = life
        """The name of this life."""
        self.listeners: list[Callable[[Event], None]] = []
        """Called with each event as it is kept; they must neither block nor raise."""
        self.stored: Callable[[EventQuery], Awaitable[Sequence[Event] | None]] = _nothing_stored
        """Reads events of all lives from the store; None if that cannot be read now."""
        self.is_shared = False
        """Whether other daemons write to the same store."""
        self._events: deque[Event] = deque()
        self._sizes: deque[int] = deque()
        """The bytes of each of them as JSON."""
        self._bytes = 0
        self._wall = wall
        self._redact = redact
        self._number = 0

    @property
    def number(self) -> int:
        """The number of the newest event, which is the count of all."""
        return self._number

    def note(self, event: Event) -> None:
        """Take an event, without its secrets; never blocks."""
        self._number += 1
        kept = bounded(event, lambda text, most: self._redact(event.server, text, most))
        noted = attrs.evolve(kept, number=self._number, life=self.life, at=event.at or self._wall())
        self._keep(noted)
        for listener in self.listeners:
            listener(noted)
        self.newest.set(noted)
        self.news.set(noted)

    def _keep(self, event: Event) -> None:
        self._events.append(event)
        self._sizes.append(len(body_of(event)))
        self._bytes += self._sizes[-1]
        while len(self._events) > 1 and (len(self._events) > KEPT or self._bytes > KEPT_BYTES):
            self._events.popleft()
            self._bytes -= self._sizes.popleft()

    def now(self) -> float:
        """The time by which events are dated, in seconds since the epoch."""
        return self._wall()

    def after(self, number: int) -> list[Event]:
        """The kept events with a higher number, oldest first."""
        newest = list(islice(reversed(self._events), max(0, self._number - number)))
        return newest[::-1]

    async def recent(self, query: EventQuery) -> list[Event]:
        """The events that somebody asks for, oldest first: from memory, and from the store what that lacks."""
        kept = [event for event in self.after(query.seen.get(self.life, 0)) if query.matches(event)]
        if not self.is_shared and not query.oldest and len(kept) >= query.limit:
            return kept[-query.limit :]
        if not self.is_shared and self._reaches_back(query):
            return kept[: query.limit]
        stored = await self.stored(query) or ()
        together = joined(stored, kept)
        return together[: query.limit] if query.oldest else together[-query.limit :]

    def _reaches_back(self, query: EventQuery) -> bool:
        """Whether the caller has had everything that is not in memory: a later event of this life."""
        seen = query.seen.get(self.life)
        return query.oldest and seen is not None and seen >= self._number - len(self._events)


def joined(stored: Iterable[Event], kept: Iterable[Event]) -> list[Event]:
    """Events from both places in the order in which they happened, each once."""
    found = {(event.life, event.number): event for event in (*stored, *kept)}
    return sorted(found.values(), key=_order)


def _order(event: Event) -> tuple[float, str, int]:
    return event.at, event.life, event.number
