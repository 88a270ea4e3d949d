"""`mcpd status`: the daemon, its servers and its sessions as plain data (design.md §6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import trio

from daemon.counting.summary import in_all, summary
from daemon.counting.tally import tokens_in
from daemon.history.event import EventKind
from daemon.kit.wording import camel
from daemon.operators.base import Command
from daemon.operators.grounds import why
from daemon.operators.lately import lately
from daemon.operators.status_lists import numbers
from daemon.operators.status_one import status_of_one
from daemon.operators.status_servers import server_status
from daemon.operators.tools import view_of
from daemon.processes.marks import memory_by_mark
from daemon.states import ServerState
from daemon.surfaces.table import by_profile
from daemon.upstreams.transports.stdio import child_environment

if TYPE_CHECKING:
    from collections.abc import Mapping

    from daemon.clients.context import SessionStatistics
    from daemon.operators.base import OperatorContext


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
        "sessions": [_session(session) for session in context.clients.statistics()],
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


def _session(session: SessionStatistics) -> dict[str, object]:
    return {
        "number": session.number,
        "key": session.key,
        "client": session.client,
        "token": session.token or None,
        "protocol": session.protocol,
        "profile": session.profile,
        "surface": session.surface,
        "servers": list(session.servers),
        "surfaceGrounds": str(session.choice.grounds),
        "surfaceWhy": why(session.choice),
        "workspace": session.workspace,
        "instances": list(session.instances),
        "since": round(session.since, 3),
        "calls": session.calls,
        "inFlight": session.in_flight,
        "loadedTools": session.loaded,
        "repairedCalls": session.repaired,
        "estimatedTokensNotSent": session.tokens_not_sent,
        "defersTools": session.tokens_not_sent is None,
    }
