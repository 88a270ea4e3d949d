"""A server behind a WebSocket: a JSON-RPC message in each WebSocket message, subprotocol `mcp`.

MCP's own pings test whether it is alive. A message over the limit ends the connection with close code 1009.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from http import HTTPStatus
from urllib.parse import urlsplit

import trio
from wsproto import WSConnection
from wsproto.connection import Connection, ConnectionType
from wsproto.events import CloseConnection, Request
from wsproto.frame_protocol import CloseReason
from wsproto.utilities import RemoteProtocolError

from daemon import protocol
from daemon.causes import Cause
from daemon.config.config_model import Server
from daemon.errors import ConnectionLost, leaf
from daemon.upstreams.transports.failures import LoginFailed
from daemon.upstreams.transports.http_client import ServerLogin
from daemon.upstreams.transports.network import connect, host_and_port, place_of, refused
from daemon.upstreams.transports.server_connection import UPSTREAM_QUEUE_BYTES, OpenContext, RawConnection
from daemon.wire.copying import plain_end
from daemon.wire.websocket_link import WebSocketLink

MAX_HEAD = 64 * 1024
"""Bytes of an answer to the opening handshake: ten times those of a server with long cookies."""

_STATUS = re.compile(rb"HTTP/1\.[01] ([2-5]\d\d)\b")
_CHALLENGE = re.compile(rb"(?i)^www-authenticate:[ \t]*(.*?)[ \t]*\r?$", re.MULTILINE)


@asynccontextmanager
async def open_connection(context: OpenContext) -> AsyncIterator[RawConnection]:
    """Connect and shake hands; say goodbye on the way out.

    Raises CannotStart: the url is wrong, or the server's certificate is not trusted; NeedsAuth: 401 or 403, or
    the login is over; ConnectionLost: not reached just now, or no WebSocket server answers.
    """
    async with AsyncExitStack() as stack:
        link = await _open_with_login(stack, context)
        yield RawConnection(link, outbox=context.outbox, events=context.events)


async def _open_with_login(stack: AsyncExitStack, context: OpenContext) -> WebSocketLink:
    """As `_opened`, with the login at the server if any; again if it had to be renewed for that."""
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
    """An HTTP status instead of a WebSocket, and the `WWW-Authenticate` that came with it."""

    def __init__(self, status: int, head: bytes) -> None:
        self.status = status
        self.challenges = b", ".join(_CHALLENGE.findall(head)).decode("latin-1")


@asynccontextmanager
async def _opened(context: OpenContext, host: str, port: int, login: str) -> AsyncIterator[WebSocketLink]:
    """Connect and shake hands, say goodbye on the way out; _Refused at another status."""
    server, place = context.server, place_of(host, port)
    deadline = trio.current_time() + server.timeouts.connect
    try:
        async with AsyncExitStack() as stack:
            tls = ssl.create_default_context() if urlsplit(server.url or "").scheme == "wss" else None
            with trio.fail_at(deadline):
                network = await connect(host, port, tls)
            if isinstance(network, trio.SSLStream):
                plain = await stack.enter_async_context(plain_end(network))
                network = trio.SocketStream(trio.socket.from_stdlib_socket(plain))
            stack.callback(network.socket.close)
            with trio.fail_at(deadline):
                frames = await _shake_hands(network, server, place, login)
            link = WebSocketLink(
                network.socket.detach(),
                frames,
                outbox=context.outbox,
                max_message=server.limits.message_bytes,
                max_queue=UPSTREAM_QUEUE_BYTES,
                place=place,
            )
            stack.callback(link.close)
            try:
                yield link
            finally:
                await link.leave(CloseConnection(CloseReason.NORMAL_CLOSURE))
    except BaseExceptionGroup as group:
        plain_error = leaf(group)
        raise _too_slow(server, place) if isinstance(plain_error, trio.TooSlowError) else plain_error from None
    except trio.TooSlowError:
        raise _too_slow(server, place) from None


def _too_slow(server: Server, place: str) -> ConnectionLost:
    text = f"{place} did not open a WebSocket within {server.timeouts.connect:g} s"
    return ConnectionLost(text, Cause.CONNECT_TIMEOUT, place=place)


def _no_server(place: str, error: str) -> ConnectionLost:
    text = f"{place} does not speak WebSocket: {error}"
    return ConnectionLost(text, Cause.CANNOT_CONNECT, place=place, error=error)


async def _shake_hands(stream: trio.SocketStream, server: Server, place: str, login: str) -> Connection:
    parts = urlsplit(server.url or "")
    headers = {**server.headers, **({"authorization": login} if login else {})}
    asked = Request(
        host=parts.netloc.rpartition("@")[2],
        target=(parts.path or "/") + (f"?{parts.query}" if parts.query else ""),
        extra_headers=[(name.encode(), value.encode()) for name, value in headers.items()],
        subprotocols=[protocol.SUBPROTOCOL],
    )
    opening, head = WSConnection(ConnectionType.CLIENT), b""
    with suppress(trio.BrokenResourceError):
        await stream.send_all(opening.send(asked))
        while b"\n\r\n" not in head and len(head) < MAX_HEAD and (data := await stream.receive_some()):
            head += data
    if head.startswith(b"HTTP/1.1 101 "):
        try:
            opening.receive_data(head)
        except RemoteProtocolError as error:
            raise _no_server(place, str(error)) from None
        if opening.connection is not None:
            return opening.connection
    elif status := _STATUS.match(head):
        raise _Refused(int(status[1]), head)
    elif not head:
        text = f"{place} closed the connection instead of opening a WebSocket"
        raise ConnectionLost(text, Cause.CANNOT_CONNECT, place=place, error="the peer closed the connection")
    raise _no_server(place, "no answer to the opening handshake")
