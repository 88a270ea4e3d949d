"""How quickly things start, and what the daemon uses while nobody asks for anything."""

from __future__ import annotations

import json
import os
import select
import statistics
import subprocess
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import attrs

from bench.calls.daemons import end, environment, mcpd, servers
from bench.calls.wires import cpu_of, kilobytes
from bench.running import INTRODUCTION, Unmeasurable, prepared
from tests.waiting import WAIT

if TYPE_CHECKING:
    from bench.running import Daemon

HELLO = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": INTRODUCTION}


@attrs.frozen(kw_only=True)
class Rest:
    """Milliseconds are medians."""

    servers: int
    tools: int
    ready_ms: float
    """From the start of the process to `READY=1`, with the tools in the store."""
    first_ready_ms: float
    """The same, the first time: with an empty store."""
    listed_ms: float
    """From the start of the process until all servers have listed."""
    connect_ms: float
    """From the start of `mcpd connect` to the first byte of the first answer."""
    connect_rss_kb: float
    connect_own_kb: float
    """Of it, what it shares with nobody: what one more bridge costs."""
    status_ms: float
    """`mcpd status`, from its start to its end."""
    rss_kb: float
    """The daemon with its servers up, at rest."""
    idle_cpu: float
    """Share of one CPU, in percent."""
    idle_seconds: float
    """Over so long."""


def rest(*, count: int, tools: int, starts: int, idle: float, settle: float) -> Rest:
    """Measure.

    Args:
        count: servers.
        tools: of all servers together.
        starts: how often what is started is started.
        idle: seconds of rest.
        settle: seconds after the last server has listed: what the daemon does because of it is then done.
    """
    config = {"mcpServers": servers([tools // count] * count)}
    with ExitStack() as stack:
        daemon = stack.enter_context(prepared(config))
        first, _ = _started(daemon)
        time.sleep(settle)
        daemon.stop()
        again = []
        for number in range(starts):
            if number:
                daemon.stop()
            again.append(_started(daemon))
        bridges = [_bridge(daemon) for _ in range(starts * 3)]
        looks = [_look(daemon) for _ in range(starts * 2)]
        time.sleep(settle)
        used = cpu_of(daemon.pid)
        time.sleep(idle)
        used = cpu_of(daemon.pid) - used
        return Rest(
            servers=count,
            tools=tools,
            ready_ms=1000 * statistics.median(ready for ready, _ in again),
            first_ready_ms=1000 * first,
            listed_ms=1000 * statistics.median(listed for _, listed in again),
            connect_ms=1000 * statistics.median(took for took, _, _ in bridges),
            connect_rss_kb=statistics.median(rss for _, rss, _ in bridges),
            connect_own_kb=statistics.median(own for _, _, own in bridges),
            status_ms=1000 * statistics.median(looks),
            rss_kb=kilobytes(daemon.pid, "VmRSS"),
            idle_cpu=100 * used / idle,
            idle_seconds=idle,
        )


def _started(daemon: Daemon) -> tuple[float, float]:
    """Start it. Returns the seconds until it was ready, and until all servers had listed."""
    begun = time.perf_counter()
    daemon.start()
    ready = time.perf_counter() - begun
    daemon.wait_listed()
    return ready, time.perf_counter() - begun


def _bridge(daemon: Daemon) -> tuple[float, int, int]:
    """Seconds to the first byte; kilobytes of it, and those that are its own."""
    begun = time.perf_counter()
    command = mcpd("connect", "--socket", str(daemon.socket))
    child = subprocess.Popen(
        command, env=environment(daemon), stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    )
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        child.stdin.write(json.dumps(HELLO).encode() + b"\n")
        if not select.select([child.stdout], [], [], WAIT)[0]:
            raise Unmeasurable("mcpd connect: nothing came")
        took = time.perf_counter() - begun
        if not os.read(child.stdout.fileno(), 65536).startswith(b'{"jsonrpc"'):
            raise Unmeasurable("mcpd connect: something else came")
        return took, kilobytes(child.pid, "VmRSS"), _own(child.pid)
    finally:
        end(child)


def _own(pid: int) -> int:
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as lines:  # noqa: PTH123
        return sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))


def _look(daemon: Daemon) -> float:
    begun = time.perf_counter()
    words, environ = mcpd("status"), environment(daemon)
    subprocess.run(words, env=environ, stdout=subprocess.DEVNULL, check=True, timeout=WAIT)
    return time.perf_counter() - begun
