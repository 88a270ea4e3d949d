"""Echo servers to put behind a daemon, and the ways to connect to it."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.calls.web import LOOPBACK, HttpWire, Place, WebSocketWire
from bench.calls.wires import Wire
from tests.e2e.harness import free_port
from tests.waiting import WAIT

if TYPE_CHECKING:
    from bench.running import Daemon

ECHO = [sys.executable, "-I", "-S", str(Path(__file__).with_name("echo_server.py"))]
"""The start of an echo server's command; its number and its count of tools follow."""


TOKEN = "mcpd_" + 43 * "0"
"""A token as long as mcpd's."""


def servers(counts: list[int]) -> dict[str, Any]:
    """An entry of `mcpServers` for each number of tools: an echo server with as many."""
    return {
        f"s{number}": {"command": ECHO[0], "args": [*ECHO[1:], str(number), str(count)]}
        for number, count in enumerate(counts)
    }


def mcpd(*words: str) -> list[str]:
    """The command line of mcpd as users type it."""
    script = Path(sys.executable).with_name("mcpd")
    return [str(script), *words] if script.exists() else [sys.executable, "-m", "daemon", *words]


def environment(daemon: Daemon) -> dict[str, str]:
    """Variables for operators' commands and bridges, so that they find the daemon and use its checkout."""
    return {**daemon.environ, "PYTHONPATH": str(daemon.code)}


def listening() -> dict[str, Any]:
    """The configuration keys that make a daemon serve HTTP on a free port."""
    return {"listen": {"http": {"address": f"{LOOPBACK}:{free_port()}", "tokens": TOKEN}}}


def over_http(daemon: Daemon) -> HttpWire:
    """An HTTP connection to the surface `full`."""
    return HttpWire(_place(daemon, "mcp"))


def over_websocket(daemon: Daemon) -> WebSocketWire:
    """A WebSocket connection to the surface `full`."""
    return WebSocketWire(_place(daemon, "ws"))


def _place(daemon: Daemon, endpoint: str) -> Place:
    port = int(daemon.configured["listen"]["http"]["address"].rpartition(":")[2])
    return Place(port, f"/{endpoint}/default/full", TOKEN)


def greeted(wire: Wire) -> Wire:
    """The connection, after its handshake."""
    wire.greet()
    return wire


def connected(daemon: Daemon, surface: str) -> Wire:
    """A client of a surface, after its handshake."""
    wire = over_socket(daemon.socket)
    wire.greet({"surface": surface})
    return wire


def over_socket(path: str | Path) -> Wire:
    """A connection to a unix socket."""
    link = socket.socket(socket.AF_UNIX)
    try:
        link.connect(str(path))
    except OSError:
        link.close()
        raise
    return Wire(link.fileno(), link.fileno(), link.close)


def end(child: subprocess.Popen[bytes]) -> None:
    """End a child that this process started."""
    for stream in (child.stdin, child.stdout):
        if stream is not None:
            stream.close()
    if child.poll() is None:
        child.terminate()
    try:
        child.wait(WAIT)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait(WAIT)
