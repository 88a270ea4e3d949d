"""What `mcpd status` says of one server, as plain data (design.md §6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from daemon.states import ServerState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from daemon.catalog.snapshot import Catalog, ServerEntry
    from daemon.cataloguing import ListingStatus
    from daemon.measures import CallStats, Noise, StderrTail
    from daemon.transports.handshake import Greeting

STDERR_SHOWN = 5
"""Lines of a server's stderr in a status."""


class Observed(Protocol):
    """What an upstream lets be seen."""

    stats: CallStats
    noise: Noise
    stderr: StderrTail
    greeting: Greeting | None
    pid: int | None
    mark: int | None

    @property
    def in_flight(self) -> int:
        """Calls without an answer yet."""

    @property
    def standing(self) -> ListingStatus:
        """How it does with its list of tools."""


_UNOBSERVED: dict[str, object] = {
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


def server_report(
    entry: ServerEntry,
    catalog: Catalog,
    upstream: Observed | None,
    *,
    redact: Callable[[str], str],
    now: float,
    memory: Mapping[int, int],
) -> dict[str, object]:
    """All that is known of a server.

    Args:
        entry: what the catalog has of it.
        catalog: where its tools are switched off.
        upstream: the server as it runs; None if it is disabled.
        redact: takes the server's secrets out of its texts.
        now: seconds since the epoch.
        memory: resident bytes of each child's tree, by its mark.
    """
    return {
        **_standing(entry, upstream, redact, now),
        **_observed(upstream, redact, memory),
        **_learned(entry, catalog, redact),
    }


def _standing(
    entry: ServerEntry, upstream: Observed | None, redact: Callable[[str], str], now: float
) -> dict[str, object]:
    status = entry.status
    attempt, due = status.attempt, status.next_retry_at
    if status.state is ServerState.DEGRADED and upstream is not None:
        # What is tried again is its list, while it runs.
        attempt, due = upstream.standing.attempt, upstream.standing.next_at
    return {
        "state": str(status.state),
        "since": round(status.since, 3),
        "attempt": attempt,
        "nextRetryInMs": None if due is None else max(0, round((due - now) * 1000)),
        "reason": redact(status.reason),
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


def _observed(
    upstream: Observed | None, redact: Callable[[str], str], memory: Mapping[int, int]
) -> dict[str, object]:
    if upstream is None:
        return _UNOBSERVED
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
