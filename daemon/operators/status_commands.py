"""`mcpd status`: the daemon, its servers and sessions, and one server in detail; `mcpd metrics`: counters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import trio

from daemon.config.labels import server_of
from daemon.counting.summary import in_all, summary
from daemon.counting.tally import tokens_in
from daemon.history.event import EventKind
from daemon.history.event_words import phrase
from daemon.history.query import EventQuery
from daemon.kit.wording import camel
from daemon.operators.base import Command, NoParams
from daemon.operators.call_commands import in_flight
from daemon.operators.event_commands import LOOKED_AT, for_people, recent
from daemon.operators.session_commands import connection_status
from daemon.operators.status_servers import beside_tools, instance_status, server_status
from daemon.operators.tool_reports import view_of
from daemon.processes.marks import memory_by_mark
from daemon.states import ServerState
from daemon.surfaces.table import by_profile
from daemon.upstreams.transports.stdio import child_environment

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from daemon.history.event import Event
    from daemon.operators.base import OperatorContext
    from daemon.operators.reports import (
        DaemonReport,
        FailureReport,
        LatelyReport,
        OneStatusReport,
        OverReport,
        ServerReport,
        StatusReport,
    )


LATELY_SECONDS = 12 * 3600.0
"""How far back it looks: in the morning, to the evening before."""

MOST = 500
"""The most events that are looked through, the newest: some milliseconds."""

_KINDS = frozenset({EventKind.READY, EventKind.LISTS_CHANGED})


async def lately(context: OperatorContext) -> LatelyReport:
    """What is over, by server: `outages`, their `awaySeconds`, and the tools that `changed`, `came`, `went`."""
    since = context.history.now() - LATELY_SECONDS
    events = await context.history.recent(EventQuery(kinds=_KINDS, since=since, limit=MOST))
    configured = context.config.mcp_servers
    told = summed(event for event in events if event.server in configured)
    return {"seconds": LATELY_SECONDS, "servers": told}


def summed(events: Iterable[Event]) -> dict[str, OverReport]:
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
    told: dict[str, OverReport] = {}
    for server in dict.fromkeys([*outages, *tools]):
        lengths, changes = outages.get(server, []), tools.get(server, {})
        if lengths or changes:
            changed, came, went = (
                sorted(name for name, what in changes.items() if what == how)
                for how in ("changed", "came", "went")
            )
            told[server] = {
                "outages": len(lengths),
                "awaySeconds": round(sum(lengths), 1),
                "changed": changed,
                "came": came,
                "went": went,
            }
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


async def status_of_one(context: OperatorContext, name: str, memory: Mapping[int, int]) -> OneStatusReport:
    """All of one: its status, its newest events (newest last), its calls in flight (oldest first).

    Args:
        context: the daemon.
        name: a server's, or an instance's (`server#12`, `server@~/app`).
        memory: resident bytes of each child's tree, by its mark.

    Raises:
        UnknownServer: there is none of that name.
    """
    calls, entry, actor = in_flight(context, name), context.catalog.servers.get(name), context.actors.get(name)
    server: ServerReport
    if entry is not None:
        server = server_status(context, entry, memory)
    elif actor is not None and actor.of in context.catalog.servers:
        server = instance_status(actor, context, memory)
    else:
        raise context.unknown(name)
    events = await recent(context, server=name, limit=EVENTS * LOOKED_AT)
    return {
        "name": name,
        "server": server,
        "lastErrors": failures(context, server_of(name)),
        "events": [
            {
                "at": round(event.at, 3),
                "kind": str(event.kind),
                "instance": event.instance,
                "run": event.run,
                "cause": event.cause,
                "text": phrase(event),
            }
            for event in for_people(events, EVENTS)
        ],
        "calls": calls[:CALLS],
        "moreCalls": max(0, len(calls) - CALLS),
    }


def failures(context: OperatorContext, server: str) -> list[FailureReport]:
    """The last errors of its calls, oldest first; of a server with instances those of all of them."""
    redact = context.redact.of(server)
    return [
        {"at": round(each.at, 3), "tool": redact(each.tool), "code": each.code, "text": redact(each.text)}
        for each in context.counters.recent.failures(server)
    ]


class StatusParams(msgspec.Struct):
    """Whose status is asked for."""

    server: str | None = None
    """A server, or an instance of one; None: that of everything."""


async def status(context: OperatorContext, params: StatusParams) -> StatusReport | OneStatusReport:
    """The status of the daemon, its servers and its sessions, or all that is known of one server.

    Raises:
        UnknownServer: one is asked for that there is not.
    """
    memory = await trio.to_thread.run_sync(memory_by_mark)
    if params.server is not None:
        return await status_of_one(context, params.server, memory)
    return {**status_with(context, memory), "lately": await lately(context)}


STATUS = Command("status", StatusParams, status)


def status_with(context: OperatorContext, memory: Mapping[int, int]) -> StatusReport:
    """The status, given what memory the children use.

    Args:
        context: the daemon.
        memory: resident bytes of each child's tree, by its mark.
    """
    catalog, counters, totals = context.catalog, context.counters, context.archive.totals
    told: StatusReport = {
        "daemon": _daemon(context),
        "servers": {name: server_status(context, entry, memory) for name, entry in catalog.servers.items()},
        "sessions": [connection_status(session) for session in context.clients.statistics()],
        "repairs": counters.mended.by_client(),
        "unresolved": sorted({name for c in catalog.categories.values() for name in c.unresolved}),
        "switchedOff": sorted(f"{server}/{tool}" if tool else server for server, tool in catalog.switched),
        "metrics": {**summary(counters.tally), "inAll": in_all(totals.known, totals.since)},
        "connections": context.clients.connections(),
    }
    if (state := counters.summarizer()) is not None:
        told["summarizer"] = {
            camel(name): context.redact(value) if isinstance(value, str) else value
            for name, value in state.items()
        }
    return told


def _daemon(context: OperatorContext) -> DaemonReport:
    facts, catalog, kept = context.facts, context.catalog, context.archive.persistence.value
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
        **beside_tools(catalog.servers.values()),
        "schemaBytes": sum(len(tool.raw) for tool in tools),
        "offeredTools": len(view.offer.tools),
        "offeredBytes": offered,
        "surfaceBytes": shown,
        "estimatedTokensSaved": tokens_in(offered - shown),
        "persistence": {
            "state": str(kept.state),
            "reason": context.redact(kept.reason),
            "cause": kept.cause,
            "since": round(kept.since, 3),
            "where": context.redact(kept.where),
            "waiting": kept.waiting,
        },
        # What follows is for `mcpd doctor`, which cannot read the daemon's process.
        "directory": facts.directory,
        "stateDirectory": facts.state,
        "log": facts.log,
        "unrecorded": facts.unrecorded,
        "environment": child_environment(facts.environ, {}),
        "variables": sorted(facts.environ),
    }


def _read_at(context: OperatorContext) -> float:
    """When the configuration that is in force was read, in seconds since the epoch."""
    reads = (
        event.at
        for event in reversed(context.history.after(0))
        if event.kind is EventKind.RELOADED and not event.text
    )
    return next(reads, context.facts.started_at)


async def metrics(context: OperatorContext, _params: NoParams) -> dict[str, str]:
    """All metrics in the text format of Prometheus: `{"text": ...}`.

    Raises:
        InvalidArguments: the configuration switches metrics off.
    """
    return {"text": await context.counters.export()}


METRICS = Command("metrics", NoParams, metrics)
