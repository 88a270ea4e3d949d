"""Scripted servers behind a network, in the process of the test: they misbehave on cue and note what they get.

Each is the far end of a `Wire`. What a server does with the k-th message of a method is an `Act`; without one
it does what a good server does. Its tools: `echo` (repeats its arguments), `sleep` (never answers), `effect`
(counts), `progress` (reports twice, then answers; not over HTTP), `bytes` {count}.
"""

import json
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, ClassVar

import attrs
import trio
from trio_websocket import ConnectionClosed, WebSocketConnection, wrap_server_stream

from tests.faults.history import History, Took
from tests.unit.upstreams.transports.serving import Request, _read_request, reply
from tests.waiting import background

Json = dict[str, Any]

TOOLS = ("echo", "sleep", "effect", "progress", "bytes")
CUTS = (trio.BrokenResourceError, trio.ClosedResourceError, ConnectionClosed)
SESSION = "mcp-session-id"


@attrs.frozen(kw_only=True)
class Act:
    """What a server does with one message, in this order."""

    raw: bytes = b""
    """Written as it is: a whole HTTP response, a line, a frame. `%ID%` becomes the id of the request."""
    error: Json | None = None
    """A JSON-RPC error instead of the normal answer."""
    result: Json | None = None
    """A result instead of the normal one."""
    never: bool = False
    """No answer of its own."""
    close: int | None = None
    """The connection ends; for a WebSocket with this code."""
    elsewhere: bool = False
    """The message is not taken: it is to be sent to somewhere else."""


NEVER = Act(never=True)

Script = dict[str, "list[Act | None]"]


def http(status: str, body: bytes | Json = b"", content_type: str = "text/plain", **headers: str) -> Act:
    """An HTTP response instead of the normal one."""
    elsewhere = "location" in headers
    return Act(raw=reply(body, status, content_type, **headers), never=True, elsewhere=elsewhere)


def tool(name: str, **more: Any) -> Json:
    """A well-formed tool."""
    return {"name": name, "description": f"Does {name}.", "inputSchema": {"type": "object"}, **more}


class Conversation:
    """One connection, as the server sees it: somewhere to write messages."""

    def __init__(self, send: Callable[[Json | bytes], Awaitable[None]]) -> None:
        self._send = send
        self._lock = trio.Lock()

    async def write(self, message: Json | bytes) -> None:
        """A message, or bytes as they are."""
        async with self._lock:
            await self._send({"jsonrpc": "2.0", **message} if isinstance(message, dict) else message)


class Upstream:
    """What is the same for every transport."""

    kind: ClassVar[str]

    def __init__(
        self,
        name: str,
        history: History,
        *,
        on: Mapping[str, Sequence[Act | None]] | None = None,
        tools: Sequence[str | Json] = TOOLS,
        session: bool = False,
    ) -> None:
        """A server that has not been connected to.

        Args:
            name: as the daemon calls it.
            history: where calls are noted.
            on: acts by method; the k-th for its k-th message, the last one for all later ones, None is normal.
            tools: names, or tools as they are listed.
            session: whether it gives sessions ids (HTTP).
        """
        self.name = name
        self.on: Script = {method: list(acts) for method, acts in (on or {}).items()}
        self.tools = list(tools)
        self.received: list[Json] = []
        self.effects: Counter[str] = Counter()
        self.live: dict[int, Conversation] = {}
        self.opened = 0
        self.session = session
        self.sessions: set[str] = set()
        self._history = history
        self._times: Counter[str] = Counter()
        self._nursery: trio.Nursery

    def attend(self, nursery: trio.Nursery) -> None:
        """Connections are served in this nursery."""
        self._nursery = nursery

    async def connect(self) -> trio.SocketStream:
        """A new connection to this server."""
        near, far = (trio.socket.from_stdlib_socket(end) for end in socket.socketpair())
        self._nursery.start_soon(self._attend, trio.SocketStream(far))
        return trio.SocketStream(near)

    def messages(self, method: str) -> list[Json]:
        """What was received of a method."""
        return [message for message in self.received if message.get("method") == method]

    async def announce(self) -> None:
        """Say on every connection that the tools have changed."""
        for conversation in list(self.live.values()):
            await conversation.write({"method": "notifications/tools/list_changed"})

    async def _attend(self, stream: trio.SocketStream) -> None:
        self.opened += 1
        number = self.opened
        try:
            async with stream:
                await self.converse(stream, number)
        except* CUTS:
            pass
        finally:
            self.live.pop(number, None)

    async def converse(self, stream: trio.SocketStream, number: int) -> None:
        """Serve one connection to its end."""
        raise NotImplementedError

    def take(self, message: Json) -> Act | None:
        """Note a message; what the script wants for it."""
        self.received.append(message)
        method = str(message.get("method"))
        self._times[method] += 1
        acts = self.on.get(method)
        act = acts[min(self._times[method], len(acts)) - 1] if acts else None
        if method == "tools/call" and not (act is not None and act.elsewhere):
            nonce = (message["params"].get("arguments") or {}).get("nonce", "")
            self._history.note(Took(server=self.name, nonce=nonce))
        return act

    async def serve(self, message: Json, conversation: Conversation) -> int | None:
        """Do with a message what is to be done. Returns the code to close with, if it is to be closed."""
        act = self.take(message)
        if act is not None:
            if act.raw:
                await conversation.write(act.raw.replace(b"%ID%", json.dumps(message.get("id")).encode()))
            if act.error is not None and "id" in message:
                await conversation.write({"id": message["id"], "error": act.error})
            if act.result is not None and "id" in message:
                await conversation.write({"id": message["id"], "result": act.result})
            if act.close is not None:
                return act.close
            if act.never or act.error is not None or act.result is not None:
                return None
        await self._answer(message, conversation)
        return None

    async def _answer(self, message: Json, conversation: Conversation) -> None:
        if "id" not in message:
            return
        if message.get("method") == "tools/call":
            result = await self._call(message["params"], conversation)
        else:
            result = self._result(message)
        if result is not None:
            await conversation.write({"id": message["id"], **result})

    def _result(self, message: Json) -> Json:
        match message.get("method"):
            case "initialize":
                return {
                    "result": {
                        "protocolVersion": message["params"]["protocolVersion"],
                        "capabilities": {"tools": {"listChanged": True}},
                        "serverInfo": {"name": "scripted", "version": "1"},
                    }
                }
            case "tools/list":
                return {"result": {"tools": [tool(t) if isinstance(t, str) else t for t in self.tools]}}
            case "ping":
                return {"result": {}}
            case _:
                return {"error": {"code": -32601, "message": "Method not found"}}

    async def _call(self, params: Json, conversation: Conversation) -> Json | None:
        arguments = params.get("arguments") or {}
        text = json.dumps(arguments)
        match params["name"]:
            case "sleep":
                return None
            case "effect":
                self.effects[arguments.get("nonce", "")] += 1
            case "bytes":
                text += "x" * arguments["count"]
            case "progress" if (token := params.get("_meta", {}).get("progressToken")) is not None:
                for step in (1, 2):
                    told = {"progressToken": token, "progress": step, "total": 2}
                    await conversation.write({"method": "notifications/progress", "params": told})
            case _:
                pass
        return {"result": {"content": [{"type": "text", "text": text}]}}


class UnixServer(Upstream):
    """Newline-delimited JSON on a stream."""

    kind = "unix"

    async def converse(self, stream: trio.SocketStream, number: int) -> None:
        """A line, a message."""

        async def send(message: Json | bytes) -> None:
            raw = message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n"
            await stream.send_all(raw)

        conversation = self.live[number] = Conversation(send)
        rest = b""
        async for chunk in stream:
            *lines, rest = (rest + bytes(chunk)).split(b"\n")
            for line in lines:
                if await self.serve(json.loads(line), conversation) is not None:
                    return


class WebSocketServer(Upstream):
    """A message, a text frame; raw bytes go out as a text frame, too."""

    kind = "ws"

    async def converse(self, stream: trio.SocketStream, number: int) -> None:
        """From the upgrade to the close."""
        async with background() as nursery:
            request = await wrap_server_stream(nursery, stream)
            act = self.take({"method": "upgrade"})
            if act is not None:
                await stream.send_all(act.raw)
                nursery.cancel_scope.cancel()
                return
            socket_ = await request.accept(subprotocol="mcp")
            await self._talk(socket_, number)

    async def _talk(self, socket_: WebSocketConnection, number: int) -> None:
        async def send(message: Json | bytes) -> None:
            text = message.decode("latin-1") if isinstance(message, bytes) else json.dumps(message)
            await socket_.send_message(text)

        conversation = self.live[number] = Conversation(send)
        while True:
            code = await self.serve(json.loads(await socket_.get_message()), conversation)
            if code is not None:
                with trio.move_on_after(1):
                    await socket_.aclose(code, "on cue")
                return


class HttpServer(Upstream):
    """Streamable HTTP, a connection for each request; answers are JSON, there is no stream of notifications."""

    kind = "http"

    async def converse(self, stream: trio.SocketStream, number: int) -> None:
        """One request."""
        # A connection that asks nothing is the client's look whether anybody is there.
        request = await _read_request(stream)
        if request is not None:
            await self.respond(stream, request)

    async def respond(self, stream: trio.SocketStream, request: Request) -> None:
        """Answer a request."""
        answered = False

        async def send(message: Json | bytes) -> None:
            nonlocal answered
            answered = True
            await stream.send_all(message if isinstance(message, bytes) else self._whole(message, request))

        if request.method != "POST":
            act = self.take({"method": request.method})
            await send(act.raw if act is not None else reply(b"", self._other(request)))
            return
        if not self._knows(request):
            self.take({"method": "unknown session"})
            await send(reply(b"no such session", "404 Not Found", "text/plain"))
            return
        code = await self.serve(request.body, Conversation(send))
        if answered or code is not None:
            return
        if "id" not in request.body:
            await send(reply(b"", "202 Accepted"))
        else:
            # Until the client hangs up.
            await stream.receive_some(1)

    def _knows(self, request: Request) -> bool:
        free = not self.session or request.body.get("method") in {"initialize", "server/discover"}
        return free or request.headers.get(SESSION) in self.sessions

    def _whole(self, message: Json, request: Request) -> bytes:
        if self.session and request.body.get("method") == "initialize":
            identity = f"session-{len(self.received)}"
            self.sessions.add(identity)
            return reply(message, mcp_session_id=identity)
        return reply(message)

    def _other(self, request: Request) -> str:
        return "200 OK" if request.method == "DELETE" else "405 Method Not Allowed"


class SseServer(Upstream):
    """The transport that streamable HTTP replaced: one stream down, POSTs up; raw bytes go down the stream."""

    kind = "sse"

    def __init__(self, name: str, history: History, **more: Any) -> None:
        super().__init__(name, history, **more)
        self._scopes: dict[int, trio.CancelScope] = {}

    async def converse(self, stream: trio.SocketStream, number: int) -> None:
        """One request: the stream, or a message."""
        request = await _read_request(stream)
        if request is None:
            return
        if request.method == "GET":
            await self._stream(stream, number)
        else:
            await self._message(stream, request)

    async def _stream(self, stream: trio.SocketStream, number: int) -> None:
        act = self.take({"method": "GET"})
        if act is not None and act.raw:
            await stream.send_all(act.raw)
        if act is not None and act.close is not None:
            return
        if act is None:
            head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
            await stream.send_all(head + b"event: endpoint\ndata: /messages\n\n")

        async def send(message: Json | bytes) -> None:
            framed = (
                message if isinstance(message, bytes) else b"data: " + json.dumps(message).encode() + b"\n\n"
            )
            await stream.send_all(framed)

        self.live[number] = Conversation(send)
        with trio.CancelScope() as self._scopes[number]:
            await stream.receive_some(1)

    async def _message(self, stream: trio.SocketStream, request: Request) -> None:
        act = self.take({"method": "POST"})
        if act is not None:
            await stream.send_all(act.raw)
            return
        await stream.send_all(reply(b"", "202 Accepted"))
        newest = max(self.live, default=None)
        if newest is not None and await self.serve(request.body, self.live[newest]) is not None:
            self._scopes[newest].cancel()


SERVERS: dict[str, type[Upstream]] = {
    server.kind: server for server in (UnixServer, WebSocketServer, HttpServer, SseServer)
}
