"""Sessions over HTTP: their streams, what waits for one, resumption, and how many there may be."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from daemon.clients.doors.http.exchange import Refusal
from daemon.clients.doors.http.http_sessions import IDLE_SECONDS, MAX_STREAMS, MAX_UNSENT, RequestNames
from tests.unit.clients.doors.http.answering import ALICE, BOB, an_endpoint, begun, message

pytestmark = pytest.mark.usefixtures("autojump_clock")


async def test_what_belongs_to_no_request_goes_to_the_newest_stream() -> None:
    async with (
        an_endpoint(places=2) as endpoint,
        endpoint.visiting() as posting,
        endpoint.visiting() as first,
        endpoint.visiting() as second,
    ):
        headers = await begun(endpoint, posting.client)
        for each in (first, second):
            await each.client.send("GET", "/mcp", headers)
            assert (await each.client.head()).status_code == 200
            assert (await each.client.chunk()).startswith(b":")
        endpoint.served[0].peer.notify("x", b"1")
        endpoint.outbox.flush()
        assert b'"method":"x"' in await second.client.chunk()


async def test_it_waits_for_a_stream_once() -> None:
    async with (
        an_endpoint(places=2) as endpoint,
        endpoint.visiting() as posting,
        endpoint.visiting() as listening,
    ):
        headers = await begun(endpoint, posting.client)
        peer = endpoint.served[0].peer
        for _ in range(3):
            peer.notify("same")
        for number in range(MAX_UNSENT):
            peer.notify("x", b"%d" % number)
        await listening.client.send("GET", "/mcp", headers)
        await listening.client.head()
        said = b""
        while said.count(b"data: ") < MAX_UNSENT:
            said += await listening.client.chunk()
        assert said.count(b'"x"') == MAX_UNSENT
        assert b"same" not in said, "the oldest is dropped"


async def test_streams_are_bounded() -> None:
    async with (
        an_endpoint(places=2) as endpoint,
        endpoint.visiting() as posting,
        endpoint.visiting() as oldest,
        trio.open_nursery() as nursery,
    ):
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
        nursery.cancel_scope.cancel()


async def test_a_client_comes_back_for_what_it_has_missed() -> None:
    async with (
        an_endpoint(places=2) as endpoint,
        endpoint.visiting() as posting,
        endpoint.visiting() as again,
    ):
        headers = await begun(endpoint, posting.client)
        async with endpoint.visiting() as broken:
            await broken.client.send("POST", "/mcp", headers, message("tools/call", 9, name="x"))
            await trio.testing.wait_all_tasks_blocked()
            peer = endpoint.served[0].peer
            peer.notify("p", b"1", b"9")
            endpoint.outbox.flush()
            await broken.client.head()
            said = await broken.client.chunk()
            primed = said.split(b"\n", 1)[0].removeprefix(b"id: ").decode()
        await trio.testing.wait_all_tasks_blocked()
        peer.notify("p", b"2", b"9")
        endpoint.outbox.flush()
        await again.client.send("GET", "/mcp", {**headers, "last-event-id": primed})
        await trio.testing.wait_all_tasks_blocked()
        peer.answer(b"9", b'"done"')
        endpoint.outbox.flush()
        response = await again.client.response()
        assert [b'"params":1' in response.body, b'"params":2' in response.body] == [True, True]
        assert response.body.endswith(b'"result":"done"}\n\n')


async def test_an_answer_that_was_given_is_given_again() -> None:
    async with (
        an_endpoint(places=2) as endpoint,
        endpoint.visiting() as posting,
        endpoint.visiting() as again,
    ):
        headers = await begun(endpoint, posting.client)
        async with endpoint.visiting() as broken:
            await broken.client.send("POST", "/mcp", headers, message("tools/call", 9, name="x"))
            await trio.testing.wait_all_tasks_blocked()
            peer = endpoint.served[0].peer
            peer.notify("p", b"1", b"9")
            endpoint.outbox.flush()
            await broken.client.head()
            first = (await broken.client.chunk()).split(b"\n", 1)[0].removeprefix(b"id: ").decode()
        await trio.testing.wait_all_tasks_blocked()
        peer.answer(b"9", b'"done"')
        response = await again.client.ask("GET", "/mcp", {**headers, "last-event-id": first})
        assert response.body.endswith(b'"result":"done"}\n\n')
        response = await again.client.ask("GET", "/mcp", {**headers, "last-event-id": "7-7"})
        assert response.status == 400


async def test_a_session_that_nobody_uses_ends_and_a_listening_one_does_not() -> None:
    async with (
        an_endpoint(places=2) as endpoint,
        endpoint.visiting() as posting,
        endpoint.visiting() as listening,
    ):
        headers = await begun(endpoint, posting.client)
        await begun(endpoint, posting.client)
        await listening.client.send("GET", "/mcp", headers)
        await listening.client.head()
        sessions = endpoint.mcp.sessions
        sessions.tick(trio.current_time())
        assert len(sessions) == 2
        await trio.sleep(IDLE_SECONDS)
        sessions.tick(trio.current_time())
        assert len(sessions) == 1


async def test_the_longest_unused_session_makes_room_and_busy_ones_do_not() -> None:
    async with (
        an_endpoint(places=2) as endpoint,
        endpoint.visiting() as one,
        endpoint.visiting() as two,
        endpoint.visiting() as three,
    ):
        sessions = endpoint.mcp.sessions
        first = await begun(endpoint, one.client)
        await trio.sleep(1)
        second = await begun(endpoint, one.client)
        await begun(endpoint, one.client)
        assert len(sessions) == 2
        with pytest.raises(Refusal, match="no such session"):
            sessions.find(first["mcp-session-id"], ALICE)
        await two.client.send("POST", "/mcp", second, message("tools/call", 1, name="x"))
        await trio.testing.wait_all_tasks_blocked()
        third = await begun(endpoint, one.client)
        await three.client.send("POST", "/mcp", third, message("tools/call", 1, name="x"))
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(Refusal, match=r"2 sessions are in use"):
            sessions.begin(ALICE, RequestNames())


async def test_sessions_of_some_visitors_can_be_ended() -> None:
    async with (
        an_endpoint(places=2) as endpoint,
        endpoint.visiting() as visit,
        endpoint.visiting() as waiting,
    ):
        headers = await begun(endpoint, visit.client)
        await waiting.client.send("POST", "/mcp", headers, message("tools/call", 1, name="x"))
        await trio.testing.wait_all_tasks_blocked()
        endpoint.place = BOB
        await begun(endpoint, visit.client)
        endpoint.mcp.sessions.end_all(lambda visitor: visitor.token == "alice")
        endpoint.outbox.flush()
        assert len(endpoint.mcp.sessions) == 1
        assert (await waiting.client.response()).status == 404
