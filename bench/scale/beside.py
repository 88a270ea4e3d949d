"""Measures the unit costs that `bench.calls` lacks: memory, descriptors, connections, loads."""

from __future__ import annotations

import os
import statistics
import time
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

from bench.calls.daemons import connected, over_socket, servers
from bench.calls.targets import FEW_TOOLS
from bench.calls.wires import Request, cpu_of, kilobytes, within
from bench.running import Unmeasurable, running
from tests.waiting import WAIT

if TYPE_CHECKING:
    from bench.calls.wires import Wire
    from bench.running import Daemon

SETTLE = 2.0
"""Seconds after a start for building the index, writing the store and freeing memory."""

MANY_SERVERS, MANY_TOOLS = 25, 5000
"""Enough servers and tools to make their cost larger than the variation of a process."""

CONNECTIONS = 300
"""Connections made, greeted and closed in a row: they take a tenth of a second of the daemon's CPU, or more."""

LOADS = 60
"""Tools loaded in a row under a key, each on disk before the answer."""

SESSIONS = 32
"""Sessions that load at the same time, each under a different key."""


Beside = dict[str, tuple[float, str]]
"""Values and units by their words."""


def beside() -> Beside:
    """Measure all unit costs.

    Raises:
        Unmeasurable: something did not start or answer.
    """
    with running({"mcpServers": servers([FEW_TOOLS])}) as daemon:
        small = _size(daemon)
        clients = [connected(daemon, "category") for _ in range(SESSIONS)]
        per_client = (descriptors(daemon.pid) - small[1]) / len(clients)
        for wire in clients:
            wire.close()
        connection = _connections(daemon)
    with running({"mcpServers": servers([FEW_TOOLS] * MANY_SERVERS)}) as daemon:
        wide = _size(daemon)
    with running({"mcpServers": servers([MANY_TOOLS])}) as daemon:
        long = _size(daemon)
        load_ms, load_us, rate = _loads(daemon)
    tool = (long[0] - small[0]) / (MANY_TOOLS - FEW_TOOLS)
    server = (wide[0] - small[0]) / (MANY_SERVERS - 1) - tool * FEW_TOOLS
    per_server = (wide[1] - small[1]) / (MANY_SERVERS - 1)
    return {
        "memory of a daemon with nothing in it": ((small[0] - server - tool * FEW_TOOLS) / 1024, "MB"),
        "memory for each server, its own process not counted": (server, "KB"),
        "memory for each tool": (tool, "KB"),
        "descriptors of a daemon with nothing in it": (small[1] - per_server, ""),
        "descriptors for each server": (per_server, ""),
        "descriptors for each client": (per_client, ""),
        "CPU for each client that connects, shakes hands, lists and hangs up": (connection, "us"),
        "a load under a key, until it is on disk and answered": (load_ms, "ms"),
        "CPU for it": (load_us, "us"),
        "loads, 32 sessions at once": (rate, "a second"),
    }


def descriptors(pid: int) -> int:
    """The count of a process's open descriptors."""
    return len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208 - only their number counts


def _size(daemon: Daemon) -> tuple[float, int]:
    """Kilobytes and descriptors of an idle daemon."""
    time.sleep(SETTLE)
    return kilobytes(daemon.pid, "VmRSS"), descriptors(daemon.pid)


def _connections(daemon: Daemon) -> float:
    """Microseconds of CPU for each connection."""
    used = cpu_of(daemon.pid)
    for _ in range(CONNECTIONS):
        connected(daemon, "category").close()
    daemon.ask("status")
    return 1e6 * (cpu_of(daemon.pid) - used) / CONNECTIONS


def _loads(daemon: Daemon) -> tuple[float, float, float]:
    """Milliseconds, and microseconds of CPU, for a single load; loads a second of many sessions."""
    with closing(connected(daemon, "full")) as wire:
        names = [tool["name"] for tool in wire.ask("tools/list", {})["tools"]]
    with ExitStack() as stack:
        wires = [stack.enter_context(closing(_keyed(daemon, number))) for number in range(SESSIONS)]
        used, took = cpu_of(daemon.pid), []
        for name in names[:LOADS]:
            begun = time.perf_counter()
            _load(wires[0], name)
            took.append(time.perf_counter() - begun)
        used = cpu_of(daemon.pid) - used
        begun, rounds = time.perf_counter(), names[:3]
        for number, name in enumerate(rounds):
            with within(WAIT, "loads"):
                _load_together(wires, name, number)
        rate = len(rounds) * len(wires) / (time.perf_counter() - begun)
    return 1e3 * statistics.median(took), 1e6 * used / LOADS, rate


def _keyed(daemon: Daemon, number: int) -> Wire:
    wire = over_socket(daemon.socket)
    wire.greet({"surface": "load", "session": f"scale {number}"})
    return wire


def _load(wire: Wire, name: str) -> None:
    answer = wire.ask("tools/call", {"name": "load_mcp_tool", "arguments": {"names": [name]}})
    if answer.get("isError"):
        raise Unmeasurable(f"a tool was not loaded: {answer}")


def _load_together(wires: list[Wire], name: str, number: int) -> None:
    line = Request.of("load_mcp_tool", {"names": [name]}).line(number)
    for wire in wires:
        wire.send(line)
    for wire in wires:
        got = b""
        # A notification that the list has changed may come before the answer.
        while b'"result"' not in got or not got.endswith(b"\n"):
            got += os.read(wire.read_fd, 1 << 16)
