"""`mcpd status`: the daemon, its servers and sessions, or one server in detail; `mcpd metrics`: counters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import inf
from typing import TYPE_CHECKING, Any, cast

import msgspec
import trio

from daemon.catalog.kinds import BESIDE_TOOLS, switch_of
from daemon.causes import Cause
from daemon.config.labels import server_of
from daemon.counting.tally import in_all, summary, tokens_in
from daemon.history.event import EventKind
from daemon.history.event_words import phrase
from daemon.kit.wording import camel, counted
from daemon.operators.base import Command, NoParams, OperatorContext, ServerOrAll, ShownSizes
from daemon.operators.call_commands import in_flight, last_hour
from daemon.operators.event_commands import LOOKED_AT, for_people, recent
from daemon.operators.news import held_in, held_report, lately
from daemon.operators.session_commands import connection_status
from daemon.operators.tool_reports import view_of
from daemon.processes.marks import memory_by_mark
from daemon.states import ServerState
from daemon.supervision.lifecycle import by_cause
from daemon.surfaces.table import by_profile
from daemon.upstreams.transports.stdio import INHERITED

if TYPE_CHECKING:
    from daemon.catalog.snapshot import Catalog, ServerEntry
    from daemon.config.config_model import Server
    from daemon.facts import ServerStatus
    from daemon.operators import reports
    from daemon.sandbox.egress import SeenHosts
    from daemon.upstreams.handshake import Keepalive
    from daemon.upstreams.servers import InstancedServer
    from daemon.upstreams.upstream_access import UpstreamAccess


MAX_NAMED = 100  # most prompts, or URIs, of one server named as unavailable: it may list ten thousand


def beside_tools(entries: Iterable[ServerEntry]) -> reports.BesideToolsReport:
    """The numbers of prompts, resources and templates that these servers list, as far as known."""
    entries = list(entries)
    counts = {f"{kind}s": sum(len(each.list_of(kind).definitions) for each in entries) for kind in BESIDE_TOOLS}
    return cast("reports.BesideToolsReport", counts)


def _lists(entry: ServerEntry, catalog: Catalog, redact: Callable[[str], str]) -> dict[str, Any]:
    """Counts, unavailable names and problems of a server's lists of prompts, resources and templates."""
    report: dict[str, Any] = {**beside_tools([entry]), "lists": {}}
    for kind in BESIDE_TOOLS:
        known = entry.list_of(kind)
        on = [name for name in known.definitions if (entry.name, switch_of(kind, name)) not in catalog.switched]
        # Clients are shown it although its server is down.
        absent = [] if entry.usable or entry.disabled else on
        word = f"unavailable{kind.capitalize()}s"
        report[word] = [redact(name) for name in absent[:MAX_NAMED]]
        report[f"{word}Left"] = max(0, len(absent) - MAX_NAMED)
        listed: reports.ListReport = {
            "known": kind in entry.lists,
            "recalled": known.recalled,
            "switchedOff": len(known.definitions) - len(on),
            "quarantined": {redact(name): redact(why) for name, why in known.quarantined.items()},
            "hidden": {redact(name): redact(found) for name, found in known.hidden.items()},
            "listingError": redact(known.problem),
        }
        report["lists"][f"{kind}s"] = listed
    return report


STDERR_SHOWN = 5  # lines of a server's stderr in the status

RECENT_MINUTES = 5
"""The minutes that count as a server's recent calls: enough for a few calls, and still the present."""


_NOT_RUNNING: reports.RunningReport = {
    "stderr": [],
    "pid": None,
    "pids": [],
    "rssBytes": None,
    "calls": 0,
    "errors": 0,
    "inFlight": 0,
    "p50Ms": None,
    "p95Ms": None,
    "recent": {"minutes": RECENT_MINUTES, "calls": 0, "errors": 0, "p50Ms": None, "p95Ms": None},
    "pings": None,
    "protocol": "",
    "others": [],
    "serverInfo": "",
    "noise": {"count": 0, "first": ""},
    "oneClientAtATime": False,
}
"""The `RunningReport` of a server that is switched off."""


def server_status(
    context: OperatorContext, entry: ServerEntry, memory: Mapping[int, int]
) -> reports.ServerReport:
    """A server's report, with the same keys whether it runs or not; counts include past instances."""
    server, upstream = context.config.mcp_servers[entry.name], context.upstreams.get(entry.name)
    redact, instances = context.redact.of(entry.name), context.instances_of(entry.name)
    running: reports.RunningReport = (
        {**_NOT_RUNNING} if upstream is None else _running_report(upstream, redact, memory, context.wall())
    )
    if instances:
        pids = [pid for each in instances for pid in each.children]
        running["pid"], running["pids"] = (pids[0] if pids and len(instances) == 1 else None), pids
        running["rssBytes"] = _resident_bytes(instances, memory)
    report = {
        "title": redact(server.title),
        "type": str(server.type),
        "share": str(server.shared_by),
        **_standing(entry.name, entry.status, upstream, redact, context.wall()),
        "tools": len(entry.tools or ()),
        "epoch": entry.epoch,
        "quarantined": {redact(name): redact(why) for name, why in entry.tool_list.quarantined.items()},
        "completed": [redact(name) for name in entry.tool_list.completed],
        "hidden": {redact(name): redact(why) for name, why in entry.tool_list.hidden.items()},
        "listingError": redact(entry.tool_list.problem),
        **running,
        "refreshedAt": round(entry.tool_list.at, 3) or None,
        "recalled": entry.tool_list.recalled,
        "switchedOff": sum((entry.name, tool) in context.catalog.off for tool in entry.tools or ()),
        "summary": redact(entry.summary.text) if entry.summary else "",
        **_lists(entry, context.catalog, redact),
        "held": {word: held_report(held) for word, held in held_in(entry).items()},
        **({"learning": True} if entry.name in context.lessons else {}),
        "sandbox": _sandbox(server, None if upstream is None else upstream.refused_hosts, redact),
        "instances": [instance_status(each, context, memory) for each in instances],
    }
    return cast("reports.ServerReport", report)


def _sandbox(
    server: Server, refused: SeenHosts | None, redact: Callable[[str], str]
) -> reports.SandboxReport | None:
    """A server's sandbox, and the hosts refused to its instances; None without a sandbox."""
    if server.confined is None:
        return None
    hosts: list[reports.RefusedHostReport] = []
    for each in refused.hosts.values() if refused else ():
        host, allow, reason = redact(each.host), redact(each.remedy(server.name)), str(each.reason)
        hosts += [{"host": host, "port": each.port, "count": each.count, "reason": reason, "allow": allow}]
    more, show = refused.others if refused else 0, f"mcpd sandbox {server.name}"
    return {"mode": str(server.confined.mode), "refused": hosts, "refusedMore": more, "show": show}


def instance_status(
    instance: UpstreamAccess, context: OperatorContext, memory: Mapping[int, int]
) -> reports.ServerReport:
    """An instance's report: its own values of a server's members, and its owner and idle time."""
    redact, catalog = context.redact.of(instance.of), context.catalog
    own = instance.own_catalog(catalog)
    entry = own.servers.get(instance.of)
    _, _, number = instance.name.partition("#")
    given = instance.server.instance
    report = {
        "name": instance.name,
        "workspace": None if given is None else given.workspace,
        "session": int(number) if number.isdecimal() else None,
        **_standing(instance.name, instance.child.status.value, instance, redact, context.wall()),
        "tools": len(entry.tools or ()) if entry is not None else 0,
        "differs": own is not catalog,
        **_running_report(instance, redact, memory, context.wall()),
        "idleMs": _idle(instance),
    }
    return cast("reports.ServerReport", report)


def _idle(instance: UpstreamAccess) -> int | None:
    """Milliseconds since the instance was last used; None if it never was."""
    if instance.in_flight:
        return 0
    if instance.use is None or instance.use.at == -inf:
        return None
    return max(0, round((trio.current_time() - instance.use.at) * 1000))


def _standing(
    name: str,
    status: ServerStatus,
    upstream: UpstreamAccess | InstancedServer | None,
    redact: Callable[[str], str],
    now: float,
) -> reports.StandingReport:
    why, pings = status.why.redacted(redact), None if upstream is None else upstream.pings
    if why.cause is Cause.UNANSWERED_PINGS and pings is not None and pings.problem.cause:
        # How long it has been silent is counted on until now.
        why = by_cause(name, pings.problem.redacted(redact))
    attempt, due = next_try(status, upstream)
    return {
        "state": str(status.state),
        "since": round(status.since, 3),
        "attempt": attempt,
        "nextRetryInMs": None if due is None else max(0, round((due - now) * 1000)),
        "reason": why.text,
        "cause": why.cause,
        "causeData": why.data,
        "happened": why.remedy.happened if why.remedy else "",
        "helps": why.remedy.helps if why.remedy else "",
        "waits": why.remedy is not None and why.remedy.waits,
        "restarts": status.restarts,
    }


def next_try(
    status: ServerStatus, upstream: UpstreamAccess | InstancedServer | None
) -> tuple[int, float | None]:
    """The failed tries before the next retry, and the retry's time, of a start or a degraded server's lists."""
    if status.state is ServerState.DEGRADED and upstream is not None:
        return upstream.list_status.attempt, upstream.list_status.next_at
    return status.attempt, status.next_retry_at


def _running_report(
    upstream: UpstreamAccess | InstancedServer,
    redact: Callable[[str], str],
    memory: Mapping[int, int],
    now: float,
) -> reports.RunningReport:
    greeting, stats, pings = upstream.greeting, upstream.stats, upstream.pings
    lately = stats.window(RECENT_MINUTES, trio.current_time())
    return {
        "stderr": [redact(line) for line in upstream.stderr.of_last_run(STDERR_SHOWN)],
        "pid": upstream.pid,
        "pids": list(upstream.children),
        "rssBytes": _resident_bytes((upstream,), memory),
        "calls": stats.calls,
        "errors": stats.errors,
        "inFlight": upstream.in_flight,
        "p50Ms": stats.percentile_ms(0.5),
        "p95Ms": stats.percentile_ms(0.95),
        "recent": cast("reports.LatelyCalls", {"minutes": RECENT_MINUTES, **msgspec.to_builtins(lately)}),
        "pings": None if pings is None else _pings(pings, now),
        "protocol": greeting.version if greeting else "",
        "others": list(greeting.others) if greeting else [],
        "serverInfo": redact(greeting.server_info) if greeting else "",
        "noise": {"count": upstream.noise.count, "first": redact(upstream.noise.first)},
        "oneClientAtATime": upstream.apart.is_on,
    }


def _pings(pings: Keepalive, now: float) -> reports.PingsReport:
    heard = round(now - pings.silence, 3)
    return {"unanswered": pings.unanswered, "lastMs": pings.last_ms, "lastHeardAt": heard}


def _resident_bytes(
    upstreams: Iterable[UpstreamAccess | InstancedServer], memory: Mapping[int, int]
) -> int | None:
    """Resident bytes of all processes of these upstreams; None if none runs on this machine."""
    marks = (mark for each in upstreams for mark in each.children.values())
    used = [memory[mark] for mark in marks if mark in memory]
    return sum(used) if used else None


EVENTS = 20  # most events in one server's status, the newest: a screen of them; `mcpd events SERVER` has all

CALLS = 50  # most calls in flight in one server's status, the oldest: a hanging call is among them


async def status_of_one(
    context: OperatorContext, name: str, memory: Mapping[int, int]
) -> reports.OneStatusReport:
    """One server or instance: its report, newest events, oldest calls in flight; raises `UnknownServer`."""
    calls, entry, actor = in_flight(context, name), context.catalog.servers.get(name), context.actors.get(name)
    server: reports.ServerReport
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
        "lastHour": last_hour(context, server_of(name)),
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


def failures(context: OperatorContext, server: str) -> list[reports.FailureReport]:
    """The last failed calls of a server and its instances, oldest first."""
    redact = context.redact.of(server)
    return [
        {"at": round(each.at, 3), "tool": redact(each.tool), "code": each.code, "text": redact(each.text)}
        for each in context.counters.recent.failures(server)
    ]


async def status(
    context: OperatorContext, params: ServerOrAll
) -> reports.StatusReport | reports.OneStatusReport:
    """The status of the daemon, its servers and sessions, or one server in detail; raises `UnknownServer`."""
    memory = await trio.to_thread.run_sync(memory_by_mark)
    if params.server is not None:
        return await status_of_one(context, params.server, memory)
    report = status_with(context, memory)
    report["daemon"]["replaced"] = await trio.to_thread.run_sync(context.facts.replaced)
    return {**report, "lately": await lately(context)}


STATUS = Command("status", ServerOrAll, status, reads=True)


def status_with(context: OperatorContext, memory: Mapping[int, int]) -> reports.StatusReport:
    """The status of everything; `memory` has the resident bytes of each child's process tree by its mark."""
    catalog, counters, totals = context.catalog, context.counters, context.archive.totals
    report: reports.StatusReport = {
        "daemon": _daemon(context),
        "servers": {name: server_status(context, entry, memory) for name, entry in catalog.servers.items()},
        "sessions": [connection_status(session) for session in context.clients.statistics()],
        "repairs": counters.mended.by_client(),
        "unresolved": sorted({name for c in catalog.categories.values() for name in c.unresolved}),
        "switchedOff": sorted(f"{server}/{tool}" if tool else server for server, tool in catalog.switched),
        "metrics": {**summary(counters.tally), "inAll": in_all(totals.known, totals.since)},
        "connections": context.clients.connections(),
    }
    if catalog.config.summaries and (state := counters.summarizer()) is not None:
        report["summarizer"] = {
            camel(name): context.redact(value) if isinstance(value, str) else value
            for name, value in state.items()
        }
    return report


def _daemon(context: OperatorContext) -> reports.DaemonReport:
    facts, catalog, kept = context.facts, context.catalog, context.archive.persistence.value
    sizes = _sizes(context)
    tools = [tool for entry in catalog.servers.values() for tool in (entry.tools or {}).values()]
    persistence = {
        **_as_named(kept, "state", "cause", "waiting"),
        "since": round(kept.since, 3),
        "reason": context.redact(kept.reason),
        "where": context.redact(kept.where),
    }
    report = {
        **_as_named(facts, "version", "pid", "socket", "control_socket", "config"),
        "replaced": False,
        "startedAt": round(facts.started_at, 3),
        "uptimeSeconds": round(context.wall() - facts.started_at, 3),
        "configReadAt": round(_read_at(context), 3),
        "lazy": catalog.config.lazy,
        "startsAtATime": catalog.config.limits.starts,
        "servers": len(catalog.servers),
        "dormant": sum(entry.status.state is ServerState.DORMANT for entry in catalog.servers.values()),
        "off": sum(entry.disabled for entry in catalog.servers.values()),
        "available": sum(entry.of_use for entry in catalog.servers.values()),
        "tools": len(tools),
        **beside_tools(catalog.servers.values()),
        "schemaBytes": sum(len(tool.raw) for tool in tools),
        **_as_named(sizes, "surfaces", "offered_tools", "offered_bytes", "surface_bytes"),
        "estimatedTokensSaved": tokens_in(sizes.offered_bytes - sizes.surface_bytes),
        "persistence": persistence,
        "audit": audit_problem(context),
        # What follows is for `mcpd doctor`, which cannot read the daemon's process.
        **_as_named(facts, "directory", "log", "unrecorded"),
        "stateDirectory": facts.state,
        "doubtedTokens": [] if context.access is None else sorted(context.access.doubted),
        "environment": {name: facts.environ[name] for name in INHERITED if name in facts.environ},
        "variables": sorted(facts.environ),
    }
    return cast("reports.DaemonReport", report)


def _as_named(source: object, *names: str) -> dict[str, Any]:
    return {camel(name): getattr(source, name) for name in names}


def _sizes(context: OperatorContext) -> ShownSizes:
    sizes, catalog = context.sizes, context.catalog
    if sizes.catalog is not catalog:
        surface, view = view_of(context)
        sizes.offered_tools, sizes.offered_bytes = len(view.offer.tools), view.offer.listing_bytes
        sizes.surface_bytes = sum(len(tool) for tool in surface.list_tools(view))
        sizes.surfaces = by_profile(catalog.config)
        sizes.catalog = catalog
    return sizes


def _read_at(context: OperatorContext) -> float:
    """The time when the configuration in force was read, in seconds since the epoch."""
    reads = (
        event.at
        for event in reversed(context.history.after(0))
        if event.kind is EventKind.RELOADED and not event.text
    )
    return next(reads, context.facts.started_at)


async def metrics(context: OperatorContext, _params: NoParams) -> dict[str, str]:
    """All metrics in the text format of Prometheus; raises `InvalidArguments` where metrics are off."""
    return {"text": await context.counters.export()}


METRICS = Command("metrics", NoParams, metrics, reads=True)


def audit_problem(context: OperatorContext) -> str:
    """Why the audit cannot be written, and the number of lost records; empty without a problem."""
    audit = context.audit
    lost = f"{counted(audit.lost, 'record')} lost" if audit.lost else ""
    return "; ".join(filter(None, (audit.problem and f"it cannot be written: {audit.problem}", lost)))


async def audit_heads(context: OperatorContext, _params: NoParams) -> dict[str, object]:
    """The directory of the audit, and the heads of its chains in the store."""
    own, where = context.audit.chain, context.archive.persistence.value.where
    # Others write chains elsewhere, and share a store that is no file.
    heads = [
        each for each in await context.archive.heads() if where[:1] == "/" or (own and each.chain == own.id)
    ]
    return {"directory": str(context.audit.root), "heads": [msgspec.to_builtins(each) for each in heads]}


AUDIT_HEADS = Command("audit-heads", NoParams, audit_heads, reads=True)
