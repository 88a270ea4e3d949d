"""`python -m bench.account`: what the audit and telemetry cost a call; daemons with and without take turns.

    python -m bench.account [--rounds N] [--seconds S]

The daemons are the same but for `audit` and `telemetry`; the collector takes everything and says nothing.
"""

from __future__ import annotations

import argparse
import statistics
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from bench.calls.daemons import servers
from bench.calls.rounds import Case, Turn, ratio, stage
from bench.calls.targets import CATEGORY, Mcpd
from bench.running import running
from bench.tables import aligned

OFF = "neither"


class _Collector(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Write no line for each export."""


@contextmanager
def collector() -> Iterator[str]:
    """The address of a collector."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Collector) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def main() -> None:
    """Measure, and print a table of medians over the rounds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=1.0)
    given = parser.parse_args()
    with ExitStack() as stack:
        to = stack.enter_context(collector())
        off: dict[str, Any] = {"audit": {"enabled": False}}
        kinds = {OFF: off, "audit": {}, "telemetry": {**off, "telemetry": {"endpoint": to}}}
        kinds["telemetry of 1 %"] = {**off, "telemetry": {"endpoint": to, "sampleRatio": 0.01}}
        targets = [
            Mcpd(name, stack.enter_context(running({"mcpServers": servers([1]), **keys})), CATEGORY)
            for name, keys in kinds.items()
        ]
        names = tuple(kinds)
        asked = [
            Case(name="one at a time, 100 B", targets=names),
            Case(name="32 in flight, 100 B", targets=names, window=32),
        ]
        turns: dict[tuple[str, str], list[Turn]] = {}
        with stage(targets) as connected:
            for _round in range(given.rounds):
                for case in asked:
                    for name in names:
                        turn = connected.turn(case, name, given.seconds)
                        turns.setdefault((case.name, name), []).append(turn)
    rows = [["calls", "with", "p50 us", "to neither", "calls/s", "to neither", "CPU us", "to neither"]]
    rows += [_row(case.name, name, turns) for case in asked for name in names]
    print(aligned(rows))


def _row(case: str, name: str, turns: dict[tuple[str, str], list[Turn]]) -> list[str]:
    own, without = turns[case, name], turns[case, OFF]
    row = [case, name]
    for field, scale in (("p50", 1e6), ("rate", 1.0), ("cpu", 1e6)):
        pairs = [(getattr(ours, field), getattr(base, field)) for ours, base in zip(own, without, strict=True)]
        values = [value for value, _base in pairs if value is not None]
        row += [f"{statistics.median(values) * scale:,.0f}", f"{ratio(pairs):.3f}"] if values else ["", ""]
    return row


if __name__ == "__main__":
    main()
