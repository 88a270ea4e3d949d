"""Connects to a server over a WebSocket: one JSON-RPC message in each WebSocket message, subprotocol `mcp`.

MCP's own pings test whether the server is alive. A message over the limit closes the connection with code 1009.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import h11
import trio
from trio_websocket import CloseReason

from daemon.causes import Cause
from daemon.config.config_model import Server
from daemon.errors import ConnectionLost, leaf
from daemon.upstreams.transports.failures import LoginFailed
from daemon.upstreams.transports.http_client import ServerLogin
from daemon.upstreams.transports.network import connect, host_and_port, in_time, place_of, refused
from daemon.upstreams.transports.server_connection import UPSTREAM_QUEUE_BYTES, OpenContext, RawConnection
from daemon.wire.copying import plain_end
from daemon.wire.websocket_link import NORMAL, PacedConnection, WebSocketLink, WebSocketStream

if TYPE_CHECKING:
    from wsproto.events import RejectConnection


@asynccontextmanager
async def open_connection(context: OpenContext) -> AsyncIterator[RawConnection]:
    """Connect and open the WebSocket; close it on exit.

    Raises CannotStart: the url is wrong, or the server's certificate is not trusted; NeedsAuth: 401 or 403, or
    an ended login; ConnectionLost: the server is unreachable, or answers without a WebSocket.
    """
    async with AsyncExitStack() as stack:
        link = await _open_with_login(stack, context)
        yield RawConnection(link, outbox=context.outbox, events=context.events)


async def _open_with_login(stack: AsyncExitStack, context: OpenContext) -> WebSocketLink:
    """Like `_opened`, with the login at the server, if any; tries again after a renewal of the login."""
    host, port = host_and_port(context.server.url or "", "ws", "wss")
    login = ServerLogin(context, place_of(host, port))
    await login.begin()
    try:
        header = await login.header() if login.held else ""
        try:
            return await stack.enter_async_context(_opened(context, host, port, header))
        except _Refused as refusal:
            if refusal.status != HTTPStatus.UNAUTHORIZED or not login.held:
                raise
            header = await login.after_refusal(header)
            return await stack.enter_async_context(_opened(context, host, port, header))
    except LoginFailed as failed:
        raise failed.failure.for_run() from None
    except _Refused as refusal:
        failure = login.judged(refusal.status, refusal.challenges)
        raise failure.for_run() if failure else refused(refusal.status, login.place) from None


class _Refused(Exception):
    """An HTTP status instead of a WebSocket, with its `WWW-Authenticate`."""

    def __init__(self, answer: RejectConnection) -> None:
        self.status = answer.status_code
        challenges = (value for name, value in answer.headers if name == b"www-authenticate")
        self.challenges = b", ".join(challenges).decode("latin-1")


class _ServerConnection(PacedConnection):
    async def _handle_reject_connection_event(self, event: RejectConnection) -> None:
        """End the attempt at once: the library would wait for the refusal's body."""
        raise _Refused(event)


@asynccontextmanager
async def _opened(context: OpenContext, host: str, port: int, login: str) -> AsyncIterator[WebSocketLink]:
    """Connect and open the WebSocket, close it on exit; _Refused at another status."""
    server, place = context.server, place_of(host, port)
    seconds, begun = server.timeouts.connect, trio.current_time()
    bound = partial(in_time, f"{place} did not open a WebSocket", place, seconds, begun=begun)
    try:
        async with AsyncExitStack() as stack:
            tls = ssl.create_default_context() if urlsplit(server.url or "").scheme == "wss" else None
            with bound():
                network = await connect(host, port, tls)
            if isinstance(network, trio.SSLStream):
                fd = (await stack.enter_async_context(plain_end(network))).detach()
            else:
                fd = network.socket.detach()
                os.set_blocking(fd, False)
            stream = WebSocketStream(fd, outbox=context.outbox, max_queue=UPSTREAM_QUEUE_BYTES)
            stack.callback(stream.close)
            nursery = await stack.enter_async_context(trio.open_nursery())
            with bound():
                connection = await _shake_hands(nursery, stream, server, place, login)
            link = WebSocketLink(connection, place=place)
            try:
                yield link
            finally:
                await link.leave(CloseReason(NORMAL, None))
                nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        plain = leaf(group)
        if isinstance(plain, h11.LocalProtocolError):  # the library answers, as if it were the server
            error = str(plain.__context__ or plain)
            text = f"{place} does not speak WebSocket: {error}"
            raise ConnectionLost(text, Cause.CANNOT_CONNECT, place=place, error=error) from None
        raise plain from None


async def _shake_hands(
    nursery: trio.Nursery, stream: WebSocketStream, server: Server, place: str, login: str
) -> PacedConnection:
    parts = urlsplit(server.url or "")
    headers = {**server.headers, **({"authorization": login} if login else {})}
    connection = _ServerConnection(
        stream,
        server.limits.message_bytes,
        host=parts.netloc.rpartition("@")[2],
        target=(parts.path or "/") + (f"?{parts.query}" if parts.query else ""),
        headers=headers.items(),
    )
    async with trio.open_nursery() as opening:
        opening.start_soon(_open, connection, nursery)
        await stream.over.wait()
        opening.cancel_scope.cancel()
    if not connection.is_open:
        text = f"{place} closed the connection instead of opening a WebSocket"
        raise ConnectionLost(text, Cause.CANNOT_CONNECT, place=place, error=stream.lost)
    return connection


async def _open(connection: PacedConnection, nursery: trio.Nursery) -> None:
    await connection.shake_hands(nursery)
    connection.stream.over.set()
