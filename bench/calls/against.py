"""This checkout against another one, in one run: `python -m bench.calls --against DIR`.

Both daemons are up at once, each with a server of its own, and take turns in every round, now the one first and
now the other. Told of each step is the median of the rounds' ratios: what else the machine does meets both.
"""

from __future__ import annotations

import statistics
from contextlib import contextmanager
from typing import TYPE_CHECKING

import attrs

from bench.calls.daemons import servers
from bench.calls.rounds import cases, stage
from bench.calls.targets import CATEGORY, CONNECT, FEW_TOOLS, SOCKET, Mcpd
from bench.running import running

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bench.calls.rounds import Turn
    from bench.calls.targets import Target

OTHER = "other "
"""Before the names of the other checkout's targets."""

WAYS = (SOCKET, CATEGORY, CONNECT)


@attrs.frozen(kw_only=True)
class Step:
    """What this checkout takes, of what the other one takes: medians of the rounds' ratios; less is quicker."""

    case: str
    target: str
    wall: float
    """Of the time of a call: its median one at a time, else what one more takes."""
    cpu: float | None
    """Of the daemon's CPU for a call."""


def against(other: Path, connections: int, rounds: int, seconds: float) -> list[Step]:
    """Measure both.

    Args:
        other: the other checkout's folder.
        connections: clients where there are many.
        rounds: how often.
        seconds: of each turn.
    """
    with _both(other) as targets, stage(targets) as connected:
        asked = [(case, way) for case in cases((1,), connections) for way in WAYS if way in case.targets]
        turns: dict[tuple[str, str], list[tuple[Turn, Turn]]] = {}
        for number in range(rounds):
            for case, way in asked:
                names = (way, OTHER + way)
                ran = {name: connected.turn(case, name, seconds) for name in names[:: (-1) ** number]}
                turns.setdefault((case.name, way), []).append((ran[names[0]], ran[names[1]]))
    return [compared(case, way, pairs) for (case, way), pairs in turns.items()]


def compared(case: str, target: str, pairs: list[tuple[Turn, Turn]]) -> Step:
    """The ratios of one step, each round's turn of ours beside the other's."""
    wall = [
        ours.p50 / theirs.p50 if ours.p50 and theirs.p50 else theirs.rate / ours.rate for ours, theirs in pairs
    ]
    cpu = [ours.cpu / theirs.cpu for ours, theirs in pairs if ours.cpu and theirs.cpu]
    return Step(
        case=case, target=target, wall=statistics.median(wall), cpu=statistics.median(cpu) if cpu else None
    )


def as_table(steps: list[Step]) -> str:
    """For a terminal."""
    lines = [f"{'':<30}{'':<12}{'time':>8}{'CPU':>8}"]
    for step in steps:
        cpu = "-" if step.cpu is None else f"{step.cpu:.3f}"
        lines.append(f"{step.case:<30}{step.target:<12}{step.wall:>8.3f}{cpu:>8}")
    return "\n".join(lines)


@contextmanager
def _both(other: Path) -> Iterator[list[Target]]:
    config = {"mcpServers": servers([FEW_TOOLS])}
    with running(config) as ours, running(config, code=other.resolve()) as theirs:
        yield [
            Mcpd(prefix + way, daemon, way) for prefix, daemon in (("", ours), (OTHER, theirs)) for way in WAYS
        ]
