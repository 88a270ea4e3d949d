"""Measures start-up times, and the daemon's use of CPU and memory while idle."""

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
    """Start-up times (milliseconds, medians) and the use of resources."""

    servers: int
    tools: int
    ready_ms: float
    """From the start of the process to `READY=1`, with the tools in the store."""
    first_ready_ms: float
    """The same for a first start, with an empty store."""
    listed_ms: float
    """From the start of the process until all servers have sent their lists."""
    connect_ms: float
    """From the start of `mcpd connect` to the first byte of the first answer."""
    connect_rss_kb: float
    connect_own_kb: float
    """The part of `connect_rss_kb` that the bridge does not share: the cost of one more bridge."""
    status_ms: float
    """Duration of `mcpd status`."""
    rss_kb: float
    """Memory of the idle daemon with its servers up."""
    idle_cpu: float
    """CPU use while idle, in percent of one CPU."""
    idle_seconds: float
    """Length of the measurement of `idle_cpu`."""


def rest(*, count: int, tools: int, starts: int, idle: float, settle: float) -> Rest:
    """Measure start-up times and an idle daemon.

    Args:
        count: servers.
        tools: of all servers together.
        starts: number of starts.
        idle: seconds for which the daemon idles.
        settle: seconds to wait after the last list, until the daemon has processed it.
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
    """Start the daemon. Returns the seconds until it was ready, and until all servers had listed."""
    begun = time.perf_counter()
    daemon.start()
    ready = time.perf_counter() - begun
    daemon.wait_listed()
    return ready, time.perf_counter() - begun


def _bridge(daemon: Daemon) -> tuple[float, int, int]:
    """Seconds to the first byte; the bridge's kilobytes, and those that it does not share."""
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
