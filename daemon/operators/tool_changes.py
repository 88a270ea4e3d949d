"""When a tool last came, changed or went, and what of it has changed, as far as the history has that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from daemon.history.event import EventKind
from daemon.history.query import EventQuery
from daemon.history.wording import of_tool

if TYPE_CHECKING:
    from collections.abc import Sequence

    from daemon.history.event import Event
    from daemon.operators.base import OperatorContext

MOST = 200
"""The most changes of a server's lists that are looked through, the newest: some milliseconds."""

_KINDS = frozenset({EventKind.LISTS_CHANGED})

_EXPLAINED = frozenset({"invalid_changed", "invalid_deleted", "invalid_renamed"})
"""Statuses of loaded tools that a change of a server's list has brought about."""


async def last_change(context: OperatorContext, server: str, name: str) -> dict[str, object] | None:
    """When a tool of a server last came, changed or went (`at`), and what it was in words (`what`)."""
    return _told(await _changes(context, server), name)


async def explain(context: OperatorContext, loaded: Sequence[dict[str, Any]]) -> None:
    """Add to loaded tools that their servers have changed since: when that was, and what (`changed`).

    Args:
        context: the daemon.
        loaded: as `mcpd sessions KEY` tells them.
    """
    lost = [tool for tool in loaded if tool["status"] in _EXPLAINED]
    for server in dict.fromkeys(tool["server"] for tool in lost):
        of_server = [tool for tool in lost if tool["server"] == server]
        events = await _changes(context, server, min(tool["loadedAt"] for tool in of_server))
        for tool in of_server:
            told = _told([event for event in events if event.at >= tool["loadedAt"]], tool["name"])
            if told is not None:
                tool["changed"] = told


async def _changes(context: OperatorContext, server: str, since: float = 0.0) -> Sequence[Event]:
    return await context.history.recent(EventQuery(server=server, kinds=_KINDS, since=since, limit=MOST))


def _told(events: Sequence[Event], name: str) -> dict[str, object] | None:
    """The newest change of one tool among those of its server's lists."""
    for event in reversed(events):
        if what := of_tool(event, name):
            return {"at": round(event.at, 3), "what": what}
    return None
