"""The door of WebSockets: who gets in, what the session is told first, and how it ends."""

from __future__ import annotations

import json
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, CloseConnection, Event, Ping, Pong, Request, TextMessage

from daemon.clients.client import Principal
from daemon.clients.doors.listening import Front
from daemon.clients.doors.websocket import LEAVING, MISSES, PING_SECONDS, serve_websocket
from daemon.config.tuning import Limits
from daemon.protocol import HELLO
from daemon.wire.outbox import Outbox
from daemon.wire.writing import STUCK_SECONDS
from tests.unit.wire.fakes import RecordingReceiver
from tests.unit.wire.linked import open_descriptors

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from trio.testing import MockClock

    from daemon.wire.outbox import Link

SECONDS = 30
WHO = Principal(owner="token ci: ", token="ci")
SAID: dict[str, object] = {"profile": "small", "session": "k"}

UPGRADE = (
    b"GET /ws HTTP/1.1\r\nHost: localhost\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)
OPENING = UPGRADE + b"Sec-WebSocket-Protocol: chat, mcp\r\n\r\n"


class Echo:
    """Answers each message with itself, and fails if told to."""

    def __init__(self, link: Link, _number: int, visitor: Principal) -> None:
        self.link = link
        self.visitor = visitor
        self.receiver = RecordingReceiver(self._answer)

    async def run(self) -> None:
        await self.link.run(self.receiver)

    def _answer(self) -> None:
        line = self.receiver.lines[-1]
        if line == b'"fail"':
            raise KeyError("a bug of ours")
        times = int(line) if line.isdigit() else 1
        for _ in range(times if HELLO.encode() not in line else 0):
            self.link.send((line if times == 1 else b'"%b"' % (b"x" * 100_000),))


@attrs.define(eq=False)
class Caller:
    """A client, its far end in the hands of the test."""

    far: trio.SocketStream
    front: Front[Echo]
    nursery: trio.Nursery
    over: trio.Event
    library: WSConnection = attrs.field(factory=lambda: WSConnection(ConnectionType.CLIENT))
    _events: list[Event] = attrs.field(factory=list)

    @property
    def session(self) -> Echo:
        (found,) = self.front.sessions.values()
        return found

    async def say(self, *events: Event) -> None:
        await self.far.send_all(b"".join(map(self.library.send, events)))

    async def hear(self) -> Event:
        while not self._events:
            data = await self.far.receive_some(64 * 1024)
            self.library.receive_data(data or None)
            self._events += self.library.events()
        return self._events.pop(0)

    async def hears_closing(self) -> CloseConnection:
        while not isinstance(event := await self.hear(), CloseConnection):
            pass
        return event


@asynccontextmanager
async def calling(head: bytes | None = None, **limits: int) -> AsyncIterator[Caller]:
    """A client at the door; it has shaken hands unless it says something else."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    outbox, front, over = Outbox(), Front(Echo), trio.Event()
    library = WSConnection(ConnectionType.CLIENT)
    opening = library.send(Request(host="localhost", target="/ws", subprotocols=["mcp"]))

    async def serve() -> None:
        asked = opening if head is None else head
        bounds = attrs.evolve(Limits(), **limits)
        await serve_websocket(ours, asked, WHO, SAID, front.serve, outbox=outbox, limits=bounds)
        over.set()

    far = trio.SocketStream(trio.socket.from_stdlib_socket(theirs))
    virtual = isinstance(trio.lowlevel.current_clock(), trio.testing.MockClock)
    try:
        with trio.fail_after(1000 if virtual else SECONDS):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(serve)
                caller = Caller(far, front, nursery, over, library)
                if head is None:
                    accepted = await caller.hear()
                    assert isinstance(accepted, AcceptConnection)
                    assert accepted.subprotocol == "mcp"
                yield caller
                nursery.cancel_scope.cancel()
    finally:
        await trio.aclose_forcefully(far)


async def test_the_session_is_told_what_the_path_says_before_anything_of_the_clients() -> None:
    async with calling() as caller:
        for text in ("[1]", "[2]"):
            await caller.say(TextMessage(data=text))
            assert await caller.hear() == TextMessage(data=text)
        hello, *rest = caller.session.receiver.lines
        assert json.loads(hello) == {"jsonrpc": "2.0", "method": HELLO, "params": SAID}
        assert rest == [b"[1]", b"[2]"]
        assert caller.session.visitor is WHO


@pytest.mark.parametrize(
    ("head", "status", "text"),
    [
        (UPGRADE + b"\r\n", 400, "offer the subprotocol mcp"),
        (UPGRADE + b"Sec-WebSocket-Protocol: chat\r\n\r\n", 400, "offer the subprotocol mcp"),
        (OPENING.replace(b"13", b"8"), 426, "Sec-WebSocket-Version"),
        (OPENING.replace(b"GET", b"POST"), 400, "must be GET"),
        (OPENING.replace(b"Upgrade: websocket\r\n", b""), 400, "Upgrade: websocket"),
        (OPENING.replace(b"keep-alive, Upgrade", b"close"), 400, "Connection: Upgrade"),
        (OPENING.replace(b"-Key", b"-Kee"), 400, "Sec-WebSocket-Key"),
        (OPENING.replace(b"Host: localhost", b"Host: xn--999999999"), 400, "not the opening"),
        (OPENING + b"\x81\x80mask", 400, "must wait for the answer"),
        (OPENING[:-2], 400, "must wait for the answer"),
    ],
)
async def test_what_is_no_handshake_of_ours_is_told_so(head: bytes, status: int, text: str) -> None:
    async with calling(head) as caller:
        await caller.over.wait()
        answer = b"".join([data async for data in caller.far]).decode()
        assert answer.startswith(f"HTTP/1.1 {status} ")
        assert text in answer
        fields, body = answer.split("\r\n\r\n")
        assert f"Content-Length: {len(body)}" in fields
        assert not caller.front.sessions


async def test_a_message_over_the_limit_closes_with_1009() -> None:
    async with calling(client_message_bytes=1000) as caller:
        await caller.say(TextMessage(data="1" * 1000 + "2"))
        assert (await caller.hears_closing()).code == 1009


async def test_a_fault_of_ours_closes_with_1011_and_tells_nothing_of_it() -> None:
    async with calling() as caller:
        await caller.say(TextMessage(data='"fail"'))
        closing = await caller.hears_closing()
        assert closing.code == 1011
        assert "bug" not in (closing.reason or "")


async def test_a_stop_closes_with_1001() -> None:
    async with calling() as caller:
        await caller.say(TextMessage(data="[1]"))
        await caller.hear()
        caller.nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            closing = await caller.hears_closing()
        assert (closing.code, closing.reason) == (1001, LEAVING.reason)


async def test_a_client_that_says_goodbye_is_answered_and_its_session_ends() -> None:
    async with calling() as caller:
        await caller.say(CloseConnection(code=1000, reason="done"))
        assert (await caller.hears_closing()).code == 1000
        await caller.far.aclose()
        await caller.over.wait()
        assert not caller.front.sessions


async def test_a_client_that_is_half_closed_is_gone() -> None:
    async with calling() as caller:
        await caller.far.send_eof()
        await caller.over.wait()
        assert not caller.front.sessions


async def test_a_client_that_answers_pings_stays(autojump_clock: MockClock) -> None:
    async with calling() as caller:
        for _ in range(2 * MISSES):
            began = trio.current_time()
            assert await caller.hear() == Ping(payload=b"")
            assert trio.current_time() - began <= PING_SECONDS
            await caller.say(Pong(payload=b""))
        assert caller.front.sessions


async def test_a_client_that_answers_no_ping_is_let_go(autojump_clock: MockClock) -> None:
    async with calling() as caller:
        began = trio.current_time()
        closing = await caller.hears_closing()
        assert trio.current_time() - began == pytest.approx(MISSES * PING_SECONDS, abs=1)
        assert (closing.code, closing.reason) == (1008, "pings are not answered")
        await caller.far.aclose()
        await caller.over.wait()


async def test_a_client_that_reads_nothing_is_cut_off_and_its_session_ends(autojump_clock: MockClock) -> None:
    async with calling(client_queue_bytes=1_000_000) as caller:
        await caller.say(TextMessage(data="30"))
        began = trio.current_time()
        await caller.over.wait()
        assert STUCK_SECONDS <= trio.current_time() - began <= STUCK_SECONDS + 2
        assert not caller.front.sessions


async def test_nothing_is_left_open() -> None:
    async with calling():
        pass
    before = open_descriptors()
    for head in (None, UPGRADE + b"\r\n"):
        async with calling(head) as caller:
            await caller.far.aclose()
            await caller.over.wait()
    assert open_descriptors() == before


async def test_a_client_that_has_gone_before_the_answer_is_not_served() -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.close()
    front: Any = Front(Echo)
    with trio.fail_after(SECONDS):
        await serve_websocket(ours, OPENING, WHO, {}, front.serve, outbox=Outbox(), limits=Limits())
    assert ours.fileno() == -1
