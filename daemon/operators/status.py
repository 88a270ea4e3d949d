"""`mcpd status`: the daemon, its servers and sessions, and one server in detail."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import trio

from daemon.config.labels import server_of
from daemon.counting.summary import in_all, summary
from daemon.counting.tally import tokens_in
from daemon.history.event import EventKind
from daemon.history.query import EventQuery
from daemon.history.wording import phrase
from daemon.kit.wording import camel
from daemon.operators.base import Command
from daemon.operators.calls import in_flight
from daemon.operators.events import LOOKED_AT, for_people, recent
from daemon.operators.sessions import connection_status
from daemon.operators.status_servers import instance_status, numbers, server_status
from daemon.operators.tool_reports import view_of
from daemon.processes.marks import memory_by_mark
from daemon.states import ServerState
from daemon.surfaces.table import by_profile
from daemon.upstreams.transports.stdio import child_environment

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


EVENTS = 20
"""The newest events that are shown: a screen of them; `mcpd events SERVER` has all."""

CALLS = 50
"""The oldest calls in flight that are shown: the one that hangs is among them."""


async def status_of_one(context: OperatorContext, name: str, memory: Mapping[int, int]) -> dict[str, object]:
    """All of one: its status, its newest events (newest last), its calls in flight (oldest first).

    Args:
        context: the daemon.
        name: a server's, or an instance's (`server#12`, `server@~/app`).
        memory: resident bytes of each child's tree, by its mark.

    Raises:
        UnknownServer: there is none of that name.
    """
    calls = in_flight(context, name)
    events = await recent(context, server=name, limit=EVENTS * LOOKED_AT)
    return {
        "name": name,
        "server": _status(context, name, memory),
        "lastErrors": failures(context, server_of(name)),
        "events": [_event(each) for each in for_people(events, EVENTS)],
        "calls": calls[:CALLS],
        "moreCalls": max(0, len(calls) - CALLS),
    }


def _status(context: OperatorContext, name: str, memory: Mapping[int, int]) -> dict[str, object]:
    entry = context.catalog.servers.get(name)
    if entry is not None:
        return server_status(context, entry, memory)
    actor = context.actors.get(name)
    if actor is None or actor.of not in context.catalog.servers:
        raise context.unknown(name)
    return instance_status(actor, context, memory)


def failures(context: OperatorContext, server: str) -> list[dict[str, object]]:
    """The last errors of its calls, oldest first; of a server with instances those of all of them."""
    redact = context.redact.of(server)
    return [
        {"at": round(each.at, 3), "tool": redact(each.tool), "code": each.code, "text": redact(each.text)}
        for each in context.counters.recent.failures(server)
    ]


def _event(event: Event) -> dict[str, object]:
    return {
        "at": round(event.at, 3),
        "kind": str(event.kind),
        "instance": event.instance,
        "run": event.run,
        "cause": event.cause,
        "text": phrase(event),
    }


class StatusParams(msgspec.Struct):
    """Whose status is asked for."""

    server: str | None = None
    """A server, or an instance of one; None: that of everything."""


async def status(context: OperatorContext, params: StatusParams) -> dict[str, object]:
    """The status of the daemon, its servers and its sessions, or all that is known of one server.

    Raises:
        UnknownServer: one is asked for that there is not.
    """
    memory = await trio.to_thread.run_sync(memory_by_mark)
    if params.server is not None:
        return await status_of_one(context, params.server, memory)
    return {**status_with(context, memory), "lately": await lately(context)}


STATUS = Command("status", StatusParams, status)


def status_with(context: OperatorContext, memory: Mapping[int, int]) -> dict[str, object]:
    """The status, given what memory the children use.

    Args:
        context: the daemon.
        memory: resident bytes of each child's tree, by its mark.
    """
    catalog, counters = context.catalog, context.counters
    told = {
        "daemon": _daemon(context),
        "servers": {name: server_status(context, entry, memory) for name, entry in catalog.servers.items()},
        "sessions": [connection_status(session) for session in context.clients.statistics()],
        "repairs": counters.mended.by_client(),
        "unresolved": sorted({name for c in catalog.categories.values() for name in c.unresolved}),
        "switchedOff": sorted(f"{server}/{tool}" if tool else server for server, tool in catalog.switched),
        "metrics": _counted(context),
        "connections": context.clients.connections(),
    }
    summarizer = counters.summarizer()
    return told if summarizer is None else {**told, "summarizer": _summarizer(context, summarizer)}


def _daemon(context: OperatorContext) -> dict[str, object]:
    facts, catalog = context.facts, context.catalog
    surface, view = view_of(context)
    shown, offered = sum(len(tool) for tool in surface.list_tools(view)), view.offer.listing_bytes
    tools = [tool for entry in catalog.servers.values() for tool in (entry.tools or {}).values()]
    return {
        "version": facts.version,
        "pid": facts.pid,
        "startedAt": round(facts.started_at, 3),
        "uptimeSeconds": round(context.wall() - facts.started_at, 3),
        "socket": facts.socket,
        "controlSocket": facts.control_socket,
        "config": facts.config,
        "configReadAt": round(_read_at(context), 3),
        "lazy": catalog.config.lazy,
        "surfaces": by_profile(catalog.config),
        "startsAtATime": catalog.config.limits.starts,
        "servers": len(catalog.servers),
        "dormant": sum(entry.status.state is ServerState.DORMANT for entry in catalog.servers.values()),
        "off": sum(entry.disabled for entry in catalog.servers.values()),
        "available": sum(entry.of_use for entry in catalog.servers.values()),
        "tools": len(tools),
        **numbers(catalog.servers.values()),
        "schemaBytes": sum(len(tool.raw) for tool in tools),
        "offeredTools": len(view.offer.tools),
        "offeredBytes": offered,
        "surfaceBytes": shown,
        "estimatedTokensSaved": tokens_in(offered - shown),
        "persistence": _persistence(context),
        **_surroundings(context),
    }


def _read_at(context: OperatorContext) -> float:
    """When the configuration that is in force was read, in seconds since the epoch."""
    reads = (
        event.at
        for event in reversed(context.history.after(0))
        if event.kind is EventKind.RELOADED and not event.text
    )
    return next(reads, context.facts.started_at)


def _surroundings(context: OperatorContext) -> dict[str, object]:
    """Facts for `mcpd doctor`, which cannot read the daemon's process."""
    facts = context.facts
    return {
        "directory": facts.directory,
        "stateDirectory": facts.state,
        "log": facts.log,
        "unrecorded": facts.unrecorded,
        "environment": child_environment(facts.environ, {}),
        "variables": sorted(facts.environ),
    }


def _persistence(context: OperatorContext) -> dict[str, object]:
    persistence = context.archive.persistence.value
    return {
        "state": str(persistence.state),
        "reason": context.redact(persistence.reason),
        "cause": persistence.cause,
        "since": round(persistence.since, 3),
        "where": context.redact(persistence.where),
        "waiting": persistence.waiting,
    }


def _counted(context: OperatorContext) -> dict[str, object]:
    totals = context.archive.totals
    return {**summary(context.counters.tally), "inAll": in_all(totals.known, totals.since)}


def _summarizer(context: OperatorContext, state: Mapping[str, object]) -> dict[str, object]:
    return {
        camel(name): context.redact(value) if isinstance(value, str) else value for name, value in state.items()
    }
