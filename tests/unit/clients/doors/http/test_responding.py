"""Responses: their framing, and what HEAD and HTTP/1.0 change about it."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

import trio
import trio.testing

from tests.unit.clients.doors.http.visiting import visiting

if TYPE_CHECKING:
    from daemon.clients.doors.http.exchange import HttpExchange


def answer(exchange: HttpExchange) -> None:
    exchange.headers = {"x-always": "1"}
    exchange.respond(HTTPStatus.OK, (b"he", memoryview(b"llo")), {"x-once": "2"})


async def test_a_response_has_its_length_and_all_headers(autojump_clock: trio.testing.MockClock) -> None:
    with trio.fail_after(100):
        async with visiting(answer) as visit:
            response = await visit.client.ask("GET", "/")
    assert (response.body, response.headers) == (
        b"hello",
        {"x-always": "1", "x-once": "2", "content-length": "5"},
    )


async def test_head_gets_no_body(autojump_clock: trio.testing.MockClock) -> None:
    with trio.fail_after(100):
        async with visiting(answer) as visit:
            response = await visit.client.ask("HEAD", "/")
            assert (response.body, response.headers["content-length"]) == (b"", "5")
            assert (await visit.client.ask("GET", "/")).body == b"hello"


async def test_a_stream_is_sent_part_by_part(autojump_clock: trio.testing.MockClock) -> None:
    waiting: list[HttpExchange] = []
    with trio.fail_after(100):
        async with visiting(waiting.append) as visit:
            await visit.client.send("GET", "/")
            await trio.testing.wait_all_tasks_blocked()
            waiting[0].open_stream({"content-type": "text/event-stream"})
            waiting[0].send((b"a", b"b"))
            visit.outbox.flush()
            assert (await visit.client.head()).status_code == 200
            assert await visit.client.chunk() == b"ab"
            waiting[0].send((b"c",))
            waiting[0].finish()
            visit.outbox.flush()
            assert [await visit.client.chunk(), await visit.client.chunk()] == [b"c", b""]


async def test_a_client_of_http_1_0_gets_a_stream_until_it_is_closed(
    autojump_clock: trio.testing.MockClock,
) -> None:
    def serve(exchange: HttpExchange) -> None:
        exchange.open_stream({})
        exchange.send((b"all",))
        exchange.finish()

    with trio.fail_after(100):
        async with visiting(serve) as visit:
            await visit.client.stream.send_all(b"GET / HTTP/1.0\r\n\r\n")
            said = b"".join([chunk async for chunk in visit.client.stream])
    assert said.endswith(b"\r\n\r\nall")
