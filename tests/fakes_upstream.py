"""Fakes around the call path: an upstream that answers on cue, a stage for sessions, a client of raw lines.

`FakeUpstream` is a `ports.Upstream` that remembers what it was asked and does nothing of its own accord.
`Stage` is what `tree` wires, without processes: a real catalog, real surfaces, real sessions. `Client` is the
other end of a socket: what it sends and gets are bytes, and each of its waits ends after `PATIENCE` seconds.
"""

import json
import re
import socket
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cache
from typing import Any

import attrs
import trio
import trio.testing
from msgspec import Raw

from daemon.actors.session import Session
from daemon.catalog.definitions import hashes
from daemon.catalog.kinds import LISTS
from daemon.catalog.listing import read_definitions
from daemon.catalog.loaded import SessionRecord
from daemon.catalog.offer import Offers
from daemon.catalog.snapshot import Catalog, begin, fold, with_settled_names
from daemon.catalog.tool_results import Observed
from daemon.clients.client import LOCAL_USER, Principal
from daemon.clients.context import SessionContext
from daemon.clients.sessions import Sessions
from daemon.config.config_model import Config
from daemon.config.redaction import Redactors
from daemon.counting.measures import RepairCounts
from daemon.counting.recent_calls import CallLogger, EndedCall, RecentCalls
from daemon.errors import CallError, ScriptsUnavailable, UpstreamUnavailable
from daemon.facts import DefinitionsListed, Fact, StatusChanged
from daemon.kit.waiting import Watch
from daemon.model import Definition, Kind, Tool
from daemon.ports import CallToSend, Instances, OwnCall
from daemon.protocol import CALL_TOOL, MODERN_VERSION, VERSION_KEY, tool_params
from daemon.search.index import Index
from daemon.states import ServerState
from daemon.surfaces.surface import Services, Surface
from daemon.surfaces.table import SURFACES
from daemon.wire.link import FdLink
from daemon.wire.outbox import Outbox
from daemon.wire.requests import Exchange
from tests.tallies import new_tally
from tests.unit.catalog.samples import status_of
from tests.unit.config.reading import config_of
from tests.waiting import PATIENCE

MODERN = {VERSION_KEY: MODERN_VERSION, "io.modelcontextprotocol/clientCapabilities": {}}
"""What a client of 2026-07-28 puts into the `_meta` of each request."""

ECHO_SERVER = """
import json, os, sys
def say(**message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\\n"); sys.stdout.flush()
SCHEMA = {"type": "object"}
TOOLS = [{"name": name, "inputSchema": SCHEMA} for name in ("echo", "hang")]
for line in sys.stdin:
    m = json.loads(line)
    if "id" not in m:
        continue
    method, params = m["method"], m.get("params") or {}
    if method == "initialize":
        say(id=m["id"], result={"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                                "serverInfo": {"name": "echo", "version": "1"}})
    elif method == "tools/list":
        say(id=m["id"], result={"tools": TOOLS})
    elif method == "tools/call" and params["name"] == "echo":
        say(id=m["id"], result={"content": [{"type": "text", "text": json.dumps(params["arguments"])}]})
    elif method != "tools/call":
        say(id=m["id"], error={"code": -32601, "message": "no " + method})
"""
"""A server for `python -c`: `echo` answers with its arguments, `hang` never answers; it ends at EOF."""


def tool_call(tool: str = "read", arguments: bytes = b"{}", **more: Any) -> OwnCall:
    """A call of a tool that no client waits for."""
    return OwnCall(method=CALL_TOOL, params=tool_params(tool, arguments), **more)


@attrs.frozen
class Sent:
    """A call as an upstream got it."""

    call: CallToSend
    exchange: Exchange
    key: int

    @property
    def arguments(self) -> Any:
        """The arguments, decoded."""
        return json.loads(self.raw_arguments)

    @property
    def raw_arguments(self) -> bytes:
        """The arguments, as they came."""
        return bytes(self.call.params[-1])

    @property
    def tool(self) -> str:
        """The tool that was called."""
        called: str = self.members["name"]
        return called

    @property
    def members(self) -> Any:
        """The members of the request's params, decoded."""
        return json.loads(b"{%b}" % b"".join(map(bytes, self.call.params)))


class FakeUpstream:
    """A server that is up or down as told, and answers when the test says so."""

    def __init__(self, name: str = "alpha", *, up: bool = True, wakeable: bool = True) -> None:
        self.name = self.of = name
        self.instances: Instances | None = None
        self.is_gone = False
        self.up = up
        self.can_wake = wakeable
        self.is_modern = False
        self.has_resources = self.is_own = False
        self.roots: bytes | None = None
        self.second: FakeUpstream | None = None
        self.is_stale = False
        self.refusal: Exception | None = None
        self.on_send: Callable[[Sent], None] = lambda _sent: None
        self.on_cancel: Callable[[], None] = lambda: None
        self.sent: list[Sent] = []
        self.clients: list[int] = []
        """Whose each call was."""
        self.cancelled: list[tuple[int, str]] = []
        self.told: list[str] = []
        self.recorded: list[tuple[float, bool]] = []
        self.woken = 0
        self.wholly: list[bool] = []
        """For each time it was woken for its lists, whether its whole first start was waited for."""
        self.wake_seconds = 2.0
        self._changed = trio.Event()

    def send(self, call: CallToSend, exchange: Exchange, client: int = 0) -> int:
        """Take the call, or refuse as told."""
        self.clients.append(client)
        if self.refusal is not None:
            raise self.refusal
        if not self.up:
            raise UpstreamUnavailable(f"server {self.name} is down. The call was not sent.", server=self.name)
        sent = Sent(call, exchange, len(self.sent) + 7001)
        self.sent.append(sent)
        self._tell()
        self.on_send(sent)
        return sent.key

    def cancel(self, key: int, reason: str) -> None:
        """Remember who gave up."""
        self.cancelled.append((key, reason))
        self.on_cancel()
        self._tell()

    def notify(self, method: str) -> None:
        """Remember what it was told."""
        self.told.append(method)
        self._tell()

    async def wake(self) -> bool:
        """Wait until `come_up`, at most `wake_seconds`."""
        self.woken += 1
        self._tell()
        with trio.move_on_after(self.wake_seconds):
            while not self.up:
                await self._changed.wait()
        return self.up

    async def wake_to_list(self, *, wholly: bool = False) -> bool:
        """As `wake`."""
        self.wholly.append(wholly)
        return await self.wake()

    @property
    def outlook(self) -> str:
        """Up or down."""
        return f"server {self.name} is {'up' if self.up else 'starting'}"

    async def wait_current(self) -> None:
        """Wait until `is_current`."""
        while self.is_stale:
            await self._changed.wait()

    def is_current(self) -> None:
        """Its list is current from now on."""
        self.is_stale = False
        self._tell()

    def own_catalog(self, catalog: Catalog) -> Catalog:
        """As it is: it lists nothing else."""
        return catalog

    def record(self, seconds: Sequence[float], *, ok: bool) -> None:
        """Remember the outcome."""
        self.recorded += [(each, ok) for each in seconds]

    def come_up(self) -> None:
        """Take calls from now on."""
        self.up = True
        self._tell()

    async def wait_sent(self, count: int = 1) -> Sent:
        """Wait for so many calls in all; return the last of them."""
        await self._until(lambda: len(self.sent) >= count)
        return self.sent[count - 1]

    async def wait_cancelled(self, count: int = 1) -> None:
        """Wait until so many calls were given up."""
        await self._until(lambda: len(self.cancelled) >= count)

    async def wait_woken(self) -> None:
        """Wait until somebody waits for us."""
        await self._until(lambda: self.woken > 0)

    async def _until(self, holds: Callable[[], bool]) -> None:
        with trio.fail_after(PATIENCE):
            while not holds():
                await self._changed.wait()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = trio.Event()


@attrs.define
class FakeLog(CallLogger):
    """A log that keeps everything."""

    notes: list[tuple[int, str, float, str]] = attrs.field(factory=list)
    texts: list[str] = attrs.field(factory=list)

    def note(self, ended: EndedCall) -> None:
        """Keep one note: the number of its connection, its label, its latency and its outcome."""
        caller, _key, label, seconds, outcome, *_, text = ended
        self.texts.append(text)
        self.notes.append((caller.number, label, seconds, outcome))


class Client:
    """The client's end of a connection."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.stream = trio.SocketStream(trio.socket.from_stdlib_socket(connection))
        self._rest = b""

    def close(self) -> None:
        """Hang up."""
        self.stream.socket.close()

    async def send(self, *messages: object) -> None:
        """Send messages in one write: bytes as they are (a newline is added), anything else as JSON."""
        lines = [item if isinstance(item, bytes) else json.dumps(item).encode() for item in messages]
        with trio.fail_after(PATIENCE):
            await self.stream.send_all(b"".join(line + b"\n" for line in lines))

    async def ask(self, method: str, params: object = None, *, request_id: object = 1) -> None:
        """Send a request."""
        message = {"jsonrpc": "2.0", "id": request_id, "method": method}
        await self.send(message if params is None else {**message, "params": params})

    async def tell(self, method: str, params: object) -> None:
        """Send a notification."""
        await self.send({"jsonrpc": "2.0", "method": method, "params": params})

    async def line(self) -> bytes:
        """The next line, without its newline."""
        with trio.fail_after(PATIENCE):
            while b"\n" not in self._rest:
                chunk = await self.stream.receive_some(1 << 20)
                if not chunk:
                    raise EOFError(f"the connection was closed after {self._rest!r}")
                self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    async def get(self) -> Any:
        """The next message, decoded."""
        return json.loads(await self.line())

    async def request(self, method: str, params: object = None, *, request_id: object = 1) -> Any:
        """Ask and take the next message."""
        await self.ask(method, params, request_id=request_id)
        return await self.get()

    async def call(
        self, category: str, name: str, args: object = None, *, request_id: object = 1, **params: Any
    ) -> None:
        """Send a `tools/call` to `call-category-tool`."""
        arguments = {"category": category, "name": name, "args": {} if args is None else args}
        await self.ask(
            "tools/call",
            {"name": "call-category-tool", "arguments": arguments, **params},
            request_id=request_id,
        )

    async def describe(self, category: str, *, request_id: object = 1, **arguments: Any) -> None:
        """Send a `tools/call` to `get-category-tools`."""
        asked = {"category": category, **arguments}
        await self.ask("tools/call", {"name": "get-category-tools", "arguments": asked}, request_id=request_id)

    async def is_closed(self) -> bool:
        """Whether the other side hangs up now."""
        try:
            await self.line()
        except (EOFError, trio.BrokenResourceError):
            return True
        return False


@attrs.define
class Guest:
    """A client, and the session that serves it."""

    client: Client
    session: Session
    ended: trio.Event = attrs.field(factory=trio.Event)


def tool(name: str, **members: object) -> dict[str, object]:
    """A tool as a server lists it."""
    return {"name": name, "description": f"Does {name}.", "inputSchema": {"type": "object"}, **members}


def tools_of(server: str, *names: str | dict[str, object]) -> tuple[Tool, ...]:
    """Tools as the catalog keeps them."""
    raws = [Raw(json.dumps(tool(name) if isinstance(name, str) else name).encode()) for name in names]
    tools, quarantined = read_definitions(Kind.TOOL, server, raws)
    assert not quarantined
    return tools


def definition_of(server: str, kind: Kind, members: Mapping[str, object]) -> Definition:
    """A prompt, a resource or a template as the catalog keeps it."""
    schema_hash, content_hash = hashes(dict(members))
    return Definition(
        kind=kind,
        server=server,
        name=str(members[LISTS[kind].key]),
        raw=json.dumps(dict(members)).encode(),
        schema_hash=schema_hash,
        content_hash=content_hash,
    )


class FakeMemory:
    """What remembers sessions: fails, and takes its time, as told."""

    shared = False

    def __init__(self) -> None:
        self.records: dict[str, SessionRecord] = {}
        self.parts: dict[str, SessionRecord] = {}
        """What was kept without knowing the rest."""
        self.touched: list[str] = []
        self.failure: Exception | None = None
        self.recalls = 0
        self.open = trio.Event()
        """Set: recalling, and writing, go through."""
        self.open.set()

    def keep(self, record: SessionRecord) -> None:
        """Remember it."""
        (self.parts if record.partial else self.records)[record.key] = record

    def touch(self, key: str, at: float) -> None:
        """Remember that it was used."""
        self.touched.append(key)

    async def kept(self, key: str) -> bool:
        """Wait until it is written."""
        await self.open.wait()
        return key in self.records

    async def look(self) -> None:
        """Know all at once: nobody else writes."""

    async def recall(self, key: str) -> SessionRecord | None:
        """Fail as told, or say what is remembered."""
        self.recalls += 1
        await self.open.wait()
        if self.failure is not None:
            raise self.failure
        return self.records.get(key)


def _tools_listed(server: str, *names: str | dict[str, object]) -> DefinitionsListed:
    definitions = tools_of(server, *names)
    return DefinitionsListed(kind=Kind.TOOL, server=server, incarnation=1, definitions=definitions)


def _no_scripts(*_script: object) -> None:
    raise ScriptsUnavailable("mcpd is about to stop")


def _became(server: str, state: ServerState, **status: Any) -> StatusChanged:
    return StatusChanged(server=server, status=status_of(state, incarnation=1, **status))


@cache
def _opening(written: str, *, listed: bool) -> tuple[Catalog, Index]:
    """What most stages begin with, made once: values that nothing changes."""
    return _begun(config_of(json.loads(written)), listed=listed)


def _begun(config: Config, *, listed: bool) -> tuple[Catalog, Index]:
    catalog, index = begin(config, time.time()), Index()
    for name in [name for name, server in config.mcp_servers.items() if server.enabled and listed]:
        for fact in (_became(name, ServerState.READY), _tools_listed(name, "echo", "add")):
            catalog = fold(catalog, fact)
            index = index.updated(catalog.servers)
    return catalog, index


class Stage:
    """Everything that sessions share. Servers are up, and list `echo` and `add`, unless told otherwise."""

    def __init__(
        self,
        config: Config | None = None,
        *,
        listed: bool = True,
        surfaces: Mapping[str, Surface] | None = None,
        **written: object,
    ) -> None:
        servers = {name: {"command": "unused"} for name in ("alpha", "beta")}
        text = json.dumps({"mcpServers": servers, **written})
        catalog, index = _begun(config, listed=listed) if config else _opening(text, listed=listed)
        self.config = catalog.config
        self.outbox = Outbox()
        self.log = FakeLog()
        self.recent = RecentCalls(time.time)
        self.catalog: Watch[Catalog] = Watch(catalog)
        self.upstreams = {name: FakeUpstream(name) for name, s in self.config.mcp_servers.items() if s.enabled}
        self.index = Watch(index)
        self.mended = RepairCounts()
        self.redact = Redactors()
        self.observed = Observed(lambda: self.catalog.value.config.observe, self.redact.of)
        self.services = Services(
            offers=Offers(),
            index=lambda: self.index.value,
            index_characters=self.config.limits.index_characters,
            shapes=self.observed.shape,
        )
        self.memory = FakeMemory()
        self.tally = new_tally(self.config.mcp_servers)
        self.left: list[Hashable] = []
        """What identifies the sessions that nobody uses any more."""
        self.sessions = Sessions(
            self.catalog,
            self.memory,
            wall=time.time,
            on_loaded=self.tally.loaded,
            on_invalid=self.tally.invalidated,
            on_left=self.left.append,
        )
        self.context = SessionContext(
            catalog=self.catalog,
            upstreams=self.upstreams,
            surfaces=surfaces or SURFACES,
            services=self.services,
            index=self.index,
            mended=self.mended,
            sessions=self.sessions,
            tally=self.tally,
            settled=trio.lowlevel.checkpoint,
            settle_names=lambda: self.catalog.set(with_settled_names(self.catalog.value)),
            outbox=self.outbox,
            log=self.log,
            recent=self.recent,
            wall=time.time,
            redact=self.redact,
            observed=self.observed,
            run_script=_no_scripts,
        )
        self._sessions = 0

    @property
    def alpha(self) -> FakeUpstream:
        """The first server."""
        return self.upstreams["alpha"]

    def learn(self, fact: Fact) -> None:
        """Fold a fact, as the registry does."""
        self.catalog.set(fold(self.catalog.value, fact))
        self.index.set(self.index.value.updated(self.catalog.value.servers))

    def becomes(self, server: str, state: ServerState, **status: Any) -> None:
        """A server changes its state."""
        self.learn(_became(server, state, **status))

    def lists(self, server: str, *names: str | dict[str, object]) -> None:
        """A server lists these tools."""
        self.learn(_tools_listed(server, *names))

    def offers(self, server: str, kind: Kind, *definitions: str | Mapping[str, object]) -> None:
        """A server lists these prompts, resources or templates: by what identifies them, or whole."""
        key = LISTS[kind].key
        whole: list[Mapping[str, object]] = [
            {key: each, "name": each} if isinstance(each, str) else each for each in definitions
        ]
        found = tuple(definition_of(server, kind, each) for each in whole)
        self.learn(DefinitionsListed(server=server, incarnation=1, kind=kind, definitions=found))

    def fails_to_list(self, server: str, reason: str) -> None:
        """A server does not list its tools."""
        self.learn(DefinitionsListed(kind=Kind.TOOL, server=server, incarnation=1, problem=reason))

    def answer(self, sent: Sent, result: bytes = b'{"content":[]}') -> None:
        """A server answers."""
        sent.exchange.answered(result)
        self.outbox.flush()

    def refuse(self, sent: Sent, error: bytes) -> None:
        """A server answers with a JSON-RPC error."""
        sent.exchange.refused(error)
        self.outbox.flush()

    def lose(self, sent: Sent, error: CallError) -> None:
        """A server's connection ends."""
        sent.exchange.lost(error)
        self.outbox.flush()

    def progress(self, sent: Sent, **params: object) -> None:
        """A server reports progress under mcpd's own token."""
        fields = {"progressToken": 1, **params}
        sent.exchange.progressed({key: Raw(json.dumps(value).encode()) for key, value in fields.items()})
        self.outbox.flush()

    async def client(self, nursery: trio.Nursery) -> Client:
        """A client connects; its session is waiting for its first message."""
        return (await self.connect(nursery)).client

    async def connect(self, nursery: trio.Nursery, principal: Principal = LOCAL_USER, **link: int) -> Guest:
        """As `client`, together with the session; `link` may hold limits of the link."""
        guest = self.arrive(nursery, principal=principal, **link)
        await trio.testing.wait_all_tasks_blocked()
        return guest

    def arrive(
        self, nursery: trio.Nursery, *first: bytes, principal: Principal = LOCAL_USER, **link: int
    ) -> Guest:
        """A client connects, with its first messages in the socket before the session looks."""
        ours, theirs = socket.socketpair()
        theirs.sendall(b"".join(line + b"\n" for line in first))
        ours.setblocking(False)
        fd = ours.detach()
        fd_link = FdLink(
            fd,
            fd,
            outbox=self.outbox,
            max_line=link.get("max_line", 1 << 20),
            max_queue=link.get("max_queue", 8 << 20),
            pause_at=link.get("pause_at"),
        )
        if not self._sessions:
            nursery.start_soon(self.sessions.run)
            nursery.start_soon(self.context.states.run, self.outbox.flush)
        self._sessions += 1
        guest = Guest(Client(theirs), Session(fd_link, self._sessions, self.context, principal))
        nursery.start_soon(_serve, guest, fd_link)
        nursery.start_soon(keep, guest.client)
        return guest


async def _serve(guest: Guest, link: FdLink) -> None:
    try:
        await guest.session.run()
    finally:
        link.close()
        guest.ended.set()


async def keep(client: Client) -> None:
    """Close a client when its nursery ends."""
    try:
        await trio.sleep_forever()
    finally:
        client.close()


def error_of(message: Any) -> dict[str, Any]:
    """The error of a meta-tool's result; checks that its text says no more than the error."""
    result = message["result"]
    error: dict[str, Any] = result["structuredContent"]["error"]
    assert result["isError"] is True
    first = re.escape(f"{error['code']}: {error['message']}")
    assert re.fullmatch(rf"{first}(\n(definition|schema|printed): .+)*", result["content"][0]["text"])
    return error


def described(message: Any) -> dict[str, Any]:
    """What describing answered; checks that text and structure say the same."""
    result: dict[str, Any] = message["result"]
    assert result["isError"] is False
    assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
    structured: dict[str, Any] = result["structuredContent"]
    return structured
