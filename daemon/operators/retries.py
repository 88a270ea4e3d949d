"""Condenses events for people: a server that is tried again and again has one row, which tells why it fails.

Every event is kept as it is, and programs get them all. A dead server adds two a retry, which come every 30 to
60 s: people would see nothing else.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import attrs

from daemon.history.event import EventKind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from daemon.history.event import Event

LOOKED_AT = 20
"""How many times as many events are looked through as are shown: ten retries each."""

_NUMBER = re.compile(r"\d{4,}")
"""Process ids and ports, by which ends that are alike differ; an exit status is shorter."""


def for_people(events: Iterable[Event], most: int) -> list[Event]:
    """The newest events with retries condensed, oldest first; at most so many."""
    return condensed(events)[-most:]


def condensed(events: Iterable[Event]) -> list[Event]:
    """The events, where ends in a row that are alike are one, and the starts between them are left out."""
    shown: dict[int, Event] = {}
    failing: dict[str, list[int]] = {}
    for place, event in enumerate(events):
        name = event.instance or event.server
        if event.kind is EventKind.STARTED and name in failing:
            failing[name].append(place)
        elif event.kind is EventKind.ENDED and event.cause is not None:
            shown[place] = _joined(event, shown, failing.get(name, []))
            failing[name] = [place]
            continue
        elif name:
            failing.pop(name, None)
        shown[place] = event
    return list(shown.values())


def _joined(event: Event, shown: dict[int, Event], row: list[int]) -> Event:
    """The end, counting the one that a row begins with, whose places are no longer shown, if they are alike."""
    if not row or _form(shown[row[0]]) != _form(event):
        return event
    before = shown[row[0]]
    for place in row:
        del shown[place]
    times, first = before.details.get("times", 1), before.details.get("firstAt", before.at)
    assert isinstance(times, int)
    return attrs.evolve(event, details={**event.details, "times": times + 1, "firstAt": first})


def _form(event: Event) -> tuple[object, ...]:
    return event.server, event.cause, _NUMBER.sub("#", event.text)
