"""`python -m bench.audited [--rounds N] [--seconds S]`: the cost of the audit for a call.

A daemon with an audit and one without take turns; the table has the medians of the rounds, and the median of
the rounds' ratios. Records wait for a quarter of a second: in a short turn, few of its records are written.
"""

from __future__ import annotations

import argparse
import statistics
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from bench.calls.daemons import servers
from bench.calls.rounds import Case, ratio, stage
from bench.calls.targets import CATEGORY, Mcpd
from bench.running import running
from bench.tables import aligned

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.calls.rounds import Turn

NAMES = (OFF, ON) = ("no audit", "audit")
CASES = [
    Case(name="one at a time, 100 B", targets=NAMES),
    Case(name="32 in flight, 100 B", targets=NAMES, window=32),
]
SETTLE_SECONDS = 1.0
"""Seconds after a turn in which the audit writes the last records of the turn, at nobody's cost."""
FIELDS = {"p50": ("p50 us", 1e6), "rate": ("calls/s", 1.0), "cpu": ("CPU us", 1e6)}


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=2.0)
    given = parser.parse_args()
    turns: dict[tuple[str, str], list[Turn]] = {}
    with ExitStack() as stack:
        targets = []
        for name in NAMES:
            config = {"mcpServers": servers([1]), "audit": {"enabled": name == ON}}
            targets.append(Mcpd(name, stack.enter_context(running(config)), CATEGORY))
        connected = stack.enter_context(stage(targets))
        for number in range(given.rounds):
            for case in CASES:
                for name in NAMES[:: 1 if number % 2 else -1]:
                    turn = connected.turn(case, name, given.seconds)
                    turns.setdefault((case.name, name), []).append(turn)
                    time.sleep(SETTLE_SECONDS)
    rows = [_row(case.name, turns[case.name, OFF], turns[case.name, ON]) for case in CASES]
    heads = [each for head, _scale in FIELDS.values() for each in (f"{head}, {OFF}", f"{head}, {ON}", "ratio")]
    print(aligned([["calls", *heads], *rows]))


def _row(case: str, off: Sequence[Turn], on: Sequence[Turn]) -> list[str]:
    row = [case]
    for field, (_head, scale) in FIELDS.items():
        pairs = [(getattr(one, field), getattr(other, field)) for one, other in zip(on, off, strict=True)]
        known = [(one, other) for one, other in pairs if one is not None and other is not None]
        medians = [statistics.median(values) * scale for values in zip(*known, strict=True)]
        row += [f"{medians[1]:,.0f}", f"{medians[0]:,.0f}", f"{ratio(known):.3f}"] if known else ["", "", ""]
    return row


if __name__ == "__main__":
    main()
