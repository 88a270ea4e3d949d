"""Measures the daemon as a service that is killed: R13 to R16.

`keeper` restarts the daemon. Only systemd can end children that ignore everything, so this is measured with a
real systemd: `make systemd`.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from bench.reliability.keeper import WATCHDOG_SECONDS, Keeper
from bench.reliability.promise import Finding, milliseconds, percentile
from bench.reliability.stage import LOOK_SECONDS, Line, code_of, server, text_of
from bench.running import INTRODUCTION
from tests.e2e.harness import ROOT, RawClient
from tests.faults.stage import is_alive
from tests.waiting import WAIT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bench.reliability.promise import Scale

KILLS = 50
"""Kills of the daemon in the full measurements of R13 to R15."""

STUCK = 10
"""Daemons stopped by SIGSTOP in the full measurement of R16."""

BRIDGES = 4
"""`mcpd connect` clients, each with a call in flight at each kill."""

SERVERS = 5


class Newcomers(threading.Thread):
    """Connects, asks and disconnects repeatedly; counts refusals, and keeps the longest wait."""

    def __init__(self, path: Path) -> None:
        """Prepare; `start` begins."""
        super().__init__()
        self.refused = 0
        self.served = 0
        self.cut = 0
        self.longest = 0.0
        self._path = path
        self._over = threading.Event()

    def run(self) -> None:
        """Connect until stopped."""
        while not self._over.is_set():
            begun = time.perf_counter()
            try:
                with RawClient(self._path) as client:
                    client.ask("ping")
            except AssertionError:
                # Taken by the daemon that was then killed: connected once, and R14's business.
                self.cut += 1
                continue
            except OSError as error:
                self.refused += not isinstance(error, ConnectionResetError | BrokenPipeError)
                self.cut += isinstance(error, ConnectionResetError | BrokenPipeError)
                continue
            self.longest = max(self.longest, time.perf_counter() - begun)
            self.served += 1
            self._over.wait(LOOK_SECONDS)

    def stop(self) -> None:
        """Stop after the current connection."""
        self._over.set()
        self.join(2 * WAIT)


class Bridge(Line):
    """A client behind `mcpd connect`."""

    def __init__(self, keeper: Keeper) -> None:
        """Start the bridge, and make the handshake."""
        self._socket, theirs = socket.socketpair()
        self._socket.settimeout(WAIT)
        words = keeper.daemon.command("connect", "--socket", str(keeper.front))
        with theirs, (keeper.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(
                words,
                cwd=ROOT,
                env=keeper.daemon.environ,
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=log,
            )
        self._file = self._socket.makefile("rb")
        self._last = 0
        self.notices = []
        self.begun = {}
        self._came = {}
        assert "result" in self.ask("initialize", INTRODUCTION)
        self.send(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')

    def close(self) -> None:
        """Disconnect, which ends the bridge."""
        super().close()
        try:
            self.process.wait(WAIT)
        finally:
            self.process.kill()


def service(scale: Scale) -> Iterator[Finding]:
    """R13 to R16."""
    kills, stuck = scale.of(KILLS, least=2), scale.of(STUCK, least=1)
    servers = {f"s{number}": server(tools=["echo", "pid", "sleep"]) for number in range(SERVERS)}
    delays: list[float] = []
    orphans, broken = 0, 0
    with Keeper(servers) as keeper, ExitStack() as stack:
        keeper.wait(1)
        keeper.settled()
        bridges = [Bridge(keeper) for _ in range(BRIDGES)]
        for bridge in bridges:
            stack.callback(bridge.close)
        crowd = Newcomers(keeper.front)
        crowd.start()
        stack.callback(crowd.stop)
        for _ in range(kills):
            late, left, lost = kill(keeper, bridges)
            delays += late
            orphans += left
            broken += lost
        crowd.stop()
        replaced = [stop_once(keeper) for _ in range(stuck)]
    yield r13(crowd, kills)
    yield r14(delays, broken, kills)
    yield Finding(
        name="R15",
        measured=f"{orphans} of {kills * SERVERS:,} children alive after 1 s",
        kept=orphans == 0,
    )
    yield r16(replaced)


def kill(keeper: Keeper, bridges: list[Bridge]) -> tuple[list[float], int, int]:
    """Kill the daemon while clients have calls in flight.

    Returns:
        Seconds from the next daemon's readiness to the answer of each call in flight, children that outlived
        the old daemon by a second, and bridges that no longer work.
    """
    children = keeper.settled()
    held = [(bridge, bridge.begin("s0", "sleep")) for bridge in bridges]
    for bridge in bridges:
        assert text_of(bridge.took("s0", "pid")[1]) == str(children["s0"])
    daemons = len(keeper.ready)
    killed = time.perf_counter()
    os.kill(keeper.pid, signal.SIGKILL)
    time.sleep(1.0)
    orphans = sum(is_alive(pid) for pid in children.values())
    again = keeper.wait(daemons + 1)
    delays, broken = [], 0
    for bridge, number in held:
        try:
            at, message = bridge.end(number)
            assert code_of(message) == "UpstreamLost", message
            # It may well be told before there is another daemon.
            delays.append(max(0.0, at - max(again, killed)))
            bridge.succeeds("s1")
        except (OSError, AssertionError):
            broken += 1
    return delays, orphans, broken


def stop_once(keeper: Keeper) -> float:
    """Stop the daemon: seconds until the next one is ready."""
    keeper.settled()
    daemons = len(keeper.ready)
    begun = time.perf_counter()
    os.kill(keeper.pid, signal.SIGSTOP)
    return keeper.wait(daemons + 1) - begun


def r13(crowd: Newcomers, kills: int) -> Finding:
    """The finding about clients that connected during kills."""
    return Finding(
        name="R13",
        measured=f"{crowd.refused} of {crowd.served + crowd.cut + crowd.refused:,} connects refused, first"
        f" answer {milliseconds(crowd.longest)} at most ({kills} kills, without systemd)",
        kept=crowd.refused == 0 and crowd.longest <= 1.0,
    )


def r14(delays: list[float], broken: int, kills: int) -> Finding:
    """The finding about clients behind `mcpd connect`."""
    worst = max(delays, default=0.0)
    return Finding(
        name="R14",
        measured=f"{broken} of {BRIDGES} clients behind `mcpd connect` broken over {kills} kills;"
        f" {len(delays):,} calls in flight answered, {milliseconds(worst)} after the restart at most",
        kept=broken == 0 and worst <= 1.0,
    )


def r16(replaced: list[float]) -> Finding:
    """The finding about the replacement of a stuck daemon."""
    beyond = max(replaced) - WATCHDOG_SECONDS
    return Finding(
        name="R16",
        measured=f"replaced {milliseconds(beyond)} after WatchdogSec ({WATCHDOG_SECONDS:g} s) at most, p50"
        f" {milliseconds(percentile(replaced, 0.5) - WATCHDOG_SECONDS)} ({len(replaced)} times; as R13)",
        kept=beyond <= 1.0,
    )
