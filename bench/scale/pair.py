"""Two daemons that accept on one socket: who gets the connections."""

from __future__ import annotations

import multiprocessing
import os
import select
import socket
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from bench.calls.crowd import Crowd
from bench.calls.daemons import over_socket, servers
from bench.calls.targets import FEW_TOOLS
from bench.calls.wires import Request, within
from bench.running import Daemon, Unmeasurable, prepared

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from multiprocessing.connection import Connection

    from bench.calls.wires import Wire

PAIRED = 200
"""Connections, one after the other."""

IN_FLIGHT = 32
"""Calls that keep a daemon busy without a pause."""

TURNS = 3
"""Times that each is tried."""

LIMIT = 10.0
"""Seconds until a daemon has let go of what has ended."""

POLL = 0.01
"""Seconds between two looks."""

QUIET = 0.5
"""Seconds without an answer after which all have come."""

BUSY = 30.0
"""Seconds after which whoever keeps it busy ends by himself."""

ATTEMPTS = 50
"""Connections until one is with the daemon that is to be busy."""

PASS = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1", "LISTEN_FDNAMES": "front"}
os.execvp(sys.argv[2], sys.argv[2:])
"""
"""Hands a listening socket over as systemd does (sd_listen_fds(3))."""


def descriptors(pid: int) -> int:
    """How many a process has open."""
    return len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208 - only their number counts


class Second(Daemon):
    """A daemon that is handed a socket on which others accept, too."""

    def __init__(self, daemon: Daemon, listener: socket.socket) -> None:
        """Take the place of one that was prepared."""
        super().__init__(daemon.directory, daemon.configured)
        self._listener = listener

    def start(self) -> None:
        """Start it, and wait for nothing."""
        passed = self._listener.fileno()
        command = self.command("run", "--config", str(self.config))
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", PASS, str(passed), *command],
                cwd=self.code,
                env=self.environ,
                stderr=log,
                pass_fds=[passed],
            )


def pair() -> tuple[float, float]:
    """What the first of two daemons takes of the connections, in percent: both idle, and it busy; medians.

    Raises:
        Unmeasurable: one did not start or answer.
    """
    with _both() as (first, second, path):
        wire = _with(first, path)
        idle, busy = [], []
        for _ in range(TURNS):
            idle.append(_share(first, second, path))
            with _busy(wire):
                busy.append(_share(first, second, path))
        wire.close()
    return statistics.median(idle), statistics.median(busy)


@contextmanager
def _busy(wire: Wire) -> Iterator[None]:
    """Keep a daemon busy for a while, from another process."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    child = context.Process(target=_keep_busy, args=(wire, theirs), daemon=True)
    child.start()
    try:
        if not ours.poll(BUSY):
            raise Unmeasurable("nobody keeps the daemon busy")
        yield
    finally:
        child.kill()
        child.join()
        _drain(wire)


def _drain(wire: Wire) -> None:
    """Read what was still answered: the next turn begins with no answer on its way."""
    os.set_blocking(wire.read_fd, True)
    while select.select([wire.read_fd], [], [], QUIET)[0]:
        os.read(wire.read_fd, 1 << 20)


@contextmanager
def _both() -> Iterator[tuple[Daemon, Daemon, str]]:
    config: dict[str, Any] = {"mcpServers": servers([FEW_TOOLS])}
    with ExitStack() as stack:
        places = [stack.enter_context(prepared(config)) for _ in range(2)]
        path = str(places[0].directory / "shared.sock")
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(path)
        listener.listen(PAIRED)
        daemons = [Second(place, listener) for place in places]
        for daemon in daemons:
            stack.callback(daemon.quit)
            daemon.start()
            daemon.wait_listed()
        yield daemons[0], daemons[1], path


def _share(first: Daemon, second: Daemon, path: str) -> float:
    """Connect, greet, see where they are, and hang up."""
    pids = (first.pid, second.pid)
    before = [descriptors(pid) for pid in pids]
    wires = _connected(path, PAIRED)
    got = [descriptors(pid) - had for pid, had in zip(pids, before, strict=True)]
    for wire in wires:
        wire.close()
    if sum(got) != PAIRED:
        raise Unmeasurable(f"of {PAIRED} connections the two daemons have {got[0]} and {got[1]}")
    with within(LIMIT, "the end of connections"):
        # They count as taken until the daemons have seen that they are gone.
        while [descriptors(pid) for pid in pids] != before:
            time.sleep(POLL)
    return 100 * got[0] / PAIRED


def _connected(path: str, count: int) -> Sequence[Wire]:
    wires = []
    for _ in range(count):
        wires.append(over_socket(path))
        wires[-1].greet({"surface": "full"})
    return wires


def _with(daemon: Daemon, path: str) -> Wire:
    """A connection that this one of the two has taken."""
    for _ in range(ATTEMPTS):
        before = descriptors(daemon.pid)
        wire = over_socket(path)
        wire.greet({"surface": "full"})
        if descriptors(daemon.pid) > before:
            return wire
        wire.close()
    raise Unmeasurable(f"one daemon took all of {ATTEMPTS} connections")


def _keep_busy(wire: Wire, news: Connection) -> None:
    request = Request.of("echo_0", {"text": "x" * 100})
    size = wire.try_out(request)
    news.send(None)
    with within(BUSY, "calls"):
        Crowd([wire], IN_FLIGHT, [request], size).run(BUSY)
