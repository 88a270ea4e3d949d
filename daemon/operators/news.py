"""Changes of a server's tools and of the surfaces, as data and as lines of the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from daemon.catalog.snapshot import ServerEntry
    from daemon.model import Tool

NAMED = 10
"""The most tools of each kind, and the most profiles, that a line of the log names. `mcpd tools` has all tools,
`mcpd status --json` all profiles."""


def switches(*, lazy: bool, surfaces: Mapping[str, str]) -> str:
    """A line that says whether lazy loading is on, and what each profile shows.

    Args:
        lazy: the configuration's switch.
        surfaces: the surface of each profile.
    """
    if not lazy:
        return "lazy loading is off: every profile lists all tools"
    told = [f"{name} shows {surface}" for name, surface in list(surfaces.items())[:NAMED]]
    more = [f"{len(surfaces) - NAMED} more"] if len(surfaces) > NAMED else []
    return f"lazy loading is on; by profile: {', '.join([*told, *more])}"


def difference(before: ServerEntry, after: ServerEntry) -> dict[str, object]:
    """The changes that a new list of tools has brought, as data."""
    listed = after.tools or {}
    # Nearly always the list is the same, and then it is the same object.
    had, has = ({}, {}) if before.tools is after.tools else (before.tools or {}, listed)
    return {
        "state": str(after.status.state),
        "epoch": after.epoch,
        "tools": len(listed),
        "came": [name for name in has if name not in had],
        "went": [name for name in had if name not in has],
        "changed": _changed(had, has),
        "renamed": {old: new for old, new in after.renamed.items() if old in had and new not in had},
    }


def news(before: ServerEntry, after: ServerEntry) -> str:
    """The same changes as a line of the log; empty if nothing changed or nothing was known before."""
    if before.tools is None or before.epoch == after.epoch:
        return ""
    found = difference(before, after)
    parts = [_some(word, found[word]) for word in ("came", "went", "changed") if found[word]]
    if parts:
        return f"epoch {after.epoch}: its tools have changed: {'; '.join(parts)}"
    if before.disabled != after.disabled:
        return f"epoch {after.epoch}: it was switched {'off' if after.disabled else 'on'}"
    return f"epoch {after.epoch}: as other daemons know it, or tools were switched on or off"


def _some(word: str, names: object) -> str:
    assert isinstance(names, list)
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"{len(names)} {word} ({', '.join(names[:NAMED])}{more})"


def _changed(had: Mapping[str, Tool], has: Mapping[str, Tool]) -> list[str]:
    both = ((name, had[name], tool) for name, tool in has.items() if name in had)
    return [name for name, one, other in both if one is not other and one.schema_hash != other.schema_hash]
