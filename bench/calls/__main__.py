"""`python -m bench.calls`: the cost of a call with and without mcpd, and the daemon's other costs.

    python -m bench.calls [--quick] [--only NAMES] [--json FILE] [--write]

NAMES are some of `calls`, `memory`, `delays`, `rest`, separated by commas. `--write` puts the tables into
docs/performance.md.

The exit status is 0 even if bars are missed, and 1 if something could not be measured.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from bench.calls import bars, report
from bench.calls.delays import MANY_TOOLS, delays
from bench.calls.memory import memory
from bench.calls.rest import rest
from bench.calls.rounds import cases, crowded, measured
from bench.calls.targets import all_targets
from bench.running import Unmeasurable
from bench.tables import machine
from tests.e2e.harness import ROOT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.calls.report import Results

DOCUMENT = ROOT / "docs" / "performance.md"

PARTS = ("calls", "memory", "delays", "rest")

DESCRIPTORS = 8192
"""Most descriptors of this process: it opens two for each of a thousand clients, twice."""


@attrs.frozen(kw_only=True)
class Scope:
    """The extent of a measurement."""

    upstreams: tuple[int, ...]
    """Numbers of servers behind the measured daemons; the first is 1."""
    few: int
    """Concurrent clients, each with one call in flight."""
    many: int
    rounds: int
    seconds: float
    """Length of a target's turn in a round."""
    times: int
    """Disturbances of each kind."""
    tools: int
    """Tools of the server whose list changes."""
    servers: int
    """Servers of the daemon that idles."""
    starts: int
    idle: float
    """Seconds for which the daemon idles."""
    settle: float
    """Seconds that the daemon gets to settle after a large task."""


FULL = Scope(
    upstreams=(1, 25, 100),
    few=32,
    many=1000,
    rounds=9,
    seconds=0.5,
    times=40,
    tools=MANY_TOOLS,
    servers=50,
    starts=7,
    idle=60.0,
    settle=3.0,
)
QUICK = attrs.evolve(FULL, rounds=3, seconds=0.1, times=8, starts=2, idle=5.0)
TINY = attrs.evolve(
    QUICK,
    upstreams=(1, 2),
    few=3,
    many=20,
    rounds=1,
    seconds=0.02,
    times=2,
    tools=50,
    servers=2,
    starts=1,
    idle=0.2,
    settle=0.2,
)
"""For the tests: runs everything once; its numbers mean nothing."""


def measure(results: Results, scope: Scope, parts: Sequence[str]) -> None:
    """Measure the parts, the sensitive ones first, before others warm the caches.

    Raises:
        Unmeasurable: something did not start, or did not answer.
    """
    if "calls" in parts:
        with all_targets(scope.upstreams) as targets:
            few = cases(scope.upstreams, scope.few)
            results.calls = measured(targets, few, scope.rounds, scope.seconds)
            many = crowded(scope.upstreams, scope.many)
            results.calls += measured(targets, many, scope.rounds, max(scope.seconds, 0.02))
        results.bars += bars.of_calls(results.calls, scope.upstreams)
    if "memory" in parts:
        results.memory = memory(scope.many, scope.settle)
        results.bars += bars.of_memory(results.memory)
    if "delays" in parts:
        results.delays = delays(scope.times, scope.tools)
        results.bars += bars.of_delays(results.delays)
    if "rest" in parts:
        tools = scope.servers * MANY_TOOLS // FULL.servers
        results.rest = rest(
            count=scope.servers, tools=tools, starts=scope.starts, idle=scope.idle, settle=scope.settle
        )
        results.bars += bars.of_rest(results.rest)


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m bench.calls", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    extent = made.add_mutually_exclusive_group()
    extent.add_argument("--quick", action="store_true", help="less than two minutes instead of less than 15")
    extent.add_argument("--tiny", action="store_true", help="everything once: to see whether it runs")
    made.add_argument("--only", metavar="NAMES", default=",".join(PARTS), help="some of: %(default)s")
    made.add_argument("--json", metavar="FILE", type=Path)
    made.add_argument("--write", action="store_true", help="put the tables into docs/performance.md")
    return made


def main(argv: list[str]) -> int:
    """Measure and print."""
    parser = _parser()
    options = parser.parse_args(argv)
    parts = [name.strip() for name in options.only.split(",")]
    if unknown := [name for name in parts if name not in PARTS]:
        parser.error(f"--only: there is no {', '.join(unknown)}; there are {', '.join(PARTS)}")
    if options.write and options.tiny:
        parser.error("--write: such numbers mean nothing")
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(DESCRIPTORS, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    results = report.Results(
        command=" ".join(["python -m bench.calls", *argv]),
        date=time.strftime("%Y-%m-%d", time.gmtime()),
        machine=machine(),
        load=[os.getloadavg()[0]],
    )
    begun = time.monotonic()
    try:
        scope = TINY if options.tiny else QUICK if options.quick else FULL
        measure(results, scope, parts)
    except Unmeasurable as error:
        print(f"not measured: {error}", file=sys.stderr)
        return 1
    results.seconds = time.monotonic() - begun
    results.load.append(os.getloadavg()[0])
    _tell(results, options)
    return 0


def _tell(results: Results, options: argparse.Namespace) -> None:
    print(report.as_text(results))
    if options.json is not None:
        options.json.write_text(json.dumps(results.as_json(), indent=1) + "\n", encoding="utf-8")
    if options.write:
        report.write(DOCUMENT, results)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
