"""A connection over POSTs whose server is a function: what it would send, without a network or its time."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import attrs
import httpx2
import pytest
import trio

from daemon.config.config_model import TransportType
from daemon.upstreams.transports.http import HttpLink
from daemon.upstreams.transports.http_client import ServerLogin
from daemon.upstreams.transports.posting import PostConnection
from tests.unit.upstreams.transports.listening import Listener
from tests.unit.upstreams.transports.serving import Client, context_for
from tests.waiting import background

Script = Callable[[httpx2.Request], Awaitable[httpx2.Response]]

URL = "http://h:1/mcp"

OF_LIBRARIES = [
    pytest.mark.filterwarnings("ignore:Async generator 'http:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:Unclosed <MemoryObject:ResourceWarning"),
]
"""Warnings about what the library of HTTP leaves open."""


@attrs.define
class Scripted(httpx2.AsyncBaseTransport):
    """A transport that answers as the script does, and remembers what was sent."""

    script: Script
    sent: list[str] = attrs.field(factory=list)
    """The method of each message, or of the request that held none."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.sent.append(said(request).get("method", request.method))
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


def said(request: httpx2.Request) -> dict[str, Any]:
    """The message in a request; empty without one."""
    content = request.read() if isinstance(request.stream, httpx2.SyncByteStream) else b""
    return json.loads(content) if content else {}


def events(*chunks: bytes, error: Exception | None = None) -> httpx2.Response:
    """An event stream that breaks off after these, or stays open."""
    return httpx2.Response(
        200, headers={"content-type": "text/event-stream"}, stream=Stream(*chunks, error=error)
    )


def result(request: httpx2.Request, found: object, **headers: str) -> httpx2.Response:
    """A JSON-RPC result as JSON."""
    message = {"jsonrpc": "2.0", "id": said(request)["id"], "result": found}
    return httpx2.Response(200, json=message, headers=headers)


@asynccontextmanager
async def posting(script: Script) -> AsyncIterator[tuple[Client, HttpLink, list[str]]]:
    """A running connection to a server of streamable HTTP that is a function."""
    context = context_for(TransportType.HTTP, URL)
    transport = Scripted(script)
    async with httpx2.AsyncClient(transport=transport) as sender, background() as nursery:
        link = HttpLink(sender, context, ServerLogin(context, "h:1"))
        assert isinstance(context.events, Listener)
        connection: Any = PostConnection(link, context)
        client = Client(connection, context.events, context.outbox)
        nursery.start_soon(client.run)
        yield client, link, transport.sent
