"""A WebSocket server, spoken to as the actor would."""

from __future__ import annotations

import json
import ssl
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio
import trio.testing
import trustme
from trio_websocket import ConnectionClosed, serve_websocket
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, TextMessage

from daemon.authorization.logins import FileLogins, Login, ServerLogins
from daemon.causes import Cause
from daemon.config.config_model import TransportType
from daemon.errors import ConnectionLost, NeedsAuth, UpstreamLost
from daemon.model import Era
from tests.unit.upstreams.transports.serving import Client, connected, context_for, reply, scripted

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from trio_websocket import WebSocketConnection, WebSocketRequest

    from tests.unit.upstreams.transports.serving import Request

    Conversation = Callable[[WebSocketRequest], Awaitable[None]]


async def listening(nursery: trio.Nursery, converse: Conversation) -> int:
    server: Any = await nursery.start(partial(serve_websocket, converse, "127.0.0.1", 0, ssl_context=None))
    port: int = server.port
    return port


@asynccontextmanager
async def talking(converse: Conversation, **options: Any) -> AsyncIterator[Client]:
    async with trio.open_nursery() as nursery:
        port = await listening(nursery, converse)
        context = context_for(TransportType.WS, f"ws://127.0.0.1:{port}/mcp?k=v", **options)
        async with connected(context) as client:
            client.connection.adopt(Era.HANDSHAKE, "2025-11-25")
            yield client
        nursery.cancel_scope.cancel()


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


async def test_a_call_goes_through() -> None:
    async with talking(echo) as client:
        caller = await client.call("t", a="ü")
        assert caller.result == {"got": {"name": "t", "arguments": {"a": "ü"}}}
        assert await client.ask("tools/list") == {"got": {}}


async def test_configured_headers_and_the_query_are_sent() -> None:
    paths: list[str] = []

    async def converse(request: WebSocketRequest) -> None:
        paths.append(request.path)
        assert request.proposed_subprotocols == ("mcp",)
        await echo(request)

    async with talking(converse, headers={"X-Key": "k"}) as client:
        assert (await client.call("header")).result == {"got": "k"}
    assert paths == ["/mcp?k=v"]


async def test_a_binary_message_may_hold_json() -> None:
    async with talking(echo) as client:
        assert (await client.call("binary")).result["got"]["name"] == "binary"


async def test_nobody_there() -> None:
    with trio.socket.socket() as unused:
        await unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        with pytest.raises(ConnectionLost, match=f"cannot connect to 127.0.0.1:{port}: Connection refused"):
            async with connected(context_for(TransportType.WS, f"ws://127.0.0.1:{port}/")):
                pass


async def test_a_server_behind_tls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    authority, context = trustme.CA(), ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(context)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    async with trio.open_nursery() as nursery:
        server: Any = await nursery.start(partial(serve_websocket, echo, "127.0.0.1", 0, ssl_context=context))
        async with connected(context_for(TransportType.WS, f"wss://localhost:{server.port}/")) as client:
            client.connection.adopt(Era.HANDSHAKE, "2025-11-25")
            assert (await client.call("t", a="x" * 1_000_000)).result["got"]["name"] == "t"
            caller = await client.call("close")
            assert isinstance(caller.loss, UpstreamLost)
            await client.over.wait()
            assert "code 1001 (GOING_AWAY): going home" in str(client.end)
        nursery.cancel_scope.cancel()


async def test_what_a_server_says_with_its_handshake_is_heard() -> None:
    async def speak(stream: trio.SocketStream) -> None:
        server = WSConnection(ConnectionType.SERVER)
        server.receive_data(await stream.receive_some())
        assert len(list(server.events())) == 1
        early = TextMessage(data='{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}')
        await stream.send_all(server.send(AcceptConnection(subprotocol="mcp")) + server.send(early))
        await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        port = listener.socket.getsockname()[1]
        nursery.start_soon(trio.serve_listeners, speak, [listener])
        async with connected(context_for(TransportType.WS, f"ws://127.0.0.1:{port}/")) as client:
            await client.events.changed.wait()
            assert client.events.changes == 1
        nursery.cancel_scope.cancel()


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
    async with trio.open_nursery() as nursery:
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
        nursery.cancel_scope.cancel()
    assert shown == ["", "Bearer token-0", "Bearer token-1"]
