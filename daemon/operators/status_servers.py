"""What `mcpd status` says of one server, and of each of its instances where clients do not share one."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any, cast

import trio

from daemon.catalog.kinds import BESIDE_TOOLS, switch_of
from daemon.causes import Cause
from daemon.states import ServerState
from daemon.supervision.lifecycle import by_cause

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from daemon.catalog.snapshot import Catalog, ServerEntry
    from daemon.facts import ServerStatus
    from daemon.operators.base import ObservedActor, ObservedUpstream, OperatorContext
    from daemon.operators.reports import (
        BesideToolsReport,
        ListReport,
        RunningReport,
        ServerReport,
        StandingReport,
    )


MAX_NAMED = 100
"""Most prompts, or URIs, of one server that are named as unavailable: it may list ten thousand."""


def beside_tools(entries: Iterable[ServerEntry]) -> BesideToolsReport:
    """How many prompts, resources and templates are known of these servers together."""
    entries = list(entries)
    told = {f"{kind}s": sum(len(entry.list_of(kind).definitions) for entry in entries) for kind in BESIDE_TOOLS}
    return cast("BesideToolsReport", told)


def _lists(entry: ServerEntry, catalog: Catalog, redact: Callable[[str], str]) -> dict[str, Any]:
    """What a server has beside tools, what of it cannot be had now, and what is wrong with its lists."""
    told: dict[str, Any] = {**beside_tools([entry]), "lists": {}}
    for kind in BESIDE_TOOLS:
        known = entry.list_of(kind)
        on = [name for name in known.definitions if (entry.name, switch_of(kind, name)) not in catalog.switched]
        # Clients are shown it although its server is down.
        absent = [] if entry.usable or entry.disabled else on
        word = f"unavailable{kind.capitalize()}s"
        told[word] = [redact(name) for name in absent[:MAX_NAMED]]
        told[f"{word}Left"] = max(0, len(absent) - MAX_NAMED)
        listed: ListReport = {
            "known": kind in entry.lists,
            "recalled": known.recalled,
            "switchedOff": len(known.definitions) - len(on),
            "quarantined": {redact(name): redact(why) for name, why in known.quarantined.items()},
            "hidden": {redact(name): redact(found) for name, found in known.hidden.items()},
            "listingError": redact(known.problem),
        }
        told["lists"][f"{kind}s"] = listed
    return told


STDERR_SHOWN = 5
"""The number of lines of a server's stderr that the status shows."""

RECENT_MINUTES = 5
"""Minutes that the recent calls of a server are counted over: long enough for a few, short enough for now."""


_NOT_RUNNING: RunningReport = {
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
"""The members of a disabled server, which has nothing to observe."""


def server_status(context: OperatorContext, entry: ServerEntry, memory: Mapping[int, int]) -> ServerReport:
    """Everything known about a server; the keys are the same whether it runs or not.

    Of a server with instances, counts are those of all that it has had, and what cannot be said of all of them
    together is that of the newest.

    Args:
        context: the daemon.
        entry: what the catalog has of the server.
        memory: resident bytes of each child's tree, by its mark.
    """
    server, upstream = context.config.mcp_servers[entry.name], context.upstreams.get(entry.name)
    redact, instances = context.redact.of(entry.name), context.instances_of(entry.name)
    running: RunningReport = (
        {**_NOT_RUNNING} if upstream is None else _running(upstream, redact, memory, context.wall())
    )
    if instances:
        pids = [pid for each in instances for pid in each.children]
        running["pid"], running["pids"] = (pids[0] if pids and len(instances) == 1 else None), pids
        running["rssBytes"] = _resident_bytes(instances, memory)
    told = {
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
        "instances": [instance_status(each, context, memory) for each in instances],
    }
    return cast("ServerReport", told)


def instance_status(
    instance: ObservedActor, context: OperatorContext, memory: Mapping[int, int]
) -> ServerReport:
    """One instance: the members of a server that are its own, whose it is, and how long nobody has used it."""
    redact, catalog = context.redact.of(instance.of), context.catalog
    own = instance.own_catalog(catalog)
    entry = own.servers.get(instance.of)
    _, _, number = instance.name.partition("#")
    given = instance.server.instance
    told = {
        "name": instance.name,
        "workspace": None if given is None else given.workspace,
        "session": int(number) if number.isdecimal() else None,
        **_standing(instance.name, instance.child.status.value, instance, redact, context.wall()),
        "tools": len(entry.tools or ()) if entry is not None else 0,
        "differs": own is not catalog,
        **_running(instance, redact, memory, context.wall()),
        "idleMs": _idle(instance),
    }
    return cast("ServerReport", told)


def _idle(instance: ObservedActor) -> int | None:
    """Milliseconds since its last use; None if it was never used."""
    if instance.in_flight:
        return 0
    if instance.use is None or instance.use.at == -inf:
        return None
    return max(0, round((trio.current_time() - instance.use.at) * 1000))


def _standing(
    name: str,
    status: ServerStatus,
    upstream: ObservedUpstream | None,
    redact: Callable[[str], str],
    now: float,
) -> StandingReport:
    why, pings = status.why, None if upstream is None else upstream.pings
    if status.cause is Cause.UNANSWERED_PINGS and pings is not None and pings.problem.cause:
        why = pings.problem  # How long it has been silent is counted on until now.
    why = by_cause(name, why.redacted(redact))
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


def next_try(status: ServerStatus, upstream: ObservedUpstream | None) -> tuple[int, float | None]:
    """How often was tried what is tried next, and when that is: a start, or of a degraded server its lists."""
    if status.state is ServerState.DEGRADED and upstream is not None:
        return upstream.standing.attempt, upstream.standing.next_at
    return status.attempt, status.next_retry_at


def _running(
    upstream: ObservedUpstream, redact: Callable[[str], str], memory: Mapping[int, int], now: float
) -> RunningReport:
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
        "recent": {
            "minutes": RECENT_MINUTES,
            "calls": lately.calls,
            "errors": lately.errors,
            "p50Ms": lately.p50_ms,
            "p95Ms": lately.p95_ms,
        },
        "pings": None
        if pings is None
        else {
            "unanswered": pings.unanswered,
            "lastMs": pings.last_ms,
            "lastHeardAt": round(now - pings.silence, 3),
        },
        "protocol": greeting.version if greeting else "",
        "others": list(greeting.others) if greeting else [],
        "serverInfo": redact(greeting.server_info) if greeting else "",
        "noise": {"count": upstream.noise.count, "first": redact(upstream.noise.first)},
        "oneClientAtATime": upstream.apart.is_on,
    }


def _resident_bytes(upstreams: Iterable[ObservedUpstream], memory: Mapping[int, int]) -> int | None:
    """Resident bytes of the processes of these together, of those by mark; None if they have none here."""
    marks = (mark for each in upstreams for mark in each.children.values())
    used = [memory[mark] for mark in marks if mark in memory]
    return sum(used) if used else None
