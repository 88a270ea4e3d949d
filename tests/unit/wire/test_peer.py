"""The JSON-RPC peer: every request ends exactly once, and finds its own answer."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
import trio
from msgspec import Raw
from trio.testing import MockClock, wait_all_tasks_blocked

from daemon.errors import ConnectionLost, ProtocolFault, UpstreamLost, UpstreamTimeout
from daemon.protocol import cancelled
from daemon.wire.envelope import RemoteError
from daemon.wire.outbox import Outbox
from daemon.wire.requests import Exchange, Peer
from tests.unit.cases import cases
from tests.unit.wire.fakes import RecordingExchange, RecordingHandler, ScriptedLink
from tests.waiting import beside


class Talk:
    """A peer under test, its scripted link, and the owner of everything that is not an answer."""

    def __init__(self, *, strict: bool) -> None:
        self.outbox = Outbox()
        self.link = ScriptedLink(self.outbox)
        self.handler = RecordingHandler()
        self.peer = Peer(self.link, self.outbox, self.handler, strict=strict, cancelled=cancelled)

    def ask(self) -> tuple[int, RecordingExchange]:
        """Send a request; its id and its owner."""
        exchange = RecordingExchange()
        uid = self.peer.requests.open(exchange)
        self.peer.send_request(uid, "tools/call", (b"{}",))
        return uid, exchange

    def progress(self, uid: int) -> None:
        """The other side has reported progress."""
        self.peer.requests.progress(Raw(b'{"progressToken":%d,"progress":1}' % uid))

    def sent(self) -> list[dict[str, Any]]:
        """What the other side has been told so far."""
        self.outbox.flush()
        return [msgspec.json.decode(frame) for frame in self.link.sent]

    def expire(self, *, idle: float, total: float) -> list[tuple[int, Exchange | None]]:
        """Give up what takes too long, as connections do."""
        overdue = self.peer.requests.overdue(idle=idle, total=total)
        return [(uid, self.peer.cancel(uid, "timed out")) for uid in overdue]

    def cancelled(self) -> list[int]:
        """Which requests the other side was told to give up."""
        return [
            frame["params"]["requestId"]
            for frame in self.sent()
            if frame["method"] == "notifications/cancelled"
        ]


@asynccontextmanager
async def talking(*, strict: bool) -> AsyncIterator[Talk]:
    talk = Talk(strict=strict)
    virtual = isinstance(trio.lowlevel.current_clock(), MockClock)
    with trio.fail_after(1000 if virtual else 30):
        async with beside(_until_lost, talk.peer):
            await wait_all_tasks_blocked()
            yield talk


async def _until_lost(peer: Peer) -> None:
    with pytest.raises(ConnectionLost):
        await peer.run()


@pytest.fixture
async def server() -> AsyncIterator[Talk]:
    """A talk with a server."""
    async with talking(strict=False) as talk:
        yield talk


@pytest.fixture
async def client() -> AsyncIterator[Talk]:
    """A talk with a client."""
    async with talking(strict=True) as talk:
        yield talk


def answer(uid: int, result: str = "{}") -> bytes:
    return b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (uid, result.encode())


# --- the id map -------------------------------------------------------------------------------------------


async def test_shuffled_answers_find_their_owners(server: Talk) -> None:
    asked = [server.ask() for _ in range(200)]
    shuffled = random.Random(1).sample(asked, k=len(asked))
    server.link.receive(*(answer(uid, f'{{"for":{uid}}}') for uid, _ in shuffled))
    for uid, exchange in asked:
        assert exchange.endings == [("answered", f'{{"for":{uid}}}')]
    assert server.peer.requests.forwarded == 0


async def test_a_servers_request_that_is_no_utf8_is_noise_and_its_id_never_written(server: Talk) -> None:
    server.link.receive(b'{"jsonrpc":"2.0","id":"\xff","method":"ping"}')
    assert not server.handler.requests
    assert len(server.handler.faults) == 1
    assert not server.link.sent


@cases("line", "ending")
async def test_an_answer_reaches_its_owner_once(server: Talk, line: str, ending: list[str]) -> None:
    uid, exchange = server.ask()
    server.link.receive(line.replace("%d", str(uid)).encode(), answer(uid, "2"))
    assert exchange.endings == [tuple(ending)]


@cases("request_id")
async def test_an_answer_to_nobodys_id_is_dropped(server: Talk, request_id: str) -> None:
    _, exchange = server.ask()
    server.link.receive(b'{"id":%b,"result":{}}' % request_id.encode())
    assert exchange.endings == []
    assert server.handler.faults == []


async def test_an_answer_that_is_not_utf8_is_refused_and_goes_no_further(server: Talk) -> None:
    uid, exchange = server.ask()
    server.link.receive(b'{"id":%d,"result":{"x":"\xff"}}' % uid)
    ((kind, error),) = exchange.endings
    assert kind == "refused"
    assert "not valid UTF-8" in error


@pytest.mark.parametrize("value", [b"NaN", b"[-Infinity]", b'"\\q"', b'"\x01"', b"{", b"[" * 5000])
async def test_an_answer_that_is_no_json_ends_its_call_at_once(server: Talk, value: bytes) -> None:
    uid, exchange = server.ask()
    other, _ = server.ask()
    server.link.receive(b'{"jsonrpc":"2.0","id":%d,"result":{"x":%b}}' % (uid, value))
    ((kind, error),) = exchange.endings
    assert kind == "refused"
    assert "invalid JSON-RPC" in error
    assert server.handler.faults == []
    assert server.peer.requests.forwarded == 1
    server.link.receive(b'{"result":{"x":NaN},"jsonrpc":"2.0","id":%d}' % other)
    assert server.peer.requests.forwarded == 0


async def test_what_is_no_json_and_answers_nobody_is_a_bad_message(server: Talk) -> None:
    uid, exchange = server.ask()
    server.link.receive(b'{"jsonrpc":"2.0","id":%d,"method":"ping","params":{"x":NaN}}' % uid)
    server.link.receive(b'{"jsonrpc":"2.0","id":%d,"result":NaN}' % (uid + 1))
    assert exchange.endings == []
    assert [fault.code for fault in server.handler.faults] == [-32700, -32700]


async def test_a_request_that_is_no_json_is_refused_under_its_id(client: Talk) -> None:
    client.link.receive(b'{"jsonrpc":"2.0","id":7,"method":"m","params":{"x":NaN}}')
    client.link.receive(b'{"method":"m","params":{"x":NaN},"jsonrpc":"2.0","id":"a"}')
    client.link.receive(b"NaN", b'{"jsonrpc":"2.0","id":7}')
    client.link.receive(rb'{"jsonrpc":"2.0","id":7,"method":"m","params":{"x":"\udc00"}}')
    assert client.handler.requests == [(b"7", "m", rb'{"x":"\ufffd"}')], "a lone surrogate is repaired"
    assert [(fault.code, fault.request_id) for fault in client.handler.faults] == [
        (-32700, b"7"),
        (-32700, b'"a"'),
        (-32700, b"null"),
        (-32600, b"7"),
    ]


@pytest.mark.parametrize(
    "line", [b'{"jsonrpc":"2.0","id":1}', b'{"jsonrpc":"2.0","result":{}}', b'{"jsonrpc":"2.0"}', b"{}"]
)
async def test_what_is_neither_question_nor_answer_is_a_bad_message(server: Talk, line: bytes) -> None:
    server.link.receive(line)
    assert [fault.code for fault in server.handler.faults] == [-32600]


# --- what the other side wants ----------------------------------------------------------------------------


async def test_requests_and_notifications_reach_their_receiver(server: Talk) -> None:
    server.link.receive(
        b'{"jsonrpc":"2.0","id":"a","method":"ping"}',
        b'{"jsonrpc":"2.0","method":"notifications/message","params":{"x":1}}',
        b'{"jsonrpc":"2.0","id":2,"method":"roots/list","params":{}}',
    )
    assert server.handler.requests == [(b'"a"', "ping", None), (b"2", "roots/list", b"{}")]
    assert server.handler.notifications == [("notifications/message", b'{"x":1}')]


async def test_blank_lines_are_no_messages(server: Talk) -> None:
    server.link.receive(b"", b"\r", b"  ")
    assert server.handler.faults == []


async def test_a_bad_line_costs_itself_and_not_its_neighbours(server: Talk) -> None:
    uid, exchange = server.ask()
    server.link.receive(b"Starting server...", b'{"method":1,"id":"x"}', b'{"method":1,"\xff":2}', answer(uid))
    assert [(fault.code, fault.request_id) for fault in server.handler.faults] == [
        (-32700, b"null"),
        (-32600, b'"x"'),
        (-32600, b"null"),
    ]
    assert exchange.endings == [("answered", "{}")]


async def test_a_client_is_read_strictly_and_a_server_is_not(client: Talk, server: Talk) -> None:
    for talk in (client, server):
        talk.link.receive(b'{"id":1,"method":"m"}')
    assert [fault.code for fault in client.handler.faults] == [-32600]
    assert client.handler.requests == []
    assert server.handler.requests == [(b"1", "m", None)]


async def test_an_oversized_message_is_answered_to_its_sender(client: Talk) -> None:
    client.link.receive_oversized(b'{"jsonrpc":"2.0","id":"big","method":"tools/call","params":{"x":"')
    (fault,) = client.handler.faults
    assert (fault.code, fault.request_id) == (-32600, b'"big"')
    assert fault.message.startswith("RequestTooLarge")


async def test_an_oversized_request_with_the_id_of_an_open_one_of_ours_ends_nothing(client: Talk) -> None:
    uid, exchange = client.ask()
    client.link.receive_oversized(b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"x":"' % uid)
    assert not exchange.endings
    assert [fault.request_id for fault in client.handler.faults] == [b"%d" % uid]


async def test_an_oversized_answer_ends_the_request_that_it_was_for(server: Talk) -> None:
    uid, exchange = server.ask()
    server.link.receive_oversized(b'{"jsonrpc":"2.0","id":%d,"result":{"content":"xxx' % uid)
    assert len(exchange.endings) == 1


async def test_an_oversized_message_of_a_server_for_nobody_ends_the_connection(server: Talk) -> None:
    server.ask()
    with pytest.raises(ProtocolFault):
        server.link.receive_oversized(b'{"jsonrpc":"2.0","method":"x","params":{"id":1')


async def test_the_time_of_the_last_message_is_remembered(server: Talk, autojump_clock: MockClock) -> None:
    before = server.peer.last_heard
    await trio.sleep(7)
    server.link.receive(b"noise")
    assert server.peer.last_heard == before + 7


# --- giving up --------------------------------------------------------------------------------------------


async def test_a_request_that_is_given_up_is_cancelled_there(server: Talk) -> None:
    uid, exchange = server.ask()
    server.peer.cancel(uid, "the client is gone")
    assert server.sent()[-1] == {
        "jsonrpc": "2.0",
        "method": "notifications/cancelled",
        "params": {"requestId": uid, "reason": "the client is gone"},
    }
    server.link.receive(answer(uid))
    server.progress(uid)
    assert (exchange.endings, exchange.progress) == ([], [])


async def test_what_is_over_is_not_cancelled(server: Talk) -> None:
    uid, _ = server.ask()
    server.link.receive(answer(uid))
    server.peer.cancel(uid, "too late")
    server.peer.cancel(12345, "never was")
    assert server.cancelled() == []


async def test_requests_expire_however_lively_they_are(server: Talk, autojump_clock: MockClock) -> None:
    uid, exchange = server.ask()
    for _ in range(11):
        await trio.sleep(9)
        server.progress(uid)
        assert server.expire(idle=10, total=100) == []
    await trio.sleep(1)
    assert server.expire(idle=10, total=100) == [(uid, exchange)]
    assert server.expire(idle=10, total=100) == []
    assert exchange.endings == []


# --- the end of the link ----------------------------------------------------------------------------------


async def test_when_the_link_ends_every_open_request_is_lost_exactly_once(server: Talk) -> None:
    answered, *waiting = (server.ask() for _ in range(50))
    server.link.receive(answer(answered[0]))
    endings_then: list[int] = []
    server.handler.at_the_end = lambda: endings_then.append(len(waiting[0][1].endings))
    server.link.hang_up("exited with status 1")
    await wait_all_tasks_blocked()
    server.peer.requests.lose_all("again")
    assert answered[1].endings == [("answered", "{}")]
    lost = ("lost", "UpstreamLost: exited with status 1; whether the call ran is unknown")
    assert [exchange.endings for _, exchange in waiting] == [[lost]] * 49
    assert server.peer.requests.forwarded == 0
    assert (server.handler.ends, endings_then) == (["exited with status 1"], [0]), "its owner is told first"


async def test_when_the_task_is_cancelled_every_open_request_is_lost_too() -> None:
    talk = Talk(strict=False)
    with trio.fail_after(30):
        async with beside(talk.peer.run):
            await wait_all_tasks_blocked()
            _, exchange = talk.ask()
    assert exchange.endings == [
        ("lost", "UpstreamLost: the connection was closed; whether the call ran is unknown")
    ]


class AnsweringExchange(RecordingExchange):
    """An owner that writes to its own client when it is told, as a session's call does."""

    def __init__(self, client: Peer) -> None:
        super().__init__()
        self._client = client

    def lost(self, error: object) -> None:
        self._client.answer(b"7", b"{}")


async def test_what_the_owners_write_when_they_are_told_is_written_at_once(server: Talk) -> None:
    theirs = ScriptedLink(server.outbox)
    client = Peer(theirs, server.outbox, RecordingHandler(), strict=True)
    server.peer.requests.open(AnsweringExchange(client))
    server.link.hang_up("gone")
    await wait_all_tasks_blocked()
    assert theirs.sent == [b'{"jsonrpc":"2.0","id":7,"result":{}}']


# --- asking and waiting -----------------------------------------------------------------------------------


class Asked:
    """How a `Peer.request` ended."""

    def __init__(self) -> None:
        self.outcome: bytes | Exception | None = None

    async def ask(self, peer: Peer, patience: float = 10) -> None:
        try:
            self.outcome = await peer.request("tools/list", {"cursor": None}, timeout=patience)
        except (RemoteError, UpstreamLost, UpstreamTimeout) as error:
            self.outcome = error


@asynccontextmanager
async def asking(server: Talk) -> AsyncIterator[Asked]:
    """Somebody asks, until the block is over and he knows."""
    asked = Asked()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(asked.ask, server.peer)
        await wait_all_tasks_blocked()
        yield asked


async def test_who_asks_gets_the_result(server: Talk) -> None:
    async with asking(server) as asked:
        (request,) = map(msgspec.json.decode, server.link.sent)
        assert (request["method"], request["params"]) == ("tools/list", {"cursor": None})
        server.link.receive(answer(request["id"], '{"tools":[]}'))
    assert asked.outcome == b'{"tools":[]}'
    assert server.cancelled() == []


async def test_who_asks_gets_the_others_error_as_an_exception(server: Talk) -> None:
    async with asking(server) as asked:
        server.link.receive(b'{"id":1,"error":{"code":-32601,"message":"no such method","data":[1]}}')
    assert isinstance(asked.outcome, RemoteError)
    assert (asked.outcome.code, asked.outcome.message, asked.outcome.data) == (-32601, "no such method", b"[1]")
    assert str(asked.outcome) == "no such method (-32601)"


async def test_without_an_answer_a_request_is_cancelled(server: Talk, autojump_clock: MockClock) -> None:
    asked, began = Asked(), trio.current_time()
    await asked.ask(server.peer, 30)
    assert trio.current_time() - began == 30
    assert isinstance(asked.outcome, UpstreamTimeout)
    assert str(asked.outcome) == "no answer to tools/list within 30 s"
    assert server.cancelled() == [1]
    assert server.peer.requests.forwarded == 0


async def test_who_asks_does_not_mind_progress_that_nobody_asked_for(server: Talk) -> None:
    async with asking(server) as asked:
        server.progress(1)
        server.link.receive(answer(1))
    assert asked.outcome == b"{}"


async def test_who_stops_waiting_cancels_the_request(server: Talk) -> None:
    async with beside(Asked().ask, server.peer):
        await wait_all_tasks_blocked()
    assert server.cancelled() == [1]
    assert server.peer.requests.forwarded == 0


async def test_a_question_that_cannot_be_written_leaves_nothing_behind(server: Talk) -> None:
    with pytest.raises(TypeError):
        await server.peer.request("m", object(), timeout=30)
    assert server.peer.requests.forwarded == 0


# --- links that carry each request apart ------------------------------------------------------------------


async def test_a_message_that_its_link_has_decoded_is_taken_as_a_line_is(client: Talk) -> None:
    client.peer.last_heard = -1.0
    client.link.receive_decoded(b'{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"x":1}}')
    client.link.receive_decoded(b'{"jsonrpc":"2.0","method":"notifications/cancelled"}')
    assert client.handler.requests == [(b'"a"', "tools/call", b'{"x":1}')]
    assert client.handler.notifications == [("notifications/cancelled", None)]
    assert client.peer.last_heard >= 0
    uid, exchange = client.ask()
    client.link.receive_decoded(answer(uid))
    assert exchange.endings == [("answered", "{}")]


async def test_a_decoded_message_that_is_none_is_a_fault(client: Talk) -> None:
    client.link.receive_decoded(b'{"jsonrpc":"2.0","id":7}')
    assert [fault.request_id for fault in client.handler.faults] == [b"7"]


async def test_what_is_sent_says_which_request_it_belongs_to_and_whether_it_ends_it(client: Talk) -> None:
    client.peer.answer(b"1", b"{}")
    client.peer.refuse(b'"a"', -32600, "no")
    client.peer.notify("notifications/progress", b"{}", b"1")
    client.peer.notify("notifications/tools/list_changed")
    client.ask()
    assert client.link.belong == [(b"1", True), (b'"a"', True), (b"1", False), (None, False), (None, False)]
