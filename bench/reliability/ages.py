"""Measures long outages: R6 and R7, on a clock that jumps from one deadline to the next.

The servers are in this process, on real unix sockets; the daemon's code restarts, connects and lists them, with
its default settings.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import trio
import trio.testing
from loguru import logger

from bench.reliability.promise import Finding
from daemon.config.config_model import Config, Server, TransportType
from daemon.states import ServerState
from tests.conftest import run_patiently
from tests.houses import registry_and_servers

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from bench.reliability.promise import Scale
    from daemon.upstreams.servers import Servers

DAY = 24 * 3600.0

ATTEMPTS = 1500
"""Most attempts in a day that the bar allows."""

HERD = 50
"""Servers that fail at the same time."""

OUTAGE = 600.0
"""Seconds of R7's outage."""

WELL = 300.0
"""Seconds for which all servers are up before, so that earlier failures no longer count."""

START_SECONDS = 0.3
"""Seconds until an attempt fails: like a server that starts quickly."""

FOREVER = 1e6
"""Most virtual seconds of any wait."""


@attrs.define
class House:
    """Servers on unix sockets, all up or all down."""

    directory: Path
    up: bool = True
    attempts: list[float] = attrs.field(factory=list)
    """Virtual times of connections while all servers were down."""
    starting: int = 0
    most_starting: int = 0
    channels: set[trio.SocketStream] = attrs.field(factory=set)

    def config(self, count: int) -> Config:
        """A configuration with `count` servers."""
        names = [f"s{number}" for number in range(count)]
        return Config(
            mcp_servers={
                name: Server(name=name, type=TransportType.UNIX, url=f"unix://{self.directory}/{name}")
                for name in names
            }
        )

    async def listen(self, nursery: trio.Nursery, name: str) -> trio.SocketListener:
        """Listen on the socket of a server."""
        path = self.directory / name
        path.unlink(missing_ok=True)
        door = trio.socket.socket(trio.socket.AF_UNIX)
        await door.bind(str(path))
        door.listen(100)
        listener = trio.SocketListener(door)
        nursery.start_soon(partial(trio.serve_listeners, self.serve, [listener]))
        return listener

    async def serve(self, channel: trio.SocketStream) -> None:
        """Serve one connection, or drop it after a while."""
        self.channels.add(channel)
        try:
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                await (self._converse(channel) if self.up else self._fail())
        finally:
            self.channels.discard(channel)

    async def lose(self) -> None:
        """Take all servers down."""
        self.up = False
        for channel in list(self.channels):
            await channel.aclose()

    async def _fail(self) -> None:
        self.attempts.append(trio.current_time())
        self.starting += 1
        self.most_starting = max(self.most_starting, self.starting)
        await trio.sleep(START_SECONDS)
        self.starting -= 1

    async def _converse(self, channel: trio.SocketStream) -> None:
        rest = b""
        async for chunk in channel:
            *lines, rest = (rest + chunk).split(b"\n")
            for message in map(json.loads, lines):
                if "id" in message:
                    reply = {"jsonrpc": "2.0", "id": message["id"], **_answer(message)}
                    await channel.send_all(json.dumps(reply).encode() + b"\n")


def _answer(message: dict[str, object]) -> dict[str, object]:
    match message["method"]:
        case "initialize":
            info = {"name": "s", "version": "1"}
            found = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
            return {"result": found}
        case "tools/list":
            return {"result": {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}}
        case "ping":
            return {"result": {}}
        case _:
            return {"error": {"code": -32601, "message": "Method not found"}}


async def reach(servers: Servers, state: ServerState, name: str) -> None:
    """Wait until a server is in a state."""
    with trio.fail_after(FOREVER):
        await servers.supervisor.children[name].status.wait_until(lambda status: status.state is state)


async def outage(found: dict[str, float]) -> None:
    """R6: one server is down for a day."""
    with tempfile.TemporaryDirectory(prefix="mcpd-") as directory:
        house = House(Path(directory))
        # There, and refusing: a socket that nobody listens on.
        with trio.socket.socket(trio.socket.AF_UNIX) as closed:
            await closed.bind(f"{directory}/s0")
            registry, servers = registry_and_servers(house.config(1))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(registry.run)
                nursery.start_soon(servers.run)
                await trio.sleep(DAY)
                found["attempts"] = servers.supervisor.children["s0"].status.value.incarnation
                await house.listen(nursery, "s0")
                back = trio.current_time()
                await reach(servers, ServerState.READY, "s0")
                found["ready"] = trio.current_time() - back
                nursery.cancel_scope.cancel()


async def herd(found: dict[str, float], count: int) -> None:
    """R7: all servers fail at the same moment."""
    with tempfile.TemporaryDirectory(prefix="mcpd-") as directory:
        house = House(Path(directory))
        registry, servers = registry_and_servers(house.config(count))
        async with trio.open_nursery() as nursery:
            for number in range(count):
                await house.listen(nursery, f"s{number}")
            nursery.start_soon(registry.run)
            nursery.start_soon(servers.run)
            for number in range(count):
                await reach(servers, ServerState.READY, f"s{number}")
            await trio.sleep(WELL)
            await house.lose()
            lost = trio.current_time()
            await trio.sleep(OUTAGE)
            nursery.cancel_scope.cancel()
    bins = Counter(int(at - lost) for at in house.attempts)
    found.update(attempts=len(house.attempts), starting=house.most_starting, fullest=max(bins.values()))


def never_gives_up(_scale: Scale) -> Iterator[Finding]:
    """R6."""
    found: dict[str, float] = {}
    _virtually(partial(outage, found))
    yield Finding(
        name="R6",
        measured=f"ready {found['ready']:.1f} s after it; {found['attempts']:,.0f} attempts",
        kept=found["ready"] <= 61 and found["attempts"] <= ATTEMPTS,
    )


def no_herd(_scale: Scale) -> Iterator[Finding]:
    """R7."""
    found: dict[str, float] = {}
    _virtually(partial(herd, found, HERD))
    share = found["fullest"] / found["attempts"]
    yield Finding(
        name="R7",
        measured=f"{found['starting']:.0f} starting at once at most, fullest second {share:.1%} of"
        f" {found['attempts']:,.0f} attempts in {OUTAGE:g} s",
        kept=found["starting"] <= 4 and share <= 0.15,
    )


def _virtually(main: Callable[[], Awaitable[None]]) -> None:
    clock = trio.testing.MockClock()
    logger.remove()  # of what fails a thousand times
    run_patiently(main, clock=clock, instruments=[])
