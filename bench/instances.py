"""Measures many sessions with private servers: `python -m bench.instances`.

Each session calls each server, and so gets an instance of it. The cost of an instance is compared with that of
the same program, started without a daemon in the same run, so that the machine's load counts for both. Then
calls stop until `idle` has ended all instances.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import attrs

from bench.calls.daemons import servers
from bench.calls.wires import cpu_of, kilobytes
from bench.running import Client, Unmeasurable, prepared
from bench.tables import Table, machine, markdown, number

if TYPE_CHECKING:
    from bench.running import Daemon

TOOLS = 3
"""Tools of each server."""

REST_SECONDS = 2.0
"""Seconds before memory is measured, in which memory for starts is freed."""

GONE_SECONDS = 30.0
"""Seconds beyond `idle` to wait for the end of instances."""

GREETING = b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}\n'


@attrs.define(kw_only=True)
class Found:
    """What was measured."""

    instances: int
    """The count of instances that ran at once."""
    alone: float
    """Milliseconds from the start of the same program to its first answer, without a daemon; the median."""
    first: list[float]
    """Milliseconds of calls that started an instance."""
    second: list[float]
    """Milliseconds of calls to running instances."""
    cpu: float
    """Milliseconds of the daemon's CPU for each instance's start, with its connection."""
    own: float
    """Kilobytes of the daemon's memory for each instance."""
    session: float
    """Kilobytes of the daemon's memory for a session without instances."""
    resident: float
    """Megabytes of an instance, shared memory included."""
    proportional: float
    """Megabytes of an instance, with shared memory divided among its users."""
    gone: float
    """Seconds from the last call until all instances had ended."""
    left: float
    """Kilobytes of the daemon's memory for each instance, after all have ended."""


def configuration(sessions: int, each: int, idle: float) -> dict[str, Any]:
    """A configuration with `each` servers, of which each session gets instances."""
    own = {"share": "session", "idle": idle, "limits": {"instances": sessions + 1}}
    configured = {name: {**entry, **own} for name, entry in servers([TOOLS] * each).items()}
    return {"mcpServers": configured, "limits": {"connections": sessions + 64}}


def alone(command: list[str], times: int) -> float:
    """Milliseconds from the start of a server to its first answer; the median."""
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
            assert child.stdin is not None
            assert child.stdout is not None
            child.stdin.write(GREETING)
            child.stdin.flush()
            child.stdout.readline()
            taken.append((time.perf_counter() - began) * 1000)
            child.stdin.close()
    return statistics.median(taken)


def measured(sessions: int, each: int, idle: float) -> Found:
    """Measure once.

    Raises:
        Unmeasurable: an instance did not start, or did not end.
    """
    config = configuration(sessions, each, idle)
    entry = next(iter(config["mcpServers"].values()))
    before = alone([entry["command"], *entry["args"]], 20)
    with prepared(config) as daemon:
        daemon.start()
        with Client(daemon, "full") as first:
            # What the servers offer must be known, as it is after the first run of a daemon.
            first.introduce()
            first.result_of("tools/list", {})
            _called(first, each)
        _wait_gone(daemon, idle)
        empty = kilobytes(daemon.pid, "VmRSS")
        clients = [Client(daemon, "full") for _ in range(sessions)]
        for client in clients:
            client.introduce()
            client.result_of("tools/list", {})
        time.sleep(REST_SECONDS)
        connected, cpu = kilobytes(daemon.pid, "VmRSS"), cpu_of(daemon.pid)
        starts = [taken for client in clients for taken in _called(client, each)]
        cpu = cpu_of(daemon.pid) - cpu
        again = [taken for client in clients for taken in _called(client, each)]
        ended = time.monotonic()
        time.sleep(REST_SECONDS)
        rows = _instances(daemon)
        count = len(rows)
        if count != sessions * each:
            raise Unmeasurable(f"{count} instances run, not {sessions * each}")
        full = kilobytes(daemon.pid, "VmRSS")
        shares = [_proportional(row["pid"]) for row in rows]
        _wait_gone(daemon, idle)
        gone = time.monotonic() - ended
        time.sleep(REST_SECONDS)
        left = kilobytes(daemon.pid, "VmRSS")
        for client in clients:
            client.close()
    return Found(
        instances=count,
        alone=statistics.mean((before, alone([entry["command"], *entry["args"]], 20))),
        first=starts,
        second=again,
        cpu=cpu * 1000 / count,
        own=(full - connected) / count,
        session=(connected - empty) / sessions,
        resident=statistics.mean(row["rssBytes"] for row in rows) / 1024**2,
        proportional=statistics.mean(shares) / 1024,
        gone=gone,
        left=(left - connected) / count,
    )


def _called(client: Client, each: int) -> list[float]:
    """Milliseconds of one call to each server."""
    taken = []
    for server in range(each):
        began = time.perf_counter()
        client.result_of("tools/call", {"name": f"echo_{server}", "arguments": {"text": "x"}})
        taken.append((time.perf_counter() - began) * 1000)
    return taken


def _instances(daemon: Daemon) -> list[dict[str, Any]]:
    return [row for server in daemon.ask("status")["servers"].values() for row in server["instances"]]


def _wait_gone(daemon: Daemon, idle: float) -> None:
    deadline = time.monotonic() + idle + GONE_SECONDS
    while rows := _instances(daemon):
        if time.monotonic() > deadline:
            raise Unmeasurable(f"{len(rows)} instances are left after {idle + GONE_SECONDS:g} s")
        time.sleep(0.2)


def _proportional(pid: int) -> int:
    """Kilobytes of a process, with shared memory divided among its users."""
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as lines:  # noqa: PTH123 - not a path of ours
        return next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def table(found: Found, idle: float) -> Table:
    """The table of a run."""
    first, second = statistics.median(found.first), statistics.median(found.second)
    late = statistics.quantiles(found.first, n=20)[-1]
    rows = [
        ("the same program started and greeted without a daemon, p50", f"{number(found.alone)} ms"),
        ("a call that starts its instance, p50", f"{number(first)} ms, {first / found.alone:.2f} times that"),
        ("a call that starts its instance, p95", f"{number(late)} ms"),
        ("a call to an instance that runs, p50", f"{number(second)} ms"),
        ("the daemon's CPU for a start", f"{number(found.cpu)} ms"),
        ("memory of an instance, resident", f"{number(found.resident)} MiB"),
        ("memory of an instance, what it shares divided", f"{number(found.proportional)} MiB"),
        ("the daemon's own memory for an instance", f"{number(found.own)} KiB"),
        ("the daemon's own memory for a session", f"{number(found.session)} KiB"),
        (f"all gone after the last call (`idle`: {idle:g} s)", f"{number(found.gone)} s"),
        ("the same once they are gone: the next ones use it again", f"{number(found.left)} KiB"),
    ]
    return f"{found.instances} instances", ["what", "measured"], [list(row) for row in rows]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=100, help="how many clients there are")
    parser.add_argument("--servers", type=int, default=3, help="how many instances each of them gets")
    parser.add_argument("--idle", type=float, default=60.0, help="seconds until instances that rest are ended")
    asked = parser.parse_args()
    load = os.getloadavg()[0]
    found = measured(asked.sessions, asked.servers, asked.idle)
    print(markdown(table(found, asked.idle)))
    print(f"\n{machine()}. Load average {load:.1f} at the beginning, {os.getloadavg()[0]:.1f} at the end.")


if __name__ == "__main__":
    try:
        main()
    except Unmeasurable as problem:
        sys.exit(str(problem))
