"""Measures the daemon's resident memory: for idle clients, for one large answer, for many servers and tools."""

from __future__ import annotations

import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from bench.calls.daemons import connected, listening, over_http, servers
from bench.calls.rounds import MB
from bench.calls.targets import FEW_TOOLS
from bench.calls.web import HttpWire
from bench.calls.wires import Request, kilobytes, within
from bench.running import running
from tests.waiting import WAIT

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.calls.wires import Wire
    from bench.running import Daemon

PAYLOAD = 10 * MB
"""Bytes of the large answer."""

LARGE_CALLS = 3
"""Large answers before memory is measured: leaks add up."""

RESET_PEAK = "5"
"""The value that makes `/proc/PID/clear_refs` reset the peak (proc(5))."""


@attrs.frozen(kw_only=True)
class Memory:
    """The daemon's memory, in kilobytes."""

    clients: int
    """The number of connected clients."""
    per_client: float
    """Memory of an idle client after its handshake and list."""
    per_client_gone: float
    """Memory of a client that remains after it has disconnected."""
    per_stream: float
    """Memory of an HTTP session with an open stream, with as many sessions."""
    per_subscription: float
    """Memory of a stream of a client of MCP 2026-07-28."""
    payload: float
    """Size of one large answer."""
    peak: float
    """Largest growth of the daemon while large answers pass."""
    after: float
    """Growth that remains afterwards."""


def memory(clients: int, settle: float) -> Memory:
    """Measure a fresh daemon; `settle` is its time for giving memory back."""
    per_stream, per_subscription = (_streams(clients, each) for each in (_in_session, HttpWire.subscribe))
    with running({"mcpServers": servers([FEW_TOOLS])}) as daemon:
        first = connected(daemon, "full")
        rss = kilobytes(daemon.pid, "VmRSS")
        wires = [connected(daemon, "full") for _ in range(clients)]
        full = kilobytes(daemon.pid, "VmRSS")
        for wire in wires:
            wire.close()
        time.sleep(settle)
        gone = kilobytes(daemon.pid, "VmRSS")
        peak, after = _large(daemon, first, settle)
        first.close()
    return Memory(
        clients=clients,
        per_client=(full - rss) / clients,
        per_client_gone=(gone - rss) / clients,
        per_stream=per_stream,
        per_subscription=per_subscription,
        payload=PAYLOAD / 1024,
        peak=peak,
        after=after,
    )


def _in_session(wire: HttpWire) -> None:
    wire.greet()
    wire.stream()


def _streams(count: int, begin: Callable[[HttpWire], None]) -> float:
    """Memory of an open stream in a separate daemon; the first one, which loads modules, does not count."""
    # One token may have half of the connections.
    config = {"mcpServers": servers([FEW_TOOLS]), "limits": {"connections": 4 * count}, **listening()}
    with running(config) as daemon, ExitStack() as stack:
        sizes = []
        for also in (1, count):
            for _ in range(also):
                wire = over_http(daemon)
                stack.callback(wire.close)
                begin(wire)
            sizes.append(kilobytes(daemon.pid, "VmRSS"))
        return (sizes[1] - sizes[0]) / count


def _large(daemon: Daemon, wire: Wire, settle: float) -> tuple[float, float]:
    before = kilobytes(daemon.pid, "VmRSS")
    forget_peak(daemon.pid)
    request = Request.of("answer_0", {"bytes": PAYLOAD})
    with within(WAIT, "large answers"):
        for number in range(LARGE_CALLS):
            wire.exchange(request.line(number))
    peak = kilobytes(daemon.pid, "VmHWM")
    time.sleep(settle)
    return peak - before, kilobytes(daemon.pid, "VmRSS") - before


def forget_peak(pid: int) -> None:
    """Reset the peak; if that is not allowed, the peak counts from the start."""
    with suppress(OSError):
        Path(f"/proc/{pid}/clear_refs").write_text(RESET_PEAK, encoding="ascii")
