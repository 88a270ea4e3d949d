"""Counts events since the daemon started, with the latencies of each server's calls, and sums them up.

Whatever arrives, the configuration, the tables, MCP and `errors` bound the number of counters.
Everything else is counted as `OTHER`.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from math import inf
from typing import Any, TypeGuard

import attrs
import msgspec

from daemon import errors, protocol
from daemon.catalog.loaded import LoadedStatus, Source
from daemon.errors import CallError
from daemon.kit.wording import BYTES_PER_TOKEN
from daemon.model import Repair, ToolKey

LATENCY_BOUNDS = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0),
)
"""Upper bounds of the latency buckets in seconds: from a local server's to `timeouts.callMax`."""

MAX_SERVERS = 256
"""Most servers counted separately, the first of the configuration: ten times as many as the largest real one
has. A scrape takes a few megabytes if each server has each outcome on each surface."""

MAX_TOOLS = 1000
"""Most tools counted separately over all restarts, the first ones called: few of the 1,519 tools of 46 real
servers ever are, and each is a row in the store."""

MAX_CLIENTS = 64
"""Most client programs counted separately, the first ones seen: a person uses a few, and each is two rows an
hour in the store."""

MAX_NAME = 256
"""Most characters of a separately counted tool's or client's name, twice as many as real ones have."""

LATENCIES = 2048
"""Latencies kept for percentiles, the newest: all of a minute with up to 34 calls a second, in 64 KiB."""

MINUTES = 15
"""Most past minutes that a window covers, in 4 KiB for each server."""

POINTS = 64
"""Most latencies kept of a past minute, evenly spaced: the error is within 1 % of the calls."""

MINUTE = 60.0
"""Seconds in a minute."""

OTHER = "_other"
"""Stands for everything not counted separately; no server's name begins with an underscore."""

OPERATOR = "operator"
"""The surface of calls by operators (`mcpd call`)."""

OK = "ok"
"""The outcome of a call that got a result from its server."""

IS_ERROR = "isError"
"""The outcome logged for a call whose tool reported an error, which in the protocol is a result."""

CANCELLED = "cancelled"
"""The outcome of a call without an answer: its client cancelled it, or disconnected."""

CODES = frozenset(
    kind.code for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, CallError)
)
"""The error codes of calls."""

OUTCOMES = CODES | {OK, IS_ERROR}

REQUESTS = frozenset(
    {
        *("prompts/get", "resources/read", "resources/subscribe", "resources/unsubscribe"),
        *("completion/complete", "logging/setLevel"),
        *("tasks/get", "tasks/result", "tasks/list", "tasks/cancel", "tasks/update"),
    }
)
"""The methods of clients' requests to servers, other than `tools/call`."""

RELAYS = frozenset({"relayed", "parked", "refused"})
"""Outcomes of a server's request: sent to the client, kept for its next request (MCP 2026-07-28), refused."""

SOURCES = frozenset(map(str, Source))

INVALIDATIONS = frozenset(map(str, LoadedStatus)) - {LoadedStatus.VALID}

HTTP_REFUSALS = frozenset(
    {"host", "origin", "places", "profile", "token_missing", "token_wrong", "server", "gone"}
)
"""The reasons to refuse a request over HTTP (`clients.doors.http.admission`) or its connection."""

REPAIRS = frozenset(map(str, Repair))


class ServerCalls(msgspec.Struct):
    """Counts of the ended calls and other requests of one server."""

    outcomes: dict[tuple[str, str], int] = msgspec.field(default_factory=dict)
    """Calls by surface and outcome."""
    buckets: list[int] = msgspec.field(default_factory=lambda: [0] * (len(LATENCY_BOUNDS) + 1))
    """For each bucket, the calls between two of `LATENCY_BOUNDS`; the last has those beyond."""
    seconds: float = 0.0
    """The total duration of all calls."""
    requests: Counter[tuple[str, str]] = msgspec.field(default_factory=Counter)
    """Ended requests of clients other than calls, by method and outcome."""
    relays: Counter[tuple[str, str]] = msgspec.field(default_factory=Counter)
    """The server's requests to clients, by method and outcome."""

    refused_hosts: int = 0
    """Requests to hosts that the server's sandbox refused."""

    @property
    def count(self) -> int:
        """The number of all calls."""
        return sum(self.buckets)

    @property
    def errors(self) -> int:
        """The number of calls that failed: their result says so, or they have none."""
        return sum(count for (_surface, outcome), count in self.outcomes.items() if outcome != OK)

    def absorb(self, other: ServerCalls) -> None:
        """Add the counts of another server."""
        for key, count in other.outcomes.items():
            self.outcomes[key] = self.outcomes.get(key, 0) + count
        self.buckets = [one + more for one, more in zip(self.buckets, other.buckets, strict=True)]
        self.seconds += other.seconds
        self.requests.update(other.requests)
        self.relays.update(other.relays)
        self.refused_hosts += other.refused_hosts


class Window(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Calls of the last minutes, the current one included; latencies in milliseconds, None without calls."""

    calls: int = 0
    errors: int = 0
    """Calls that failed: their result says so (`isError`), or they have none."""
    p50_ms: float | None = None
    p95_ms: float | None = None


class _Minute(msgspec.Struct, frozen=True):
    ended: float
    calls: int
    errors: int
    latencies: array[float]
    """Some of the latencies in seconds, sorted; each stands for equally many calls."""


@attrs.define
class CallStats:
    """Counts and latencies of calls forwarded to a server; a task calls `turn` each minute."""

    calls: int = 0
    """The number of ended calls."""
    errors: int = 0
    """Ended calls that failed: their result says so (`isError`), or they have none."""
    _recent: deque[float] = attrs.field(factory=lambda: deque(maxlen=LATENCIES), init=False)
    _minutes: deque[_Minute] = attrs.field(factory=lambda: deque(maxlen=MINUTES), init=False)
    _before: tuple[int, int] = attrs.field(default=(0, 0), init=False)
    """The number of calls and errors before the current minute."""

    def record(self, seconds: Sequence[float], *, ok: bool) -> None:
        """Count ended calls, each with its duration."""
        self.calls += len(seconds)
        self.errors += 0 if ok else len(seconds)
        self._recent += seconds

    def percentile_ms(self, share: float) -> float | None:
        """A percentile (such as 0.95) of the recent latencies, in milliseconds; None without any."""
        if not self._recent:
            return None
        ordered = sorted(self._recent)
        return round(ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1000, 3)

    def turn(self, now: float) -> Window:
        """End the current minute, and return it; `now` is in seconds on a monotonic clock."""
        ended = self._under_way(now)
        if ended.calls:
            self._minutes.append(ended)
        self._before = self.calls, self.errors
        return _window([ended])

    def window(self, minutes: int, now: float) -> Window:
        """The calls of the last `minutes` (at most `MINUTES`) and the current minute; `now` as in `turn`."""
        since = now - minutes * MINUTE
        return _window([*(each for each in self._minutes if each.ended > since), self._under_way(now)])

    def _under_way(self, now: float) -> _Minute:
        calls, errors = self.calls - self._before[0], self.errors - self._before[1]
        newest = min(calls, len(self._recent))
        latencies = sorted(islice(reversed(self._recent), newest))
        step = max(1.0, newest / POINTS)
        points = (latencies[int((each + 0.5) * step)] for each in range(min(newest, POINTS)))
        return _Minute(now, calls, errors, array("f", points))


def _window(minutes: Sequence[_Minute]) -> Window:
    calls = sum(each.calls for each in minutes)
    weighed = sorted(
        (seconds, each.calls / len(each.latencies)) for each in minutes for seconds in each.latencies
    )
    return Window(
        calls=calls,
        errors=sum(each.errors for each in minutes),
        p50_ms=_percentile_ms(weighed, calls * 0.5),
        p95_ms=_percentile_ms(weighed, calls * 0.95),
    )


def _percentile_ms(weighed: Sequence[tuple[float, float]], rank: float) -> float | None:
    found = None
    for seconds, weight in weighed:
        found = round(seconds * 1000, 3)
        rank -= weight
        if rank <= 0:
            break
    return found


class Spared(msgspec.Struct):
    """Bytes that clients were not sent."""

    spared: int = 0
    """Bytes not sent because clients did not get all tools (`clients.client`)."""
    instead: int = 0
    """Bytes sent instead: later, or in longer lists."""

    def add(self, size: int) -> None:
        """Count bytes that a client was spared; a negative number means bytes sent in addition."""
        self.spared += max(0, size)
        self.instead += max(0, -size)


class Lists(Spared):
    """Counts of the answers to `tools/list` on one surface."""

    count: int = 0
    sent: int = 0
    """Bytes of the tools in these answers."""
    full: int = 0
    """Bytes that these answers would have had with all tools of the profile."""


def tokens_in(size: int) -> int:
    """An estimate of the tokens in `size` bytes, which may be negative."""
    return int(size / BYTES_PER_TOKEN)


class Tally:
    """The daemon's counters. They change only on the event loop, where they may be read directly."""

    def __init__(self, servers: Iterable[str] = (), *, meta_tools: Mapping[str, Iterable[str]]) -> None:
        self.servers: dict[str, ServerCalls] = {}
        """Ended calls, by configured server."""
        self.elsewhere = ServerCalls()
        """Ended calls of servers that are not, or no longer, counted separately."""
        self.tools: Counter[ToolKey] = Counter()
        """Calls answered by a server, by tool; at most `MAX_TOOLS` tools."""
        self.meta_calls: Counter[tuple[str, str, str]] = Counter()
        """Calls that mcpd answered itself, by surface, meta-tool and outcome."""
        self.lookups: Counter[tuple[bool, str]] = Counter()
        """Calls on surfaces that load tools, by source and whether the tool was loaded."""
        self.loads: Counter[str] = Counter(dict.fromkeys(sorted(SOURCES), 0))
        """Loaded tools, by source."""
        self.invalidations: Counter[str] = Counter(dict.fromkeys(sorted(INVALIDATIONS), 0))
        """Loaded tools that became invalid, by status."""
        self.repairs: Counter[str] = Counter(dict.fromkeys(sorted(REPAIRS), 0))
        """Calls whose arguments were repaired, by kind."""
        self.refusals: Counter[str] = Counter(dict.fromkeys(sorted(CODES), 0))
        """Calls that failed before they reached a server, by code."""
        self.http_refusals: Counter[str] = Counter(dict.fromkeys(sorted(HTTP_REFUSALS), 0))
        """HTTP requests refused because of their sender, by reason."""
        self.lists: dict[str, Lists] = {name: Lists() for name in meta_tools}
        """Answers to `tools/list`, by surface."""
        self.clients: dict[str, Spared] = {}
        """Spared bytes by client name; at most `MAX_CLIENTS` names, and `OTHER`."""
        self._surfaces = frozenset(meta_tools) | {OPERATOR}
        self._meta_tools = {(name, tool) for name, tools in meta_tools.items() for tool in tools}
        self.serve(servers)

    def serve(self, servers: Iterable[str]) -> None:
        """Set the configured servers; counts of removed servers are added to `OTHER`."""
        names = list(islice(servers, MAX_SERVERS))
        known, self.servers = self.servers, {}
        for name in names:
            self.servers[name] = known.pop(name) if name in known else ServerCalls()
        for gone in known.values():
            self.elsewhere.absorb(gone)

    def know(self, tools: Iterable[ToolKey]) -> None:
        """Reserve counters for tools that earlier daemons counted."""
        for key in islice(tools, MAX_TOOLS):
            self.tools.setdefault(key, 0)

    def call(self, server: str, surface: str, outcome: str, seconds: Sequence[float], tool: str = "") -> None:
        """Count calls with the same outcome, each with its seconds from request to answer; `tool` if known."""
        if tool and outcome in {OK, IS_ERROR}:
            called = server, tool
            count = self.tools.get(called)
            if count is not None:
                self.tools[called] = count + len(seconds)
            elif len(self.tools) < MAX_TOOLS and _can_be_kept(tool):
                self.tools[called] = len(seconds)
        calls = self.servers.get(server, self.elsewhere)
        key = surface, outcome
        outcomes = calls.outcomes
        if key not in outcomes:
            key = _one_of(surface, self._surfaces), _one_of(outcome, OUTCOMES)
            outcomes.setdefault(key, 0)
        outcomes[key] += len(seconds)
        buckets, total = calls.buckets, 0.0
        for each in seconds:
            took = each if 0.0 <= each < inf else 0.0
            buckets[bisect_left(LATENCY_BOUNDS, took)] += 1
            total += took
        calls.seconds += total

    def request(self, server: str, method: str, outcome: str) -> None:
        """Count a client's request to a server, other than a call, that has ended."""
        key = _one_of(method, REQUESTS), _one_of(outcome, OUTCOMES)
        self.servers.get(server, self.elsewhere).requests[key] += 1

    def relayed(self, server: str, method: str, outcome: str) -> None:
        """Count a request of a server to a client, with one of `RELAYS` as outcome."""
        key = _one_of(method, protocol.ASKED_OF_CLIENTS), _one_of(outcome, RELAYS)
        self.servers.get(server, self.elsewhere).relays[key] += 1

    def refused_host(self, server: str) -> None:
        """Count a request for a host that a server's sandbox refused."""
        self.servers.get(server, self.elsewhere).refused_hosts += 1

    def meta_call(self, surface: str, tool: str, outcome: str) -> None:
        """Count a call that mcpd answered itself, an extra round trip. Unknown names are counted together."""
        if (surface, tool) not in self._meta_tools:
            surface, tool = _one_of(surface, self._surfaces), OTHER
        self.meta_calls[surface, tool, _one_of(outcome, OUTCOMES)] += 1

    def load(self, hit: bool, source: str) -> None:  # noqa: FBT001 - the subject of the method
        """Count a call on a loading surface: whether the tool was loaded, and how (`auto`, `manual`)."""
        self.lookups[hit, _one_of(source, SOURCES)] += 1

    def loaded(self, source: str, count: int = 1) -> None:
        """Count tools that a session has newly loaded."""
        self.loads[_one_of(source, SOURCES)] += max(0, count)

    def invalidated(self, status: str, count: int = 1) -> None:
        """Count a session's loaded tools that have become invalid."""
        self.invalidations[_one_of(status, INVALIDATIONS)] += max(0, count)

    def repaired(self, kind: str) -> None:
        """Count a call whose arguments had to be repaired."""
        self.repairs[_one_of(kind, REPAIRS)] += 1

    def listed(self, surface: str, sent: int, full: int) -> None:
        """Count an answer to `tools/list`: bytes of its tools, and of all tools of the profile."""
        lists = self.lists.setdefault(_one_of(surface, self._surfaces), Lists())
        sent, full = max(0, sent), max(0, full)
        lists.count += 1
        lists.sent += sent
        lists.full += full

    def spared(self, surface: str, size: int, client: str = "") -> None:
        """Count bytes that a client was spared; a negative number means bytes sent in addition."""
        self.lists.setdefault(_one_of(surface, self._surfaces), Lists()).add(size)
        is_new = client not in self.clients
        if is_new and (len(self.clients) >= MAX_CLIENTS or not client or not _can_be_kept(client)):
            client = OTHER
        self.clients.setdefault(client, Spared()).add(size)

    def refused(self, code: str) -> None:
        """Count a call that failed before it reached a server."""
        self.refusals[_one_of(code, CODES)] += 1

    def turned_away(self, reason: str) -> None:
        """Count an HTTP request that was refused because of its sender."""
        self.http_refusals[_one_of(reason, HTTP_REFUSALS)] += 1


def _can_be_kept(name: str) -> bool:
    # Names are keys in the store: not every database takes every character.
    return len(name) <= MAX_NAME and name.isprintable()


def _one_of(value: str, known: frozenset[str]) -> str:
    return value if value in known else OTHER


NET = "estimatedTokensNotSent"
"""The estimated tokens not sent, the difference of two counters: unlike a counter, it may fall."""

TOOL_CALLS = "toolCalls."
"""The prefix of tools' counters, before `SERVER/TOOL`; they are many, and left out of summaries."""

SPARED, INSTEAD = "estimatedTokensSpared", "estimatedTokensSentInstead"
"""Tokens that clients were spared, and tokens that they were sent later instead."""

HOURLY = ("loads", "loadHits", "loadMisses", "extraRoundTrips", SPARED, INSTEAD)
"""Members of `summary` that are kept by the hour."""

CALLS, ERRORS = "calls:", "errors:"
"""Prefixes of hourly counts, before a server's name."""

CLIENT_SPARED, CLIENT_INSTEAD = "spared:", "instead:"
"""Prefixes of hourly tokens, before a client's name."""


def summary(tally: Tally) -> dict[str, object]:
    """The numbers for `mcpd status`, except those of single servers."""
    lookups = tally.lookups.items()
    hits, misses = (sum(count for (was, _), count in lookups if was is hit) for hit in (True, False))
    servers = (*tally.servers.values(), tally.elsewhere)
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
        "requests": _summed((calls.requests for calls in servers), 0),
        "serverRequests": _summed((calls.relays for calls in servers), 1),
        "extraRoundTrips": sum(tally.meta_calls.values()),
        SPARED: spared,
        INSTEAD: instead,
        NET: spared - instead,
    }


def counters(tally: Tally) -> dict[str, int]:
    """The counters to keep across restarts, by name: those of `summary`, and calls by tool. They never fall."""
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
    """The counters to keep by the hour, by name, with a prefix for servers and clients. They never fall."""
    told = summary(tally)
    found = {name: value for name in HOURLY if _is_count(value := told[name])}
    found["invalidations"] = sum(tally.invalidations.values())
    for name, calls in tally.servers.items():
        found[f"{CALLS}{name}"] = calls.count
        found[f"{ERRORS}{name}"] = calls.errors
    for name, each in tally.clients.items():
        found[f"{CLIENT_SPARED}{name}"] = tokens_in(each.spared)
        found[f"{CLIENT_INSTEAD}{name}"] = tokens_in(each.instead)
    return found


def most_called(counted: Mapping[str, int]) -> list[ToolKey]:
    """The tools in stored counters, the most called first."""
    tools = [name for name in counted if name.startswith(TOOL_CALLS)]
    tools.sort(key=lambda name: (-counted[name], name))
    return [(server, tool) for name in tools for server, _, tool in (name[len(TOOL_CALLS) :].partition("/"),)]


def in_all(counted: Mapping[str, int], since: float) -> dict[str, object]:
    """The sums of `counters` over all restarts since `since`, in the form of `summary`."""
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


def _summed(counts: Iterable[Mapping[tuple[str, str], int]], part: int) -> dict[str, int]:
    sums: Counter[str] = Counter()
    for each in counts:
        for key, count in each.items():
            sums[key[part]] += count
    return dict(sums)


def _share(part: int, whole: int) -> float | None:
    return round(part / whole, 4) if whole else None


def _that_happened(counts: Mapping[str, int]) -> dict[str, int]:
    return {name: count for name, count in counts.items() if count}
