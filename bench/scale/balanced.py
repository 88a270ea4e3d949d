"""Measures calls over HTTP to one daemon, and through the shipped HAProxy to one and to two."""

from __future__ import annotations

import statistics
from contextlib import ExitStack, closing
from typing import Any

import attrs

from bench.calls.crowd import Crowd
from bench.calls.daemons import TOKEN, servers
from bench.calls.targets import FEW_TOOLS
from bench.calls.web import META, HttpWire, Place
from bench.calls.wires import Request, cpu_of
from bench.running import running
from tests.e2e.balancing import balanced
from tests.e2e.harness import free_port

CONNECTIONS = 32
"""Clients, each with one call in flight."""

SECONDS = 2.0
"""Length of one try."""

TURNS = 5
"""Tries of each way; the ways take turns, so that other work of the machine affects all alike."""

_CALL = {"text": "x" * 40}
CALLS = {"modern": Request.of("echo_0", _CALL, meta=META), "handshake": Request.of("echo_0", _CALL)}


@attrs.frozen
class Try:
    """The results of one try."""

    rate: float
    """Calls a second."""
    daemons_us: float
    """CPU of the daemons for a call."""
    balancer_us: float
    """CPU of HAProxy for a call."""


@attrs.define
class Way:
    """A way of calls to daemons, with its tries."""

    words: str
    era: str
    port: int
    daemons: list[int]
    """The pids of the daemons."""
    balancer: int | None = None
    """The pid of HAProxy."""
    tries: list[Try] = attrs.field(factory=list)

    def median(self, name: str) -> float:
        """The median of an attribute over all tries."""
        values: list[float] = [getattr(each, name) for each in self.tries]
        return statistics.median(values)


def balancing() -> list[Way]:
    """Measure calls of both eras on every way.

    Raises:
        Unmeasurable: something did not start, or gave an unexpected answer.
    """
    with ExitStack() as stack:
        ports = [free_port() for _ in range(2)]
        pids = [stack.enter_context(running(_config(port))).pid for port in ports]
        alone, both = (
            stack.enter_context(balanced({"one": one, "two": two}))
            for one, two in ((ports[0], ports[0]), (ports[0], ports[1]))
        )
        for balancer in (alone, both):
            balancer.sees(one="UP", two="UP")
        ways = [
            way
            for era in CALLS
            for way in (
                Way("one daemon", era, ports[0], pids[:1]),
                Way("HAProxy, one daemon", era, alone.port, pids[:1], alone.pid),
                Way("HAProxy, two daemons", era, both.port, pids, both.pid),
            )
        ]
        for _ in range(TURNS):
            for way in ways:
                way.tries.append(_tried(way))
        return ways


def _config(port: int) -> dict[str, Any]:
    return {
        "mcpServers": servers([FEW_TOOLS]),
        "listen": {"http": {"address": f"127.0.0.1:{port}", "tokens": TOKEN}},
        "profiles": {"default": {"surface": "full"}},
    }


def _tried(way: Way) -> Try:
    with ExitStack() as stack:
        wires = [stack.enter_context(closing(_connected(way))) for _ in range(CONNECTIONS)]
        requests = [wire.wrap(CALLS[way.era]) for wire in wires]
        (size,) = {wire.try_out(request) for wire, request in zip(wires, requests, strict=True)}
        crowd = Crowd(wires, 1, requests, size)
        before = _cpu(way)
        ran = crowd.run(SECONDS)
        used = [1e6 * (after - start) / ran.calls for start, after in zip(before, _cpu(way), strict=True)]
    return Try(ran.calls / ran.seconds, *used)


def _connected(way: Way) -> HttpWire:
    """A client; in the handshake era, after its handshake."""
    wire = HttpWire(Place(way.port, "/mcp", TOKEN))
    if way.era == "modern":
        wire.modern("tools/call", "echo_0")
    else:
        wire.greet()
    return wire


def _cpu(way: Way) -> tuple[float, float]:
    return sum(map(cpu_of, way.daemons)), 0.0 if way.balancer is None else cpu_of(way.balancer)
