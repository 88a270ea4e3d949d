"""Arguments and results pass through each transport as the bytes that they are, whatever JSON allows.

Each server here answers a call with what it was sent, cut out of the message unopened, and with a payload of
its own that no decoder would write again as it stands.
"""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import msgspec
import pytest
import trio
from msgspec import Raw, Struct
from trio_websocket import ConnectionClosed, WebSocketConnection, WebSocketRequest

from daemon.config.config_model import Server, TransportType
from daemon.model import Era
from daemon.processes.children import Children
from daemon.upstreams.transports.server_connection import OpenContext
from daemon.wire.envelope import Buffer
from daemon.wire.outbox import Outbox
from tests.fakes_upstream import tool_call
from tests.process.upstreams.transports import test_sse
from tests.unit.upstreams.transports import test_unix
from tests.unit.upstreams.transports.serving import (
    HANDSHAKE_VERSION,
    Caller,
    Events,
    Request,
    _read_request,
    connected,
    context_for,
    reply,
    scripted,
)

PAYLOAD = (
    '{ "big":1e400 ,\t"long":12345678901234567890123, "twice":1,"twice" :2.50, "minus":-0,'
    r' "escaped":"\u00fc\/\u0041\ud83d\ude00", "plain":"ü/A😀", "":[ ] ,"deep":{"result":{"id":1}}}'
).encode()


class Params(Struct):
    arguments: Raw


class Call(Struct):
    id: int
    params: Params


def answered(line: bytes) -> bytes:
    """The answer to a call: its arguments as they came, and the payload."""
    call = msgspec.json.decode(line, type=Call)
    return b'{"jsonrpc": "2.0" ,"result":%b, "id":%d}' % (answer_to(bytes(call.params.arguments)), call.id)


def answer_to(arguments: bytes) -> bytes:
    return b'{"given" : %b, "own":%b}' % (arguments, PAYLOAD)


CHILD = """
import sys
from tests.process.upstreams.transports.test_bytes import answered
for line in sys.stdin.buffer:
    sys.stdout.buffer.write(answered(line) + b"\\n")
    sys.stdout.buffer.flush()
"""


class StdioEvents(Events):
    """A child is expected."""

    def on_child(self, pid: int, mark: int) -> None:
        return


async def lines(stream: trio.SocketStream) -> None:
    rest = b""
    async for chunk in stream:
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            await stream.send_all(answered(line) + b"\n")


async def messages(request: WebSocketRequest) -> None:
    socket: WebSocketConnection
    async with await request.accept(subprotocol="mcp") as socket:
        try:
            while True:
                message = await socket.get_message()
                assert isinstance(message, str)
                await socket.send_message(answered(message.encode()).decode())
        except ConnectionClosed:
            return


async def as_json(request: Request) -> bytes:
    return reply(answered(request.raw))


async def as_event(request: Request) -> bytes:
    return reply(b"data: " + answered(request.raw) + b"\n\n", content_type="text/event-stream")


async def event_stream(nursery: trio.Nursery) -> str:
    """A server of the older transport; its stream stays open."""
    posted, taken = trio.open_memory_channel[bytes](1)

    async def converse(stream: trio.SocketStream) -> None:
        request = await _read_request(stream)
        assert request is not None
        if request.method == "POST":
            posted.send_nowait(request.raw)
            await stream.send_all(reply(b"", "202 Accepted"))
            return
        start = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\nevent: endpoint\ndata: /post\n\n"
        await stream.send_all(start)
        async for line in taken:
            await stream.send_all(b"data: " + answered(line) + b"\n\n")

    listeners: list[trio.SocketListener] = await nursery.start(
        partial(trio.serve_tcp, converse, 0, host="127.0.0.1")
    )
    return f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}/sse"


@asynccontextmanager
async def served(name: str, path: Path) -> AsyncIterator[OpenContext]:
    """A server behind this transport, and what connects to it."""
    async with trio.open_nursery() as nursery:
        if name == "stdio":
            children = Children()
            nursery.start_soon(children.reap_orphans)
            server = Server(name="s", command=sys.executable, args=("-c", CHILD))
            yield OpenContext(server=server, events=StdioEvents(), outbox=Outbox(), children=children)
        elif name == "unix":
            await test_unix.listening(nursery, path / "s", lines)
            yield context_for(TransportType.UNIX, str(path / "s"))
        elif name == "ws":
            port = await test_sse.listening(nursery, messages)
            yield context_for(TransportType.WS, f"ws://127.0.0.1:{port}/")
        elif name == "sse":
            yield context_for(TransportType.SSE, await event_stream(nursery))
        else:
            port = await scripted(nursery, as_json if name == "http" else as_event)
            yield context_for(TransportType.HTTP, f"http://127.0.0.1:{port}/mcp")
        nursery.cancel_scope.cancel()


class Keeping(Caller):
    """A caller that keeps the bytes of its answer."""

    raw = b""

    def answered(self, result: Buffer) -> None:
        self.raw = bytes(result)
        self.ended.set()


@pytest.mark.parametrize("name", ["stdio", "unix", "ws", "sse", "http", "http with events"])
async def test_arguments_and_results_pass_through_byte_for_byte(name: str, tmp_path: Path) -> None:
    async with served(name, tmp_path) as context, connected(context) as client:
        client.connection.adopt(Era.HANDSHAKE, HANDSHAKE_VERSION)
        caller = Keeping()
        client.connection.call(tool_call("t", PAYLOAD), caller)
        client.outbox.flush()
        await caller.ended.wait()
        assert caller.raw == answer_to(PAYLOAD)


@pytest.mark.parametrize("name", ["ws", "http"])
async def test_a_message_of_many_lines_becomes_one(name: str, tmp_path: Path) -> None:
    """Or the client, which is told by lines, would be handed half an answer."""
    async with served(name, tmp_path) as context, connected(context) as client:
        client.connection.adopt(Era.HANDSHAKE, HANDSHAKE_VERSION)
        caller = Keeping()
        client.connection.call(tool_call("t", b'{"a":\r\n[\n1]}'), caller)
        client.outbox.flush()
        await caller.ended.wait()
        assert caller.raw == answer_to(b'{"a":  [ 1]}')
