"""What was measured, as JSON, as text for a terminal, and as the tables of `docs/performance.md`."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from bench.calls.bars import Bar
    from bench.calls.delays import Delay
    from bench.calls.memory import Memory
    from bench.calls.rest import Rest
    from bench.calls.rounds import Row

BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
"""What `--write` replaces stands between these."""

KIB = 1024


@attrs.define(kw_only=True)
class Results:
    """All of a run; a part that was not asked for is empty."""

    command: str
    date: str
    machine: str
    load: list[float]
    """Load averages at the beginning and at the end: other work makes everything slower."""
    seconds: float = 0
    calls: list[Row] = attrs.field(factory=list)
    memory: Memory | None = None
    delays: list[Delay] = attrs.field(factory=list)
    rest: Rest | None = None
    bars: list[Bar] = attrs.field(factory=list)

    def as_json(self) -> dict[str, Any]:
        """With whether each bar is met."""
        bars = [{**attrs.asdict(bar), "met": bar.met} for bar in self.bars]
        return {**attrs.asdict(self), "bars": bars}


def machine() -> str:
    """Processor, kernel, interpreter."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "?")
    return (
        f"{model}, {os.cpu_count()} CPUs, Linux {platform.release()},"
        f" {platform.python_implementation()} {platform.python_version()}"
    )


Table = tuple[str, list[str], list[list[str]]]
"""Its title, its heads, its cells."""


def tables(results: Results) -> Iterator[Table]:
    """What there is to show."""
    if results.bars:
        yield "Bars", ["bar", "measured", "demanded", "met"], [_bar(bar) for bar in results.bars]
    if results.calls:
        heads = [
            "case",
            "target",
            "p50 us",
            "to direct",
            "p99 us",
            "calls/s",
            "to direct",
            "MB/s",
            "CPU us/call",
        ]
        yield "Calls", heads, [_row(row) for row in results.calls]
    if results.delays:
        heads = ["meanwhile", "times", "took ms", "calls", "p99 ms", "longest ms", "worst ms", "added ms"]
        yield "What others wait for", heads, [_delay(delay) for delay in results.delays]
    values = [*_memory(results.memory), *_rest(results.rest)]
    if values:
        yield "Memory, start and rest", ["what", "measured"], values


def _bar(bar: Bar) -> list[str]:
    sign = "at least" if bar.least else "at most"
    unit = f" {bar.unit}"
    return [bar.name, number(bar.measured) + unit, f"{sign} {bar.limit:g}{unit}", "yes" if bar.met else "NO"]


def _row(row: Row) -> list[str]:
    return [
        row.case,
        row.target,
        number(row.p50_us),
        number(row.p50_ratio),
        number(row.p99_us),
        number(row.rate),
        number(row.rate_ratio),
        number(row.megabytes),
        number(row.cpu_us),
    ]


def _delay(delay: Delay) -> list[str]:
    values = (delay.took, delay.calls, delay.p99, delay.longest, delay.worst, delay.added)
    return [delay.kind, str(delay.times), *map(number, values)]


def _memory(memory: Memory | None) -> list[list[str]]:
    if memory is None:
        return []
    return [
        [f"an idle client, of {memory.clients:,}", f"{number(memory.per_client)} KB"],
        ["what of it is left when they have gone", f"{number(memory.per_client_gone)} KB"],
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


def number(value: float | None) -> str:
    """Three digits that mean something."""
    if value is None:
        return "-"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def head(results: Results) -> str:
    """How it was had."""
    first, last = results.load
    return (
        f"`{results.command}`, {results.date}, {results.seconds:.0f} s. {results.machine}."
        f" Load average {first:.1f} at the beginning, {last:.1f} at the end."
    )


def as_text(results: Results) -> str:
    """For a terminal."""
    parts = [head(results)]
    for title, heads, rows in tables(results):
        widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
        parts.append("\n".join([title, *(_line(cells, widths) for cells in [heads, *rows])]))
    return "\n\n".join(parts)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *rest = zip(cells, widths, strict=True)
    left = [f"{first[0]:<{first[1]}}"]
    # Words to the left, numbers to the right.
    left += [f"{cell:>{width}}" if cell[:1] in "-0123456789" else f"{cell:<{width}}" for cell, width in rest]
    return "  ".join(left).rstrip()


def as_markdown(results: Results) -> str:
    """For `docs/performance.md`."""
    parts = [head(results)]
    for title, heads, rows in tables(results):
        lines = [_cells(heads), _cells("---" for _ in heads), *map(_cells, rows)]
        parts.append("\n".join([f"### {title}\n", *lines]))
    return "\n\n".join(parts)


def _cells(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def write(path: Path, results: Results) -> None:
    """Put the tables into a document, between its two marks.

    Raises:
        ValueError: it has no such marks.
    """
    before, begin, rest = path.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{path} has no place for the numbers: {BEGIN} ... {END}")
    path.write_text(f"{before}{begin}\n\n{as_markdown(results)}\n\n{end}{after}", encoding="utf-8")
