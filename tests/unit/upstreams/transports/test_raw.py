"""The edge that stdio, unix and WebSocket share: frames in, frames out, payloads untouched."""

import json
from collections.abc import AsyncIterator
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
from daemon.wire.outbox import Outbox
from tests.fakes_upstream import tool_call
from tests.faults.stage import Answer
from tests.unit.upstreams.asking import Wire
from tests.unit.upstreams.transports.listening import Listener
from tests.waiting import background


class Pair:
    """A connection, and the server's end of it."""

    def __init__(self) -> None:
        self.wire, self.listener = Wire(), Listener()
        self.connection = RawConnection(self.wire, outbox=Outbox(), events=self.listener)

    async def run(self) -> None:
        with pytest.raises(errors.ConnectionLost, match="hung up"):
            await self.connection.run()

    async def says(self, *lines: bytes) -> None:
        """The server says something, and it is taken in."""
        for line in lines:
            self.wire.to_daemon.append((line, None))
            self.wire.arrive()
        await trio.testing.wait_all_tasks_blocked()

    @property
    def last(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.wire.to_peer[-1])
        return found


@asynccontextmanager
async def pair() -> AsyncIterator[Pair]:
    found = Pair()
    async with background() as nursery:
        nursery.start_soon(found.run)
        await trio.testing.wait_all_tasks_blocked()
        with trio.fail_after(30):
            yield found


async def test_the_arguments_of_a_call_travel_byte_for_byte() -> None:
    async with pair() as found:
        odd = b'{ "a" : 1.0e0, "a":"\\u00e9\\/", "big": 18446744073709551616 }'
        found.connection.call(tool_call('a"},"x":{"', arguments=odd), Answer())
        name = b'"a\\"},\\"x\\":{\\""'
        params = b'{"name":%b,"arguments":%b}' % (name, odd)
        assert [*found.wire.to_peer] == [b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":%b}' % params]


@pytest.mark.parametrize("modern", [False, True])
async def test_a_request_without_params_is_an_object_all_the_same(modern: bool) -> None:
    async with pair() as found:
        if modern:
            found.connection.adopt(Era.MODERN, MODERN_VERSION)
        key = found.connection.call(OwnCall(method="a/b", params=(b"", b""), wants_progress=True), Answer())
        assert found.last["params"].keys() == {"_meta"}
        assert found.last["params"]["_meta"]["progressToken"] == key


async def test_a_callers_meta_travels_with_our_progress_token_and_the_modern_envelope() -> None:
    async with pair() as found:
        meta = {"com.example/trace": Raw(b'{ "x":1 }')}
        key = found.connection.call(tool_call(meta=meta, wants_progress=True), Answer())
        assert found.last["params"]["_meta"] == {"com.example/trace": {"x": 1}, "progressToken": key}
        found.connection.adopt(Era.MODERN, MODERN_VERSION)
        found.connection.call(tool_call(meta={"a": Raw(b"1")}), Answer())
        sent = found.last["params"]["_meta"]
        assert set(sent) == {"a", VERSION_KEY, CAPABILITIES_KEY, CLIENT_INFO_KEY}
        assert sent.pop("a") == 1
        assert sent[VERSION_KEY] == MODERN_VERSION
        with trio.move_on_after(0):
            await found.connection.request("tools/list", {"cursor": "x"}, timeout=1.0)
        assert json.loads(found.wire.to_peer[2])["params"] == {"cursor": "x", "_meta": sent}


async def test_calls_are_refused_while_the_server_does_not_read() -> None:
    async with pair() as found:
        found.wire.queued = UPSTREAM_QUEUE_BYTES + 1
        with pytest.raises(errors.Overloaded, match="the server does not read"):
            found.connection.call(tool_call(), Answer())
        assert (len(found.wire.to_peer), found.connection.in_flight) == (0, 0)


async def test_calls_that_show_no_life_expire_and_progress_is_life_and_a_call_of_a_task_is_spared(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with pair() as found:
        silent, alive, spared = Answer(), Answer(), Answer()
        spared.spared_until = trio.current_time() + 60.0
        found.connection.call(tool_call(), silent)
        found.connection.call(tool_call(wants_progress=True), alive)
        found.connection.call(tool_call(), spared)
        await trio.sleep(2)
        await found.says(b'{"method":"notifications/progress","params":{"progressToken":2,"progress":1}}')
        assert len(alive.progress) == 1
        await trio.sleep(2)
        assert list(found.connection.expire(idle=3.0, total=100.0)) == [(1, silent)]
        assert found.last["method"] == "notifications/cancelled"
        assert list(found.connection.expire(idle=3.0, total=4.0)) == [(2, alive)]
        assert list(found.connection.expire(idle=0.0, total=0.0)) == [(3, spared)]


async def test_the_owner_knows_of_the_loss_before_those_who_wait_and_what_the_server_asked_is_over() -> None:
    """Or whoever learns of it first could send the next call into the void."""
    order: list[str] = []

    class Waiting(Answer):
        def lost(self, error: errors.CallError) -> None:
            order.extend([*found.listener.lost, "call"])

    async with pair() as found:
        found.connection.call(tool_call(), Waiting())
        await found.says(b'{"jsonrpc":"2.0","id":7,"method":"elicitation/create","params":{}}')
        found.wire.hang_up()
        await trio.testing.wait_all_tasks_blocked()
    assert order == ["it has hung up", "call"]
    assert not found.listener.questions[0][0].is_open


async def test_the_handshake_is_given_up_without_a_word_and_no_other_request(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with pair() as found:
        for method in ("initialize", "tools/list"):
            with pytest.raises(errors.UpstreamTimeout, match=f"no answer to {method} within 3 s"):
                await found.connection.request(method, {}, timeout=3.0)
        said = [json.loads(frame)["method"] for frame in found.wire.to_peer]
        assert said == ["initialize", "tools/list", "notifications/cancelled"]
        await found.says(b'{"id":1,"result":{}}')


async def test_what_a_server_says_by_itself_is_passed_on_and_noise_is_told_and_ends_nothing() -> None:
    async with pair() as found:
        await found.says(
            b'{"method":"notifications/tools/list_changed"}',
            b'{"method":"notifications/message","params":{"level":"info","data":"hello"}}',
            b'{"method":"notifications/message","params":{"data":"' + b"x" * 10_000 + b'"}}',
            b'{"method":"notifications/resources/updated","params":{"uri":"x"}}',
            b'{"jsonrpc":"2.0","method":"notifications/com.example/x"}',
            b"Server started on port 8080",
        )
        heard = found.listener
        assert heard.changes == 1
        assert heard.logged[0] == '{"level":"info","data":"hello"}'
        assert len(heard.logged[1]) > 10_000
        assert heard.messages == [
            ("notifications/resources/updated", b'{"uri":"x"}'),
            ("notifications/com.example/x", b"{}"),
        ]
        assert [line for line, _ in heard.noise] == [b"Server started on port 8080"]
