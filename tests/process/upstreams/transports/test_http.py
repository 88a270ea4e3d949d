"""Streamable HTTP against the SDK's own server, both eras, and against servers that misbehave."""

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
import trio
import trustme

from daemon.causes import Cause
from daemon.config.config_model import Server, TransportType
from daemon.errors import CannotStart, ConnectionLost, NeedsAuth, ProtocolFault, UpstreamLost
from daemon.model import Era
from daemon.processes.children import Children
from daemon.upstreams.handshake import initialize
from daemon.upstreams.transports.http_client import exchange, not_followed, read_body
from daemon.upstreams.transports.server_connection import OpenContext
from daemon.wire.envelope import RemoteError
from daemon.wire.outbox import Outbox
from tests.process.upstreams.transports.posts import OF_LIBRARIES, Scripted, Stream
from tests.unit.cases import cases
from tests.unit.upstreams.transports.listening import Listener
from tests.unit.upstreams.transports.serving import (
    SECONDS,
    TOOLS,
    Client,
    Fixture,
    Request,
    answer,
    connected,
    context_for,
    reply,
    scripted,
    serve,
)
from tests.waiting import background, in_time

Script = Callable[[Request], Awaitable[bytes]]

pytestmark = OF_LIBRARIES


def url(port: int) -> str:
    return f"http://127.0.0.1:{port}/mcp"


@asynccontextmanager
async def talking(era: Era, *, as_json: bool = False, **options: Any) -> AsyncIterator[tuple[Client, Fixture]]:
    """A client that has greeted the SDK's server."""
    fixture = Fixture()
    async with trio.open_nursery() as nursery:
        running = await serve(nursery, fixture.sdk.streamable_http_app(json_response=as_json))
        async with connected(context_for(TransportType.HTTP, url(running.port), **options)) as client:
            await client.greet(era)
            yield client, fixture
        await running.stop()


@asynccontextmanager
async def facing(script: Script, **options: Any) -> AsyncIterator[Client]:
    """A client of a scripted server that has not greeted it."""
    async with background() as nursery:
        port = await scripted(nursery, script)
        async with connected(context_for(TransportType.HTTP, url(port), **options)) as client:
            client.connection.adopt(Era.MODERN, "2026-07-28")
            yield client


# --- the protocol ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("era", "as_json"), list(zip(Era, (False, True), strict=True)))
async def test_a_call_and_a_listing_pass_through_unchanged(era: Era, as_json: bool) -> None:
    async with talking(era, as_json=as_json) as (client, _):
        listing = await client.ask("tools/list")
        assert listing["tools"] == TOOLS
        assert listing["vendorTop"] == 1
        caller = await client.call("echo", a=[1, 1.5, 10**25, "ü", None])
        assert caller.result["content"] == [{"type": "video", "odd": True}]
        assert caller.result["echo"] == {"a": [1, 1.5, 10**25, "ü", None]}
        assert client.connection.in_flight == 0


async def test_arguments_marked_in_the_schema_are_repeated_in_headers() -> None:
    async with talking(Era.MODERN) as (client, fixture):
        await client.ask("tools/list")
        caller = await client.call("mirrored", place="here")
        assert caller.result["echo"] == {"place": "here"}
        assert fixture.headers[-1]["mcp-param-place"] == "here"
        assert fixture.headers[-1]["mcp-name"] == "mirrored"


# --- restarts ----------------------------------------------------------------------------------------------


# --- servers that misbehave --------------------------------------------------------------------------------


async def test_nobody_there() -> None:
    with trio.socket.socket() as unused:
        await unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        context = context_for(TransportType.HTTP, f"http://user:secret@127.0.0.1:{port}/mcp?key=secret")
        with pytest.raises(ConnectionLost) as caught:
            async with connected(context):
                pass
    assert str(caught.value) == f"cannot connect to 127.0.0.1:{port}: Connection refused"


async def test_a_connection_that_breaks_under_a_call_is_named_without_its_path() -> None:
    async def hang_up(_: Request) -> bytes:
        return b""

    async with facing(hang_up) as client:
        assert "to 127.0.0.1:" in str((await client.call("echo")).loss)


async def test_an_untrusted_certificate_cannot_start() -> None:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(tls)

    async def shake(stream: trio.SSLStream[trio.SocketStream]) -> None:
        with pytest.raises(trio.BrokenResourceError):
            await stream.do_handshake()

    async with background() as nursery:
        [listener] = await trio.open_ssl_over_tcp_listeners(0, tls, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, shake, [listener])
        inner = listener.transport_listener
        assert isinstance(inner, trio.SocketListener)
        port = inner.socket.getsockname()[1]
        with pytest.raises(CannotStart, match=f"tls: the certificate of 127.0.0.1:{port} is not trusted"):
            async with connected(context_for(TransportType.HTTP, f"https://127.0.0.1:{port}/mcp")):
                pass


async def test_403_ends_the_connection_only_if_it_was_about_ourselves() -> None:
    async def forbid(request: Request) -> bytes:
        return reply(b"", "403 Forbidden")

    async with facing(forbid) as client:
        caller = await client.call("echo")
        assert "HTTP 403" in caller.error["message"]
        assert not client.over.is_set()
        with pytest.raises(NeedsAuth) as raised:
            await client.ask("tools/list")
        assert raised.value.reason.cause is Cause.FORBIDDEN
        await client.over.wait()


@pytest.mark.parametrize("body", [b"<html>", b'{"status": "ok"}', b""])
async def test_what_is_no_answer_in_place_of_the_handshake_is_told(body: bytes) -> None:
    form = "text/html" if body == b"<html>" else "application/json"

    async def page(request: Request) -> bytes:
        return reply(body, "200 OK", f"{form}; charset=utf-8")

    async with facing(page) as client:
        with pytest.raises(RemoteError, match=f"HTTP 200 with {form}"):
            await client.ask("server/discover")
        with pytest.raises(ConnectionLost, match=f"HTTP 200 with {form}") as raised:
            await initialize(client.connection, SECONDS)
        assert raised.value.reason.cause is Cause.NOT_MCP
        assert raised.value.reason.data["form"] == form


async def test_404_without_a_session_is_an_answer() -> None:
    async def lose(request: Request) -> bytes:
        return reply(b"<html>", "404 Not Found", "text/html")

    async with facing(lose) as client:
        with pytest.raises(RemoteError, match=r"answered HTTP 404 Not Found \(-32601\)"):
            await client.ask("server/discover")
        assert not client.over.is_set()
        with pytest.raises(ProtocolFault, match="HTTP 404") as raised:
            await initialize(client.connection, SECONDS)
        assert raised.value.reason.cause is Cause.NOT_AN_ENDPOINT
        assert raised.value.reason.data["status"] == 404


@pytest.mark.parametrize(
    "status", ["404 Not Found", "410 Gone", "400 Bad Request"], ids=lambda status: status[:3]
)
async def test_each_way_to_end_a_session(status: str) -> None:
    listed = False

    async def forget(request: Request) -> bytes:
        if request.method != "POST":
            return reply(b"", "405 Method Not Allowed")
        if request.body["method"] == "initialize":
            return answer(request, {"protocolVersion": "2025-11-25"}, mcp_session_id="s1")
        nonlocal listed
        if not listed:
            listed = True
            return answer(request, {"tools": []})
        return reply(b"No valid session ID provided", status, "text/plain")

    async with facing(forget) as client:
        client.connection.adopt(Era.HANDSHAKE, "2025-11-25")
        await client.ask("initialize")
        await client.ask("tools/list")
        with pytest.raises(ConnectionLost, match="the server ended the session"):
            await client.ask("tools/list")
        await client.over.wait()


# --- the end -----------------------------------------------------------------------------------------------


async def test_an_owner_that_is_cancelled_gets_out_at_once() -> None:
    fixture = Fixture()
    async with trio.open_nursery() as nursery:
        running = await serve(nursery, fixture.sdk.streamable_http_app())
        with trio.fail_after(SECONDS), trio.CancelScope() as owner:
            async with connected(context_for(TransportType.HTTP, url(running.port))) as client:
                await client.greet(Era.HANDSHAKE)
                _, caller = client.start("wait")
                await fixture.waiting.wait()
                owner.cancel()
                await trio.sleep_forever()
        assert isinstance(caller.loss, UpstreamLost)
        await running.stop()


# --- the HTTP client -----------------------------------------------------------------------------------------


def redirecting(*targets: str, status: int = 307) -> Scripted:
    """A server that leads from one place to the next, and answers at the last."""
    left = list(targets)

    async def script(request: httpx2.Request) -> httpx2.Response:
        await trio.lowlevel.checkpoint()
        if left:
            return httpx2.Response(status, headers={"location": left.pop(0)})
        return httpx2.Response(200, text=f"{request.method} {request.url} {request.read().decode()}")

    return Scripted(script)


async def ended(transport: Scripted, url: str) -> tuple[int, str, str]:
    """Where a POST comes to its end: status, body, and the redirect that was not followed."""
    async with (
        httpx2.AsyncClient(transport=transport) as client,
        exchange(client, "POST", url, {}, b"{}") as response,
    ):
        body = await read_body(response, 1000)
        assert body is not None
        return response.status_code, body.decode(), not_followed(response)


@cases("url", "target")
async def test_a_redirect_within_the_origin_is_followed_with_its_message(url: str, target: str) -> None:
    status, body, left = await ended(redirecting(target), url)
    assert (status, left) == (200, "")
    assert body.startswith("POST ")
    assert body.endswith("/mcp/ {}")


@cases("url", "target", "status")
async def test_any_other_is_not_and_is_named_without_its_secrets(url: str, target: str, status: int) -> None:
    transport = redirecting(target, status=status)
    ended_with, _, left = await ended(transport, url)
    assert (ended_with, len(transport.sent)) == (status, 1)
    assert "/mcp/ that is not followed" in left
    assert "secret" not in left


async def test_a_body_over_the_limit_is_not_read_to_its_end() -> None:
    response = httpx2.Response(200, stream=Stream(b"x" * 600, b"x" * 600))
    assert await in_time(read_body(response, 1000)) is None


async def test_credentials_do_not_follow_a_redirect_to_another_origin() -> None:
    met: list[Request] = []

    async def meet(request: Request) -> bytes:
        met.append(request)
        return answer(request, {})

    async with background() as nursery:
        elsewhere = await scripted(nursery, meet)

        async def redirect(request: Request) -> bytes:
            return reply(b"", "307 Temporary Redirect", location=f"http://127.0.0.1:{elsewhere}/mcp?key=secret")

        async with facing(redirect, headers={"Authorization": "Bearer t"}) as client:
            caller = await client.call("echo")
            assert f"127.0.0.1:{elsewhere}" in caller.error["message"]
            assert "secret" not in caller.error["message"]
    assert not met


# --- from a server's type to its transport -------------------------------------------------------------------


def test_a_context_keeps_secrets_out_of_its_repr() -> None:
    server = Server(name="s", command="x", env={"TOKEN": "canary"}, headers={"Authorization": "canary"})
    given = OpenContext(server=server, events=Listener(), outbox=Outbox(), children=Children())
    assert "canary" not in repr(given)
