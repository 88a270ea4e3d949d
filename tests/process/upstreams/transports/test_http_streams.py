"""Streams of events over streamable HTTP: taken up where they broke off, reopened, and bounded."""

import itertools
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import httpx2
import pytest
import trio
import trio.testing

from daemon import errors
from daemon.causes import Cause
from daemon.model import Era
from daemon.upstreams.transports.http import REOPEN_DELAYS, RESUME_ATTEMPTS, HttpLink, end_session
from daemon.upstreams.transports.posting import ABANDONED_SECONDS, NOTE_SECONDS
from daemon.upstreams.transports.server_connection import UPSTREAM_QUEUE_BYTES
from daemon.wire.envelope import RemoteError
from tests.process.upstreams.transports.posts import Script, events, posting, result, said
from tests.unit.upstreams.transports.serving import HANDSHAKE_VERSION, Client

OnGet = Callable[[httpx2.Request], httpx2.Response]

BROKEN = httpx2.ReadError("gone")


def handshaking(on_get: OnGet, on_call: Script | None = None) -> Script:
    """A server of the handshake era with a session."""

    async def script(request: httpx2.Request) -> httpx2.Response:
        method = said(request).get("method", request.method)
        if method == "GET":
            return on_get(request)
        if method == "initialize":
            return result(request, {"protocolVersion": HANDSHAKE_VERSION}, **{"mcp-session-id": "s1"})
        if method == "tools/call" and on_call is not None:
            return await on_call(request)
        return result(request, {}) if method == "ping" else httpx2.Response(202)

    return script


@asynccontextmanager
async def in_session(
    on_get: OnGet, on_call: Script | None = None
) -> AsyncIterator[tuple[Client, HttpLink, list[str]]]:
    async with posting(handshaking(on_get, on_call)) as (client, link, sent):
        await client.greet(Era.HANDSHAKE)
        await trio.testing.wait_all_tasks_blocked()
        yield client, link, sent


def event(message: object, **fields: object) -> bytes:
    lines = [f"{name}: {value}\n" for name, value in fields.items()]
    return "".join([*lines, f"data: {json.dumps(message)}\n\n"]).encode()


CHANGED = event({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}, id="e7", retry=3000)


async def test_the_stream_of_notifications_is_reopened(autojump_clock: trio.testing.MockClock) -> None:
    """After what the server asked for (`retry`), from where it was; each time changes may have been missed."""
    resumed: list[str | None] = []
    reopened = trio.Event()

    def on_get(request: httpx2.Request) -> httpx2.Response:
        assert request.headers["mcp-session-id"] == "s1"
        assert request.headers["mcp-protocol-version"] == HANDSHAKE_VERSION
        resumed.append(request.headers.get("last-event-id"))
        if len(resumed) == 1:
            return events(CHANGED, error=BROKEN)
        reopened.set()
        return events()

    async with in_session(on_get) as (client, _, _):
        assert client.events.changes == 1
        await reopened.wait()
        assert trio.current_time() == 3
        await trio.testing.wait_all_tasks_blocked()
        assert client.events.changes == 2
    assert resumed == [None, "e7"]


@pytest.mark.parametrize("status", [0, 502])
async def test_reopening_has_an_end(status: int, autojump_clock: trio.testing.MockClock) -> None:
    times: list[float] = []

    def on_get(_request: httpx2.Request) -> httpx2.Response:
        times.append(trio.current_time())
        if status:
            return httpx2.Response(status)
        raise httpx2.ConnectError("away")

    async with in_session(on_get) as (client, _, _):
        await trio.sleep(10 * sum(REOPEN_DELAYS))
        assert [later - time for time, later in itertools.pairwise(times)] == [*REOPEN_DELAYS]
        assert not client.over.is_set()


@pytest.mark.parametrize(
    "response",
    [httpx2.Response(405), httpx2.Response(404), httpx2.Response(200, html="hello")],
    ids=["405", "404", "a web page"],
)
async def test_a_server_without_a_stream_is_not_asked_again(
    response: httpx2.Response, autojump_clock: trio.testing.MockClock
) -> None:
    async with in_session(lambda _request: response) as (client, _, sent):
        await trio.sleep(100)
        assert not client.over.is_set()
    assert sent.count("GET") == 1


def breaking_off(times: int) -> tuple[OnGet, Script, list[str]]:
    """A server whose stream for a call breaks off after an event with an id, and again so many times."""
    resumed: list[str] = []

    async def on_call(request: httpx2.Request) -> httpx2.Response:
        await trio.lowlevel.checkpoint()
        resumed.append(str(said(request)["id"]))
        return events(b"id: c1\ndata:\n\n", error=BROKEN)

    def on_get(request: httpx2.Request) -> httpx2.Response:
        if "last-event-id" not in request.headers:
            return httpx2.Response(405)
        uid = int(resumed[0])
        resumed.append(request.headers["last-event-id"])
        if len(resumed) <= 1 + times:
            raise httpx2.ConnectError("away")
        return events(event({"jsonrpc": "2.0", "id": uid, "result": {"late": True}}, id="c2"))

    return on_get, on_call, resumed


async def test_an_answer_is_waited_for_over_several_streams(autojump_clock: trio.testing.MockClock) -> None:
    on_get, on_call, resumed = breaking_off(RESUME_ATTEMPTS - 1)
    async with in_session(on_get, on_call) as (client, _, sent):
        assert (await client.call("echo")).result == {"late": True}
    assert resumed[1:] == ["c1"] * RESUME_ATTEMPTS
    assert sent.count("tools/call") == 1


async def test_a_call_is_lost_if_its_stream_cannot_be_taken_up(autojump_clock: trio.testing.MockClock) -> None:
    on_get, on_call, resumed = breaking_off(100)
    async with in_session(on_get, on_call) as (client, _, sent):
        caller = await client.call("echo")
        assert isinstance(caller.loss, errors.UpstreamLost)
        assert "whether the call ran is unknown" in caller.loss.message
        assert not client.over.is_set()
    assert len(resumed) == 1 + RESUME_ATTEMPTS
    assert sent.count("tools/call") == 1


class Comments(httpx2.AsyncByteStream):
    """A stream that holds nothing but a comment each second, for as long as it is read."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            yield b": still here\n\n"
            await trio.sleep(1)


@pytest.mark.parametrize("in_answer", [False, True])
async def test_a_comment_in_a_stream_is_a_sign_of_life(
    in_answer: bool, autojump_clock: trio.testing.MockClock
) -> None:
    def stream(_request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, stream=Comments())

    async def on_call(request: httpx2.Request) -> httpx2.Response:
        await trio.lowlevel.checkpoint()
        return stream(request)

    on_get = (lambda _request: httpx2.Response(405)) if in_answer else stream
    async with in_session(on_get, on_call) as (client, _, _):
        if in_answer:
            client.start("echo")
        await trio.sleep(100.5)
        assert client.connection.last_heard >= trio.current_time() - 1


def refusal(status: int, code: int | None, request: httpx2.Request) -> httpx2.Response:
    if code is None:
        return httpx2.Response(status, text="Bad Request: No valid session ID provided")
    error = {"code": code, "message": "x must be a string"}
    return httpx2.Response(status, json={"jsonrpc": "2.0", "id": said(request).get("id"), "error": error})


REFUSALS = pytest.mark.parametrize(
    ("status", "code"), [(400, None), (400, -32000), (400, -32600), (200, -32600)], ids=str
)


@asynccontextmanager
async def refusing(
    status: int, code: int | None, *, known: str = "ping"
) -> AsyncIterator[tuple[Client, list[str], set[str]]]:
    """A server with a session that refuses calls, and whatever else is in a set; `known` has worked before."""
    refused = {"tools/call"}
    plain = handshaking(lambda _request: httpx2.Response(405))

    async def script(request: httpx2.Request) -> httpx2.Response:
        method = said(request).get("method")
        if method in refused:
            return refusal(status, code, request)
        return result(request, {"tools": []}) if method == "tools/list" else await plain(request)

    async with posting(script) as (client, _, sent):
        await client.greet(Era.HANDSHAKE)
        await client.ask(known)
        yield client, sent, refused


@REFUSALS
@pytest.mark.parametrize("known", ["ping", "tools/list"])
async def test_a_refused_call_ends_a_session_only_if_what_has_worked_is_refused_too(
    status: int, code: int | None, known: str
) -> None:
    """Some servers say so that they forgot the session, and some that they do not like the arguments."""
    async with refusing(status, code, known=known) as (client, sent, refused):
        caller = await client.call("echo")
        if code is None:
            assert "HTTP 400" in caller.error["message"]
        else:
            assert caller.error == {"code": code, "message": "x must be a string"}
        assert not client.over.is_set()
        refused.add(known)
        caller = await client.call("echo")
        assert isinstance(caller.loss, errors.UpstreamUnavailable)
        assert "ended the session" in caller.loss.message
        assert "safe to try again" in caller.loss.message
        await client.over.wait()
        assert isinstance(client.end, errors.ConnectionLost)
        assert client.end.reason.cause is Cause.SESSION_OVER
    assert sent.count("tools/call") == 2
    assert sent.count(known) == 3


@REFUSALS
async def test_a_server_that_does_not_know_ping_keeps_its_session(status: int, code: int | None) -> None:
    async with refusing(status, code, known="tools/list") as (client, _, refused):
        refused.add("ping")
        with pytest.raises(RemoteError):
            await client.ask("ping")
        assert not client.over.is_set()


@REFUSALS
async def test_a_list_whose_cursor_is_refused_keeps_its_session(status: int, code: int | None) -> None:
    async with refusing(status, code) as (client, sent, refused):
        await client.ask("tools/list")
        refused.add("tools/list")
        with pytest.raises(RemoteError):
            await client.ask("tools/list", {"cursor": "2"})
        assert not client.over.is_set()
    assert sent.count("ping") == 2


async def test_the_end_of_the_session_is_told_even_when_we_are_cancelled() -> None:
    ended: list[str] = []

    async def script(request: httpx2.Request) -> httpx2.Response:
        if request.method == "DELETE":
            await trio.lowlevel.checkpoint()
            ended.append(request.headers["mcp-session-id"])
            raise httpx2.ConnectError("gone")
        return await handshaking(lambda _request: httpx2.Response(405))(request)

    async with posting(script) as (client, link, _):
        await client.greet(Era.HANDSHAKE)
        with trio.CancelScope() as scope:
            scope.cancel()
            await end_session(link)
    assert ended == ["s1"]


# --- the link whose frames are POSTs -------------------------------------------------------------------------


async def silent(request: httpx2.Request) -> httpx2.Response:
    await trio.sleep_forever()
    raise AssertionError


async def echo(request: httpx2.Request) -> httpx2.Response:
    return result(request, said(request)["params"]) if "id" in said(request) else httpx2.Response(202)


async def accept(request: httpx2.Request) -> httpx2.Response:
    await trio.lowlevel.checkpoint()
    return result(request, {})


async def mute(request: httpx2.Request) -> httpx2.Response:
    """Answers nothing, takes notifications."""
    return await silent(request) if "id" in said(request) else httpx2.Response(202)


async def test_a_notification_goes_before_the_requests_that_follow_it() -> None:
    async with posting(echo) as (client, _, sent):
        for step in range(3):
            client.connection.notify(f"note/{step}")
            await client.ask(f"ask/{step}")
    assert sent == ["note/0", "ask/0", "note/1", "ask/1", "note/2", "ask/2"]


@pytest.mark.parametrize(
    ("era", "seconds", "told"),
    [(Era.HANDSHAKE, ABANDONED_SECONDS, ["notifications/cancelled"]), (Era.MODERN, 0, [])],
)
async def test_a_request_that_is_given_up_is_closed(
    era: Era, seconds: float, told: list[str], autojump_clock: trio.testing.MockClock
) -> None:
    closed = trio.Event()

    async def script(request: httpx2.Request) -> httpx2.Response:
        try:
            return await mute(request)
        finally:
            if "id" in said(request):
                closed.set()

    async with posting(script) as (client, _, sent):
        client.connection.adopt(era, HANDSHAKE_VERSION)
        key, caller = client.start("wait")
        await trio.testing.wait_all_tasks_blocked()
        client.connection.cancel(key, "enough")
        await closed.wait()
        assert trio.current_time() == seconds
        assert sent[1:] == told
        assert not caller.ended.is_set()


@pytest.mark.parametrize(
    ("era", "method", "told"),
    [
        (Era.HANDSHAKE, "initialize", []),
        (Era.MODERN, "server/discover", []),
        (Era.HANDSHAKE, "ping", ["notifications/cancelled"]),
    ],
)
async def test_the_handshake_is_given_up_without_a_word(
    era: Era, method: str, told: list[str], autojump_clock: trio.testing.MockClock
) -> None:
    async with posting(mute) as (client, _, sent):
        client.connection.adopt(era, HANDSHAKE_VERSION)
        with pytest.raises(errors.UpstreamTimeout):
            await client.connection.request(method, {}, timeout=5)
        await trio.testing.wait_all_tasks_blocked()
    assert sent == [method, *told]


async def test_an_ended_connection_takes_nothing() -> None:
    async with posting(echo) as (client, link, sent):
        link.state.end_with(errors.ConnectionLost("gone"))
        client.connection.notify("notifications/x")
        with pytest.raises(errors.UpstreamLost, match="gone"):
            await client.ask("ping")
        with pytest.raises(errors.UpstreamUnavailable, match="not sent"):
            client.start("echo")
    assert sent == []
    async with posting(echo) as (client, link, _):
        link.state.end_with(errors.NeedsAuth("who?"))
        with pytest.raises(errors.NeedsAuth):
            await client.ask("ping")


def fill(client: Client) -> None:
    """More notifications than may wait for a server, as it has not begun to take any."""
    for _ in range(5):
        client.connection.notify("notifications/x", {"much": "x" * (UPSTREAM_QUEUE_BYTES // 4)})


async def test_a_server_that_takes_no_notifications_is_given_up_in_time(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with posting(silent) as (client, link, _):
        for _ in range(3):
            fill(client)
            with pytest.raises(errors.Overloaded):
                client.start("echo")
            assert not client.over.is_set()
            await trio.sleep(NOTE_SECONDS + 1)
        fill(client)
        await client.over.wait()
        assert link.queued == 0
    assert "does not read" in str(client.end)
    assert isinstance(client.end, errors.ConnectionLost)
    assert client.end.reason.cause is Cause.NOT_READING


async def test_calls_behind_a_slow_notification_wait_however_large_they_are(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def script(request: httpx2.Request) -> httpx2.Response:
        return await (accept if "id" in said(request) else silent)(request)

    async with posting(script) as (client, _, sent):
        client.connection.notify("notifications/x")
        await trio.testing.wait_all_tasks_blocked()
        calls = [client.start("echo", much="x" * (UPSTREAM_QUEUE_BYTES // 4)) for _ in range(6)]
        client.connection.cancel(calls.pop()[0], "enough")
        for _, caller in calls:
            await caller.ended.wait()
            assert caller.result is not None
    # The one that was given up meanwhile was never sent, so there was nothing to cancel.
    assert sent == ["notifications/x", *["tools/call"] * 5]
