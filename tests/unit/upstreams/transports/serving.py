"""Real servers on loopback for the transports to meet, and the two ends of a connection that tests look at."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import attrs
import hypercorn
import hypercorn.trio
import msgspec
import trio
from mcp.server.lowlevel import Server as SdkServer
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from msgspec import Raw

from daemon.config.config_model import Server, TransportType
from daemon.config.tuning import ServerLimits, Timeouts
from daemon.errors import CallError
from daemon.model import Era
from daemon.ports import UpstreamConnection
from daemon.processes.children import Children
from daemon.protocol import ASKED_OF_CLIENTS, IDENTITY, MODERN_VERSION
from daemon.upstreams.transports.server_connection import OpenContext, connector
from daemon.wire.envelope import Buffer
from daemon.wire.outbox import Outbox
from daemon.wire.requests import OwnExchange
from tests.fakes_upstream import tool_call
from tests.unit.upstreams.transports.listening import Listener
from tests.waiting import background

HANDSHAKE_VERSION = "2025-11-25"
SECONDS = 30
"""No test waits for anything longer than this."""


# --- our end -----------------------------------------------------------------------------------------------


@attrs.define(eq=False)
class Caller(OwnExchange):
    """An exchange that remembers how it ended, and insists that it ends once."""

    answerable = ASKED_OF_CLIENTS

    ended: trio.Event = attrs.field(factory=trio.Event)
    result: Any = None
    error: Any = None
    loss: CallError | None = None
    progress: list[dict[str, Any]] = attrs.field(factory=list)

    def answered(self, result: Buffer) -> None:
        self._end()
        self.result = json.loads(bytes(result))

    def refused(self, error: Buffer) -> None:
        self._end()
        self.error = json.loads(bytes(error))

    def lost(self, error: CallError) -> None:
        self._end()
        self.loss = error

    def progressed(self, params: dict[str, Raw]) -> None:
        self.progress.append({name: json.loads(bytes(value)) for name, value in params.items()})

    def _end(self) -> None:
        assert not self.ended.is_set()
        self.ended.set()


def context_for(
    kind: TransportType,
    url: str,
    *,
    message_bytes: int = 1 << 20,
    connect: float = SECONDS,
    headers: dict[str, str] | None = None,
) -> OpenContext:
    server = Server(
        name="s",
        type=kind,
        url=url,
        headers=headers or {},
        timeouts=Timeouts(connect=connect),
        limits=ServerLimits(message_bytes=message_bytes),
    )
    return OpenContext(
        server=server, events=Listener(refuses=True), outbox=Outbox(), children=Children.__new__(Children)
    )


@attrs.define(eq=False)
class Client:
    """A connection and how its `run` ended."""

    connection: UpstreamConnection
    events: Listener
    outbox: Outbox
    over: trio.Event = attrs.field(factory=trio.Event)
    end: BaseException | None = None

    async def run(self) -> None:
        try:
            await self.connection.run()
        except Exception as error:  # noqa: BLE001 - that is what tests look at
            self.end = error
            self.over.set()

    async def ask(self, method: str, params: dict[str, object] | None = None) -> Any:
        return json.loads(await self.connection.request(method, params or {}, timeout=SECONDS))

    async def greet(self, era: Era) -> None:
        """Negotiate by hand."""
        if era is Era.MODERN:
            self.connection.adopt(era, MODERN_VERSION)
            found = await self.ask("server/discover")
            assert MODERN_VERSION in found["supportedVersions"]
            return
        self.connection.adopt(era, HANDSHAKE_VERSION)
        params: dict[str, object] = {
            "protocolVersion": HANDSHAKE_VERSION,
            "capabilities": {},
            "clientInfo": IDENTITY,
        }
        assert (await self.ask("initialize", params))["protocolVersion"] == HANDSHAKE_VERSION
        self.connection.adopt(era, HANDSHAKE_VERSION)
        self.connection.notify("notifications/initialized")

    def start(self, tool: str, *, progress: bool = False, **arguments: object) -> tuple[int, Caller]:
        caller = Caller()
        call = tool_call(tool, msgspec.json.encode(arguments), wants_progress=progress)
        key = self.connection.call(call, caller)
        self.outbox.flush()
        return key, caller

    async def call(self, tool: str, *, progress: bool = False, **arguments: object) -> Caller:
        _, caller = self.start(tool, progress=progress, **arguments)
        await caller.ended.wait()
        return caller


@asynccontextmanager
async def connected(context: OpenContext) -> AsyncIterator[Client]:
    """As the actor does it: open, run, use."""
    with trio.fail_after(SECONDS):
        async with await connector(context) as connection, background() as nursery:
            assert isinstance(context.events, Listener)
            client = Client(connection, context.events, context.outbox)
            nursery.start_soon(client.run)
            yield client


# --- the SDK's server --------------------------------------------------------------------------------------

TOOLS: list[dict[str, Any]] = [
    {"name": "echo", "inputSchema": {}, "x-vendor": 1},
    {
        "name": "mirrored",
        "inputSchema": {"type": "object", "properties": {"place": {"type": "string", "x-mcp-header": "Place"}}},
    },
]


@attrs.define(eq=False)
class Fixture:
    """An SDK server whose answers are made by hand, so that they hold what its types do not know."""

    waiting: trio.Event = attrs.field(factory=trio.Event)
    release: trio.Event = attrs.field(factory=trio.Event)
    cancelled: trio.Event = attrs.field(factory=trio.Event)
    headers: list[dict[str, str]] = attrs.field(factory=list)
    sdk: SdkServer[Any] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.sdk = SdkServer(
            "fixture",
            on_list_tools=_unused,
            on_call_tool=_unused,
            on_subscriptions_listen=ListenHandler(InMemorySubscriptionBus()),
            get_tool_input_schema=self._schema,
        )
        middleware: list[Any] = [self._answer]
        self.sdk.middleware[:] = middleware

    def _schema(self, name: str) -> Any:
        return next((tool["inputSchema"] for tool in TOOLS if tool["name"] == name), None)

    async def _answer(self, context: Any, call_next: Any) -> Any:
        if context.request is not None:
            self.headers.append(dict(context.request.headers))
        if context.method == "tools/list":
            return {
                "tools": TOOLS,
                "vendorTop": 1,
                "resultType": "complete",
                "ttlMs": 0,
                "cacheScope": "private",
            }
        if context.method != "tools/call":
            return await call_next(context)
        tool = getattr(self, "_tool_" + context.params["name"])
        return {"resultType": "complete", **await tool(context, context.params.get("arguments"))}

    async def _tool_echo(self, _: Any, arguments: Any) -> Any:
        return {"content": [{"type": "video", "odd": True}], "echo": arguments, "vendorTop": 1}

    _tool_mirrored = _tool_echo

    async def _tool_wait(self, _: Any, __: Any) -> Any:
        self.waiting.set()
        try:
            await self.release.wait()
        except trio.Cancelled:
            self.cancelled.set()
            raise
        return {"content": [], "waited": True}

    async def _tool_big(self, _: Any, arguments: Any) -> Any:
        return {"content": [{"type": "text", "text": "x" * arguments["size"]}]}


async def _unused(*_: object) -> Any:
    raise AssertionError


@attrs.define(eq=False)
class Running:
    """An ASGI server that can be stopped."""

    port: int
    stopping: trio.Event
    stopped: trio.Event

    async def stop(self) -> None:
        self.stopping.set()
        await self.stopped.wait()


async def serve(nursery: trio.Nursery, app: Any, port: int = 0) -> Running:
    """Serve an ASGI application on loopback."""
    config = hypercorn.Config()
    config.bind = [f"127.0.0.1:{port}"]
    config.errorlog = None
    config.graceful_timeout = 0.01
    config.shutdown_timeout = 0.5
    stopping, stopped = trio.Event(), trio.Event()

    async def run(task_status: trio.TaskStatus[list[str]]) -> None:
        try:
            await hypercorn.trio.serve(app, config, shutdown_trigger=stopping.wait, task_status=task_status)
        finally:
            stopped.set()

    binds: list[str] = await nursery.start(run)
    return Running(int(binds[0].rpartition(":")[2]), stopping, stopped)


# --- servers that misbehave --------------------------------------------------------------------------------


@attrs.define(eq=False)
class Request:
    """An HTTP request as a scripted server saw it."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any
    raw: bytes = b""
    """The body as it came."""


def reply(
    body: bytes | dict[str, Any], status: str = "200 OK", content_type: str = "application/json", **headers: str
) -> bytes:
    """A whole HTTP response; `_` in names of headers stands for `-`."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    fields = {"content-type": content_type, "content-length": str(len(raw)), "connection": "close", **headers}
    lines = [f"HTTP/1.1 {status}", *(f"{name.replace('_', '-')}: {value}" for name, value in fields.items())]
    return "\r\n".join([*lines, "", ""]).encode() + raw


def answer(request: Request, result: dict[str, Any], **headers: str) -> bytes:
    """A JSON-RPC result as a whole HTTP response."""
    return reply({"jsonrpc": "2.0", "id": request.body["id"], "result": result}, **headers)


async def scripted(nursery: trio.Nursery, script: Callable[[Request], Awaitable[bytes]]) -> int:
    """An HTTP server that writes what the script says and hangs up. Returns its port."""
    listeners: list[trio.SocketListener] = await nursery.start(
        partial(trio.serve_tcp, partial(_converse, script), 0, host="127.0.0.1")
    )
    port: int = listeners[0].socket.getsockname()[1]
    return port


async def _converse(script: Callable[[Request], Awaitable[bytes]], stream: trio.SocketStream) -> None:
    try:
        request = await _read_request(stream)
        if request is not None:
            await stream.send_all(await script(request))
    except trio.BrokenResourceError:
        pass


async def _read_request(stream: trio.SocketStream) -> Request | None:
    seen = b""
    while b"\r\n\r\n" not in seen:
        chunk = await stream.receive_some()
        if not chunk:
            return None
        seen += chunk
    head, _, body = seen.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    while len(body) < int(headers.get("content-length", 0)):
        body += await stream.receive_some()
    method, path, _ = first.split(" ")
    is_form = "form" in headers.get("content-type", "")
    return Request(method, path, headers, json.loads(body) if body and not is_form else None, body)
