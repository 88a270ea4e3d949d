"""How much of an event is kept: what servers say has no bound of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from daemon.history.event import Detail, Event

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
