"""A daemon in this process: real sockets, real children, a configuration that can become another.

`house` serves a tree and stops it at the end; that it ends in time is part of every test.
"""

import json
import os
import socket
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import trio

from daemon.actors.registry import Registry
from daemon.actors.upstream import UpstreamActor
from daemon.authorization.login_runs import LoginRuns
from daemon.authorization.logins import FileLogins, ServerLogins
from daemon.clients.connected_clients import ConnectedClients
from daemon.config.config_model import Config
from daemon.config.parse import Plan
from daemon.config.redaction import Redactors
from daemon.config.state_url import resolve
from daemon.main.run import ConfigFile
from daemon.operators.base import DaemonFacts
from daemon.processes.children import Children
from daemon.states import ServerState
from daemon.tree.core import Surroundings
from daemon.tree.running import Tree
from daemon.upstreams.server_actors import ActorContext
from daemon.upstreams.servers import Servers
from daemon.upstreams.transports.server_connection import OpenContext
from daemon.wire.outbox import Outbox
from tests.fakes_upstream import ECHO_SERVER, Client, keep
from tests.waiting import PATIENCE, in_time

LISTING_SERVER = ECHO_SERVER.replace('for name in ("echo", "hang")]', "for name in ()]").replace(
    'say(id=m["id"], result={"tools": TOOLS})',
    'say(id=m["id"], result={"tools": json.load(open(sys.argv[1]))})',
)
"""Lists what the file says that its argument names, anew each time."""

ECHO = {"command": sys.executable, "args": ["-S", "-E", "-c", ECHO_SERVER]}
STUBBORN = {
    "command": sys.executable,
    "args": [
        "-S",
        "-E",
        "-c",
        f"import signal; signal.signal(15, signal.SIG_IGN)\n{ECHO_SERVER}\nimport time; time.sleep(60)",
    ],
}
"""Ignores the end of its stdin and SIGTERM: only a kill ends it."""


class House:
    """A tree with everything that it is handed."""

    def __init__(self, directory: Path, config: Config, **more: Any) -> None:
        self.directory = directory
        self.notified: list[str] = []
        self.told = trio.Event()
        self.stop = trio.Event()
        children = Children()
        self.around = Surroundings(
            front=self._listen("front"),
            control=self._listen("control"),
            facts=DaemonFacts(
                version="1",
                pid=os.getpid(),
                started_at=time.time(),
                socket=str(directory / "front"),
                control_socket=str(directory / "control"),
                config="c",
            ),
            notify=self._notify,
            place=resolve(None, directory),
            **{"redact": _knowing(config), "file": ConfigFile(directory / "mcpd.json"), **more},
            logins=LoginRuns(ServerLogins(FileLogins(directory)), directory, children),
            children=children,
        )
        self.tree = Tree(config, self.around)

    def _listen(self, name: str) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(self.directory / name))
        listener.listen(10)
        listener.setblocking(False)
        return listener

    def _notify(self, state: str) -> None:
        self.notified.append(state)
        self.told.set()
        self.told = trio.Event()

    async def wait_notified(self, state: str, count: int = 1) -> None:
        with trio.fail_after(PATIENCE):
            while sum(told.startswith(state) for told in self.notified) < count:
                await self.told.wait()

    async def connect(self, nursery: trio.Nursery, door: str = "front") -> Client:
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(str(self.directory / door))
        client = Client(connection)
        nursery.start_soon(keep, client)
        await client.request("ping" if door == "front" else "tools", request_id="hello")
        return client

    async def wait_ready(self, *servers: str) -> None:
        with trio.fail_after(PATIENCE):
            for server in servers:
                await self.tree.supervisor.children[server].status.wait_until(
                    lambda status: status.state is ServerState.READY
                )
                await self._wait_available(server)

    async def _wait_available(self, server: str) -> None:
        await self.tree.registry.catalog.wait_until(lambda catalog: catalog.servers[server].available)

    def write(self, config: object) -> None:
        """Make the configuration's file another, in one step."""
        fresh = self.directory / "fresh.json"
        fresh.write_text(config if isinstance(config, str) else json.dumps(config))
        fresh.rename(self.directory / "mcpd.json")

    async def reload(self, config: object) -> Plan:
        """Write the file, and have it read."""
        self.write(config)
        return await in_time(self.tree.reloader.reload())

    async def wait_state(self, server: str, state: ServerState) -> None:
        """Until the catalog shows it."""
        with trio.fail_after(PATIENCE):
            await self.tree.registry.catalog.wait_until(
                lambda catalog: server in catalog.servers and catalog.servers[server].status.state is state
            )

    def pids(self) -> dict[str, int]:
        """The children that run, by server."""
        found = self.tree.upstreams.items()
        return {name: upstream.pid for name, upstream in found if upstream.pid is not None}

    def close(self) -> None:
        self.around.front.close()
        self.around.control.close()


@asynccontextmanager
async def house(directory: Path, config: object, **more: Any) -> AsyncIterator[House]:
    """Serve, and stop at the end; that it ends in time is part of every test."""
    path = directory / "mcpd.json"
    path.write_text(json.dumps(config))
    file = ConfigFile(path)
    built = House(directory, file.read(), **{"redact": file.redact, "file": file, **more})
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(built.tree.serve, built.stop)
            await built.wait_notified("READY=1")
            yield built
            built.stop.set()
            nursery.cancel_scope.deadline = trio.current_time() + PATIENCE
        assert not nursery.cancel_scope.cancelled_caught, "it did not end"
    finally:
        built.close()


def _knowing(config: Config) -> Redactors:
    redact = Redactors()
    redact.learn(config)
    return redact


def is_alive(pid: int) -> bool:
    """Whether there is such a process; one that only waits to be reaped counts."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def registry_and_servers(config: Config) -> tuple[Registry, Servers]:
    """A daemon's registry and servers, wired as the tree wires them; nothing is started."""
    registry, outbox, children = Registry(config, wall=time.time), Outbox(), Children()

    around = ActorContext(
        make=partial(
            UpstreamActor,
            outbox=outbox,
            opening=partial(OpenContext, outbox=outbox, children=children),
            wall=time.time,
            subscribers=ConnectedClients(),
            settle=registry.settle,
        ),
        tell=registry.tell,
        redact=Redactors(),
        wall=time.time,
    )
    return registry, Servers(config, around, catalog=registry.catalog, settle=registry.settle)
