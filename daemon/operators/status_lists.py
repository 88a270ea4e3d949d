"""What the status says of servers' prompts, resources and templates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon.catalog.kinds import BESIDE_TOOLS, switch_of
from daemon.catalog.known import NOTHING_KNOWN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from daemon.catalog.snapshot import Catalog, ServerEntry
    from daemon.model import Kind

MAX_NAMED = 100
"""Most prompts, or URIs, of one server that are named as unavailable: it may list ten thousand."""


def numbers(entries: Iterable[ServerEntry]) -> dict[str, object]:
    """How many prompts, resources and templates are known of these servers together."""
    entries = list(entries)
    return {
        f"{kind}s": sum(len(entry.lists.get(kind, NOTHING_KNOWN).definitions) for entry in entries)
        for kind in BESIDE_TOOLS
    }


def lists_of(entry: ServerEntry, catalog: Catalog, redact: Callable[[str], str]) -> dict[str, object]:
    """What a server has beside tools, what of it cannot be had now, and what is wrong with its lists.

    Args:
        entry: what the catalog has of the server.
        catalog: knows what operators have switched off.
        redact: takes the server's secrets out of what it says.
    """
    told = numbers([entry])
    for kind in BESIDE_TOOLS:
        absent = _unavailable(entry, catalog, kind)
        word = f"unavailable{kind.capitalize()}s"
        told[word] = [redact(name) for name in absent[:MAX_NAMED]]
        told[f"{word}Left"] = max(0, len(absent) - MAX_NAMED)
    told["lists"] = {f"{kind}s": _list(entry, catalog, kind, redact) for kind in BESIDE_TOOLS}
    return told


def _list(entry: ServerEntry, catalog: Catalog, kind: Kind, redact: Callable[[str], str]) -> dict[str, object]:
    known = entry.lists.get(kind, NOTHING_KNOWN)
    return {
        "known": kind in entry.lists,
        "recalled": known.recalled,
        "switchedOff": len(known.definitions) - len(_switched_on(entry, catalog, kind)),
        "quarantined": {redact(name): redact(why) for name, why in known.quarantined.items()},
        "hidden": {redact(name): redact(found) for name, found in known.hidden.items()},
        "listingError": redact(known.problem),
    }


def _unavailable(entry: ServerEntry, catalog: Catalog, kind: Kind) -> list[str]:
    """What clients are shown of a server that is down."""
    return [] if entry.usable or entry.disabled else _switched_on(entry, catalog, kind)


def _switched_on(entry: ServerEntry, catalog: Catalog, kind: Kind) -> list[str]:
    listed, off = entry.lists.get(kind, NOTHING_KNOWN).definitions, catalog.switched
    return [name for name in listed if (entry.name, switch_of(kind, name)) not in off]
