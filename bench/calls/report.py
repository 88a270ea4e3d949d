"""Reports a measurement: as JSON, as text for a terminal, and as tables of `docs/performance.md`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from bench.tables import markdown, number, put, text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bench.calls.bars import Bar
    from bench.calls.delays import Delay
    from bench.calls.memory import Memory
    from bench.calls.rest import Rest
    from bench.calls.rounds import Row
    from bench.tables import Table

BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
"""The marks around the part that `--write` replaces."""

CALL_HEADS = ["case", "target", "p50 us", "to direct", "p99 us", "calls/s", "to direct", "MB/s", "CPU us"]

SHOWN = ("direct", "socket", "category", "connect", "naive")
"""The targets that the document compares; a terminal shows the others, too."""

KIB = 1024


@attrs.define(kw_only=True)
class Results:
    """The results of a run; a part that was not measured is empty."""

    command: str
    date: str
    machine: str
    load: list[float]
    """Load averages at the beginning and at the end: other work slows everything down."""
    seconds: float = 0
    calls: list[Row] = attrs.field(factory=list)
    memory: Memory | None = None
    delays: list[Delay] = attrs.field(factory=list)
    rest: Rest | None = None
    bars: list[Bar] = attrs.field(factory=list)

    def as_json(self) -> dict[str, Any]:
        """The results as JSON, with `met` for each bar."""
        bars = [{**attrs.asdict(bar), "met": bar.met} for bar in self.bars]
        return {**attrs.asdict(self), "bars": bars}


def tables(results: Results) -> Iterator[Table]:
    """All tables with results."""
    if results.bars:
        yield "Bars", ["bar", "measured", "demanded", "met"], [_bar(bar) for bar in results.bars]
    if results.calls:
        yield "Calls", CALL_HEADS, [_row(row) for row in results.calls]
    if results.delays:
        heads = ["meanwhile", "times", "took ms", "calls", "p99 ms", "longest ms", "worst ms", "added ms"]
        yield "Waits of others", heads, [_delay(delay) for delay in results.delays]
    values = [*_memory(results.memory), *_rest(results.rest)]
    if values:
        yield "Memory, start and rest", ["what", "measured"], values


def summary(results: Results) -> Iterator[Table]:
    """The tables for the document: the bars that are missed, and the calls by their case."""
    missed = [_demanded(bar) for bar in results.bars if not bar.met]
    if missed:
        yield f"Missed: {len(missed)} of {len(results.bars)} bars", ["bar", "measured", "demanded"], missed
    cases: dict[str, dict[str, float]] = {}
    for row in results.calls:
        words = f"{row.case}: {'calls/s' if row.p50_us is None else 'p50 us'}"
        cases.setdefault(words, {})[row.target] = row.rate if row.p50_us is None else row.p50_us
    rows = [
        [case, *(number(each.get(name)) for name in SHOWN)]
        for case, each in cases.items()
        if each.keys() & {*SHOWN}
    ]
    if rows:
        yield "Calls", ["case", *SHOWN], rows


def _demanded(bar: Bar) -> list[str]:
    """The short row of a bar."""
    return [bar.name, f"{number(bar.measured)} {bar.unit}", f"{'≥' if bar.least else '≤'} {bar.limit:g}"]


def _bar(bar: Bar) -> list[str]:
    sign = "at least" if bar.least else "at most"
    unit = f" {bar.unit}"
    return [bar.name, number(bar.measured) + unit, f"{sign} {bar.limit:g}{unit}", "yes" if bar.met else "NO"]


def _row(row: Row) -> list[str]:
    case, target, *values = attrs.astuple(row)
    return [case, target, *map(number, values)]


def _delay(delay: Delay) -> list[str]:
    values = (delay.took, delay.calls, delay.p99, delay.longest, delay.worst, delay.added)
    return [delay.kind, str(delay.times), *map(number, values)]


def _memory(memory: Memory | None) -> list[list[str]]:
    if memory is None:
        return []
    return [
        [f"an idle client, of {memory.clients:,}", f"{number(memory.per_client)} KB"],
        ["what of it is left when they have gone", f"{number(memory.per_client_gone)} KB"],
        ["an idle session over HTTP with its stream", f"{number(memory.per_stream)} KB"],
        ["an idle stream of MCP 2026-07-28", f"{number(memory.per_subscription)} KB"],
        ["growth while answers of 10 MB pass", f"{number(memory.peak / KIB)} MB"],
        ["what of it is left afterwards", f"{number(memory.after / KIB)} MB"],
    ]


def _rest(rest: Rest | None) -> list[list[str]]:
    if rest is None:
        return []
    return [
        [f"READY: {rest.servers} servers, {rest.tools:,} tools in the store", f"{number(rest.ready_ms)} ms"],
        ["READY with an empty store", f"{number(rest.first_ready_ms)} ms"],
        ["all servers have listed", f"{number(rest.listed_ms)} ms"],
        ["daemon at rest: memory", f"{number(rest.rss_kb / KIB)} MB"],
        ["daemon at rest: CPU", f"{number(rest.idle_cpu)} %"],
        ["mcpd connect: first byte", f"{number(rest.connect_ms)} ms"],
        ["mcpd connect: memory", f"{number(rest.connect_rss_kb / KIB)} MB"],
        ["mcpd connect: memory of its own", f"{number(rest.connect_own_kb / KIB)} MB"],
        ["mcpd status", f"{number(rest.status_ms)} ms"],
    ]


def head(results: Results) -> str:
    """The command, the date and the machine of the measurement."""
    return (
        f"`{results.command}`, {results.date}, {results.seconds:.0f} s. {results.machine}."
        f" Load average {results.load[0]:.1f} at the beginning, {results.load[1]:.1f} at the end."
    )


def as_text(results: Results) -> str:
    """All tables, for a terminal."""
    return "\n\n".join([head(results), *map(text, tables(results))])


def write(path: Path, results: Results) -> None:
    """Put the summary into a document, between its two marks.

    Raises:
        ValueError: it has no such marks.
    """
    put(path, BEGIN, END, "\n\n".join([head(results), *map(markdown, summary(results))]))
