"""Measures the cost of telemetry within one run: `python -m bench.telemetry [--calls N] [--before CHECKOUT]`.

A daemon without telemetry takes turns with one of each other kind: with a healthy collector (all calls sampled,
and one in a hundred), and with collectors that are slow, gone or wrong. A turn begins when both daemons are
idle. Then the other daemon gets further calls, 32 in flight, and its memory and lost traces are read.
Collectors are separate processes. `--before` is another checkout, for a daemon without this code.
"""

from __future__ import annotations

import argparse
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
from bench.calls.wires import cpu_of
from bench.running import running
from daemon.processes import proc
from tests.e2e.harness import ROOT, free_port

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bench.calls.rounds import Stage, Turn
    from bench.running import Daemon

OFF = "off"
SLOW_SECONDS = 3.0
ONE = Case(name="one at a time", targets=())
PACED = Case(name="one at a time, 10 ms apart", targets=())
MANY = Case(name="32 in flight", targets=(), window=32)
REST_SECONDS, LOOK_SECONDS = 15.0, 0.2
IDLE = 0.004
"""Most seconds of CPU between two checks of an idle daemon."""

PAUSE = 0.01
"""Seconds between paced calls: a busy daemon gets a hundred a second."""


class Collector(BaseHTTPRequestHandler):
    """A collector that behaves in one manner."""

    manner = "sound"

    def do_POST(self) -> None:
        """Read the request, and answer it in this manner."""
        self.rfile.read(int(self.headers["Content-Length"]))
        if self.manner == "slow":
            time.sleep(SLOW_SECONDS)
        if self.manner == "babbles":
            self.wfile.write(b"\x00\xff garbage\r\n" * 100)
            return
        self.send_response(500 if self.manner == "fails" else 200)
        self.end_headers()

    def log_message(self, *_args: object) -> None:
        """Log nothing."""


def serve(manner: str, port: int) -> None:
    """Run a collector until killed."""
    Collector.manner = manner
    with ThreadingHTTPServer(("127.0.0.1", port), Collector) as server:
        print("up", flush=True)
        server.serve_forever()


@contextmanager
def collector(manner: str) -> Iterator[str]:
    """The URL of a collector in a separate process; if it is `gone`, nothing listens there."""
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
    "one in a hundred": ("sound", 0.01),
    "collector slow": ("slow", 1.0),
    "collector gone": ("gone", 1.0),
    "collector fails": ("fails", 1.0),
    "collector babbles": ("babbles", 1.0),
}


def configured(url: str | None, share: float) -> dict[str, Any]:
    """A daemon with one echo server."""
    config: dict[str, Any] = {"mcpServers": servers([FEW_TOOLS]), "metrics": {"enabled": True}}
    return config if url is None else {**config, "telemetry": {"endpoint": url, "sampleRatio": share}}


def rest(daemon: Daemon) -> None:
    """Wait until a daemon is idle again."""
    until, used = time.monotonic() + REST_SECONDS, -1.0
    while time.monotonic() < until and (now := cpu_of(daemon.pid)) - used > IDLE:
        used = now
        time.sleep(LOOK_SECONDS)


def compare(connected: Stage, pair: Mapping[str, Daemon], options: argparse.Namespace) -> None:
    """Let two daemons take turns; print the second relative to the first."""
    turns: dict[tuple[str, str], list[Turn]] = {}
    for _ in range(options.rounds):
        for case in (ONE, PACED, MANY):
            for name in pair:
                for each in pair.values():
                    rest(each)
                pause = PAUSE if case is PACED else 0.0
                turns.setdefault((case.name, name), []).append(
                    connected.turn(case, name, options.seconds, pause)
                )
    for case in (ONE, PACED, MANY):
        base, own = (turns[case.name, name] for name in pair)
        p50s = [statistics.median(turn.p50 or 0.0 for turn in each) * 1e6 for each in (base, own)]
        rates = [statistics.median(turn.rate for turn in each) for each in (base, own)]
        rate = ratio([(one.rate, other.rate) for one, other in zip(own, base, strict=True)])
        p50 = ratio([(one.p50, other.p50) for one, other in zip(own, base, strict=True)])
        cpus = [statistics.median(turn.cpu or 0.0 for turn in each) * 1e6 for each in (base, own)]
        told = f"rate {rates[0]:6.0f} -> {rates[1]:6.0f} ({rate:.3f}), CPU {cpus[0]:4.0f} -> {cpus[1]:4.0f} us"
        if p50 is not None:
            told += f", p50 {p50s[0]:5.0f} -> {p50s[1]:5.0f} us ({p50:.3f})"
        print(f"  {case.name:28}{told}", flush=True)


def lost(daemon: Daemon) -> int:
    """Traces that a daemon has lost."""
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
    parser.add_argument(
        "--only", default=",".join(KINDS), help="kinds, with commas between (default: %(default)s)"
    )
    parser.add_argument("--before", type=Path, metavar="CHECKOUT")
    options = parser.parse_args()
    if options.serve:
        serve(options.serve[0], int(options.serve[1]))
        return 0
    kinds: dict[str, tuple[str | None, float]] = {"before": (None, 1.0)} if options.before else {}
    kinds |= {name: KINDS[name] for name in options.only.split(",") if name}
    for name, (manner, share) in kinds.items():
        with ExitStack() as stack:
            url = None if manner is None else stack.enter_context(collector(manner))
            code = options.before.absolute() if manner is None else ROOT
            pair = {
                OFF: stack.enter_context(running(configured(None, 1.0))),
                name: stack.enter_context(running(configured(url, share), code=code)),
            }
            connected = stack.enter_context(stage([Mcpd(each, daemon) for each, daemon in pair.items()]))
            print(name)
            compare(connected, pair, options)
            daemon, done, at = pair[name], 0.0, [proc.resident(pair[name].pid)]
            while done < options.calls:
                done += connected.turn(MANY, name, 1.0).rate
                at.append(proc.resident(daemon.pid))
            sizes = f"{at[0] / 2**20:.1f} -> {at[len(at) // 2] / 2**20:.1f} -> {at[-1] / 2**20:.1f} MiB"
            print(f"  {done:.0f} calls: memory {sizes}, traces lost: {lost(daemon)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
