"""`python -m bench.calls.against DIR`: the cost of a plain call here and in another checkout, in one run.

    python -m bench.calls.against DIR [--rounds N]

Both daemons run at the same time and take turns in every round, so that a busy moment hits both. The table
compares the median of the rounds' ratios, and the daemon's CPU time for a call.
"""

from __future__ import annotations

import argparse
import statistics
from contextlib import ExitStack
from pathlib import Path

from bench.calls.daemons import listening, servers
from bench.calls.rounds import Case, Stage
from bench.calls.targets import CATEGORY, FEW_TOOLS, HTTP, SOCKET, Mcpd
from bench.running import running
from tests.e2e.harness import ROOT

ROUNDS = 30
SECONDS = 0.3
"""Length of each turn."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("other", type=Path)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    asked = parser.parse_args()
    with ExitStack() as stack:
        targets = []
        for name, code in (("this", ROOT), ("other", asked.other.resolve())):
            config = {"mcpServers": servers([FEW_TOOLS]), **listening()}
            daemon = stack.enter_context(running(config, {"s0": FEW_TOOLS}, code))
            targets += [Mcpd(f"{name} {way}", daemon, way) for way in (SOCKET, CATEGORY, HTTP)]
        stage = Stage(targets)
        stack.callback(stage.close)
        print("| call | p50 here | p50 there | ratio | CPU here | CPU there | ratio |")
        print("|---|---|---|---|---|---|---|")
        for way in (SOCKET, CATEGORY, HTTP):
            for window in (1, 32) if way != HTTP else (1,):
                _compare(stage, way, window, asked.rounds)


def _compare(stage: Stage, way: str, window: int, rounds: int) -> None:
    names = f"this {way}", f"other {way}"
    case = Case(name=f"{way}, {window} in flight, 100 B", targets=names, window=window)
    spent: dict[str, list[float]] = {name: [] for name in names}
    cpu: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds):
        for name in names[:: 1 if number % 2 else -1]:
            turn = stage.turn(case, name, SECONDS)
            spent[name].append(turn.p50 if turn.p50 is not None else 1 / turn.rate)
            cpu[name].append(turn.cpu or 0.0)
    cells = []
    for found in (spent, cpu):
        here, there = (statistics.median(found[name]) * 1e6 for name in names)
        ratio = statistics.median(a / b for a, b in zip(*(found[name] for name in names), strict=True))
        cells += [f"{here:.1f} µs", f"{there:.1f} µs", f"{ratio:.3f}"]
    print(f"| {case.name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
