"""Arguments and results pass through each transport as the bytes that they are, whatever JSON allows.

Each server here answers a call with what it was sent, cut out of the message unopened, and with a payload of
its own that no decoder would write again as it stands.
"""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import msgspec
import pytest
import trio
from msgspec import Raw
from trio_websocket import ConnectionClosed, WebSocketConnection, WebSocketRequest

from daemon.config.config_model import Server, TransportType
from daemon.config.tuning import ServerLimits
from daemon.model import Era
from daemon.processes.children import Children
from daemon.upstreams.call_admission import Admission, Apart
from daemon.upstreams.transports.server_connection import OpenContext
from daemon.wire.envelope import Buffer
from daemon.wire.outbox import Outbox
from daemon.wire.requests import Exchange, PeerRequest
from tests.fakes_upstream import tool_call
from tests.process.upstreams.transports import test_sse
from tests.process.upstreams.transports.answering import PAYLOAD, answer_to, answered
from tests.process.upstreams.transports.posts import OF_LIBRARIES
from tests.unit.upstreams.transports import test_unix
from tests.unit.upstreams.transports.listening import Listener
from tests.unit.upstreams.transports.serving import (
    HANDSHAKE_VERSION,
    Caller,
    Fixture,
    Request,
    _read_request,
    connected,
    context_for,
    reply,
    scripted,
    serve,
)
from tests.waiting import background

pytestmark = OF_LIBRARIES

CHILD = """
import sys
from tests.process.upstreams.transports.answering import answered
for line in sys.stdin.buffer:
    sys.stdout.buffer.write(answered(line) + b"\\n")
    sys.stdout.buffer.flush()
"""


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
    async with background() as nursery:
        if name == "stdio":
            children = Children()
            nursery.start_soon(children.reap_orphans)
            server = Server(name="s", command=sys.executable, args=("-c", CHILD))
            yield OpenContext(server=server, events=Listener(), outbox=Outbox(), children=children)
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


class Keeping(Caller):
    """A caller that keeps the bytes of its answer."""

    raw = b""

    def answered(self, result: Buffer) -> None:
        self.raw = bytes(result)
        self.ended.set()


@pytest.mark.parametrize(
    ("name", "sent", "received"),
    [
        *((name, PAYLOAD, PAYLOAD) for name in ("stdio", "unix", "ws", "sse", "http", "http with events")),
        # A message of many lines becomes one: a client that reads lines would take half an answer.
        *((name, b'{"a":\r\n[\n1]}', b'{"a":  [ 1]}') for name in ("ws", "http")),
    ],
)
async def test_arguments_and_results_pass_through_byte_for_byte(
    name: str, sent: bytes, received: bytes, tmp_path: Path
) -> None:
    async with served(name, tmp_path) as context, connected(context) as client:
        client.connection.adopt(Era.HANDSHAKE, HANDSHAKE_VERSION)
        caller = Keeping()
        client.connection.call(tool_call("t", sent), caller)
        client.outbox.flush()
        await caller.ended.wait()
        assert caller.raw == answer_to(received)


# --- thirty clients and a server that asks them things, over each real transport -----------------------------


CLIENTS = 30
CALLS = 2
"""Calls of each client: 120 questions, each of which takes the SDK 15 ms."""
QUESTIONS = 2
"""Questions on account of each call, one after the other."""


class AskingFixture(Fixture):
    """The SDK's server, whose tool asks about its word, and says how often it was told another."""

    async def _tool_work(self, context: Any, arguments: Any) -> Any:
        told: list[Any] = []
        params = {"message": arguments["word"], "requestedSchema": {"type": "object", "properties": {}}}
        for _ in range(QUESTIONS):
            try:
                found = await context.session._request_outbound.send_raw_request("elicitation/create", params)
                told.append(found["content"]["word"])
            except Exception:  # noqa: BLE001 - any refusal will do
                told.append(None)
        return {"content": [], "told": told}


@attrs.define
class Routing(Listener):
    """What the actor does with a server's requests."""

    admission: Any = None

    def on_server_request(self, question: PeerRequest, cause: Exchange | None) -> None:
        question.server = "s"
        assert self.admission.attribution.take(question, cause)


@attrs.define(eq=False)
class PersonsCall(Caller):
    """A call of one of thirty clients, which answers at once what it is asked."""

    person: Any = None
    asked_for: list[str] = attrs.field(factory=list)

    @property
    def asker(self) -> object:
        return self.person

    def asked(self, question: PeerRequest) -> None:
        params: Raw | None = question.params
        assert params is not None
        word = msgspec.json.decode(params)["message"]
        self.asked_for.append(word)
        question.answer(msgspec.json.encode({"action": "accept", "content": {"word": word}}))


@pytest.mark.parametrize("kind", ["http", "sse"])
async def test_over_a_real_transport_nobody_is_asked_for_another(kind: str) -> None:
    fixture, events, apart, told = AskingFixture(), Routing(), Apart("s"), list[Any]()
    app = fixture.sdk.streamable_http_app() if kind == "http" else test_sse.app(fixture, refusing=[])
    async with background() as nursery:
        running = await serve(nursery, app)
        path = "mcp" if kind == "http" else "sse"
        context = context_for(TransportType(kind), f"http://127.0.0.1:{running.port}/{path}")
        async with connected(attrs.evolve(context, events=events)) as client:
            await client.greet(Era.HANDSHAKE)
            events.admission = Admission("s", client.connection, ServerLimits(queue=CLIENTS), apart=apart)

            async def live(number: int) -> None:
                for call in range(CALLS):
                    word = f"word-{number}-{call}"
                    person = PersonsCall(person=number)
                    wanted = tool_call("work", msgspec.json.encode({"word": word}))
                    events.admission.admit(wanted, person, number)
                    client.outbox.flush()
                    await person.ended.wait()
                    assert (person.error, person.loss) == (None, None)
                    assert set(person.asked_for) <= {word}
                    assert set(person.result["told"]) <= {word, None}
                    told.extend(person.result["told"])

            async with trio.open_nursery() as people:
                for number in range(CLIENTS):
                    people.start_soon(live, number)
        await running.stop()
    assert len(told) == CLIENTS * CALLS * QUESTIONS
    refused = told.count(None)
    if kind == "http":
        # Each question comes in the answer to its call: there is no doubt, and nobody waits for another.
        assert (refused, apart.is_on) == (0, False)
    else:
        # From the first doubt on, one client at a time is served; only what was under way then is refused.
        assert apart.is_on
        assert 0 < refused <= CLIENTS * QUESTIONS
