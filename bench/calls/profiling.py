"""Where a daemon spends its time on one way of calling, and at its start, each in one that samples itself."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from bench.calls.daemons import ROOT, prepared, running, servers
from bench.calls.rounds import Case, stage
from bench.calls.targets import FEW_TOOLS, SOCKET, Mcpd

if TYPE_CHECKING:
    from collections.abc import Iterator

SHOWN = 30
"""Functions in each list."""

WAYS = (
    (Case(name="one at a time", targets=(SOCKET,)), "full"),
    (Case(name="one at a time through call-category-tool", targets=(SOCKET,)), "category"),
    (Case(name="32 in flight", targets=(SOCKET,), window=32), "full"),
    (Case(name="32 clients", targets=(SOCKET,), connections=32), "full"),
)

SETTLE = 1.0
"""Seconds between the start of a daemon and what is sampled."""

AT_REST = 5.0
"""Seconds after a start until everything is done that belongs to it."""


def profiled(directory: Path, seconds: float, *, count: int, tools: int) -> str:
    """Profile each way of calling for so long, and a start with so many servers and tools in the store.

    The stacks stay in the directory, for flame graphs: a count, a space, functions with semicolons between.
    """
    directory.mkdir(parents=True, exist_ok=True)
    parts = [_calls(directory / f"{case.name}.stacks", case, surface, seconds) for case, surface in WAYS]
    return "\n\n".join([*parts, _start(directory / "start.stacks", count, tools)])


def _environment(path: Path) -> dict[str, str]:
    sampling = Path(__file__).with_name("sampling")
    return {"PYTHONPATH": f"{sampling}:{ROOT}", "BENCH_SAMPLES": str(path.resolve())}


def _calls(path: Path, case: Case, surface: str, seconds: float) -> str:
    with running({"mcpServers": servers([FEW_TOOLS])}, _environment(path)) as daemon:
        target = Mcpd(SOCKET, daemon, surface)
        with stage([target]) as connected:
            connected.wires(SOCKET, case.connections)
            time.sleep(SETTLE)
            os.kill(daemon.pid, signal.SIGUSR2)
            turn = connected.turn(case, SOCKET, seconds)
    calls = turn.rate * seconds
    return f"{case.name}, {calls:,.0f} calls, {1e6 * (turn.cpu or 0):.0f} us of CPU each\n{shown(path)}"


def _start(path: Path, count: int, tools: int) -> str:
    with prepared({"mcpServers": servers([tools // count] * count)}) as daemon:
        daemon.start()
        daemon.wait_listed()
        time.sleep(AT_REST)
        daemon.stop()
        daemon.environ |= _environment(path)
        daemon.start()
        daemon.wait_listed()
        time.sleep(AT_REST)
    return f"start with {count} servers and {tools:,} tools in the store\n{shown(path)}"


def shown(path: Path) -> str:
    """The functions that took most by themselves, and with all that they called."""
    alone, whole = counted(path)
    total = max(1, alone.total())
    lines = []
    for title, counts in (("by itself", alone), ("with what it calls", whole)):
        lines.append(f"  {title}, of {total} samples")
        lines += [f"  {100 * count / total:5.1f} %  {each}" for each, count in counts.most_common(SHOWN)]
    return "\n".join(lines)


def counted(path: Path) -> tuple[Counter[str], Counter[str]]:
    """Samples by function: in itself, and in all."""
    alone: Counter[str] = Counter()
    whole: Counter[str] = Counter()
    for count, stack in _stacks(path):
        names = [name.rpartition(":")[0] for name in stack]
        alone[names[0]] += count
        for name in set(names):
            whole[name] += count
    return alone, whole


def _stacks(path: Path) -> Iterator[tuple[int, list[str]]]:
    for line in path.read_text(encoding="utf-8").splitlines():
        count, _, stack = line.partition(" ")
        yield int(count), stack.split(";")
