"""Streamable HTTP against the SDK's own server, both eras, and against servers that misbehave."""

from __future__ import annotations

import gzip
import math
import ssl
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio
import trustme

from daemon.config.model import TransportType
from daemon.errors import (
    CannotStart,
    ConnectionLost,
    NeedsAuth,
    RequestTooLarge,
    UpstreamLost,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from daemon.model import Era
from daemon.wire.peer import RemoteError
from tests.transports.serving import (
    SECONDS,
    TOOLS,
    Client,
    Fixture,
    Request,
    Running,
    answer,
    connected,
    context_for,
    reply,
    scripted,
    serve,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    Script = Callable[[Request], Awaitable[bytes]]

ERAS = pytest.mark.parametrize("era", list(Era))
MODES = pytest.mark.parametrize("as_json", [False, True], ids=["sse", "json"])


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
    async with trio.open_nursery() as nursery:
        port = await scripted(nursery, script)
        async with connected(context_for(TransportType.HTTP, url(port), **options)) as client:
            client.connection.adopt(Era.MODERN, "2026-07-28")
            yield client
        nursery.cancel_scope.cancel()


# --- the protocol ------------------------------------------------------------------------------------------


@ERAS
@MODES
async def test_a_call_and_a_listing_pass_through_unchanged(era: Era, as_json: bool) -> None:
    async with talking(era, as_json=as_json) as (client, _):
        listing = await client.ask("tools/list")
        assert listing["tools"] == TOOLS
        assert listing["vendorTop"] == 1
        caller = await client.call("echo", a=[1, 1.5, 10**25, "ü", None])
        assert caller.result["content"] == [{"type": "video", "odd": True}]
        assert caller.result["echo"] == {"a": [1, 1.5, 10**25, "ü", None]}
        assert client.connection.in_flight == 0


@ERAS
async def test_progress_arrives_in_order_with_our_token(era: Era) -> None:
    async with talking(era) as (client, _):
        key, caller = client.start("progress", progress=True)
        await caller.ended.wait()
        assert [(p["progressToken"], p["progress"], p["message"]) for p in caller.progress] == [
            (key, 1, "step 1"),
            (key, 2, "step 2"),
        ]


@ERAS
async def test_a_cancelled_call_is_cancelled_at_the_server(era: Era) -> None:
    async with talking(era) as (client, fixture):
        key, caller = client.start("wait")
        await fixture.waiting.wait()
        client.connection.cancel(key, "enough")
        await fixture.cancelled.wait()
        assert not caller.ended.is_set()
        assert (await client.call("echo")).result is not None


@ERAS
async def test_a_call_without_life_expires_and_is_cancelled(era: Era) -> None:
    async with talking(era) as (client, fixture):
        _, caller = client.start("wait")
        await fixture.waiting.wait()
        assert [exchange for _, exchange in client.connection.expire(idle=0, total=math.inf)] == [caller]
        await fixture.cancelled.wait()
        assert client.connection.in_flight == 0


@ERAS
async def test_an_error_of_the_server_is_passed_on(era: Era) -> None:
    async with talking(era) as (client, _):
        caller = await client.call("fail")
        assert caller.error == {"code": -32010, "message": "will not", "data": {"why": 1}}


async def test_what_a_server_asks_of_us_is_refused() -> None:
    async with talking(Era.HANDSHAKE) as (client, _):
        caller = await client.call("ask")
        assert caller.result["code"] == -32601
        assert "elicitation/create" in caller.result["message"]


async def test_changes_are_announced_in_the_handshake_era() -> None:
    async with talking(Era.HANDSHAKE) as (client, _):
        while not client.events.changes:
            # The stream of notifications opens in its own time.
            await client.call("change")


async def test_changes_are_announced_within_a_subscription() -> None:
    async with talking(Era.MODERN) as (client, _), trio.open_nursery() as nursery:
        wanted: dict[str, object] = {"notifications": {"toolsListChanged": True}}

        async def listen() -> None:
            await client.connection.request("subscriptions/listen", wanted, timeout=math.inf)

        nursery.start_soon(listen)
        while not client.events.changes:
            await client.call("change")
        assert client.connection.in_flight == 0
        nursery.cancel_scope.cancel()


async def test_arguments_marked_in_the_schema_are_repeated_in_headers() -> None:
    async with talking(Era.MODERN) as (client, fixture):
        await client.ask("tools/list")
        caller = await client.call("mirrored", place="here")
        assert caller.result["echo"] == {"place": "here"}
        assert fixture.headers[-1]["mcp-param-place"] == "here"
        assert fixture.headers[-1]["mcp-name"] == "mirrored"


async def test_configured_headers_are_sent() -> None:
    async with talking(Era.MODERN, headers={"Authorization": "Bearer t"}) as (client, fixture):
        await client.call("echo")
        assert fixture.headers[-1]["authorization"] == "Bearer t"


@ERAS
@MODES
async def test_an_answer_over_the_limit_costs_that_call(era: Era, as_json: bool) -> None:
    async with talking(era, as_json=as_json, message_bytes=3_000_000) as (client, _):
        caller = await client.call("big", size=3_000_000)
        assert isinstance(caller.loss, RequestTooLarge)
        assert (await client.call("big", size=2_000_000)).result is not None


async def test_a_request_has_its_time() -> None:
    async with talking(Era.HANDSHAKE) as (client, fixture):
        with pytest.raises(UpstreamTimeout, match="tools/call"):
            await client.connection.request("tools/call", {"name": "wait"}, timeout=0.05)
        await fixture.cancelled.wait()


# --- restarts ----------------------------------------------------------------------------------------------


async def restarted(nursery: trio.Nursery, running: Running, fixture: Fixture) -> Running:
    await running.stop()
    return await serve(nursery, fixture.sdk.streamable_http_app(), running.port)


async def test_after_a_restart_the_session_is_over() -> None:
    fixture = Fixture()
    async with trio.open_nursery() as nursery:
        running = await serve(nursery, fixture.sdk.streamable_http_app())
        async with connected(context_for(TransportType.HTTP, url(running.port))) as client:
            await client.greet(Era.HANDSHAKE)
            running = await restarted(nursery, running, fixture)
            caller = await client.call("echo")
            assert isinstance(caller.loss, UpstreamUnavailable)
            assert "safe to try again" in caller.loss.message
            await client.over.wait()
            assert isinstance(client.end, ConnectionLost)
            assert "the server ended the session" in str(client.end)
        await running.stop()


async def test_after_a_restart_a_modern_server_is_simply_there() -> None:
    fixture = Fixture()
    async with trio.open_nursery() as nursery:
        running = await serve(nursery, fixture.sdk.streamable_http_app())
        async with connected(context_for(TransportType.HTTP, url(running.port))) as client:
            await client.greet(Era.MODERN)
            wanted: dict[str, object] = {"notifications": {"toolsListChanged": True}}
            with pytest.raises(UpstreamLost):
                async with trio.open_nursery() as asking:
                    asking.start_soon(cut, client, running)
                    await client.connection.request("subscriptions/listen", wanted, timeout=math.inf)
            running = await serve(nursery, fixture.sdk.streamable_http_app(), running.port)
            assert (await client.call("echo")).result is not None
            assert not client.over.is_set()
        await running.stop()


async def cut(client: Client, running: Running) -> None:
    while not client.events.changes:
        await client.call("change")
    await running.stop()
