"""Summaries of the counters: for `mcpd status`, and as the counters that are kept across restarts."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, TypeGuard

from daemon.counting.tally import tokens_in

if TYPE_CHECKING:
    from collections.abc import Mapping

    from daemon.counting.tally import Tally
    from daemon.model import ToolKey

NET = "estimatedTokensNotSent"
"""A difference of two counters, which may fall."""

TOOL_CALLS = "toolCalls."
"""The prefix of the counters of tools, before `SERVER/TOOL`: they are many, and in no summary."""

SPARED, INSTEAD = "estimatedTokensSpared", "estimatedTokensSentInstead"
"""Tokens that clients were not sent, and those that they were sent instead later."""

HOURLY = ("loads", "loadHits", "loadMisses", "extraRoundTrips", SPARED, INSTEAD)
"""Members of `summary` that are kept by the hour."""

CALLS, ERRORS = "calls:", "errors:"
"""The prefixes of counts by the hour, before the name of a server."""

CLIENT_SPARED, CLIENT_INSTEAD = "spared:", "instead:"
"""The prefixes of tokens by the hour, before the name of a client."""


def summary(tally: Tally) -> dict[str, object]:
    """The numbers for `mcpd status`, except those of single servers."""
    hits, misses = (_of_lookups(tally, hit=hit) for hit in (True, False))
    loads = sum(tally.loads.values())
    invalidations = sum(tally.invalidations.values())
    spared = sum(tokens_in(lists.spared) for lists in tally.lists.values())
    instead = sum(tokens_in(lists.instead) for lists in tally.lists.values())
    return {
        "loads": loads,
        "loadHits": hits,
        "loadMisses": misses,
        "loadHitRate": _share(hits, hits + misses),
        "invalidations": _that_happened(tally.invalidations),
        "invalidationRate": _share(invalidations, loads),
        "repairs": _that_happened(tally.repairs),
        "refusals": _that_happened(tally.refusals),
        "requests": _requests(tally),
        "serverRequests": _relays(tally),
        "extraRoundTrips": sum(tally.meta_calls.values()),
        SPARED: spared,
        INSTEAD: instead,
        NET: spared - instead,
    }


def counters(tally: Tally) -> dict[str, int]:
    """The counters to keep across restarts, by name: from `summary`, and calls of tools. None ever falls."""
    found: dict[str, int] = {}
    for name, value in summary(tally).items():
        if isinstance(value, dict):
            found |= {f"{name}.{each}": count for each, count in value.items() if _is_count(count)}
        elif _is_count(value) and name != NET:
            found[name] = value
    return found | {
        f"{TOOL_CALLS}{server}/{tool}": count for (server, tool), count in tally.tools.items() if count
    }


def hourly(tally: Tally) -> dict[str, int]:
    """The counters to keep by the hour, by name; none falls. Those of servers and clients have a prefix."""
    told = summary(tally)
    found = {name: value for name in HOURLY if _is_count(value := told[name])}
    found["invalidations"] = sum(tally.invalidations.values())
    found["listsSent"] = sum(lists.count for lists in tally.lists.values())
    for name, calls in tally.servers.items():
        found[f"{CALLS}{name}"] = calls.count
        found[f"{ERRORS}{name}"] = calls.errors
    for name, each in tally.clients.items():
        found[f"{CLIENT_SPARED}{name}"] = tokens_in(each.spared)
        found[f"{CLIENT_INSTEAD}{name}"] = tokens_in(each.instead)
    return found


def most_called(counted: Mapping[str, int]) -> list[ToolKey]:
    """The tools in kept counters, the most called first."""
    tools = [name for name in counted if name.startswith(TOOL_CALLS)]
    tools.sort(key=lambda name: (-counted[name], name))
    return [(server, tool) for name in tools for server, _, tool in (name[len(TOOL_CALLS) :].partition("/"),)]


def in_all(counted: Mapping[str, int], since: float) -> dict[str, object]:
    """The kept counters in the form of `summary`.

    Args:
        counted: the sums of `counters` over all restarts, by name.
        since: when counting began, in seconds since the epoch.
    """
    told: dict[str, Any] = {}
    for name, value in counted.items():
        if name.startswith(TOOL_CALLS):
            continue
        kind, _, each = name.partition(".")
        if each:
            told.setdefault(kind, {})[each] = value
        else:
            told[kind] = value
    hits, lost = told.get("loadHits", 0), sum(told.get("invalidations", {}).values())
    rates = {
        "loadHitRate": _share(hits, hits + told.get("loadMisses", 0)),
        "invalidationRate": _share(lost, told.get("loads", 0)),
    }
    net = told.get(SPARED, 0) - told.get(INSTEAD, 0)
    return {"since": round(since, 3), **told, NET: net, **rates}


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _of_lookups(tally: Tally, *, hit: bool) -> int:
    return sum(count for (was_hit, _source), count in tally.lookups.items() if was_hit is hit)


def _requests(tally: Tally) -> dict[str, int]:
    """Clients' requests other than calls, by method."""
    counts: Counter[str] = Counter()
    for calls in (*tally.servers.values(), tally.elsewhere):
        for (method, _outcome), count in calls.requests.items():
            counts[method] += count
    return dict(counts)


def _relays(tally: Tally) -> dict[str, int]:
    """Requests that servers made of clients, by what became of them."""
    counts: Counter[str] = Counter()
    for calls in (*tally.servers.values(), tally.elsewhere):
        for (_method, outcome), count in calls.relays.items():
            counts[outcome] += count
    return dict(counts)


def _share(part: int, whole: int) -> float | None:
    return round(part / whole, 4) if whole else None


def _that_happened(counts: Mapping[str, int]) -> dict[str, int]:
    return {name: count for name, count in counts.items() if count}
