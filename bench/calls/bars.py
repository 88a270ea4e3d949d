"""The bars that measurements must reach."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from bench.calls.delays import CALM
from bench.calls.targets import BARE_HTTP, CATEGORY, CONNECT, DIRECT, HTTP, NAIVE, NAIVE_HTTP, SOCKET, WS, among

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bench.calls.delays import Delay
    from bench.calls.memory import Memory
    from bench.calls.rest import Rest
    from bench.calls.rounds import Row

    Found = Mapping[tuple[str, str], Row]

ALONE, PIPELINED, LARGE = "one at a time, 100 B", "32 in flight, 100 B", "one at a time, 10 MB answers"
"""The cases with bars."""

SAME = 1.1
"""Costs that differ by less count as equal: two runs of the same code differ as much."""

GIVEN_BACK = 0.1
"""The share of a payload that the daemon may keep: an allocator keeps a little."""


@attrs.frozen
class Bar:
    """One bar."""

    name: str
    measured: float
    limit: float
    unit: str = ""
    least: bool = False
    """Whether the limit is the least, not the most."""

    @property
    def met(self) -> bool:
        """Whether the measurement reaches the bar."""
        return self.measured >= self.limit if self.least else self.measured <= self.limit


def of_calls(rows: Sequence[Row], upstreams: Sequence[int]) -> list[Bar]:
    """The bars of calls."""
    found = {(row.case, row.target): row for row in rows}
    return [*_against_direct(found), *_against_naive(found), *_by_itself(found, upstreams), *_over_tcp(found)]


def _over_tcp(found: Found) -> Iterator[Bar]:
    p50 = {target: row.p50_us or 0 for (case, target), row in found.items() if case == ALONE}
    bare, own = p50[BARE_HTTP], p50[SOCKET] - p50[DIRECT]
    yield Bar("http: p50 of a call, to bare http + (socket - direct)", p50[HTTP] / (bare + own), 1.6, "x")
    yield Bar("http: p50 of a call, to bare http + socket", p50[HTTP] / (bare + p50[SOCKET]), 1.6, "x")
    yield Bar("ws: p50 of a call, one at a time, to socket", p50[WS] / p50[SOCKET], 3.0, "x")
    for case in (case for case, target in found if target == NAIVE_HTTP):
        times = found[case, HTTP].rate / found[case, NAIVE_HTTP].rate
        yield Bar(f"http: calls a second to the naive http proxy's, {case}", times, 4, "x", least=True)


def _against_direct(found: Found) -> Iterator[Bar]:
    for target, limit in ((SOCKET, 3.5), (CONNECT, 5.0)):
        row = found[ALONE, target]
        yield Bar(f"{target}: p50 of a call, one at a time, to direct", row.p50_ratio or 0, limit, "x")
    share = 100 * (found[LARGE, SOCKET].rate_ratio or 0)
    yield Bar("socket: 10 MB through, of direct", share, 40, "%", least=True)


def _against_naive(found: Found) -> Iterator[Bar]:
    for case, limit in ((ALONE, 4.0), (PIPELINED, 15.0)):
        times = found[case, SOCKET].rate / found[case, NAIVE].rate
        yield Bar(f"socket: calls a second to the naive proxy's, {case}", times, limit, "x", least=True)


def _by_itself(found: Found, upstreams: Sequence[int]) -> Iterator[Bar]:
    alone, pipelined = found[ALONE, SOCKET], found[PIPELINED, SOCKET]
    for case in (ALONE, PIPELINED):
        times = found[case, SOCKET].rate / found[case, CATEGORY].rate
        yield Bar(f"cost of a call through category to socket, {case}", times, 1.25, "x")
    for target in (SOCKET, CONNECT):
        row = found[ALONE, target]
        yield Bar(f"{target}: p99 to p50, one at a time", (row.p99_us or 0) / (row.p50_us or 1), 4, "x")
    yield Bar("socket: CPU a call, one at a time", alone.cpu_us or 0, 60, "us")
    yield Bar("socket: CPU a call, 32 in flight", pipelined.cpu_us or 0, 10, "us")
    for case in (ALONE, PIPELINED):
        for count in upstreams[1:]:
            times = found[case, SOCKET].rate / found[case, among(count)].rate
            yield Bar(f"cost of a call with {count} servers to 1, {case}", times, SAME, "x")


def of_memory(memory: Memory) -> list[Bar]:
    """The bars of memory."""
    return [
        Bar(f"memory of an idle client ({memory.clients:,} of them)", memory.per_client, 20, "KB"),
        Bar("memory of an idle stream of a session over HTTP", memory.per_stream, 40, "KB"),
        Bar("memory of an idle stream of MCP 2026-07-28", memory.per_subscription, 40, "KB"),
        Bar("memory at its peak while 10 MB pass, to the payload", memory.peak / memory.payload, 3, "x"),
        Bar(
            "memory kept after 10 MB have passed, of the payload",
            memory.after / memory.payload,
            GIVEN_BACK,
            "x",
        ),
    ]


def of_delays(delays: Sequence[Delay]) -> list[Bar]:
    """The bars for the delay of other clients' calls."""
    return [
        Bar(f"others wait for {delay.kind}", delay.added, 5, "ms") for delay in delays if delay.kind != CALM
    ]


def of_rest(rest: Rest) -> list[Bar]:
    """The bars for start-up times and for an idle daemon."""
    return [
        Bar("mcpd connect to the first byte", rest.connect_ms, 60, "ms"),
        Bar("mcpd connect: memory", rest.connect_rss_kb / 1024, 15, "MB"),
        Bar("mcpd status", rest.status_ms, 250, "ms"),
        Bar(f"READY with {rest.servers} servers and {rest.tools:,} tools", rest.ready_ms, 400, "ms"),
        Bar(f"memory with {rest.servers} servers and {rest.tools:,} tools", rest.rss_kb / 1024, 80, "MB"),
        Bar(f"CPU at rest, over {rest.idle_seconds:g} s", rest.idle_cpu, 0.2, "%"),
    ]
