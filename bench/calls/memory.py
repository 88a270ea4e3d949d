"""Resident memory of the daemon: for idle clients, for one large answer, for many servers and tools."""

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
"""Large answers before the memory is looked at: what is not given back adds up."""

RESET_PEAK = "5"
"""What `/proc/PID/clear_refs` takes to forget the peak (proc(5))."""


@attrs.frozen(kw_only=True)
class Memory:
    """Kilobytes."""

    clients: int
    """How many were connected."""
    per_client: float
    """What each adds while it is idle: greeted, its list given."""
    per_client_gone: float
    """What of it is still there when they have hung up."""
    per_stream: float
    """What each of as many sessions over HTTP adds, its stream open."""
    per_subscription: float
    """What each stream of a client of MCP 2026-07-28 adds."""
    payload: float
    """Of one large answer."""
    peak: float
    """The most that the daemon grew while large answers passed."""
    after: float
    """What of it is still there afterwards."""


def memory(clients: int, settle: float) -> Memory:
    """Measure, in a daemon that has done nothing else; `settle` is how long it has to give memory back."""
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
    """What each open stream adds in a daemon of its own, after one that loads what it takes to have any."""
    with running({"mcpServers": servers([FEW_TOOLS]), **listening()}) as daemon, ExitStack() as stack:
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
    """Begin a new peak; where that is not allowed, it is the peak since the start."""
    with suppress(OSError):
        Path(f"/proc/{pid}/clear_refs").write_text(RESET_PEAK, encoding="ascii")
