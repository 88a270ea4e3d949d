"""mcpd as the client of the conformance suite: a daemon for each scenario, with its server as the only one.

The calls of a scenario are those that the Python SDK's own client makes in it, made through the daemon
(`conformance/driver.py` hands over what the suite says).
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio

from tests.e2e.conforming import SDK, opened
from tests.e2e.doors import HttpDoor
from tests.e2e.forking import Forker
from tests.e2e.harness import ROOT, Daemon, own_directory, started
from tests.waiting import WAIT, eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

DRIVER = Path(__file__).parent / "conformance" / "driver.py"
CLIENT = SDK / ".github" / "actions" / "conformance" / "client.py"

LOGGING_IN = "auth/"
"""Scenarios in which the client must get itself a token: mcpd sends those that it is given."""

PATIENT = {"probe": 30}
"""A probe that a busy machine answers late means the older era, which is not what is tested here."""

AT_ONCE = 4
"""Daemons at a time: the suite starts all scenarios together, and gives each 30 s."""

SDK_CLIENT = """
import runpy, sys
import mcp.client.auth.extensions.client_credentials, mcp.client.auth.extensions.identity_assertion
import mcp.client.client, mcp.client.streamable_http

def main():
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Forks the SDK's client, with what it imports."""


class Drivers:
    """Serves the drivers of one run of the suite."""

    def __init__(self, clients: Forker) -> None:
        self._clients = clients
        self._places = trio.CapacityLimiter(AT_ONCE)

    async def serve(self, stream: trio.SocketStream) -> None:
        """One driver: what it is told, done."""
        async with stream:
            line = b""
            while not line.endswith(b"\n"):
                line += await stream.receive_some()
            status, log = await self._perform(json.loads(line))
            await stream.send_all(json.dumps({"status": status, "log": log}).encode() + b"\n")

    async def _perform(self, job: dict[str, Any]) -> tuple[int, str]:
        scenario = job["environ"]["MCP_CONFORMANCE_SCENARIO"]
        if scenario.startswith(LOGGING_IN):
            return 1, f"{scenario}: mcpd does not log in to servers\n"
        door = HttpDoor()
        suite = {"type": "http", "url": job["url"], "timeouts": PATIENT}
        config = {"mcpServers": {"suite": suite}, "listen": door.listen}
        daemon = Daemon(own_directory(), config, {})
        async with self._places:
            life = started(daemon)
            await trio.to_thread.run_sync(life.__enter__)
            try:
                status = await self._call(daemon, door, job["environ"])
                log = daemon.said()
            finally:
                await trio.to_thread.run_sync(life.__exit__, *sys.exc_info())
        return status, log

    async def _call(self, daemon: Daemon, door: HttpDoor, environ: dict[str, str]) -> int:
        await trio.to_thread.run_sync(_up, daemon)
        async with opened(door, "default", "full") as url:
            needed = {"PATH": os.environ["PATH"], **environ}
            client = self._clients.fork([str(CLIENT), url], needed, ROOT, daemon.log)
            return await trio.to_thread.run_sync(client.wait, WAIT)


def _up(daemon: Daemon) -> None:
    """Wait for the server, which in some scenarios offers nothing: `degraded`."""
    eventually(lambda: daemon.ask("status")["servers"]["suite"]["state"] in {"ready", "degraded"}, daemon.said)


@asynccontextmanager
async def driven(directory: Path) -> AsyncIterator[dict[str, str]]:
    """What is in the environment of a suite that runs `DRIVER`."""
    clients = Forker(SDK_CLIENT)
    await trio.to_thread.run_sync(clients.start)
    path = directory / "drivers"
    try:
        with trio.socket.socket(trio.socket.AF_UNIX) as socket:
            await socket.bind(str(path))
            socket.listen()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.serve_listeners, Drivers(clients).serve, [trio.SocketListener(socket)])
                yield {**os.environ, "MCPD_TEST_SOCKET": str(path)}
                nursery.cancel_scope.cancel()
    finally:
        clients.stop()
