"""The door of WebSockets: who gets in, what the session is told first, and how it ends."""

import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, CloseConnection, Ping, Pong, Request, TextMessage

from daemon.clients.client import Principal
from daemon.clients.doors.http.door import key_of_opening
from daemon.clients.doors.http.reading import Refusal, RequestReader
from daemon.clients.doors.listening import Front
from daemon.clients.doors.websocket import LEAVING, MISSES, PING_SECONDS, serve_websocket
from daemon.config.tuning import Limits
from daemon.protocol import HELLO
from daemon.wire.link import STUCK_SECONDS
from daemon.wire.outbox import Link, Outbox
from tests.unit.cases import cases
from tests.unit.wire.fakes import RecordingReceiver
from tests.unit.wire.far_end import FarEnd
from tests.waiting import beside

SECONDS = 30
WHO = Principal(owner="token ci: ", token="ci")
SAID: dict[str, object] = {"profile": "small", "session": "k"}

OPENING = (
    b"GET /ws HTTP/1.1\r\nHost: localhost\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    b"Sec-WebSocket-Protocol: chat, mcp\r\n\r\n"
)


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


@attrs.define(eq=False, kw_only=True)
class Caller(FarEnd):
    """A client at the door."""

    front: Front[Echo]
    nursery: trio.Nursery
    over: trio.Event

    @property
    def session(self) -> Echo:
        (found,) = self.front.sessions.values()
        return found

    async def hears_closing(self) -> CloseConnection:
        while not isinstance(event := await self.hear(), CloseConnection):
            pass
        return event


@asynccontextmanager
async def calling(**limits: int) -> AsyncIterator[Caller]:
    """A client at the door, which has shaken hands."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    outbox, front, over = Outbox(), Front(Echo), trio.Event()
    library = WSConnection(ConnectionType.CLIENT)
    opening = library.send(Request(host="localhost", target="/ws", subprotocols=["mcp"]))
    key = opening.partition(b"Sec-WebSocket-Key: ")[2].partition(b"\r\n")[0].decode()

    async def serve() -> None:
        bounds = attrs.evolve(Limits(), **limits)
        await serve_websocket(ours, key, WHO, SAID, front.serve, outbox=outbox, limits=bounds)
        over.set()

    far = trio.SocketStream(trio.socket.from_stdlib_socket(theirs))
    virtual = isinstance(trio.lowlevel.current_clock(), trio.testing.MockClock)
    try:
        with trio.fail_after(1000 if virtual else SECONDS):
            async with beside(serve) as nursery:
                caller = Caller(far, library, front=front, nursery=nursery, over=over)
                accepted = await caller.hear()
                assert isinstance(accepted, AcceptConnection)
                assert accepted.subprotocol == "mcp"
                yield caller
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


@cases("changed", "status", "text")
def test_what_is_no_handshake_of_ours_is_told_so(changed: dict[str, str], status: int, text: str) -> None:
    reader = RequestReader()
    reader.feed(OPENING)
    head = reader.head("127.0.0.1")
    assert head is not None
    assert key_of_opening(head) == "dGhlIHNhbXBsZSBub25jZQ=="
    method = changed.get("method", "GET")
    with pytest.raises(Refusal, match=text) as refused:
        key_of_opening(attrs.evolve(head, method=method, headers={**head.headers, **changed}))
    assert refused.value.status == status


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


async def test_a_client_that_has_gone_before_the_answer_is_not_served() -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.close()
    front: Any = Front(Echo)
    with trio.fail_after(SECONDS):
        await serve_websocket(
            ours, "dGhlIHNhbXBsZSBub25jZQ==", WHO, {}, front.serve, outbox=Outbox(), limits=Limits()
        )
    assert ours.fileno() == -1
    assert front.count <= 1
    assert not front.sessions
