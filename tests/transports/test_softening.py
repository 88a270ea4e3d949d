"""The soft transport over a scripted one: what the SDK sees, what the connection is told."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import attrs
import httpx2
import pytest
import trio
import trio.testing

from daemon.transports.failures import Failure, Kind
from daemon.transports.softening import ABANDONED_SECONDS, NOTE_SECONDS, REOPEN_DELAYS, SoftTransport

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    Script = Callable[[httpx2.Request], Awaitable[httpx2.Response]]


@attrs.define
class Told:
    heard_times: int = 0
    failures: list[tuple[int | None, Failure]] = attrs.field(factory=list)
    reopenings: int = 0

    def heard(self) -> None:
        self.heard_times += 1

    def failed(self, key: int | None, failure: Failure) -> None:
        self.failures.append((key, failure))

    def reopened(self) -> None:
        self.reopenings += 1


@attrs.define
class Scripted(httpx2.AsyncBaseTransport):
    script: Script

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        return await self.script(request)


class Stream(httpx2.AsyncByteStream):
    """Some chunks, then an error or silence."""

    def __init__(self, *chunks: bytes, error: Exception | None = None) -> None:
        self.chunks = chunks
        self.error = error

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self.chunks:
            yield chunk
        if self.error is not None:
            raise self.error
        await trio.sleep_forever()


def soft(script: Script) -> tuple[SoftTransport, Told]:
    told = Told()
    return SoftTransport(Scripted(script), told, place="h:1", max_bytes=1000), told


def post(**message: object) -> httpx2.Request:
    return httpx2.Request("POST", "http://h:1/mcp", json={"jsonrpc": "2.0", **message})


def events(stream: httpx2.AsyncByteStream) -> httpx2.Response:
    return httpx2.Response(200, headers={"content-type": "text/event-stream"}, stream=stream)


async def broken(request: httpx2.Request) -> httpx2.Response:
    raise httpx2.ReadError("gone")


async def silent(request: httpx2.Request) -> httpx2.Response:
    await trio.sleep_forever()
    raise AssertionError


async def test_a_network_error_is_told_and_answered_with_nothing() -> None:
    transport, told = soft(broken)
    response = await transport.handle_async_request(post(id=7, method="ping"))
    assert response.status_code == 202
    assert [(key, failure.kind) for key, failure in told.failures] == [(7, Kind.BROKEN)]


@pytest.mark.parametrize("message", [{"method": "notifications/x"}, {"id": 7, "result": {}}])
async def test_what_is_no_request_of_ours_has_no_key(message: dict[str, object]) -> None:
    transport, told = soft(broken)
    await transport.handle_async_request(post(**message))
    assert [key for key, _ in told.failures] == [None]


async def test_a_notification_does_not_hold_up_what_follows(autojump_clock: trio.testing.MockClock) -> None:
    transport, told = soft(silent)
    response = await transport.handle_async_request(post(method="notifications/x"))
    assert (response.status_code, trio.current_time()) == (202, NOTE_SECONDS)
    assert not told.failures


async def test_an_error_within_an_event_stream_is_its_end() -> None:
    async def script(request: httpx2.Request) -> httpx2.Response:
        return events(Stream(b"data: 1\n\n", error=httpx2.ReadError("gone")))

    transport, told = soft(script)
    response = await transport.handle_async_request(post(id=7, method="ping"))
    assert await response.aread() == b"data: 1\n\n"
    assert not told.failures
    assert told.heard_times == 2


async def test_an_abandoned_stream_ends_soon(autojump_clock: trio.testing.MockClock) -> None:
    async def script(request: httpx2.Request) -> httpx2.Response:
        return events(Stream(b": alive\n\n"))

    transport, _ = soft(script)
    response = await transport.handle_async_request(post(id=7, method="ping"))
    transport.abandon(7)
    transport.abandon(8)
    assert await response.aread() == b": alive\n\n"
    assert trio.current_time() == ABANDONED_SECONDS


async def test_an_abandoned_request_without_an_answer_ends_soon(autojump_clock: trio.testing.MockClock) -> None:
    transport, _ = soft(silent)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(transport.handle_async_request, post(id=7, method="ping"))
        await trio.testing.wait_all_tasks_blocked()
        transport.abandon(7)
    assert trio.current_time() == ABANDONED_SECONDS


async def test_a_body_over_the_limit_is_not_read_to_its_end() -> None:
    async def script(request: httpx2.Request) -> httpx2.Response:
        stream = Stream(b"x" * 600, b"x" * 600)
        return httpx2.Response(200, headers={"content-type": "application/json"}, stream=stream)

    transport, told = soft(script)
    with trio.fail_after(30):
        await transport.handle_async_request(post(id=7, method="ping"))
    assert [(key, failure.kind) for key, failure in told.failures] == [(7, Kind.TOO_LARGE)]


async def test_an_http_error_without_json_becomes_an_answer() -> None:
    async def script(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(500, html="<h1>Oops</h1>")

    transport, told = soft(script)
    response = await transport.handle_async_request(post(id=7, method="ping"))
    assert json.loads(await response.aread())["error"] == {
        "code": -32603,
        "message": "h:1 answered HTTP 500 Internal Server Error",
    }
    assert not told.failures


async def test_the_stream_of_notifications_is_reopened(autojump_clock: trio.testing.MockClock) -> None:
    failing = 3

    async def script(request: httpx2.Request) -> httpx2.Response:
        nonlocal failing
        if failing:
            failing -= 1
            raise httpx2.ConnectError("away")
        return events(Stream(error=httpx2.ReadError("gone")))

    transport, told = soft(script)
    for reopenings in (0, 1):
        response = await transport.handle_async_request(httpx2.Request("GET", "http://h:1/mcp"))
        assert await response.aread() == b""
        assert told.reopenings == reopenings
    assert trio.current_time() == sum(REOPEN_DELAYS[:3])
    assert not told.failures


async def test_reopening_has_an_end(autojump_clock: trio.testing.MockClock) -> None:
    transport, _ = soft(broken)
    with pytest.raises(httpx2.ReadError):
        await transport.handle_async_request(httpx2.Request("GET", "http://h:1/mcp"))
    assert trio.current_time() == sum(REOPEN_DELAYS)


async def test_a_stream_that_wants_credentials_is_told() -> None:
    async def script(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(401)

    transport, told = soft(script)
    await transport.handle_async_request(httpx2.Request("GET", "http://h:1/mcp"))
    assert [failure.kind for _, failure in told.failures] == [Kind.UNAUTHORIZED]


async def test_after_close_only_the_end_of_the_session_is_sent() -> None:
    sent: list[str] = []

    async def script(request: httpx2.Request) -> httpx2.Response:
        sent.append(request.method)
        if request.method == "POST":
            await trio.sleep_forever()
        return httpx2.Response(200)

    transport, _ = soft(script)
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(transport.handle_async_request, post(id=7, method="ping"))
            await trio.testing.wait_all_tasks_blocked()
            transport.close()
        for method in ("POST", "GET", "DELETE"):
            await transport.handle_async_request(httpx2.Request(method, "http://h:1/mcp"))
    assert sent == ["POST", "DELETE"]


async def test_the_end_of_the_session_is_sent_even_when_we_are_cancelled() -> None:
    sent = trio.Event()

    async def script(request: httpx2.Request) -> httpx2.Response:
        await trio.lowlevel.checkpoint()
        sent.set()
        raise httpx2.ConnectError("gone")

    transport, _ = soft(script)
    with trio.CancelScope() as scope:
        scope.cancel()
        response: Any = await transport.handle_async_request(httpx2.Request("DELETE", "http://h:1/mcp"))
    assert sent.is_set()
    assert response.status_code == 204
