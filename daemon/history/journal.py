"""The history of this daemon's life in memory: the newest events in order, queries, and JSON."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import attrs
import msgspec

from daemon.causes import Cause
from daemon.history.event import Event, EventKind
from daemon.history.event_words import of_tool, sentence
from daemon.kit.waiting import Watch

if TYPE_CHECKING:
    from daemon.history.event import Detail


class EventQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Selects events; an empty field does not restrict."""

    server: str = ""
    """A server's name, for all of its instances."""
    instance: str = ""
    """An instance's name."""
    session: str = ""
    """A session's key, or its connection's number (`#12`)."""
    loaded: Mapping[tuple[str, str], float] = msgspec.field(default_factory=dict)
    """When this session loaded each of its tools, whose changes also concern the session."""
    life: str = ""
    """The life of one daemon."""
    kinds: frozenset[EventKind] = frozenset()
    since: float = 0.0
    """The earliest time, in seconds since the epoch."""
    until: float = math.inf
    """The latest time, in seconds since the epoch."""
    seen: Mapping[str, int] = msgspec.field(default_factory=dict)
    """For each life the number of the last event that the caller has; earlier events are left out."""
    fresh: float = 0.0
    """The earliest time of events from lives that are not in `seen`."""
    limit: int = 50
    oldest: bool = False
    """Whether to return the oldest events, for a caller that continues from there; else the newest."""

    def matches(self, event: Event) -> bool:
        """Whether the query selects an event."""
        return (
            event.at >= (self.since if event.life in self.seen else max(self.since, self.fresh))
            and event.at <= self.until
            and (not self.server or event.server == self.server)
            and (not self.instance or event.instance == self.instance)
            and (not self.session or event.session == self.session or self._has_changed_loaded(event))
            and (not self.life or event.life == self.life)
            and (not self.kinds or event.kind in self.kinds)
            and event.number > self.seen.get(event.life, 0)
        )

    def _has_changed_loaded(self, event: Event) -> bool:
        return event.kind is EventKind.LISTS_CHANGED and any(
            server == event.server and event.at >= at and of_tool(event, name)
            for (server, name), at in self.loaded.items()
        )


class _Body(msgspec.Struct, omit_defaults=True):
    """The part of an event without a column in the store's table; empty values are left out."""

    run: int = 0
    text: str = ""
    cause: Cause | None = None
    cause_data: dict[str, Any] = msgspec.field(default_factory=dict, name="data")
    details: dict[str, Any] = {}


_decode = msgspec.json.Decoder(_Body).decode

COLUMNS = ("life", "number", "at", "server", "instance", "session")
"""Fields of events with separate columns in the store's table, besides the kind."""


def as_json(event: Event) -> dict[str, object]:
    """An event for programs; `message` is its sentence for people."""
    return {
        "at": event.at,
        "kind": str(event.kind),
        "server": event.server or None,
        "instance": event.instance or None,
        "session": event.session or None,
        "run": event.run or None,
        "message": sentence(event),
        "isBad": event.is_bad,
        "text": event.text,
        "cause": None if event.cause is None else str(event.cause),
        "causeData": event.cause_data,
        "details": event.details,
        "daemon": event.life,
        "number": event.number,
    }


def body_of(event: Event) -> bytes:
    """The part of an event without a column, for the store."""
    data, details = dict(event.cause_data), dict(event.details)
    body = _Body(run=event.run, text=event.text, cause=event.cause, cause_data=data, details=details)
    return msgspec.json.encode(body)


def stored_event(cells: Mapping[str, Any]) -> Event | None:
    """The event in a row of the store; None for a row from a later mcpd, or one edited by hand."""
    try:
        body = msgspec.structs.asdict(_decode(cells["body"]))
        return Event(kind=EventKind(cells["kind"]), **{name: cells[name] for name in COLUMNS}, **body)
    except (ValueError, TypeError, msgspec.MsgspecError):
        return None


TEXT = 2048
"""Most characters of an event's text: a reason quotes at most some lines of a server."""

DETAIL = 500
"""Most characters of a text in the details, such as a name or a line of stderr."""

NAMES = 100
"""Most entries of a list or mapping in the details; `mcpd tools` has all tools."""

DETAILS = 32 * 1024
"""Bytes of JSON above which lists in the details are shortened, so that no server fills the store."""

SHORTER = (NAMES, 10, 3)
"""Most entries of those lists: one limit after the other, until the details fit."""

LEVELS = 3
"""Most levels of nested details: a list by kind of change by kind of list."""


def bounded(event: Event, redact: Callable[[str, int], str]) -> Event:
    """The event within these limits, its texts cut and cleared of secrets by `redact`."""
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
        # The outermost names are ours, and few.
        kept = _mapping(details, redact, LEVELS, most, NAMES)
        if len(msgspec.json.encode(kept)) <= DETAILS:
            break
    return kept


def _mapping(
    details: Mapping[str, Detail], redact: Callable[[str, int], str], levels: int, most: int, entries: int
) -> dict[str, Detail]:
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
    if not isinstance(value, (list, tuple, dict)):
        return value
    if levels == 0:
        return None
    if isinstance(value, dict):
        return _mapping(value, redact, levels - 1, most, most)
    return [_value(each, redact, levels - 1, most) for each in value[:most]]


KEPT = 10_000
"""Most events in memory: a busy hour of fifty servers, in a few megabytes."""

KEPT_BYTES = 16 * 1024 * 1024
"""Most bytes of events in memory as JSON, without the newest: a hostile server's have tens of kB each."""


def _cut(_server: str, text: str, most: int) -> str:
    return text[:most]


async def _nothing_stored(_query: EventQuery) -> Sequence[Event] | None:
    return None


class History:
    """Takes events, numbers them, and keeps the newest."""

    def __init__(
        self, wall: Callable[[], float], life: str = "", redact: Callable[[str, str, int], str] = _cut
    ) -> None:
        """Start empty; `redact` removes the secrets of a server ("": the daemon) from a text, and cuts it."""
        self.newest: Watch[Event | None] = Watch(None)
        """The newest event; None before the first."""
        self.news: Watch[object] = Watch(None)
        """Set to a new object whenever there may be new events, here or from others in the store."""
        self.life = life
        """The name of this life."""
        self.listeners: list[Callable[[Event], None]] = []
        """Functions called with each event once it is kept; they must neither block nor raise."""
        self.stored: Callable[[EventQuery], Awaitable[Sequence[Event] | None]] = _nothing_stored
        """Reads events of all lives from the store; None if the store cannot be read now."""
        self.is_shared = False
        """Whether other daemons write to the same store."""
        self._events: deque[Event] = deque()
        self._sizes: deque[int] = deque()
        """The bytes of each event as JSON."""
        self._bytes = 0
        self.now = wall
        """Returns the time for dating events, in seconds since the epoch."""
        self._redact = redact
        self.number = 0
        """The newest event's number, which is also the count of all."""

    def note(self, event: Event) -> None:
        """Keep an event, without its secrets; never blocks."""
        self.number += 1
        kept = bounded(event, lambda text, most: self._redact(event.server, text, most))
        noted = attrs.evolve(kept, number=self.number, life=self.life, at=event.at or self.now())
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

    def after(self, number: int) -> list[Event]:
        """The kept events with a higher number, oldest first."""
        newest = list(islice(reversed(self._events), max(0, self.number - number)))
        return newest[::-1]

    async def recent(self, query: EventQuery) -> list[Event]:
        """The events that a query selects, oldest first: from memory, then from the store if need be."""
        kept = [event for event in self.after(query.seen.get(self.life, 0)) if query.matches(event)]
        if not self.is_shared and not query.oldest and len(kept) >= query.limit:
            return kept[-query.limit :]
        if not self.is_shared and self._reaches_back(query):
            return kept[: query.limit]
        stored = await self.stored(query) or ()
        together = joined(stored, kept)
        return together[: query.limit] if query.oldest else together[-query.limit :]

    def _reaches_back(self, query: EventQuery) -> bool:
        """Whether memory has every event of this life that the caller lacks."""
        seen = query.seen.get(self.life)
        return query.oldest and seen is not None and seen >= self.number - len(self._events)


def joined(stored: Iterable[Event], kept: Iterable[Event]) -> list[Event]:
    """Events from store and memory in the order in which they happened, each once."""
    found = {(event.life, event.number): event for event in (*stored, *kept)}
    return sorted(found.values(), key=lambda event: (event.at, event.life, event.number))
