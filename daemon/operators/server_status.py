"""One server in the answer to `mcpd status` (design.md §6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon.states import ServerState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from daemon.catalog.snapshot import Catalog, ServerEntry
    from daemon.operators.base import ObservedUpstream, OperatorContext

STDERR_SHOWN = 5
"""Lines of a server's stderr in a status."""


_NOT_RUNNING: dict[str, object] = {
    "stderr": [],
    "pid": None,
    "rssBytes": None,
    "calls": 0,
    "errors": 0,
    "inFlight": 0,
    "p50Ms": None,
    "p95Ms": None,
    "protocol": "",
    "others": [],
    "serverInfo": "",
    "noise": {"count": 0, "first": ""},
}
"""A server that is disabled has nothing to observe."""


def server_status(context: OperatorContext, entry: ServerEntry, memory: Mapping[int, int]) -> dict[str, object]:
    """All that is known of a server; the same keys whether it runs or not.

    Args:
        context: the daemon.
        entry: what the catalog has of the server.
        memory: resident bytes of each child's tree, by its mark.
    """
    upstream = context.upstreams.get(entry.name)
    redact = context.redact.of(entry.name)
    return {
        "type": str(context.config.mcp_servers[entry.name].type),
        **_standing(entry, upstream, redact, context.wall()),
        **(_NOT_RUNNING if upstream is None else _running(upstream, redact, memory)),
        **_learned(entry, context.catalog, redact),
    }


def _standing(
    entry: ServerEntry, upstream: ObservedUpstream | None, redact: Callable[[str], str], now: float
) -> dict[str, object]:
    status = entry.status
    why = status.why.redacted(redact)
    attempt, due = status.attempt, status.next_retry_at
    if status.state is ServerState.DEGRADED and upstream is not None:
        # What is tried again is its list, while it runs.
        attempt, due = upstream.standing.attempt, upstream.standing.next_at
    return {
        "state": str(status.state),
        "since": round(status.since, 3),
        "attempt": attempt,
        "nextRetryInMs": None if due is None else max(0, round((due - now) * 1000)),
        "reason": why.text,
        "cause": why.cause,
        "causeData": why.data,
        "restarts": status.restarts,
        "tools": len(entry.tools or ()),
        "epoch": entry.epoch,
        "quarantined": {redact(name): redact(why) for name, why in entry.quarantined.items()},
        "completed": [redact(name) for name in entry.completed],
        "hidden": {redact(name): redact(why) for name, why in entry.hidden.items()},
        "listingError": redact(entry.listing_error),
    }


def _learned(entry: ServerEntry, catalog: Catalog, redact: Callable[[str], str]) -> dict[str, object]:
    return {
        "refreshedAt": round(entry.refreshed_at, 3) or None,
        "recalled": entry.recalled,
        "switchedOff": sum((entry.name, tool) in catalog.off for tool in entry.tools or ()),
        "summary": redact(entry.summary.text) if entry.summary else "",
    }


def _running(
    upstream: ObservedUpstream, redact: Callable[[str], str], memory: Mapping[int, int]
) -> dict[str, object]:
    greeting = upstream.greeting
    return {
        "stderr": [redact(line) for line in upstream.stderr.last(STDERR_SHOWN)],
        "pid": upstream.pid,
        "rssBytes": None if upstream.mark is None else memory.get(upstream.mark),
        "calls": upstream.stats.calls,
        "errors": upstream.stats.errors,
        "inFlight": upstream.in_flight,
        "p50Ms": upstream.stats.percentile_ms(0.5),
        "p95Ms": upstream.stats.percentile_ms(0.95),
        "protocol": greeting.version if greeting else "",
        "others": list(greeting.others) if greeting else [],
        "serverInfo": redact(greeting.server_info) if greeting else "",
        "noise": {"count": upstream.noise.count, "first": redact(upstream.noise.first)},
    }
