"""The page of all servers: which are not well, why, and what helps; the worst first."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from daemon.console.page import ConsolePage, Fragment, element_id, with_query
from daemon.console.pages.server import MINUTES, memory_now, server_facts
from daemon.states import WELL, WORST_FIRST

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from daemon.console.page import Viewer
    from daemon.operators.base import OperatorContext

_RANK = {state: rank for rank, state in enumerate(WORST_FIRST)}


async def _fragments(viewer: Viewer) -> Mapping[str, Sequence[Fragment]]:
    context = viewer.context
    names = shown(context, viewer.query)
    memory = await memory_now(context)
    # As of now: a reload may have removed some meanwhile.
    rows = [
        Fragment(
            id=(element := element_id("server", name)),
            template="servers_row.html",
            values={
                "element": element,
                **server_facts(context, name, memory),
                "may_change": viewer.may_change,
            },
        )
        for name in names
        if name in context.catalog.servers
    ]
    return {"servers-summary": [_summary(context, viewer.query, len(rows))], "servers": rows}


SERVERS = ConsolePage(path="/servers", title="Servers", template="servers.html", fragments=_fragments)


def shown(context: OperatorContext, query: Mapping[str, str]) -> list[str]:
    """The names of the servers that a query asks for, in its order.

    Args:
        context: the daemon.
        query: `q`: a part of the name or the title; `only`: `trouble`, or a state; `sort`: `name`.
    """
    servers, wanted, only = context.catalog.servers, query.get("q", "").lower(), query.get("only", "")
    found = [
        name
        for name, entry in servers.items()
        if (wanted in name.lower() or wanted in context.config.mcp_servers[name].title.lower())
        and (not only or only == entry.status.state or (only == "trouble" and entry.status.state not in WELL))
    ]
    if query.get("sort") == "name":
        return sorted(found)
    return sorted(found, key=lambda name: _RANK[servers[name].status.state])


def _summary(context: OperatorContext, query: Mapping[str, str], count: int) -> Fragment:
    states = Counter(entry.status.state for entry in context.catalog.servers.values())
    kept = {"q": query.get("q", ""), "sort": query.get("sort", "")}
    return Fragment(
        id="summary",
        template="servers_summary.html",
        values={
            "states": [
                {
                    "state": str(state),
                    "count": states[state],
                    "address": with_query("/servers", **kept, only=str(state)),
                    "current": query.get("only") == state,
                }
                for state in WORST_FIRST
                if states[state]
            ],
            "all": {"address": with_query("/servers", **kept), "current": not query.get("only")},
            "count": count,
            "total": sum(states.values()),
            "minutes": MINUTES,
        },
    )
