"""The targets of calls: the server itself, mcpd in front of it in several ways, and two yardsticks."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from bench.calls import daemons
from bench.calls.daemons import ECHO, TOKEN, end, greeted, over_socket
from bench.calls.web import HttpWire, Place
from bench.calls.wires import Request, Wire, within
from bench.running import Unmeasurable, running
from tests.e2e.harness import ROOT, free_port
from tests.waiting import WAIT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from bench.running import Daemon

DIRECT, SOCKET, CATEGORY, CONNECT = "direct", "socket", "category", "connect"
HTTP, WS = "http", "ws"
NAIVE, BARE = "naive", "bare"
NAIVE_HTTP, BARE_HTTP = "naive http", "bare http"

WAYS, OVER_TCP = (DIRECT, SOCKET, CATEGORY, CONNECT, NAIVE), (HTTP, WS, NAIVE_HTTP)

DOOR = "llhttp in our own poll: the door"
"""The daemon's HTTP server, as `bench.http_servers` names it."""

FEW_TOOLS = 10
"""Tools of a server, unless their number is measured."""

PIPE_BYTES = 1024 * 1024
"""Largest pipe without privileges, for the yardstick: mcpd makes its pipes as large."""


class Target(Protocol):
    """A program that takes calls."""

    @property
    def name(self) -> str:
        """The target's name in the tables."""

    @property
    def pid(self) -> int | None:
        """The process whose CPU counts; None if nothing is between client and server."""

    def connect(self, number: int) -> Wire:
        """The nth client, after its handshake."""

    def request(self, number: int, arguments: Mapping[str, object], tool: str) -> Request:
        """The call of the nth client."""


class Direct:
    """A server's stdio, without a proxy."""

    name = DIRECT
    pid = None

    def connect(self, number: int) -> Wire:
        """A separate server process, as is usual without mcpd."""
        return over_stdio([*ECHO, "0", str(FEW_TOOLS)], {})

    def request(self, number: int, arguments: Mapping[str, object], tool: str) -> Request:
        """A call of the only server."""
        return Request.of(f"{tool}_0", arguments)


class Mcpd:
    """The daemon, reached in one way; its servers get the clients in turn."""

    def __init__(self, name: str, daemon: Daemon, way: str = SOCKET) -> None:
        """Name a way to the daemon."""
        self.name = name
        self.pid = daemon.pid
        self._daemon = daemon
        self.way = way
        self._surface = "category" if way == CATEGORY else "full"
        self._servers = len(daemon.configured["mcpServers"])

    def connect(self, number: int) -> Wire:
        """Another client."""
        match self.way:
            case "connect":
                words = daemons.mcpd(
                    "connect", "--socket", str(self._daemon.socket), "--surface", self._surface
                )
                return over_stdio(words, daemons.environment(self._daemon))
            case "http":
                return greeted(daemons.over_http(self._daemon))
            case "ws":
                return greeted(daemons.over_websocket(self._daemon))
        return daemons.connected(self._daemon, self._surface)

    def request(self, number: int, arguments: Mapping[str, object], tool: str) -> Request:
        """A call by the tool's name, or through the meta-tool."""
        server = number % self._servers
        category = f"s{server}" if self._surface == "category" else None
        return Request.of(f"{tool}_{server}", arguments, category)


class Yardstick:
    """A process of another kind, in front of the same server or without one."""

    def __init__(self, name: str, pid: int, connect: Callable[[], Wire]) -> None:
        """Name the process; `connect` connects to it."""
        self.name = name
        self.pid: int | None = pid
        self._connect = connect

    def connect(self, number: int) -> Wire:
        """Another client."""
        return self._connect()

    def request(self, number: int, arguments: Mapping[str, object], tool: str) -> Request:
        """A call of the only server."""
        return Request.of(f"{tool}_0", arguments)


def over_stdio(command: Sequence[str], environ: Mapping[str, str]) -> Wire:
    """A child's stdin and stdout, after the handshake."""
    child = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **environ},
        bufsize=0,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    for stream in (child.stdin, child.stdout):
        fcntl.fcntl(stream.fileno(), fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    wire = Wire(child.stdout.fileno(), child.stdin.fileno(), lambda: end(child))
    wire.greet()
    return wire


@contextmanager
def all_targets(upstreams: Sequence[int]) -> Iterator[list[Target]]:
    """All targets, running and idle: a daemon for each number of servers, the first of them in every way.

    Args:
        upstreams: numbers of servers, a daemon each; the first is 1.
    """
    with ExitStack() as stack:
        started = [
            stack.enter_context(
                running({"mcpServers": daemons.servers([FEW_TOOLS] * count), **daemons.listening()})
            )
            for count in upstreams
        ]
        yield [
            Direct(),
            *(Mcpd(way, started[0], way) for way in (SOCKET, CATEGORY, CONNECT, HTTP, WS)),
            *(stack.enter_context(naive_or_bare(name)) for name in (NAIVE, BARE)),
            stack.enter_context(naive_over_http()),
            stack.enter_context(application(BARE_HTTP, DOOR)),
            *(Mcpd(among(count), daemon) for count, daemon in zip(upstreams[1:], started[1:], strict=True)),
        ]


def among(count: int) -> str:
    """The name of the target with this number of servers."""
    return f"socket, {count} servers"


@contextmanager
def naive_or_bare(name: str) -> Iterator[Yardstick]:
    """A proxy from a file of this package, running, on a unix socket."""
    with tempfile.TemporaryDirectory(prefix="mcpd-") as directory:
        path = f"{directory}/{name}.sock"
        words = [str(Path(__file__).with_name(f"{name}.py")), path, *ECHO, "0", str(FEW_TOOLS)]
        with up(name, words, lambda: over_socket(path)) as pid:
            yield Yardstick(name, pid, lambda: greeted(over_socket(path)))


@contextmanager
def naive_over_http() -> Iterator[Yardstick]:
    """The SDK's proxy on a port."""
    place = Place(free_port(), "/mcp")
    words = [str(Path(__file__).with_name("naive.py")), str(place.port), *ECHO, "0", str(FEW_TOOLS)]
    with up(NAIVE_HTTP, words, lambda: HttpWire(place)) as pid:
        yield Yardstick(NAIVE_HTTP, pid, lambda: greeted(HttpWire(place)))


@contextmanager
def application(name: str, server: str) -> Iterator[Yardstick]:
    """An HTTP server that answers everything with the same 100 bytes."""
    place = Place(free_port(), "/mcp", TOKEN)
    words = ["-m", "bench.http_servers", "--serve", server, str(place.port)]
    with up(name, words, lambda: HttpWire(place)) as pid:
        yield Yardstick(name, pid, lambda: HttpWire(place))


@contextmanager
def up(name: str, words: Sequence[str], connect: Callable[[], Wire]) -> Iterator[int]:
    """Run a Python program until `connect` succeeds. Gives its pid."""
    with tempfile.TemporaryFile() as log:
        command = [sys.executable, "-W", "ignore", *words]
        child = subprocess.Popen(command, stderr=log, env={**os.environ, "PYTHONPATH": str(ROOT)})
        try:
            with within(WAIT, name):
                _wait_listening(connect, child)
            yield child.pid
        except Unmeasurable as error:
            log.seek(0)
            said = log.read()[-2000:].decode()
            raise Unmeasurable(f"{error}. It said ({name}):\n{said}") from None
        finally:
            end(child)


def _wait_listening(connect: Callable[[], Wire], child: subprocess.Popen[bytes]) -> None:
    while True:
        try:
            connect().close()
        except OSError:
            if child.poll() is not None:
                raise Unmeasurable("it has ended") from None
            time.sleep(0.05)
        else:
            return
