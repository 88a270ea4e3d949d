"""Thirty clients and a server that asks them things, over each real transport: nobody is asked for another.

`tests.unit.upstreams.asking` plays what can go wrong in between; here the bytes travel as they do in life. The
SDK's own server is behind HTTP and SSE, one that is written by hand behind a unix socket.
"""

import gc
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import msgspec
import pytest
import trio
from msgspec import Raw

from daemon.config.config_model import TransportType
from daemon.config.tuning import ServerLimits
from daemon.model import Era
from daemon.upstreams.call_admission import Admission, Apart
from daemon.wire.requests import Exchange, PeerRequest
from tests.fakes_upstream import tool_call
from tests.process.upstreams.transports import test_sse
from tests.unit.upstreams.transports import test_unix
from tests.unit.upstreams.transports.serving import Caller, Events, Fixture, connected, context_for, serve

Ask = Callable[[dict[str, Any]], Awaitable[dict[str, Any] | None]]

# The SDK leaves the generators of an event stream behind when it has its answer; collected, they say so.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Async generator 'http:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:Unclosed <MemoryObject:ResourceWarning"),
]

CLIENTS = 30
CALLS = {"unix": 40, "http": 2, "sse": 2}
"""Calls of each client: 2,400 questions by hand, 120 by the SDK, which takes 15 ms for each."""
QUESTIONS = 2
"""Questions on account of each call, one after the other."""


@pytest.fixture(autouse=True)
def _collect_here() -> Iterator[None]:
    """Or another module's test would be blamed."""
    yield
    gc.collect()


async def work(arguments: dict[str, Any], ask: Ask) -> dict[str, Any]:
    """What the servers do for a call: ask about its word, and say how often they were told another."""
    told: list[Any] = []
    for _ in range(QUESTIONS):
        params = {"message": arguments["word"], "requestedSchema": {"type": "object", "properties": {}}}
        answer = await ask(params)
        told.append(None if answer is None else answer["content"]["word"])
    return {"content": [], "told": told}


class AskingFixture(Fixture):
    """The SDK's server, whose tool asks."""

    async def _tool_work(self, context: Any, arguments: Any) -> Any:
        async def ask(params: dict[str, Any]) -> dict[str, Any] | None:
            try:
                found: dict[str, Any] = await context.session._request_outbound.send_raw_request(
                    "elicitation/create", params
                )
            except Exception:  # noqa: BLE001 - any refusal will do
                return None
            return found

        return await work(arguments, ask)


class ByHand:
    """A server over lines."""

    def __init__(self, send: Callable[[bytes], Awaitable[None]], nursery: trio.Nursery) -> None:
        self._send = send
        self._nursery = nursery
        self._answers: dict[str, tuple[trio.Event, list[Any]]] = {}

    async def say(self, **message: Any) -> None:
        await self._send(json.dumps({"jsonrpc": "2.0", **message}).encode())

    def take(self, line: bytes | str) -> None:
        message = json.loads(line)
        if message.get("method") == "tools/call":
            self._nursery.start_soon(self._work, message)
        elif "method" not in message:
            answered, found = self._answers.pop(message["id"])
            found.append(message.get("result"))
            answered.set()

    async def _work(self, call: Any) -> None:
        async def ask(params: dict[str, Any]) -> dict[str, Any] | None:
            ask_id = f"ask-{call['id']}-{len(self._answers)}-{random.getrandbits(60)}"
            answered, found = self._answers[ask_id] = trio.Event(), []
            await self.say(id=ask_id, method="elicitation/create", params=params)
            await answered.wait()
            result: dict[str, Any] | None = found[0]
            return result

        await self.say(id=call["id"], result=await work(call["params"]["arguments"], ask))


async def over_lines(stream: trio.SocketStream) -> None:
    """A server on a unix socket."""
    lock, rest = trio.Lock(), b""

    async def send(message: bytes) -> None:
        async with lock:
            await stream.send_all(message + b"\n")

    async with trio.open_nursery() as nursery:
        server = ByHand(send, nursery)
        async for chunk in stream:
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                server.take(line)


@attrs.define
class Routing(Events):
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


@asynccontextmanager
async def serving(kind: str, path: Path) -> AsyncIterator[tuple[TransportType, str]]:
    """A server that asks, over a transport: its type, and where it is."""
    async with trio.open_nursery() as nursery:
        if kind == "unix":
            await test_unix.listening(nursery, path / "s", over_lines)
            yield TransportType.UNIX, str(path / "s")
        else:
            fixture = AskingFixture()
            app = fixture.sdk.streamable_http_app() if kind == "http" else test_sse.app(fixture, refusing=[])
            running = await serve(nursery, app)
            place = f"http://127.0.0.1:{running.port}"
            yield (
                (TransportType.HTTP, f"{place}/mcp") if kind == "http" else (TransportType.SSE, f"{place}/sse")
            )
            await running.stop()
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("kind", CALLS)
async def test_over_a_real_transport_nobody_is_asked_for_another(kind: str, sockets: Path) -> None:
    async with serving(kind, sockets) as (transport, place):
        context = context_for(transport, place)
        events = Routing()
        async with connected(attrs.evolve(context, events=events)) as client:
            if kind in {"http", "sse"}:
                await client.greet(Era.HANDSHAKE)
            else:
                client.connection.adopt(Era.HANDSHAKE, "2025-11-25")
            apart = Apart("s")
            events.admission = Admission("s", client.connection, ServerLimits(queue=CLIENTS), apart=apart)
            told: list[Any] = []

            async def live(number: int) -> None:
                for call in range(CALLS[kind]):
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

    assert len(told) == CLIENTS * CALLS[kind] * QUESTIONS
    refused = told.count(None)
    if kind == "http":
        # Each question comes in the answer to its call: there is no doubt, and nobody waits for another.
        assert (refused, apart.is_on) == (0, False)
    else:
        # From the first doubt on, one client at a time is served; only what was under way then is refused.
        assert apart.is_on
        assert 0 < refused <= CLIENTS * QUESTIONS
