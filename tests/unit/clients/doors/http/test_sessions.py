"""Sessions over HTTP: their streams, what waits for one, resumption, and how many there may be."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from daemon.clients.doors.http import http_sessions
from daemon.clients.doors.http.http_sessions import IDLE_SECONDS, MAX_STREAMS, MAX_UNSENT
from daemon.clients.doors.http.reading import Refusal
from tests.unit.clients.doors.http.answering import ALICE, BOB, Endpoint, an_endpoint, begun, message
from tests.waiting import background

pytestmark = pytest.mark.usefixtures("autojump_clock")


@asynccontextmanager
async def visited(clients: int) -> AsyncIterator[tuple[Any, ...]]:
    """An endpoint with room for two sessions, and the visits of so many clients."""
    async with an_endpoint(places=2) as endpoint, AsyncExitStack() as stack:
        yield endpoint, *[await stack.enter_async_context(endpoint.visiting()) for _ in range(clients)]


async def broken_off(endpoint: Endpoint, headers: dict[str, str]) -> str:
    """A call whose connection broke off after some progress: the id of the first event that came."""
    async with endpoint.visiting() as broken:
        await broken.client.post(headers, message("tools/call", 9, name="x"))
        endpoint.served[0].peer.notify("p", b"1", b"9")
        endpoint.outbox.flush()
        await broken.client.head()
        first = (await broken.client.chunk()).split(b"\n", 1)[0].removeprefix(b"id: ").decode()
    await trio.testing.wait_all_tasks_blocked()
    return first


async def test_what_belongs_to_no_request_waits_for_a_stream_once_and_goes_to_the_newest() -> None:
    async with visited(3) as (endpoint, posting, first, second):
        headers = await begun(endpoint, posting.client)
        peer = endpoint.served[0].peer
        peer.notify("oldest")
        for number in range(MAX_UNSENT):
            for _ in range(3):
                peer.notify("x", b"%d" % number)
        await first.client.send("GET", "/mcp", headers)
        assert (await first.client.head()).status_code == 200
        said = b""
        while said.count(b"data: ") < MAX_UNSENT:
            said += await first.client.chunk()
        assert (said.count(b'"x"'), b"oldest" in said) == (MAX_UNSENT, False)
        assert b'"params":0' in said, "what is said thrice waits once"
        await second.client.send("GET", "/mcp", headers)
        await second.client.head()
        assert (await second.client.chunk()).startswith(b":")
        peer.notify("y", b"1")
        endpoint.outbox.flush()
        assert b'"method":"y"' in await second.client.chunk()


async def test_streams_are_bounded() -> None:
    async with visited(2) as (endpoint, posting, oldest), background() as nursery:
        headers = await begun(endpoint, posting.client)
        await oldest.client.send("GET", "/mcp", headers)
        await oldest.client.head()
        assert await oldest.client.chunk()
        opened = trio.Event()
        count = 0

        async def listen() -> None:
            nonlocal count
            async with endpoint.visiting() as more:
                await more.client.send("GET", "/mcp", headers)
                await more.client.head()
                count += 1
                if count == MAX_STREAMS:
                    opened.set()
                await trio.sleep_forever()

        for _ in range(MAX_STREAMS):
            nursery.start_soon(listen)
        await opened.wait()
        assert await oldest.client.chunk() == b""


async def test_a_client_comes_back_for_what_it_has_missed() -> None:
    async with visited(2) as (endpoint, posting, again):
        headers = await begun(endpoint, posting.client)
        primed = await broken_off(endpoint, headers)
        peer = endpoint.served[0].peer
        peer.notify("p", b"2", b"9")
        endpoint.outbox.flush()
        await again.client.send("GET", "/mcp", {**headers, "last-event-id": primed})
        await trio.testing.wait_all_tasks_blocked()
        endpoint.answer(b"9", b'"done"')
        response = await again.client.response()
        assert [b'"params":1' in response.body, b'"params":2' in response.body] == [True, True]
        assert response.body.endswith(b'"result":"done"}\n\n')


async def test_an_answer_that_was_given_is_given_again() -> None:
    async with visited(2) as (endpoint, posting, again):
        headers = await begun(endpoint, posting.client)
        first = await broken_off(endpoint, headers)
        endpoint.served[0].peer.answer(b"9", b'"done"')
        response = await again.client.ask("GET", "/mcp", {**headers, "last-event-id": first})
        assert response.body.endswith(b'"result":"done"}\n\n')
        response = await again.client.ask("GET", "/mcp", {**headers, "last-event-id": "7-7"})
        assert response.status == 400


async def test_a_session_that_nobody_uses_ends_and_one_with_an_open_stream_does_not() -> None:
    async with visited(1) as (endpoint, posting):
        headers, sessions = await begun(endpoint, posting.client), endpoint.mcp.sessions
        await begun(endpoint, posting.client)
        async with endpoint.visiting() as listening:
            await listening.client.send("GET", "/mcp", headers)
            await listening.client.head()
            sessions.tick(trio.current_time())
            assert len(sessions) == 2
            await trio.sleep(IDLE_SECONDS)
            sessions.tick(trio.current_time())
        await trio.testing.wait_all_tasks_blocked()
        await trio.sleep(IDLE_SECONDS - 1)
        sessions.tick(trio.current_time())
        assert len(sessions) == 1
        await trio.sleep(1)
        sessions.tick(trio.current_time())
        assert not len(sessions)


async def test_the_longest_unused_session_makes_room_and_busy_ones_do_not() -> None:
    async with visited(3) as (endpoint, one, two, three):
        sessions = endpoint.mcp.sessions
        first = await begun(endpoint, one.client)
        await trio.sleep(1)
        second = await begun(endpoint, one.client)
        await begun(endpoint, one.client)
        assert len(sessions) == 2
        with pytest.raises(Refusal, match="no such session"):
            sessions.find(first["mcp-session-id"], ALICE)
        await two.client.post(second, message("tools/call", 1, name="x"))
        third = await begun(endpoint, one.client)
        await three.client.post(third, message("tools/call", 1, name="x"))
        with pytest.raises(Refusal, match=r"2 sessions are in use"):
            sessions.begin(ALICE)


async def test_sessions_of_some_visitors_can_be_ended() -> None:
    async with visited(2) as (endpoint, visit, waiting):
        headers = await begun(endpoint, visit.client)
        await waiting.client.post(headers, message("tools/call", 1, name="x"))
        endpoint.place = BOB
        await begun(endpoint, visit.client)
        endpoint.mcp.sessions.end_all(lambda visitor: visitor.token == "alice")
        endpoint.outbox.flush()
        assert len(endpoint.mcp.sessions) == 1
        assert (await waiting.client.response()).status == 404


def test_a_message_is_one_event_whatever_line_ends_are_in_it() -> None:
    assert b"".join(map(bytes, http_sessions.event((b'{"a":\r\n', b"1}")))) == b'data: {"a":  1}\n\n'
    assert b"".join(map(bytes, http_sessions.event((b"{}",), b"1-2"))) == b"id: 1-2\ndata: {}\n\n"
    assert http_sessions.priming(b"1-2") == b"id: 1-2\nretry: 1000\ndata: \n\n"


@pytest.mark.parametrize(
    "never", ["", "x", "1", "1-", "-1", "9-1", "1-9", "1-0", "-1--1", "1-1-1", "1-²", "1" * 30]
)
def test_an_id_that_was_never_given_is_refused(never: str) -> None:
    log = http_sessions.EventLog()
    log.add(log.open_stream(), (b"a",))
    with pytest.raises(Refusal, match="never given out"):
        log.after(never)


def test_the_oldest_events_are_dropped_and_one_that_is_too_long_is_not_kept() -> None:
    log = http_sessions.EventLog()
    ids = [log.add(http_sessions.LISTENING, (b"%d" % number,)) for number in range(http_sessions.MAX_KEPT + 10)]
    missed = log.after(ids[0].decode())[1]
    assert (len(missed), missed[0][1]) == (http_sessions.MAX_KEPT, b"10")
    log = http_sessions.EventLog()
    first = log.add(http_sessions.LISTENING, (b"x",))
    for _ in range(5):
        log.add(http_sessions.LISTENING, (bytes(http_sessions.MAX_KEPT_BYTES // 2),))
    assert len(log.after(first.decode())[1]) == 2
    log.add(http_sessions.LISTENING, (bytes(http_sessions.MAX_KEPT_BYTES + 1),))
    assert len(log.after(first.decode())[1]) == 2
