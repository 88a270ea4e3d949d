"""Measures one client's calls while 50 scripts of other sessions run: `python -m bench.tasks.meanwhile`.

A client calls an echo tool over the unix socket, one call after the other with pauses, in rounds: once alone,
once while each of 50 sessions of another process runs scripts one after the other. Scripts of one kind make
calls all the time, those of the other kind compute.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from bench.calls.daemons import connected, servers
from bench.calls.wires import Request
from bench.running import Client, Unmeasurable, running
from bench.tables import aligned

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from multiprocessing.sharedctypes import Synchronized

    from bench.calls.wires import Wire
    from bench.running import Daemon

SCRIPTS = 50
PAUSE = 0.002
"""Seconds between the answer to a call and the next call."""
SETTLING = 1.0
"""Seconds until all scripts run, and until the daemon has finished its work after them."""
BAR = 1.5
"""The most that scripts may multiply the p99 by, in the median round."""
KINDS = {
    "make calls": """\
import asyncio
answers = await asyncio.gather(*[call("s1/echo_1", {"text": str(n)}) for n in range(50)])
len(answers)
""",
    "compute": """\
total = 0
for n in range(1000000):
    total += n % 7
total
""",
}


def main(argv: Sequence[str]) -> int:
    """Measure and print.

    Returns:
        0: the bar is met; 1: it is not; 2: usage; 3: nothing could be measured.
    """
    parser = argparse.ArgumentParser(prog="python -m bench.tasks.meanwhile", description=__doc__)
    parser.add_argument("--rounds", type=int, default=9, help="default: %(default)s")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each half of a round (default: 4)")
    parser.add_argument("--scripts", type=int, default=SCRIPTS, help="at a time (default: %(default)s)")
    options = parser.parse_args(argv)
    head = ("scripts that", "run", "p50 alone ms", "p50 ms", "p99 alone ms", "p99 ms", "times alone", "worst")
    rows: list[tuple[str, ...]] = [head]
    met = True
    bar = f"at most {BAR:g} times that without"
    try:
        for kind, code in KINDS.items():
            row, ratio = _measured(code, options)
            rows.append((kind, *row))
            met &= ratio <= BAR
    except (Unmeasurable, OSError) as error:
        print(f"bench.tasks.meanwhile: {error}", file=sys.stderr)
        return 3
    print(aligned(rows))
    print(f"\n{'PASS' if met else 'FAIL'} p99 with {options.scripts} scripts is {bar}")
    return 0 if met else 1


def _measured(code: str, options: argparse.Namespace) -> tuple[tuple[str, ...], float]:
    alone: list[tuple[float, float]] = []
    with_scripts: list[tuple[float, float]] = []
    ran = 0
    with running({"mcpServers": servers([1, 1])}) as daemon:
        wire = connected(daemon, "full")
        for _ in range(options.rounds):
            alone.append(_calls(wire, options.seconds))
            with _scripts(daemon, code, options.scripts) as ended:
                with_scripts.append(_calls(wire, options.seconds))
                ran += int(ended.value)
        wire.close()
    if not ran:
        raise Unmeasurable("no script ended")
    ratios = [both[1] / one[1] for one, both in zip(alone, with_scripts, strict=True)]
    medians = [
        statistics.median(each[at] for each in times) for at in (0, 1) for times in (alone, with_scripts)
    ]
    ratio = statistics.median(ratios)
    return (f"{ran:,}", *(f"{each:.2f}" for each in medians), f"{ratio:.2f}", f"{max(ratios):.2f}"), ratio


def _calls(wire: Wire, seconds: float) -> tuple[float, float]:
    """The median of calls and their p99, in milliseconds."""
    request = wire.wrap(Request.of("echo_0", {"text": "x" * 100}))
    size = wire.try_out(request)
    times: list[float] = []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        wire.number += 1
        asked = time.perf_counter()
        wire.exchange(request.line(wire.number), size)
        times.append(1000 * (time.perf_counter() - asked))
        time.sleep(PAUSE)
    times.sort()
    return times[len(times) // 2], times[len(times) * 99 // 100]


@contextmanager
def _scripts(daemon: Daemon, code: str, count: int) -> Iterator[Synchronized[float]]:
    """Run scripts during the block; yields the count of finished ones in shared memory."""
    ended = multiprocessing.Value("d", 0.0)
    crowd = multiprocessing.Process(target=_crowd, args=(daemon, code, count, ended), daemon=True)
    crowd.start()
    try:
        time.sleep(SETTLING)
        yield ended
    finally:
        crowd.kill()
        crowd.join()
        time.sleep(SETTLING)


def _crowd(daemon: Daemon, code: str, count: int, ended: Synchronized[float]) -> None:
    threads = [threading.Thread(target=_run, args=(daemon, code, ended), daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _run(daemon: Daemon, code: str, ended: Synchronized[float]) -> None:
    with Client(daemon, "code") as client:
        client.introduce()
        while True:
            client.result_of("tools/call", {"name": "run_code", "arguments": {"code": code}})
            with ended.get_lock():
                ended.value += 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
