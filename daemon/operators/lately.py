"""What of the last hours a status still has to tell: outages that are over, and tools that have changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon.history.event import EventKind
from daemon.history.query import EventQuery

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from daemon.history.event import Event
    from daemon.operators.base import OperatorContext

LATELY_SECONDS = 12 * 3600.0
"""How far back it looks: in the morning, to the evening before."""

MOST = 500
"""The most events that are looked through, the newest: some milliseconds."""

_KINDS = frozenset({EventKind.READY, EventKind.LISTS_CHANGED})


async def lately(context: OperatorContext) -> dict[str, object]:
    """What is over, by server: `outages`, their `awaySeconds`, and the tools that `changed`, `came`, `went`."""
    since = context.history.now() - LATELY_SECONDS
    events = await context.history.recent(EventQuery(kinds=_KINDS, since=since, limit=MOST))
    configured = context.config.mcp_servers
    told = summed(event for event in events if event.server in configured)
    return {"seconds": LATELY_SECONDS, "servers": told}


def summed(events: Iterable[Event]) -> dict[str, dict[str, object]]:
    """What these events say together of each server; nothing of those of which there is nothing to say.

    Args:
        events: what happened, oldest first.
    """
    outages: dict[str, list[float]] = {}
    tools: dict[str, dict[str, str]] = {}
    for event in events:
        away = event.details.get("awaySeconds")
        if isinstance(away, (int, float)):
            outages.setdefault(event.server, []).append(float(away))
        found = event.details.get("tools")
        if isinstance(found, dict):
            _change(tools.setdefault(event.server, {}), found)
    told: dict[str, dict[str, object]] = {}
    for server in dict.fromkeys([*outages, *tools]):
        lengths, changes = outages.get(server, []), tools.get(server, {})
        if lengths or changes:
            told[server] = {"outages": len(lengths), "awaySeconds": round(sum(lengths), 1)}
            for how in ("changed", "came", "went"):
                told[server][how] = sorted(name for name, what in changes.items() if what == how)
    return told


def _change(known: dict[str, str], found: Mapping[str, object]) -> None:
    """Add the changes of one list: what went and came back is changed, what came and went was never there."""
    for how in ("went", "came", "changed"):
        names = found.get(how)
        for name in names if isinstance(names, (list, tuple)) else ():
            before = known.pop(name, "")
            if {before, how} == {"came", "went"}:
                if before == "went":
                    known[name] = "changed"
            else:
                known[name] = "came" if before == "came" else how
