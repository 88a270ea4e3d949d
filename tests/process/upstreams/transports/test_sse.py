"""HTTP with SSE against the SDK's own server, and against servers that misbehave."""

from __future__ import annotations

import gc
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio
from mcp.server.sse import SseServerTransport
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Mount, Route

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
from tests.unit.upstreams.transports.serving import (
    TOOLS,
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

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

# The HTTP library leaves the generators of an event stream behind when it is closed early, and the SDK's server
# its channels; collected, they say so.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Async generator 'http:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:Unclosed <MemoryObject:ResourceWarning"),
]


@pytest.fixture(autouse=True)
def _collect_here() -> Iterator[None]:
    """Or another module's test would be blamed."""
    yield
    gc.collect()


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


async def test_a_call_and_a_listing_pass_through_unchanged() -> None:
    async with talking() as (client, _, _, _):
        listing = await client.ask("tools/list")
        assert (listing["tools"], listing["vendorTop"]) == (TOOLS, 1)
        assert (await client.call("echo", a=1)).result["echo"] == {"a": 1}
        assert (await client.call("ask")).result["code"] == -32601


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
            (events(f"event: endpoint\ndata: {named}\n\n"), ProtocolFault, Cause.NOT_MCP, "is no url")
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
