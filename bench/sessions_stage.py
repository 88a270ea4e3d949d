"""The daemon's shared objects without children, and clients on sockets: what `sessions.py` measures with."""

from __future__ import annotations

import json
import math
import socket
import time
from typing import TYPE_CHECKING, Any

import msgspec
import trio
from msgspec import Raw

from daemon.actors.recorder import Recorder, Timing
from daemon.actors.session import Session
from daemon.arguments.reading import Checker
from daemon.catalog.listing import read_tools
from daemon.catalog.offer import Offers
from daemon.catalog.snapshot import begin, fold, with_settled_names
from daemon.config.parse import parse
from daemon.config.state_url import parse as state_url
from daemon.context import SessionContext
from daemon.facts import ServerStatus, StatusChanged, ToolsListed
from daemon.measures import Mended
from daemon.search.index import Index
from daemon.sessions import Sessions
from daemon.state.access import Opener
from daemon.state.store import Store
from daemon.states import ServerState
from daemon.surfaces.base import Means
from daemon.surfaces.table import SURFACES
from daemon.tally import Tally
from daemon.watch import Watch
from daemon.wire.link import FdLink
from daemon.wire.outbox import Outbox

if TYPE_CHECKING:
    from collections.abc import Iterator

    from daemon.catalog.snapshot import Catalog
    from daemon.facts import Fact
    from daemon.model import Tool
    from daemon.ports import CallToSend
    from daemon.wire.peer import Exchange

PER_SERVER = 100
"""Tools that each server has."""

LOADED = 20
"""Tools of each session: three times what agents were seen to load for one piece of work."""


class Echo:
    """A server that answers every call at once."""

    can_wake = False
    is_stale = False

    def __init__(self, name: str) -> None:
        """Be one of many."""
        self.name = name

    def send(self, call: CallToSend, exchange: Exchange, client: int = 0) -> int:
        """Answer it."""
        exchange.answered(b'{"content":[]}')
        return 1

    def cancel(self, key: int, reason: str) -> None:
        """Nothing is under way."""

    def record(self, seconds: float, *, ok: bool) -> None:
        """Nobody asks."""

    async def wake(self) -> bool:
        """It never sleeps."""
        return True

    async def wake_to_list(self) -> bool:
        """Likewise."""
        return True

    outlook = "up"

    async def wait_current(self) -> None:
        """Its list is what it is."""


class Silent:
    """A call log that notes nothing."""

    def note(self, session: int, label: str, seconds: float, outcome: str) -> None:
        """Forget it."""


def tool(server: str, number: int, version: int = 0) -> bytes:
    """A tool as a server lists it, about as large as real ones."""
    parameter = {
        "type": "string",
        "description": "What is to be read, as an absolute path or a pattern of several.",
    }
    return json.dumps(
        {
            "name": f"{server}_tool_{number}",
            "description": f"Reads part {number} of what {server} knows, in its version {version}. " * 3,
            "inputSchema": {
                "type": "object",
                "properties": {"path": parameter, "limit": {"type": "integer", "minimum": 1}},
                "required": ["path"],
            },
        }
    ).encode()


class World:
    """What all sessions share, without children."""

    def __init__(self, catalog: Watch[Catalog]) -> None:
        """Wire it around a catalog; `open` comes next."""
        self.catalog = catalog
        self.outbox = Outbox()
        self.number = 0
        self.recorder: Recorder
        self.sessions: Sessions
        self.context: SessionContext

    async def open(self, url: str) -> None:
        """Open the store and everything that stands on it."""
        self.recorder = Recorder(
            Opener(lambda: Store.open(state_url(url), writer="bench"), where=url),
            catalog=self.catalog,
            tell=self.learn,
            settle=trio.lowlevel.checkpoint,
            timing=Timing(session_idle=math.inf),
        )
        self.sessions = Sessions(self.catalog, self.recorder, wall=time.time)
        self.context = self._context()
        await self.recorder.open()

    def learn(self, fact: Fact) -> None:
        """Fold a fact, as the registry does."""
        self.catalog.set(fold(self.catalog.value, fact))

    def _context(self) -> SessionContext:
        config = self.catalog.value.config
        index = Watch(Index.empty().updated(self.catalog.value.servers))
        means = Means(
            offers=Offers(),
            checker=Checker(),
            index=lambda: index.value,
            index_characters=config.limits.index_characters,
        )
        return SessionContext(
            catalog=self.catalog,
            upstreams={name: Echo(name) for name in config.mcp_servers},
            surfaces=SURFACES,
            means=means,
            index=index,
            mended=Mended(),
            sessions=self.sessions,
            tally=Tally(config.mcp_servers),
            settle_names=lambda: self.catalog.set(with_settled_names(self.catalog.value)),
            settled=trio.lowlevel.checkpoint,
            outbox=self.outbox,
            log=Silent(),
            wall=time.time,
            redact=str,
        )

    def connect(self, nursery: trio.Nursery, key: str) -> Client:
        """A client connects and names a session."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        fd = ours.detach()
        link = FdLink(fd, fd, outbox=self.outbox, max_line=1 << 20, max_queue=8 << 20)
        self.number += 1
        nursery.start_soon(Session(link, self.number, self.context).run)
        return Client(trio.SocketStream(trio.socket.from_stdlib_socket(theirs)), key)


class Client:
    """The client's end of a connection."""

    def __init__(self, stream: trio.SocketStream, key: str) -> None:
        """Be in the session `key`."""
        self._stream = stream
        self._key = key
        self._rest = b""
        self._last = 0

    async def greet(self) -> None:
        """Say what the bridge says."""
        await self._send({"method": "mcpd/hello", "params": {"surface": "load", "session": self._key}})

    async def ask(self, method: str, params: dict[str, Any]) -> tuple[float, dict[str, Any]]:
        """Send a request. Returns the seconds until its answer was there, and its result."""
        self._last += 1
        begun = time.perf_counter()
        await self._send({"id": self._last, "method": method, "params": params})
        while True:
            message = msgspec.json.decode(await self._line())
            if message.get("id") == self._last:
                seconds = time.perf_counter() - begun
                if "error" in message or message["result"].get("isError"):
                    raise SystemExit(f"{method} {params}: {str(message)[:500]}")
                return seconds, message["result"]

    async def call(self, name: str, **arguments: Any) -> float:
        """`tools/call`; the seconds it took."""
        return (await self.ask("tools/call", {"name": name, "arguments": arguments}))[0]

    async def _send(self, message: dict[str, Any]) -> None:
        await self._stream.send_all(msgspec.json.encode({"jsonrpc": "2.0", **message}) + b"\n")

    async def _line(self) -> bytes:
        while b"\n" not in self._rest:
            chunk = await self._stream.receive_some(1 << 18)
            if not chunk:
                raise SystemExit("the session hung up")
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        return line


def catalogue(tools: int) -> Catalog:
    """A catalog in which every server is up and has listed."""
    names = [f"s{number}" for number in range(max(1, tools // PER_SERVER))]
    written = json.dumps({"mcpServers": {name: {"command": "unused"} for name in names}})
    made = begin(parse(written, source="bench", environ={}, surfaces=SURFACES), time.time())
    for name in names:
        ready = ServerStatus(state=ServerState.READY, incarnation=1)
        made = fold(fold(made, StatusChanged(server=name, status=ready)), listing(name))
    return made


def listing(server: str, changed: int = 0) -> ToolsListed:
    """What a server lists, with another description of its first tools."""
    raws = [Raw(tool(server, number, int(number < changed))) for number in range(PER_SERVER)]
    tools, _quarantined = read_tools(server, raws)
    return ToolsListed(server=server, incarnation=1, tools=tools, quarantined={}, at=time.time())


def chosen(catalog: Catalog, number: int) -> Iterator[tuple[Tool, int]]:
    """What a session has loaded: tools of all servers, another selection for each."""
    entries = list(catalog.servers.values())
    for step in range(LOADED):
        entry = entries[(number + step * 7) % len(entries)]
        name = f"{entry.name}_tool_{(number // len(entries) + step * 13) % (PER_SERVER - 1)}"
        yield (entry.tools or {})[name], entry.epoch


def key_of(number: int) -> str:
    """As a client's path might be."""
    return f"/home/somebody/projects/project-{number}"
