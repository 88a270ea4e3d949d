"""What pages say of a server: values that differ only when something has changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from daemon.console.pages.links import server_page
from daemon.operators.remedies import LINES, remedy
from daemon.operators.status_servers import resident_bytes
from daemon.processes.marks import memory_by_mark
from daemon.states import WELL, ServerState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from daemon.causes import Reason
    from daemon.operators.base import ObservedUpstream, OperatorContext
    from daemon.operators.remedies import Remedy

MINUTES = 5
"""Minutes that "lately" covers: calls, errors and latencies."""

MEBIBYTE = 1 << 20
"""Memory is shown to one MiB: it changes with every call otherwise, and a page with it."""


def server_facts(context: OperatorContext, name: str, memory: Mapping[int, int]) -> dict[str, object]:
    """What the list of servers and the page of a server have in common.

    Args:
        context: the daemon.
        name: a server of the catalog.
        memory: resident bytes of each child's tree, by its mark.
    """
    entry, upstream = context.catalog.servers[name], context.upstreams.get(name)
    redact, instances = context.redact.of(name), context.instances_of(name)
    status = entry.status
    used: Sequence[ObservedUpstream] = instances or ([] if upstream is None else [upstream])
    return {
        "name": name,
        "address": server_page(name),
        "title": redact(context.config.mcp_servers[name].title),
        "state": str(status.state),
        "since": round(status.since),
        "restarts": status.restarts,
        "attempt": status.attempt,
        "next_retry_at": _next_try(context, name),
        **_why(status.why.redacted(redact), name, status.state, upstream, redact),
        "off": entry.disabled,
        "wants_login": status.state is ServerState.NEEDS_AUTH,
        **_lately(upstream),
        "in_flight": 0 if upstream is None else upstream.in_flight,
        "memory": memory_of(used, memory),
        "tools": len(entry.tools or ()),
        "instances": len(instances),
    }


async def memory_now(context: OperatorContext) -> Mapping[int, int]:
    """Resident bytes of each child's tree, by its mark; read in a thread, as that takes milliseconds."""
    if not any(each.children for each in context.actors.values()):
        return {}
    return await trio.to_thread.run_sync(memory_by_mark)


def memory_of(actors: Sequence[ObservedUpstream], memory: Mapping[int, int]) -> int | None:
    """Resident bytes of these together, to one MiB; None if they have no processes here."""
    used = resident_bytes(actors, memory)
    return None if used is None else round(used / MEBIBYTE) * MEBIBYTE


def _next_try(context: OperatorContext, name: str) -> int | None:
    """When it is started again, or its lists are read again, in seconds since the epoch."""
    status, upstream = context.catalog.servers[name].status, context.upstreams.get(name)
    due = status.next_retry_at
    if status.state is ServerState.DEGRADED and upstream is not None:
        due = upstream.standing.next_at
    return None if due is None else round(due)


def _why(
    why: Reason, name: str, state: ServerState, upstream: ObservedUpstream | None, redact: Callable[[str], str]
) -> dict[str, object]:
    found: Remedy | None = None
    if state not in WELL:
        words = [] if upstream is None else [redact(line) for line in upstream.stderr.last(LINES)]
        found = remedy(name, {"cause": why.cause, "causeData": why.data}, words)
    return {
        "reason": why.text,
        "happened": found.happened if found else "",
        "helps": found.helps if found else "",
    }


def _lately(upstream: ObservedUpstream | None) -> dict[str, object]:
    if upstream is None:
        return {"calls": 0, "errors": 0, "p50_ms": None, "p95_ms": None}
    window = upstream.stats.window(MINUTES, trio.current_time())
    return {
        "calls": window.calls,
        "errors": window.errors,
        "p50_ms": window.p50_ms,
        "p95_ms": window.p95_ms,
    }
