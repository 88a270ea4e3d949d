"""The price of telemetry, as ratios within one run: `python -m bench.telemetry [--calls N] [--before CHECKOUT]`.

Daemons take turns: without telemetry, with a sound collector (all calls sampled, and one in a hundred), and with
collectors that are slow, gone, and wrong. Then each gets so many more calls, 32 in flight, and its memory and
what it has lost are read. Collectors are processes of their own. `--before` is another checkout, for a daemon
without the code of telemetry.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.calls.daemons import end, servers
from bench.calls.rounds import Case, ratio, stage
from bench.calls.targets import FEW_TOOLS, Mcpd
from bench.running import running
from daemon.processes import proc
from tests.e2e.harness import ROOT, free_port

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bench.calls.rounds import Stage, Turn
    from bench.running import Daemon

OFF = "off"
SLOW_SECONDS = 3.0
ONE = Case(name="one at a time", targets=())
PACED = Case(name="one at a time, 10 ms apart", targets=())
MANY = Case(name="32 in flight", targets=(), window=32)
PAUSE = 0.01
"""Seconds between paced calls: a hundred calls a second are a busy daemon."""


class Collector(BaseHTTPRequestHandler):
    """Takes what it gets, as it was told to."""

    manner = "sound"

    def do_POST(self) -> None:
        """Read the request, and answer it in its manner."""
        self.rfile.read(int(self.headers["Content-Length"]))
        if self.manner == "slow":
            time.sleep(SLOW_SECONDS)
        if self.manner == "babbles":
            self.wfile.write(b"\x00\xff garbage\r\n" * 100)
            return
        self.send_response(500 if self.manner == "fails" else 200)
        self.end_headers()

    def log_message(self, *_args: object) -> None:
        """Keep quiet."""


def serve(manner: str, port: int) -> None:
    """Be a collector, until killed."""
    Collector.manner = manner
    with ThreadingHTTPServer(("127.0.0.1", port), Collector) as server:
        print("up", flush=True)
        server.serve_forever()


@contextmanager
def collector(manner: str) -> Iterator[str]:
    """The URL of a collector in a process of its own; of nobody if it is `gone`."""
    port = free_port()
    words = [sys.executable, "-m", "bench.telemetry", "--serve", manner, str(port)]
    if manner == "gone":
        yield f"http://127.0.0.1:{port}"
        return
    child = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        child.stdout.readline()
        yield f"http://127.0.0.1:{port}"
    finally:
        end(child)


KINDS: dict[str, tuple[str, float]] = {
    "on": ("sound", 1.0),
    "on, 1 % sampled": ("sound", 0.01),
    "collector slow": ("slow", 1.0),
    "collector gone": ("gone", 1.0),
    "collector fails": ("fails", 1.0),
    "collector babbles": ("babbles", 1.0),
}


def configured(url: str | None, share: float) -> dict[str, Any]:
    """A daemon with one echo server."""
    config: dict[str, Any] = {"mcpServers": servers([FEW_TOOLS]), "metrics": {"enabled": True}}
    return config if url is None else {**config, "telemetry": {"endpoint": url, "sampleRatio": share}}


def rounds(
    connected: Stage, names: Sequence[str], count: int, seconds: float
) -> dict[tuple[str, str], list[Turn]]:
    """Turns of every daemon by case and name, side by side."""
    turns: dict[tuple[str, str], list[Turn]] = {}
    for _ in range(count):
        for case in (ONE, PACED, MANY):
            for name in names:
                pause = PAUSE if case is PACED else 0.0
                turns.setdefault((case.name, name), []).append(connected.turn(case, name, seconds, pause))
    return turns


def lost(daemon: Daemon) -> int:
    """Traces that a daemon has not exported."""
    lines = daemon.run("metrics").splitlines()
    found = [line for line in lines if line.startswith('mcpd_telemetry_dropped_total{signal="traces"}')]
    return int(float(found[0].split()[-1])) if found else 0


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.telemetry")
    parser.add_argument("--serve", nargs=2, metavar=("MANNER", "PORT"), help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.5, help="of each turn")
    parser.add_argument(
        "--calls", type=int, default=100_000, help="at each daemon, for memory (default: %(default)s)"
    )
    parser.add_argument("--before", type=Path, metavar="CHECKOUT")
    options = parser.parse_args()
    if options.serve:
        serve(options.serve[0], int(options.serve[1]))
        return 0
    with ExitStack() as stack:
        daemons = {OFF: stack.enter_context(running(configured(None, 1.0)))}
        if options.before:
            daemons["before"] = stack.enter_context(
                running(configured(None, 1.0), code=options.before.absolute())
            )
        for name, (manner, share) in KINDS.items():
            url = stack.enter_context(collector(manner))
            daemons[name] = stack.enter_context(running(configured(url, share)))
        connected = stack.enter_context(stage([Mcpd(name, daemon) for name, daemon in daemons.items()]))
        turns = rounds(connected, [*daemons], options.rounds, options.seconds)
        for case in (ONE, PACED, MANY):
            base = turns[case.name, OFF]
            for name in daemons:
                own = turns[case.name, name]
                p50, p99, rate = (
                    statistics.median(getattr(turn, what) for turn in own) for what in ("p50", "p99", "rate")
                )
                pairs = zip(own, base, strict=True)
                compared = ratio([(one.p50, other.p50) for one, other in pairs])
                print(
                    f"{case.name:28}{name:20}p50 {p50 * 1e6:7.0f} us ({compared:.3f})"
                    f"  p99 {p99 * 1e6:8.0f} us  {rate:7.0f} a second"
                )
        for name, daemon in daemons.items():
            done, before, began = 0.0, proc.resident(daemon.pid), time.perf_counter()
            while done < options.calls:
                turn = connected.turn(MANY, name, 1.0)
                done += turn.rate
            took = time.perf_counter() - began
            print(
                f"{name:20}{done:9.0f} calls in {took:5.1f} s, memory {before / 2**20:6.1f} ->"
                f" {proc.resident(daemon.pid) / 2**20:6.1f} MiB, traces lost {lost(daemon)}",
                flush=True,
            )
    print(json.dumps({"rounds": options.rounds, "seconds": options.seconds}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
