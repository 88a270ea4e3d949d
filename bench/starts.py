"""Measures the start of many servers that compute for some time first: `python -m bench.starts`.

The *ideal* is the time of the same work in as many processes as may start at once, without mcpd, measured just
before and after: on a busy machine fewer processes would get less CPU. With `--against DIR` another checkout is
measured in the same run.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import attrs

from bench.calls.daemons import ECHO
from bench.running import prepared
from tests.e2e.harness import ROOT

BURN = "import sys, time\nwhile time.process_time() < float(sys.argv[1]): sum(range(1000))\n"
"""Uses the given seconds of CPU, as the imports of a large program do."""

SERVER = BURN + "import runpy\ndel sys.argv[1]\nrunpy.run_path(sys.argv.pop(1), run_name='__main__')\n"
"""Computes before it reads anything, then becomes the echo server whose path and arguments follow."""

HANGING = "import time; time.sleep(86400)"

STARTS = 4
"""Servers that start at once by default (`limits.starts`)."""

LOOK = 0.1
"""Seconds between two reads of the daemon's log."""

_UP = re.compile(r"\bslow-(\d+)\b.*speaks MCP")
_TIMEOUT = re.compile(r"\bslow-\d+\b.*no answer to initialize")


@attrs.frozen(kw_only=True)
class Found:
    """The results of one boot."""

    up: int
    """Servers that came up in time."""
    half: float
    """Seconds until half of them were up."""
    whole: float
    """Seconds until all were up, or until the patience ended."""
    timeouts: int
    """Starts that timed out."""


def ideal(servers: int, seconds: float) -> float:
    """Wall time of the same work in as many processes as may start at once, at least one for each core."""
    many = max(STARTS, len(os.sched_getaffinity(0)))
    command = [sys.executable, "-S", "-c", BURN, str(servers * seconds / many)]
    began = time.monotonic()
    for burning in [subprocess.Popen(command) for _ in range(many)]:
        burning.wait()
    return time.monotonic() - began


def boot(checkout: Path, servers: int, seconds: float, hanging: int, patience: float) -> Found:
    """Start a daemon with servers, and measure.

    Args:
        checkout: the checkout of the daemon.
        servers: number of healthy servers.
        seconds: CPU that each needs first.
        hanging: number of servers that never answer.
        patience: seconds after which the measurement ends.
    """
    slow = {"command": sys.executable, "args": ["-I", "-S", "-c", SERVER, str(seconds), *ECHO[3:], "0", "3"]}
    hung = {"command": sys.executable, "args": ["-S", "-c", HANGING]}
    configured = {f"hung-{i}": hung for i in range(hanging)} | {f"slow-{i}": slow for i in range(servers)}
    with prepared({"mcpServers": configured}, checkout) as daemon:
        began = time.monotonic()
        daemon.start()
        times: dict[str, float] = {}
        while len(times) < servers and time.monotonic() - began < patience:
            time.sleep(LOOK)
            for name in _UP.findall(daemon.said()):
                times.setdefault(name, time.monotonic() - began)
        timeouts = len(_TIMEOUT.findall(daemon.said()))
    order, half = sorted(times.values()), (servers + 1) // 2
    return Found(
        up=len(times),
        half=order[half - 1] if len(order) >= half else patience,
        whole=order[-1] if len(order) == servers else patience,
        timeouts=timeouts,
    )


def told(name: str, found: Found, best: float, servers: int) -> str:
    """One line of the table."""
    return (
        f"{name:<12}{found.up:>4} of {servers:<4}{found.half:>8.1f}{found.whole:>8.1f}"
        f"{found.whole / best:>8.2f}{found.timeouts:>10}"
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--servers", type=int, default=10, help="how many are healthy")
    parser.add_argument("--seconds", type=float, default=2.0, help="of CPU that each of them needs first")
    parser.add_argument("--hanging", type=int, default=0, help="how many others never answer")
    parser.add_argument("--patience", type=float, default=300.0, help="seconds for a boot")
    parser.add_argument("--against", type=Path, help="another checkout")
    asked = parser.parse_args()
    boots = {"this": ROOT} | ({"other": asked.against.resolve()} if asked.against else {})
    bests, found = [ideal(asked.servers, asked.seconds)], {}
    for name, checkout in boots.items():
        found[name] = boot(checkout, asked.servers, asked.seconds, asked.hanging, asked.patience)
        bests.append(ideal(asked.servers, asked.seconds))
    print(f"{'':<12}{'up':>10}  {'half s':>8}{'all s':>8}{'ratio':>8}{'timeouts':>10}")
    for number, (name, each) in enumerate(found.items()):
        best = (bests[number] + bests[number + 1]) / 2
        print(told(name, each, best, asked.servers), f"  (ideal {best:.1f} s)")
    if any(each.up < asked.servers for each in found.values()):
        sys.exit("not all servers came up")


if __name__ == "__main__":
    main()
