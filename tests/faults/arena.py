"""A client that comes in by HTTP, to the fault suite a stream of lines like any other.

Each line is posted in one session over a connection of its own, as SDKs do; what is answered is a line again.
"""

import json
import random
import re
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import h11
import trio

from daemon.processes.own import OPEN
from tests.e2e.harness import Daemon, free_port, running, scripted
from tests.faults.history import Answered, Asked, History, HungUp, Withdrawn
from tests.faults.stage import children_of
from tests.faults.wire import HARMLESS, Direction, Toxic, join
from tests.waiting import LOOK_SECONDS, in_time, until

TOKEN = "0123456789abcdef0123"
"""Of the daemon on the stage."""
GOODBYE_SECONDS = 5.0
"""Seconds that the end of a session may take to be said."""
GONE = (OSError, trio.BrokenResourceError, trio.ClosedResourceError, h11.RemoteProtocolError)
"""What comes of a connection that has ended."""
_READ = 1 << 20
_INITIALIZE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "faults", "version": "1"},
}


class _Exchange:
    """A connection, and what is under way on it."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self.session = ""
        self._http = h11.Connection(h11.CLIENT)

    async def send(self, method: str, session: str, body: bytes = b"") -> None:
        headers = [
            ("host", "localhost"),
            ("authorization", f"Bearer {TOKEN}"),
            ("accept", "application/json, text/event-stream"),
            ("content-type", "application/json"),
            ("content-length", str(len(body))),
            *([("mcp-session-id", session)] if session else []),
        ]
        parts = [
            self._http.send(h11.Request(method=method, target="/mcp", headers=headers)),
            self._http.send(h11.Data(data=body)),
            self._http.send(h11.EndOfMessage()),
        ]
        await self.stream.send_all(b"".join(part or b"" for part in parts))

    async def receive(self) -> list[bytes]:
        """The lines of the response."""
        kind, pieces = b"", []
        while not isinstance(event := self._http.next_event(), h11.EndOfMessage):
            if event is h11.NEED_DATA:
                self._http.receive_data(await self.stream.receive_some(_READ))
            elif isinstance(event, h11.Response):
                headers = dict(event.headers)
                kind, self.session = (
                    headers.get(b"content-type", b""),
                    headers.get(b"mcp-session-id", b"").decode(),
                )
            elif isinstance(event, h11.Data):
                pieces.append(bytes(event.data))
            else:
                raise trio.BrokenResourceError("the daemon closed the connection")
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
        return list(_lines(kind, b"".join(pieces)))

    @property
    def is_reusable(self) -> bool:
        return self._http.our_state is h11.IDLE


def _lines(kind: bytes, body: bytes) -> Iterator[bytes]:
    if kind == b"application/json":
        yield body
    elif kind == b"text/event-stream":
        for line in body.split(b"\n"):
            name, _, data = line.partition(b": ")
            if name == b"data" and data:
                yield data
    elif body:
        raise trio.BrokenResourceError(f"refused: {body[:200]!r}")


class HttpLines(trio.abc.HalfCloseableStream):
    """One session, as a stream of lines."""

    def __init__(self, port: int, nursery: trio.Nursery) -> None:
        """Begin with the first line that is sent; `nursery` has a task for each request under way."""
        self._port = port
        self._nursery = nursery
        self._session = ""
        self._rest = b""
        self._open: set[_Exchange] = set()
        self._idle: list[_Exchange] = []
        self._heard, self._hears = trio.open_memory_channel[bytes](float("inf"))

    async def begin(self) -> None:
        """Open the session."""
        exchange = await self._free()
        request = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": _INITIALIZE}
        await exchange.send("POST", "", json.dumps(request).encode())
        await exchange.receive()
        self._session = exchange.session
        self._idle.append(exchange)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Post what has become lines; each is written before this returns, so their order is kept."""
        *lines, self._rest = (self._rest + bytes(data)).split(b"\n")
        for line in lines:
            exchange = await self._free()
            await exchange.send("POST", self._session, line)
            self._nursery.start_soon(self._finish, exchange)

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Answers."""
        try:
            return await self._hears.receive()
        except trio.EndOfChannel:
            return b""

    async def wait_send_all_might_not_block(self) -> None:
        """Be ready."""
        await trio.lowlevel.checkpoint()

    async def send_eof(self) -> None:
        """Leave: there is no half of a session."""
        await self.aclose()

    async def aclose(self) -> None:
        """End the session and all its connections."""
        session, self._session = self._session, ""
        if session:
            with trio.CancelScope(shield=True), suppress(*GONE), trio.move_on_after(GOODBYE_SECONDS):
                exchange = await self._free()
                await exchange.send("DELETE", session)
                await exchange.receive()
        for each in self._open:
            each.stream.socket.close()  # Without a checkpoint, at which only the first would be closed.
        self._heard.close()
        self._hears.close()

    async def _free(self) -> _Exchange:
        if self._idle:
            return self._idle.pop()
        exchange = _Exchange(await trio.open_tcp_stream("127.0.0.1", self._port))
        self._open.add(exchange)
        return exchange

    async def _finish(self, exchange: _Exchange) -> None:
        try:
            for line in await exchange.receive():
                self._heard.send_nowait(line + b"\n")
        except GONE:
            self._heard.close()
            return
        if exchange.is_reusable:
            self._idle.append(exchange)


# --- one real daemon for many cases --------------------------------------------------------------------------


Json = dict[str, Any]
BOUND = 120.0
"""Seconds for any one step: an idle machine needs two, one with twenty other busy processes over thirty."""
CANARY = "canary"
"""The neighbour."""
_clients = count(1)
_nonces = count(1)


def fresh_nonce() -> str:
    """What no other call carries."""
    return f"nonce-{next(_nonces)}-"


class Arena:
    """The daemon."""

    def __init__(self, daemon: Daemon, canary: Json, listen: Json) -> None:
        self.daemon = daemon
        self.canary = canary
        self.listen = listen
        self.pid = 0 if daemon.process is None else daemon.process.pid
        self.front = str(daemon.socket)
        self.control = str(daemon.socket.with_name("control.sock"))
        self.writing = trio.Lock()
        """Held from a change of the file until it is in force."""
        self.at_rest: dict[str, object] = {}
        """What the daemon holds when nobody is connected."""
        self._servers: dict[str, object] = {}

    def configure(self, server: str, entry: object) -> None:
        """Bring a server in, change it, or (None) take it out, in the file; a reload puts it in force."""
        self._servers = {**self._servers, server: entry}
        kept = {name: entry for name, entry in self._servers.items() if entry is not None}
        self.write(json.dumps({"mcpServers": {CANARY: self.canary, **kept}, "listen": self.listen}))

    def write(self, text: str) -> None:
        """Write what may be no configuration at all, in one step."""
        fresh = self.daemon.config.with_name("fresh.json")
        fresh.write_text(text, errors="surrogateescape")
        fresh.rename(self.daemon.config)

    def log_size(self) -> int:
        """Bytes that the daemon has logged so far."""
        return self.daemon.log.stat().st_size

    def log_since(self, size: int) -> str:
        """What it has logged after so many bytes."""
        with self.daemon.log.open("rb") as log:
            log.seek(size)
            return log.read().decode(errors="replace")

    def ended(self, server: str, since: int) -> list[str]:
        """The reasons of a server's runs that have ended, in order."""
        return re.findall(rf"\[server={server}\] run \d+ ended: (.*)", self.log_since(since))

    def descriptors(self) -> dict[str, int]:
        """Open descriptors that come and go with servers and clients, by kind."""
        found = {"socket": 0, "pipe": 0, "anon_inode": 0}
        for entry in Path(f"/proc/{self.pid}/fd").iterdir():
            with suppress(OSError):
                kind = str(entry.readlink()).partition(":")[0]
                if kind in found:
                    found[kind] += 1
        return found

    def holdings(self) -> dict[str, object]:
        """Descriptors and children."""
        return {**self.descriptors(), "children": self.children()}

    def children(self) -> frozenset[int]:
        """Its children, zombies included."""
        return frozenset(children_of(self.pid))


@contextmanager
def arena() -> Iterator[Arena]:
    """A daemon with a neighbour that is ready; nothing of it may be left in the end."""
    canary = scripted(tools=["echo"], name=CANARY)
    # What it holds is counted from outside, which is not only for root then.
    # Of a server that fails the same way again and again the log says so less and less often, above DEBUG.
    listen = {"http": {"address": f"127.0.0.1:{free_port()}", "tokens": TOKEN}}
    config = {"mcpServers": {CANARY: canary}, "listen": listen}
    with running(config, {OPEN: "1"}, level="DEBUG") as daemon:
        daemon.ready(CANARY)
        found = Arena(daemon, canary, listen)
        found.at_rest = _at_rest(found)
        yield found


def _at_rest(it: Arena) -> dict[str, object]:
    looks = []
    with it.daemon.client() as client:
        # Connections of before may close late: the least of some looks, less the one of this client.
        for _ in range(5):
            client.ask("ping")
            looks.append(it.descriptors())
    least = {kind: min(look[kind] for look in looks) for kind in looks[0]}
    return {**least, "socket": least["socket"] - 1, "children": it.children()}


class Pending:
    """A request that waits for its answer."""

    def __init__(self, id_: str) -> None:
        self.id = id_
        self.message: Json = {}
        self.done = trio.Event()

    async def wait(self, seconds: float = BOUND) -> Json:
        """The answer."""
        await in_time(self.done.wait(), seconds)
        return self.message


class Client:
    """A connection to the daemon that notes all that passes."""

    def __init__(self, stream: trio.abc.HalfCloseableStream, history: History) -> None:
        self.number = next(_clients)
        self.notices: list[Json] = []
        self.lines: list[bytes] = []
        self.closed = trio.Event()
        self._stream = stream
        self._history = history
        self._ids = count(1)
        self._pending: dict[str, list[Pending]] = {}
        self._more = trio.Event()

    async def run(self) -> None:
        """Read to the end."""
        pieces: list[bytes] = []
        try:
            async for chunk in self._stream:
                # Answers of many megabytes are looked at once.
                first, *others = bytes(chunk).split(b"\n")
                pieces.append(first)
                for line in others:
                    self._take(b"".join(pieces))
                    pieces = [line]
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            self._history.note(HungUp(client=self.number))
            self.closed.set()
            self._told()
            with trio.CancelScope(shield=True):
                await trio.aclose_forcefully(self._stream)

    def _take(self, line: bytes) -> None:
        self.lines.append(line)
        message: Json = json.loads(line)
        if "method" in message:
            self.notices.append(message)
        else:
            identity = json.dumps(message.get("id"))
            self._history.note(
                Answered(
                    client=self.number, id=identity, code=code_of(message), text=line.decode(errors="replace")
                )
            )
            waiting = self._pending.get(identity)
            if waiting:
                pending = waiting.pop(0)
                pending.message = message
                pending.done.set()
        self._told()

    def _told(self) -> None:
        self._more.set()
        self._more = trio.Event()

    async def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            await self._stream.send_all(data)

    def expects(self, identity: str, server: str = "", nonce: str = "") -> Pending:
        """An answer with this id (as JSON) is owed from now on."""
        self._history.note(Asked(client=self.number, id=identity, server=server, nonce=nonce))
        pending = Pending(identity)
        self._pending.setdefault(identity, []).append(pending)
        return pending

    async def ask(
        self, method: str, params: Json | None = None, *, server: str = "", nonce: str = "", id_: object = None
    ) -> Pending:
        """Send a request."""
        identity = next(self._ids) if id_ is None else id_
        pending = self.expects(json.dumps(identity), server, nonce)
        request = {"jsonrpc": "2.0", "id": identity, "method": method, "params": params or {}}
        await self.send(json.dumps(request).encode() + b"\n")
        return pending

    async def call(
        self, server: str, tool: str, *, id_: object = None, meta: Json | None = None, **arguments: Any
    ) -> Pending:
        """Call a server's tool, through the wrapper of the default surface."""
        nonce = fresh_nonce()
        wrapped = {"category": server, "name": tool, "args": {**arguments, "nonce": nonce}}
        params: Json = {"name": "call-category-tool", "arguments": wrapped, **({"_meta": meta} if meta else {})}
        # No other repeats what it is given.
        echoes = nonce if tool == "echo" else ""
        return await self.ask("tools/call", params, server=server, nonce=echoes, id_=id_)

    async def describe(self, server: str) -> Json:
        """The definitions of a server's tools, as a model gets them."""
        params = {"name": "get-category-tools", "arguments": {"category": server}}
        answer = await (await self.ask("tools/call", params)).wait()
        found: Json = answer["result"]["structuredContent"]
        return found

    async def withdraw(self, pending: Pending) -> None:
        """Cancel a request."""
        self._history.note(Withdrawn(client=self.number, id=pending.id))
        params = {"requestId": json.loads(pending.id), "reason": "on cue"}
        note = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
        await self.send(json.dumps(note).encode() + b"\n")

    async def notice(self, method: str) -> Json:
        """The next notification of a kind, also one that came before."""
        with trio.fail_after(BOUND):
            while True:
                for notice in self.notices:
                    if notice["method"] == method:
                        self.notices.remove(notice)
                        return notice
                await self._more.wait()

    async def close(self) -> None:
        """Hang up."""
        await trio.aclose_forcefully(self._stream)


def code_of(message: Json) -> str:
    """The error that an answer tells; empty for a result."""
    if "error" in message:
        return str(message["error"]["code"])
    result = message.get("result")
    if not isinstance(result, dict) or not result.get("isError"):
        return ""
    told = (result.get("structuredContent") or {}).get("error") or {}
    return str(told.get("code", "isError"))


class Visitors:
    """Opens connections whose tasks live in one nursery."""

    def __init__(self, nursery: trio.Nursery, arena_: Arena, history: History, rng: random.Random) -> None:
        self._nursery = nursery
        self._arena = arena_
        self._history = history
        self._rng = rng

    async def client(self, up: Toxic = HARMLESS, down: Toxic = HARMLESS) -> Client:
        """A client; behind a faulty line if toxics are given."""
        stream: trio.SocketStream = await trio.open_unix_socket(self._arena.front)
        if (up, down) != (HARMLESS, HARMLESS):
            stream = self._behind_a_line(stream, Direction(up), Direction(down))
        return await self._begin(stream)

    async def over_http(self) -> Client:
        """A client that comes in by HTTP."""
        stream = HttpLines(int(self._arena.listen["http"]["address"].rpartition(":")[2]), self._nursery)
        await stream.begin()
        return await self._begin(stream)

    async def silent(self) -> trio.SocketStream:
        """A connection that nobody reads from."""
        return await trio.open_unix_socket(self._arena.front)

    async def operator(self) -> Client:
        """An operator."""
        return await self._begin(await trio.open_unix_socket(self._arena.control))

    async def _begin(self, stream: trio.abc.HalfCloseableStream) -> Client:
        client = Client(stream, self._history)
        self._nursery.start_soon(client.run)
        return client

    def _behind_a_line(self, far: trio.SocketStream, up: Direction, down: Direction) -> trio.SocketStream:
        outside, inside = (
            trio.SocketStream(trio.socket.from_stdlib_socket(end)) for end in socket.socketpair()
        )

        async def run() -> None:
            await join(inside, far, up=up, down=down, rng=self._rng)

        self._nursery.start_soon(run)
        return outside


@asynccontextmanager
async def visiting(arena_: Arena, history: History, rng: random.Random) -> AsyncIterator[Visitors]:
    """Visitors while the block runs; afterwards every connection is closed."""
    async with trio.open_nursery() as nursery:
        visitors = Visitors(nursery, arena_, history, rng)
        try:
            yield visitors
        finally:
            nursery.cancel_scope.cancel()


async def settled(look: Any, wanted: object) -> object:
    """What a look finds once it finds what is wanted, or in the end: clean-ups may lag behind."""
    with suppress(AssertionError):
        await until(lambda: look() == wanted, str, seconds=BOUND, every=LOOK_SECONDS)
    return look()
