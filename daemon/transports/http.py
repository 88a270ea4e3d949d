"""A server behind streamable HTTP, both eras.

The SDK's client carries the protocol (sessions, event streams, their resumption); below it stands our soft
transport, above it our connection, and what goes wrong with one request is told from the one to the other.

Decisions.
- Before anything is asked, one connection is made and dropped: HTTP has no opening of its own, and "refused",
  "no such host" and "not trusted" are better said before a handshake than as one that failed.
- Redirects: the SDK follows those within the origin (and from http to https on the same host, default ports)
  that keep the method; any other is an error that names the target. Credentials travel nowhere else.
- No proxy of the environment, no .netrc: a daemon inherits its environment from whatever started it, and a
  variable that nobody thought of must not send our headers, or calls to loopback, to somebody else.
- No time limit on reading: a call's limits are the connection's (`expire`), a stream may be silent.
"""

from __future__ import annotations

import ssl
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import httpx2
import trio
from mcp.client.streamable_http import streamable_http_client

from daemon.errors import ConnectionLost, leaf
from daemon.protocol import IDENTITY
from daemon.transports.network import connect, host_and_port, place_of
from daemon.transports.sdk import SdkConnection
from daemon.transports.softening import SoftTransport

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from daemon.config.model import Server
    from daemon.transports.context import OpenContext

WRITE_SECONDS = 60.0
"""For a server to take the next piece of a request; it need not be fast, but a stopped one is noticed."""

NO_LIMITS = httpx2.Limits(max_connections=None, max_keepalive_connections=20)
"""Calls are bounded above (`sdk.MAX_CALLS`); below, waiting for a place would look like a dead server."""


@asynccontextmanager
async def open_connection(context: OpenContext) -> AsyncIterator[SdkConnection]:
    """Reach the server; on the way out, end the session.

    Raises:
        CannotStart: the url is wrong, or the server's certificate is not trusted.
        ConnectionLost: it could not be reached just now.
    """
    server = context.server
    host, port = host_and_port(server.url or "", "http", "https")
    place = place_of(host, port)
    # Reading the system's certificates takes tens of milliseconds.
    tls = await trio.to_thread.run_sync(ssl.create_default_context)
    await _knock(host, port, tls if httpx2.URL(server.url or "").scheme == "https" else None, server)
    connection = SdkConnection(context, place=place)
    wire = httpx2.AsyncHTTPTransport(verify=tls, trust_env=False, limits=NO_LIMITS)
    limit = server.limits.message_bytes
    soft = SoftTransport(wire, connection, place=place, max_bytes=limit)
    connection.on_abandon = soft.abandon
    try:
        async with (
            client_for(server, soft) as client,
            streamable_http_client(server.url or "", http_client=client, max_sse_event_size=limit) as streams,
            connection.over(streams),
        ):
            try:
                yield connection
            finally:
                soft.close()
    except BaseExceptionGroup as group:
        raise leaf(group) from None


def client_for(server: Server, transport: httpx2.AsyncBaseTransport) -> httpx2.AsyncClient:
    """The HTTP client for one server."""
    return httpx2.AsyncClient(
        transport=transport,
        headers={"user-agent": "{name}/{version}".format(**IDENTITY), **server.headers},
        timeout=httpx2.Timeout(server.timeouts.connect, read=None, write=WRITE_SECONDS),
        follow_redirects=False,
        trust_env=False,
    )


async def _knock(host: str, port: int, tls: ssl.SSLContext | None, server: Server) -> None:
    try:
        with trio.fail_after(server.timeouts.connect):
            await trio.aclose_forcefully(await connect(host, port, tls))
    except trio.TooSlowError:
        text = f"cannot connect to {place_of(host, port)}: no answer within {server.timeouts.connect:g} s"
        raise ConnectionLost(text) from None
