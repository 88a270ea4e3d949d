"""The edge that stdio, unix and WebSocket share: frames in, frames out, payloads untouched."""

import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing
from msgspec import Raw

from daemon import errors
from daemon.model import Era
from daemon.ports import OwnCall
from daemon.protocol import CAPABILITIES_KEY, CLIENT_INFO_KEY, MODERN_VERSION, VERSION_KEY
from daemon.upstreams.transports.server_connection import UPSTREAM_QUEUE_BYTES, RawConnection
from daemon.wire.envelope import Buffer, RemoteError
from daemon.wire.outbox import Outbox, Receiver
from tests.fakes_upstream import tool_call
from tests.faults.stage import Answer
from tests.unit.upstreams.transports.listening import Listener
from tests.waiting import beside

HUGE = b"HUGE"
"""Starts a line that the link reports as over the limit."""


class TestLink:
    """A link whose other end is the test."""

    __test__ = False

    def __init__(self) -> None:
        self.queued = 0
        self.turns = 0
        self.is_held = False
        self.sent: list[bytes] = []
        self._lines, self._from_server = trio.open_memory_channel[list[bytes]](100)

    def send(self, frame: Iterable[Buffer], request_id: bytes | None = None, *, ends: bool = False) -> None:
        self.sent.append(b"".join(map(bytes, frame)))

    def waiting(self, request_id: bytes | None = None) -> float:
        return self.queued

    async def run(self, receiver: Receiver) -> None:
        async for lines in self._from_server:
            receiver.on_lines([line for line in lines if not line.startswith(HUGE)])
            for line in lines:
                if line.startswith(HUGE):
                    receiver.on_oversized(line[len(HUGE) :])
        raise errors.ConnectionLost("the peer closed the connection")

    async def says(self, *lines: bytes) -> None:
        """The server says something, and it is taken in."""
        self._lines.send_nowait(list(lines))
        await trio.testing.wait_all_tasks_blocked()

    def hangs_up(self) -> None:
        self._lines.close()

    @property
    def last(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.sent[-1])
        return found


class Pair:
    """A connection and its link."""

    def __init__(self) -> None:
        self.link, self.listener = TestLink(), Listener()
        self.end: errors.RunError | None = None
        self.connection = RawConnection(self.link, outbox=Outbox(), events=self.listener)

    def calls(self, count: int = 2, **more: Any) -> list[Answer]:
        """So many calls, by what becomes of each."""
        answers = [Answer() for _ in range(count)]
        for answer in answers:
            self.connection.call(tool_call(**more), answer)
        return answers

    async def run(self) -> None:
        try:
            await self.connection.run()
        except errors.RunError as error:
            self.end = error


@asynccontextmanager
async def pair() -> AsyncIterator[Pair]:
    found = Pair()
    async with beside(found.run):
        with trio.fail_after(30):
            yield found


# --- calls --------------------------------------------------------------------------------------------------


async def test_the_arguments_of_a_call_travel_byte_for_byte() -> None:
    async with pair() as found:
        odd = b'{ "a" : 1.0e0, "a":"\\u00e9\\/", "big": 18446744073709551616 }'
        found.connection.call(tool_call('a"},"x":{"', arguments=odd), Answer())
        assert found.link.sent == [
            b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a\\"},\\"x\\":{\\"","arguments":'
            + odd
            + b"}}"
        ]


@pytest.mark.parametrize("modern", [False, True])
async def test_a_request_without_params_is_an_object_all_the_same(modern: bool) -> None:
    async with pair() as found:
        if modern:
            found.connection.adopt(Era.MODERN, MODERN_VERSION)
        key = found.connection.call(OwnCall(method="a/b", params=(b"", b""), wants_progress=True), Answer())
        params = found.link.last["params"]
        assert params.keys() == {"_meta"}
        assert params["_meta"]["progressToken"] == key


async def test_a_notification_without_params_is_heard_as_an_empty_one() -> None:
    async with pair() as found:
        await found.link.says(b'{"jsonrpc":"2.0","method":"notifications/com.example/x"}')
        assert found.listener.messages == [("notifications/com.example/x", b"{}")]


async def test_a_callers_meta_travels_and_its_progress_token_is_ours() -> None:
    async with pair() as found:
        meta = {"com.example/trace": Raw(b'{ "x":1 }')}
        key = found.connection.call(tool_call(meta=meta, wants_progress=True), Answer())
        assert found.link.last["params"]["_meta"] == {"com.example/trace": {"x": 1}, "progressToken": key}


async def test_the_modern_era_adds_its_envelope_to_every_request() -> None:
    async with pair() as found:
        found.connection.adopt(Era.MODERN, MODERN_VERSION)
        found.connection.call(tool_call(meta={"a": Raw(b"1")}), Answer())
        meta = found.link.last["params"]["_meta"]
        assert set(meta) == {"a", VERSION_KEY, CAPABILITIES_KEY, CLIENT_INFO_KEY}
        assert meta[VERSION_KEY] == MODERN_VERSION
        with trio.move_on_after(0):
            await found.connection.request("tools/list", {"cursor": "x"}, timeout=1.0)
        asked = json.loads(found.link.sent[1])
        assert asked["params"] == {
            "cursor": "x",
            "_meta": {key: value for key, value in meta.items() if key != "a"},
        }


async def test_answers_are_handed_over_once_and_those_to_nobody_are_dropped() -> None:
    async with pair() as found:
        first, second = found.calls()
        await found.link.says(
            b'{"id":99,"result":{}}', b'{"id":null,"result":{}}', b'{"id":[1],"error":{}}', b"\r"
        )
        assert (found.connection.in_flight, found.listener.noise) == (2, [])
        await found.link.says(b'{"jsonrpc":"2.0","id":"a\\u0062","method":"ping"}')
        assert found.link.sent[-1] == b'{"jsonrpc":"2.0","id":"a\\u0062","result":{}}'
        assert found.listener.questions == []
        await found.link.says(b'{"jsonrpc":"2.0","id":1,"result":{ "content" : [ ] }}', b'{"id":1,"result":{}}')
        await found.link.says(b'{"id":2,"error":{"code":-32602,"message":"no","data":7}}')
        assert await first.wait() == {"content": []}
        with pytest.raises(RemoteError, match="no"):
            await second.wait()
        sent = len(found.link.sent)
        found.connection.cancel(1, "late")
        assert (found.connection.in_flight, len(found.link.sent)) == (0, sent)


async def test_answers_find_their_calls_in_any_order_and_however_the_id_is_written() -> None:
    async with pair() as found:
        answers = found.calls(3)
        await found.link.says(b'{"id":3,"result":{"n":3}}', b'{"id":"1","result":{"n":1}}')
        await found.link.says(b'{"id":2,"result":{"n":2}}')
        assert [(await answer.wait())["n"] for answer in answers] == [1, 2, 3]


@pytest.mark.parametrize(
    ("line", "error", "words"),
    [
        (b'{"id":1,"result":{"a":"\xff"}}', RemoteError, "not valid UTF-8"),
        (HUGE + b'{"jsonrpc":"2.0","id":1,"result":{"content":[{"text":"xxxxx', errors.RequestTooLarge, None),
    ],
)
async def test_an_answer_that_is_not_utf8_or_over_the_limit_costs_its_call_only(
    line: bytes, error: type[Exception], words: str | None
) -> None:
    async with pair() as found:
        first, second = found.calls()
        await found.link.says(line, b'{"id":2,"result":{"n":2}}')
        with pytest.raises(error, match=words):
            await first.wait()
        assert await second.wait() == {"n": 2}


async def test_progress_reaches_its_call_only() -> None:
    async with pair() as found:
        first, second = found.calls(wants_progress=True)
        report = b'{"method":"notifications/progress","params":{"progressToken":%b,"progress":5}}'
        await found.link.says(report % b"2", report % b"77", report % b"null", report % b'"2"')
        assert (len(first.progress), len(second.progress)) == (0, 2)
        assert bytes(second.progress[0]["progress"]) == b"5"


async def test_a_cancelled_call_is_told_to_the_server_and_its_late_answer_dropped() -> None:
    async with pair() as found:
        answer = Answer()
        key = found.connection.call(tool_call(), answer)
        found.connection.cancel(key, "the user changed his mind")
        assert found.link.last["method"] == "notifications/cancelled"
        assert found.link.last["params"] == {"requestId": key, "reason": "the user changed his mind"}
        await found.link.says(b'{"id":1,"result":{}}')
        assert not answer.done
        assert found.connection.in_flight == 0


async def test_calls_are_refused_while_the_server_does_not_read() -> None:
    async with pair() as found:
        found.link.queued = UPSTREAM_QUEUE_BYTES + 1
        with pytest.raises(errors.Overloaded, match="the server does not read"):
            found.connection.call(tool_call(), Answer())
        assert (found.link.sent, found.connection.in_flight) == ([], 0)


async def test_calls_that_show_no_life_expire_and_progress_is_life(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with pair() as found:
        silent, alive = Answer(), Answer()
        found.connection.call(tool_call(), silent)
        found.connection.call(tool_call(wants_progress=True), alive)
        await trio.sleep(2)
        await found.link.says(b'{"method":"notifications/progress","params":{"progressToken":2,"progress":1}}')
        await trio.sleep(2)
        expired = list(found.connection.expire(idle=3.0, total=100.0))
        assert expired == [(1, silent)]
        assert found.link.last["method"] == "notifications/cancelled"
        assert list(found.connection.expire(idle=3.0, total=4.0)) == [(2, alive)]


async def test_all_that_wait_are_lost_when_the_server_hangs_up() -> None:
    async with pair() as found:
        answers = found.calls(3)
        found.link.hangs_up()
        for answer in answers:
            with pytest.raises(
                errors.UpstreamLost, match="the peer closed the connection; whether the call ran"
            ):
                await answer.wait()


async def test_the_owner_knows_of_the_loss_before_those_who_wait() -> None:
    """Or whoever learns of it first could send the next call into the void."""
    order: list[str] = []

    class Waiting(Answer):
        def lost(self, error: errors.CallError) -> None:
            order.extend([*found.listener.lost, "call"])

    async with pair() as found:
        found.connection.call(tool_call(), Waiting())
        found.link.hangs_up()
        await trio.testing.wait_all_tasks_blocked()
    assert order == ["the peer closed the connection", "call"]


# --- the control plane -----------------------------------------------------------------------------------


async def test_a_request_of_ours_waits_for_its_answer() -> None:
    async with pair() as found:
        results: list[bytes] = []

        async def ask() -> None:
            results.append(await found.connection.request("tools/list", {}, timeout=30.0))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await trio.testing.wait_all_tasks_blocked()
            assert found.link.last["method"] == "tools/list"
            await found.link.says(b'{"id":1,"result":{"tools":[]}}')
        assert results == [b'{"tools":[]}']


async def test_a_request_without_an_answer_is_cancelled_at_the_server(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with pair() as found:
        with pytest.raises(errors.UpstreamTimeout, match="no answer to tools/list within 3 s"):
            await found.connection.request("tools/list", {}, timeout=3.0)
        assert trio.current_time() == 3.0
        assert found.link.last["params"]["requestId"] == 1


async def test_the_handshake_is_given_up_without_a_word(autojump_clock: trio.testing.MockClock) -> None:
    async with pair() as found:
        with pytest.raises(errors.UpstreamTimeout):
            await found.connection.request("initialize", {}, timeout=3.0)
        assert [json.loads(frame)["method"] for frame in found.link.sent] == ["initialize"]
        await found.link.says(b'{"id":1,"result":{}}')
        assert found.end is None


# --- what the server says by itself ---------------------------------------------------------------------------


async def test_changes_and_logs_are_passed_on() -> None:
    async with pair() as found:
        await found.link.says(
            b'{"method":"notifications/tools/list_changed"}',
            b'{"method":"notifications/message","params":{"level":"info","data":"hello"}}',
            b'{"method":"notifications/message","params":{"data":"' + b"x" * 10_000 + b'"}}',
            b'{"method":"notifications/resources/updated","params":{"uri":"x"}}',
        )
        assert found.listener.changes == 1
        assert found.listener.logged[0] == '{"level":"info","data":"hello"}'
        assert len(found.listener.logged[1]) > 10_000
        assert found.listener.noise == []


@pytest.mark.parametrize(
    "line",
    [
        b"Server started on port 8080",
        b"\x1b[32mready\x1b[0m",
        b"\xff\xfe\x00",
        b"\xef\xbb\xbf{}",
        b"[]",
        b"7",
        b"{}",
        b'{"method":7}',
        b"{" * 5000,
        b"[" * 100_000,
    ],
)
async def test_noise_is_told_and_ends_nothing(line: bytes) -> None:
    async with pair() as found:
        (answer,) = found.calls(1)
        await found.link.says(line, b'{"id":1,"result":{"n":1}}')
        assert [text for text, _ in found.listener.noise] == [line]
        assert await answer.wait() == {"n": 1}


@pytest.mark.parametrize("head", [b"xxxxx", b'{"result":{"id":1', b'{"id":99,"result":'])
async def test_what_is_over_the_limit_and_of_unknown_purpose_ends_the_connection(head: bytes) -> None:
    """It may have been anybody's answer: nobody must wait for it."""
    async with pair() as found:
        (answer,) = found.calls(1)
        await found.link.says(HUGE + head)
        assert isinstance(found.end, errors.ProtocolFault)
        with pytest.raises(errors.UpstreamLost):
            await answer.wait()


@pytest.mark.parametrize("line", [b"noise", b'{"id":9,"result":{}}'])
async def test_whatever_a_server_says_it_is_alive(line: bytes, autojump_clock: trio.testing.MockClock) -> None:
    async with pair() as found:
        await trio.sleep(3)
        await found.link.says(line)
        assert found.connection.last_heard == 3.0
