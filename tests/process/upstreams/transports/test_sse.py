"""HTTP with SSE against the SDK's own server, and against servers that misbehave."""

import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.testing
import trustme
from mcp.server.sse import SseServerTransport
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Mount, Route
from trio_websocket import ConnectionClosed, WebSocketConnection, WebSocketRequest, serve_websocket
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, TextMessage

from daemon.authorization.logins import FileLogins, Login, ServerLogins
from daemon.causes import Cause
from daemon.config.config_model import TransportType
from daemon.errors import (
    Busy,
    ConnectionLost,
    NeedsAuth,
    ProtocolFault,
    RunError,
    UpstreamLost,
    UpstreamUnavailable,
)
from daemon.model import Era
from daemon.protocol import MODERN_VERSION
from tests.process.upstreams.transports.posts import OF_LIBRARIES
from tests.unit.upstreams.transports.serving import (
    Client,
    Fixture,
    Request,
    Running,
    connected,
    context_for,
    reply,
    scripted,
    serve,
)
from tests.waiting import background

Conversation = Callable[[WebSocketRequest], Awaitable[None]]

pytestmark = OF_LIBRARIES


def app(fixture: Fixture, *, refusing: list[int]) -> Starlette:
    """An SSE server; while `refusing` holds a status, it is what POSTs of calls are answered with."""
    transport = SseServerTransport("/messages/")

    async def stream(request: Any) -> Response:
        async with transport.connect_sse(request.scope, request.receive, request._send) as streams:
            received, written = streams
            await fixture.sdk.run(received, written, fixture.sdk.create_initialization_options())
        return Response()

    async def post(scope: Any, receive: Any, send: Any) -> None:
        if refusing:
            await Response(status_code=refusing[0])(scope, receive, send)
        else:
            await transport.handle_post_message(scope, receive, send)

    return Starlette(routes=[Route("/sse", stream), Mount("/messages/", app=post)])


@asynccontextmanager
async def talking(**options: Any) -> AsyncIterator[tuple[Client, Fixture, list[int], Running]]:
    fixture = Fixture()
    refusing: list[int] = []
    async with trio.open_nursery() as nursery:
        running = await serve(nursery, app(fixture, refusing=refusing))
        url = f"http://127.0.0.1:{running.port}/sse"
        async with connected(context_for(TransportType.SSE, url, **options)) as client:
            await client.greet(Era.HANDSHAKE)
            yield client, fixture, refusing, running
        await running.stop()


async def test_a_call_that_is_cancelled_in_the_modern_era_is_too() -> None:
    """A POST only carries the call, so its end says nothing: the server is told in the handshake era's way."""
    async with talking() as (client, fixture, _, _):
        key, _ = client.start("wait")
        await fixture.waiting.wait()
        client.connection.adopt(Era.MODERN, MODERN_VERSION)
        client.connection.cancel(key, "enough")
        await fixture.cancelled.wait()


async def test_a_post_that_fails_costs_its_call() -> None:
    async with talking() as (client, _, refusing, _):
        refusing.append(500)
        assert "HTTP 500" in (await client.call("echo")).error["message"]
        refusing[:] = [403]
        assert "HTTP 403" in (await client.call("echo")).error["message"]
        refusing[:] = [503]
        assert isinstance((await client.call("echo")).loss, UpstreamUnavailable)
        refusing.clear()
        assert (await client.call("echo")).result is not None


async def test_an_unknown_session_ends_the_connection() -> None:
    async with talking() as (client, _, refusing, _):
        # The notification of the greeting must be through, or it would be the one to find out.
        await client.call("echo")
        refusing.append(404)
        assert isinstance((await client.call("echo")).loss, UpstreamUnavailable)
        await client.over.wait()
        assert "the server ended the session" in str(client.end)
        assert isinstance(client.end, ConnectionLost)
        assert client.end.reason.cause is Cause.SESSION_OVER


# --- servers that misbehave --------------------------------------------------------------------------------


async def open_to(response: bytes) -> None:
    async def script(request: Request) -> bytes:
        return response

    async with trio.open_nursery() as nursery:
        port = await scripted(nursery, script)
        try:
            async with connected(context_for(TransportType.SSE, f"http://127.0.0.1:{port}/sse?k=secret")):
                pass
        finally:
            nursery.cancel_scope.cancel()


def events(text: str) -> bytes:
    return reply(text.encode(), content_type="text/event-stream")


@pytest.mark.parametrize(
    ("response", "error", "cause", "text"),
    [
        (reply(b"", "401 Unauthorized"), NeedsAuth, Cause.UNAUTHORIZED, "HTTP 401"),
        (reply(b"", "404 Not Found"), ConnectionLost, Cause.NOT_AN_ENDPOINT, "HTTP 404"),
        (reply(b"", "302 Found", location="http://x.invalid/"), ConnectionLost, Cause.REDIRECT, "HTTP 302"),
        (reply(b"", "403 Forbidden"), NeedsAuth, Cause.FORBIDDEN, "HTTP 403"),
        (reply(b"", "503 Busy", retry_after="7"), Busy, Cause.BUSY, "retry after 7 s"),
        (reply({}), ConnectionLost, Cause.CONNECTION_LOST, "content type"),
        (events(": nothing\n\n"), ConnectionLost, Cause.CONNECTION_LOST, "ended its stream"),
        (
            events("event: endpoint\ndata: http://example.invalid/?s=1\n\n"),
            ProtocolFault,
            Cause.OTHER_ORIGIN,
            "another origin",
        ),
        *(
            (events(f"event: endpoint\ndata: {named}\n\n"), ProtocolFault, Cause.NOT_MCP, "is not a url")
            for named in ("http://[::1", "/a\0b", "/" + "x" * 100_000)
        ),
    ],
)
async def test_a_stream_that_does_not_open(
    response: bytes, error: type[RunError], cause: Cause, text: str
) -> None:
    with pytest.RaisesGroup(error, flatten_subgroups=True) as caught:
        await open_to(response)
    [met] = caught.value.exceptions
    assert isinstance(met, RunError)
    assert met.reason.cause is cause
    assert text in str(met)
    assert "secret" not in f"{met} {met.reason.data}"


async def test_an_answer_over_the_limit_ends_the_connection() -> None:
    async with talking() as (client, _, _, _):
        assert isinstance((await client.call("big", size=2_000_000)).loss, UpstreamLost)
        await client.over.wait()
        assert "byte limit" in str(client.end)
        assert isinstance(client.end, ConnectionLost)
        assert client.end.reason.cause is Cause.MESSAGE_TOO_LARGE


# --- A WebSocket server, spoken to as the actor would --------------------------------------------------------


async def listening(nursery: trio.Nursery, converse: Conversation) -> int:
    server: Any = await nursery.start(partial(serve_websocket, converse, "127.0.0.1", 0, ssl_context=None))
    port: int = server.port
    return port


@asynccontextmanager
async def conversing(converse: Conversation, **options: Any) -> AsyncIterator[Client]:
    async with background() as nursery:
        port = await listening(nursery, converse)
        context = context_for(TransportType.WS, f"ws://127.0.0.1:{port}/mcp?k=v", **options)
        async with connected(context) as client:
            client.connection.adopt(Era.HANDSHAKE, "2025-11-25")
            yield client


async def echo(request: WebSocketRequest) -> None:
    """Answers each message with its params, or does what the tool's name says."""
    socket = await request.accept(subprotocol="mcp")
    async with socket:
        try:
            while True:
                await answer(socket, json.loads(await socket.get_message()), request)
        except ConnectionClosed:
            pass


async def answer(socket: WebSocketConnection, asked: Any, request: WebSocketRequest) -> None:
    name = asked.get("params", {}).get("name")
    if name == "close":
        await socket.aclose(1001, "going home")
        return
    got = dict(request.headers).get(b"x-key", b"").decode() if name == "header" else asked["params"]
    if name == "big":
        got = "x" * asked["params"]["arguments"]["size"]
    reply = json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": {"got": got}}, ensure_ascii=False)
    await socket.send_message(reply.encode() if name == "binary" else reply)


async def test_configured_headers_and_the_query_are_sent() -> None:
    paths: list[str] = []

    async def converse(request: WebSocketRequest) -> None:
        paths.append(request.path)
        assert request.proposed_subprotocols == ("mcp",)
        await echo(request)

    async with conversing(converse, headers={"X-Key": "k"}) as client:
        assert (await client.call("header")).result == {"got": "k"}
    assert paths == ["/mcp?k=v"]


async def test_a_binary_message_may_hold_json() -> None:
    async with conversing(echo) as client:
        assert (await client.call("binary")).result["got"]["name"] == "binary"


async def test_a_server_behind_tls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    authority, context = trustme.CA(), ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(context)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    async with background() as nursery:
        server: Any = await nursery.start(partial(serve_websocket, echo, "127.0.0.1", 0, ssl_context=context))
        async with connected(context_for(TransportType.WS, f"wss://localhost:{server.port}/")) as client:
            client.connection.adopt(Era.HANDSHAKE, "2025-11-25")
            assert (await client.call("t", a="x" * 1_000_000)).result["got"]["name"] == "t"
            caller = await client.call("close")
            assert isinstance(caller.loss, UpstreamLost)
            await client.over.wait()
            assert "code 1001 (GOING_AWAY): going home" in str(client.end)


async def test_what_a_server_says_with_its_handshake_is_heard() -> None:
    async def speak(stream: trio.SocketStream) -> None:
        server = WSConnection(ConnectionType.SERVER)
        server.receive_data(await stream.receive_some())
        assert len(list(server.events())) == 1
        early = TextMessage(data='{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}')
        await stream.send_all(server.send(AcceptConnection(subprotocol="mcp")) + server.send(early))
        await trio.sleep_forever()

    async with background() as nursery:
        [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        port = listener.socket.getsockname()[1]
        nursery.start_soon(trio.serve_listeners, speak, [listener])
        async with connected(context_for(TransportType.WS, f"ws://127.0.0.1:{port}/")) as client:
            await client.events.changed.wait()
            assert client.events.changes == 1


async def test_the_handshake_carries_the_login_and_is_made_again_with_a_renewed_one(tmp_path: Path) -> None:
    shown: list[str] = []

    async def guarded(request: WebSocketRequest) -> None:
        shown.append(dict(request.headers).get(b"authorization", b"").decode())
        if shown[-1] == "Bearer token-1":
            await echo(request)
        else:
            await request.reject(401, extra_headers=[(b"WWW-Authenticate", b"Bearer")])

    async def renewing(request: Request) -> bytes:
        assert request.path == "/token"
        return reply({"access_token": "token-1", "token_type": "Bearer"})

    logins = ServerLogins(FileLogins(tmp_path))
    async with background() as nursery:
        port, tokens = await listening(nursery, guarded), await scripted(nursery, renewing)
        context = context_for(TransportType.WS, f"ws://127.0.0.1:{port}/mcp")
        with pytest.raises(NeedsAuth) as caught:
            async with connected(attrs.evolve(context, logins=logins)):
                raise AssertionError
        assert caught.value.reason.cause is Cause.LOGIN_NEEDED
        login = Login(
            url=f"http://127.0.0.1:{port}/mcp",
            issuer=f"http://127.0.0.1:{tokens}",
            token_endpoint=f"http://127.0.0.1:{tokens}/token",
            client_id="c",
            access_token="token-0",
            refresh_token="refresh-0",
        )
        logins.kept.write("s", login)
        async with connected(attrs.evolve(context, logins=logins)) as client:
            client.connection.adopt(Era.HANDSHAKE, "2025-11-25")
            assert (await client.call("t")).result is not None
    assert shown == ["", "Bearer token-0", "Bearer token-1"]
