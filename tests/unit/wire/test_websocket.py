"""A link over a WebSocket: the link over a descriptor, a handshake later; its far end is a library's."""

import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from unittest.mock import Mock

import attrs
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked
from trio_websocket import CloseReason
from wsproto import ConnectionType, WSConnection
from wsproto.connection import Connection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Event,
    Ping,
    Pong,
    Request,
    TextMessage,
)

from daemon.causes import Cause
from daemon.errors import ConnectionLost, ProtocolFault
from daemon.wire import websocket_link
from daemon.wire.link import STUCK_SECONDS
from daemon.wire.outbox import OUT, Outbox
from daemon.wire.websocket_link import GOODBYE_SECONDS, PacedConnection, WebSocketLink, WebSocketStream
from tests.unit.cases import cases
from tests.unit.wire.fakes import RecordingReceiver
from tests.unit.wire.far_end import FarEnd
from tests.unit.wire.linked import MIB, open_descriptors, wait_until
from tests.waiting import background, beside, in_time

SECONDS = 30
GOING = CloseReason(1001, "we stop")


@attrs.define(eq=False, kw_only=True)
class Pair(FarEnd):
    """A link under test, and the far end of it."""

    link: WebSocketLink
    stream: WebSocketStream
    outbox: Outbox
    receiver: RecordingReceiver
    ended: BaseException | None = None
    over: trio.Event = attrs.field(factory=trio.Event)

    async def run(self, closing: CloseReason = GOING) -> None:
        """As an owner does: run it, say goodbye, close it."""
        try:
            await self.link.run(self.receiver)
        except (ConnectionLost, ProtocolFault, ZeroDivisionError) as error:
            self.ended = error
        finally:
            await self.link.leave(closing)
            self.stream.close()
            self.over.set()

    def send(self, *frames: bytes) -> None:
        for frame in frames:
            self.link.send((frame,))
        self.outbox.flush()

    async def hang_up(self) -> None:
        """Hang up; the link ends."""
        await self.far.aclose()
        await self.over.wait()

    async def ends_with(self, cause: Cause) -> None:
        """Hang up; the link ends for this cause."""
        await self.hang_up()
        assert isinstance(self.ended, ConnectionLost)
        assert self.ended.reason.cause is cause

    async def hear_close(self, code: int) -> str:
        """The far end is told goodbye with this code. Returns the reason."""
        closing = await self.hear()
        assert isinstance(closing, CloseConnection)
        assert closing.code == code
        return closing.reason or ""

    async def hear_text(self) -> str:
        """The next message, whole."""
        text = ""
        while True:
            event = await self.hear()
            assert isinstance(event, TextMessage), event
            text += event.data
            if event.message_finished:
                return text


@asynccontextmanager
async def pair(
    then: Callable[[], None] = lambda: None,
    *,
    is_client: bool = False,
    max_message: int = MIB,
    max_queue: int = 64 * MIB,
    pause_at: int | None = None,
    early: bytes = b"",
    runs: bool = True,
) -> AsyncIterator[Pair]:
    """The far end has shaken hands; as a server it has sent `early` with its answer."""
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    ours.setblocking(False)
    outbox = Outbox()
    stream = WebSocketStream(
        ours.detach(), outbox=outbox, max_queue=max_queue, pause_at=pause_at, is_guest=not is_client
    )
    library = WSConnection(ConnectionType.SERVER if is_client else ConnectionType.CLIENT)
    far = trio.SocketStream(trio.socket.from_stdlib_socket(theirs))
    near = PacedConnection(stream, max_message, host="h" if is_client else "", target="/")
    receiver = RecordingReceiver(then)
    both = Pair(far, library, link=WebSocketLink(near), stream=stream, outbox=outbox, receiver=receiver)
    virtual = isinstance(trio.lowlevel.current_clock(), trio.testing.MockClock)
    try:
        with trio.fail_after(10 * SECONDS if virtual else SECONDS):
            async with background() as nursery:
                if is_client:
                    nursery.start_soon(accept, far, library, early)
                    await near.shake_hands(nursery)
                else:
                    await far.send_all(library.send(Request(host="h", target="/", subprotocols=["mcp"])))
                    await near.shake_hands(nursery)
                    library.receive_data(await far.receive_some())
                    assert [type(event) for event in library.events()] == [AcceptConnection]
                if runs:
                    nursery.start_soon(both.run)
                    await wait_all_tasks_blocked()
                yield both
    finally:
        stream.close()
        await trio.aclose_forcefully(far)


async def accept(far: trio.SocketStream, library: WSConnection, early: bytes) -> None:
    library.receive_data(await far.receive_some())
    assert [type(event) for event in library.events()] == [Request]
    await far.send_all(library.send(AcceptConnection(subprotocol="mcp")) + early)


@pytest.mark.parametrize("is_client", [False, True])
async def test_messages_go_both_ways(is_client: bool) -> None:
    async with pair(is_client=is_client) as both:
        await both.say(TextMessage(data='{"a":\n"ü"}'), TextMessage(data="[2]"))
        await wait_until(lambda: len(both.receiver.lines) == 2)
        assert both.receiver.lines == ['{"a": "ü"}'.encode(), b"[2]"]
        assert both.stream.was_heard
        both.link.send((b'{"b":', memoryview(b"1"), b"}"))
        both.send(b"[3]")
        assert [await both.hear_text(), await both.hear_text()] == ['{"b":1}', "[3]"]


@pytest.mark.parametrize("is_client", [False, True])
async def test_a_long_message_arrives_whole_both_ways(is_client: bool) -> None:
    long = "x" * (MIB - 1) + "y"
    async with pair(is_client=is_client) as both:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(both.say, TextMessage(data=long))
            await wait_until(lambda: bool(both.receiver.lines))
        assert both.receiver.lines == [long.encode()]
        both.send(long.encode())
        assert await both.hear_text() == long


async def test_more_messages_than_a_read_takes_all_come() -> None:
    async with pair() as both:
        said = [f'["{number}{"x" * 100}"]' for number in range(500)]
        await both.say(*map(TextMessage, said))
        await wait_until(lambda: len(both.receiver.lines) == len(said))
        assert both.receiver.lines == [each.encode() for each in said]


async def test_messages_before_a_close_frame_are_handed_over_and_it_is_answered() -> None:
    async with pair() as both:
        said = [TextMessage(data="[]")] * 256
        await both.say(*said, CloseConnection(code=4001, reason="done"))
        assert await both.hear() == CloseConnection(code=4001, reason="done")
        await both.hang_up()
        assert len(both.receiver.lines) == len(said)
        assert str(both.ended) == "the peer closed the WebSocket with code 4001 (PRIVATE_RESERVED): done"


async def test_a_ping_is_answered_and_ours_is_too() -> None:
    async with pair() as both:
        await both.say(Ping(payload=b"a"), Ping(payload=b"b"))
        assert [await both.hear(), await both.hear()] == [Pong(payload=b"a"), Pong(payload=b"b")]
        both.link.ping()
        assert await both.hear() == Ping(payload=b"")
        both.stream.was_heard = False
        await both.say(Pong(payload=b""))
        await wait_until(lambda: both.stream.was_heard)


@pytest.mark.parametrize(
    ("said", "code", "cause"),
    [
        (BytesMessage(data=b"{}"), 1003, Cause.CONNECTION_LOST),
        (TextMessage(data="x" * 101), 1009, Cause.MESSAGE_TOO_LARGE),
    ],
)
async def test_a_fault_is_told_after_the_answers_before_it(said: Event, code: int, cause: Cause) -> None:
    async with pair(lambda: both.link.send((b"[answer]",)), max_message=100) as both:
        await both.say(TextMessage(data="[]"), said)
        assert await both.hear_text() == "[answer]"
        await both.hear_close(code)
        await both.ends_with(cause)


async def test_a_peer_that_refuses_us_is_known_by_its_code() -> None:
    async with pair(is_client=True) as both:
        await both.say(CloseConnection(code=1008, reason="not you"))
        assert await both.hear() == CloseConnection(code=1008, reason="not you")
        await both.ends_with(Cause.WEBSOCKET_REFUSED)


@pytest.mark.parametrize(
    ("error", "code"), [(ProtocolFault("100 malformed messages"), 1008), (ZeroDivisionError("a bug"), 1011)]
)
async def test_what_the_owner_raises_closes_with_a_code(error: Exception, code: int) -> None:
    def then() -> None:
        raise error

    async with pair(then) as both:
        await both.say(TextMessage(data="[]"), TextMessage(data="[2]"))
        assert "bug" not in await both.hear_close(code)
        await both.hang_up()
        assert both.ended is error
        assert both.receiver.lines == [b"[]"], "nothing is handed over after a fault"


async def test_who_hangs_up_without_a_word_is_told_nothing() -> None:
    async with pair() as both:
        await both.far.send_eof()
        await both.over.wait()
        assert str(both.ended) == "the peer closed the connection"
        assert await both.far.receive_some() == b""


async def test_a_stop_is_told_to_the_peer() -> None:
    async with pair(runs=False) as both:
        async with beside(both.run):
            await wait_all_tasks_blocked()
            both.link.send((b"[last]",))
        assert await both.hear_text() == "[last]"
        assert await both.hear() == CloseConnection(code=1001, reason="we stop")
        assert await both.far.receive_some() == b""


async def test_what_was_read_with_the_handshake_comes_first() -> None:
    server = Connection(ConnectionType.SERVER)
    early = b"".join(server.send(TextMessage(data=f"[{number}]")) for number in range(20))
    rest = server.send(TextMessage(data="[20]"))
    async with pair(is_client=True, early=early + rest[:3]) as both:
        await both.far.send_all(rest[3:])
        await wait_until(lambda: len(both.receiver.lines) == 21)
        assert both.receiver.lines == [b"[%d]" % number for number in range(21)]


@cases("said", "code", "why", raw={"said"})
async def test_what_breaks_the_protocol_is_told_so(said: bytes, code: int, why: str) -> None:
    async with pair() as both:
        await both.far.send_all(said)
        assert why in await both.hear_close(code)
        await both.hang_up()
        assert "broke the WebSocket protocol" in str(both.ended)


async def test_fragments_without_an_end_are_not_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket_link, "MAX_PIECES", 1000)
    async with pair() as both:
        piece = TextMessage(data="", message_finished=False)
        await both.say(*[piece] * 1000)
        await wait_all_tasks_blocked()
        assert not both.over.is_set()
        await both.say(piece)
        await both.hear_close(1009)
        await both.ends_with(Cause.MESSAGE_TOO_LARGE)


@pytest.mark.parametrize(
    "event", [Pong(payload=b""), Ping(payload=b""), TextMessage("", message_finished=False)]
)
async def test_frames_that_are_no_messages_have_turns(event: Event, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket_link, "GUESTS_SECONDS", 0.0)
    turns = 0

    def on_ready(_ready: int) -> None:
        nonlocal turns
        turns += 1

    other, far = socket.socketpair()
    with other, far:
        async with pair() as both:
            guests = both.outbox.poll.guests
            guests.watch(other.fileno(), OUT, on_ready)
            await both.say(*[event] * 100, TextMessage("[]"))
            await wait_until(lambda: bool(both.receiver.lines))
            guests.watch(other.fileno(), 0, on_ready)
    assert turns >= 100


@pytest.mark.parametrize("is_client", [True, False])
async def test_a_turn_of_a_guest_ends_behind_other_guests_and_one_of_a_server_does_not(
    *, is_client: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GUESTS_SECONDS", "TURN_SECONDS"):
        monkeypatch.setattr(websocket_link, name, 0.0)
    async with pair(is_client=is_client) as both:
        guests = both.outbox.poll.guests
        soon = Mock(wraps=guests.soon)
        monkeypatch.setattr(guests, "soon", soon)
        await both.say(*[Pong(payload=b"")] * 100, TextMessage("[]"))
        await wait_until(lambda: bool(both.receiver.lines))
    assert soon.call_count == (0 if is_client else 101)


async def test_a_peer_that_takes_no_pongs_is_not_read_from() -> None:
    async with pair(pause_at=40_000) as both:
        ping = both.library.send(Ping(payload=b"x" * 100))
        with trio.move_on_after(SECONDS) as patience:
            async with beside(both.far.send_all, ping * 100_000):
                await wait_until(lambda: both.link.queued > 40_000)
                await wait_all_tasks_blocked()
                reads = both.stream.reads
                await wait_all_tasks_blocked()
                assert both.stream.reads == reads
        assert not patience.cancelled_caught
        assert both.link.queued < 41_000


async def test_a_peer_that_reads_slowly_is_not_read_from_until_it_has_caught_up() -> None:
    """An answer for each portion of lines; there are more of them than may wait."""
    async with pair(lambda: both.link.send((b"x" * 20_000,)), pause_at=40_000) as both:
        await both.say(*[TextMessage(data="[]")] * 200)
        await wait_until(lambda: both.link.queued > 40_000 and len(both.receiver.lines) < 200)
        assert len(both.receiver.lines) < 200
        while len(both.receiver.lines) < 200:
            assert len(await both.hear_text()) == 20_000


async def test_a_peer_that_does_not_read_is_cut_off_and_told_when_it_does(autojump_clock: MockClock) -> None:
    async with pair(max_queue=200_000, pause_at=100_000) as both:
        for number in range(8):
            both.send(b"%d" % number + b"x" * 100_000)
        await trio.sleep(STUCK_SECONDS - 0.5)
        assert both.link.closing is None
        await trio.sleep(1)
        assert both.link.queued < 200_000
        # Whole messages, the first of them those that it had the beginning of, and the reason.
        texts: list[str] = []
        while isinstance(event := await both.hear(), TextMessage):
            texts.append(event.data)
        whole = "".join(texts)
        assert len(whole) % 100_001 == 0
        assert len(whole) < 8 * 100_001
        assert isinstance(event, CloseConnection)
        assert event.code == 1008
        await both.ends_with(Cause.NOT_READING)


async def test_a_peer_that_never_reads_again_is_waited_for_a_moment(autojump_clock: MockClock) -> None:
    async with pair(max_queue=200_000) as both:
        for _ in range(4):
            both.send(b"x" * 100_000)
        await in_time(both.over.wait(), 2 * STUCK_SECONDS + GOODBYE_SECONDS)
        assert both.link.queued == 0


async def test_a_link_that_is_given_up_says_why() -> None:
    async with pair() as both:
        both.link.give_up(CloseReason(1008, "silent"))
        assert await both.hear() == CloseConnection(code=1008, reason="silent")
        await both.hang_up()
        assert str(both.ended) == "closed here: code 1008 (POLICY_VIOLATION): silent"


async def test_nothing_is_left_open() -> None:
    async with pair():
        pass
    before = open_descriptors()
    for _ in range(3):
        async with pair() as both:
            await both.say(TextMessage(data="[]"))
            await both.far.send_eof()
            await both.over.wait()
    assert open_descriptors() == before


async def test_what_is_sent_after_the_end_is_dropped() -> None:
    async with pair() as both:
        await both.hang_up()
        both.send(b"late")
        both.link.ping()
        await both.link.leave(GOING)
        assert both.link.queued == 0
