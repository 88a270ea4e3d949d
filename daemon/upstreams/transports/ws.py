"""A server behind a WebSocket: one JSON-RPC message per WebSocket message, subprotocol `mcp`.

Whether the server is alive is asked at the level of MCP. A message over the limit ends the connection with
close code 1009.
"""

from __future__ import annotations

import os
import re
import ssl
from contextlib import AsyncExitStack, asynccontextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import h11
import trio
from wsproto import ConnectionType, WSConnection
from wsproto.events import RejectConnection, Request
from wsproto.utilities import ProtocolError

from daemon.causes import Cause
from daemon.errors import ConnectionLost, leaf
from daemon.upstreams.transports.failures import LoginFailed
from daemon.upstreams.transports.network import connect, host_and_port, place_of, refused
from daemon.upstreams.transports.raw import UPSTREAM_QUEUE_BYTES, RawConnection
from daemon.upstreams.transports.server_login import ServerLogin
from daemon.wire.copying import plain_end
from daemon.wire.websocket import NORMAL, Closing, WebSocketLink

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from daemon.config.model import Server
    from daemon.upstreams.transports.network import Stream
    from daemon.upstreams.transports.opening import OpenContext

SUBPROTOCOL = "mcp"

MAX_HEAD = 64 * 1024
"""Bytes of an answer to the opening handshake: ten times those of a server with long cookies."""

_END_OF_HEAD = re.compile(rb"\n\r?\n")


@asynccontextmanager
async def open_connection(context: OpenContext) -> AsyncIterator[RawConnection]:
    """Connect and shake hands; say goodbye on the way out.

    Raises:
        CannotStart: the url is wrong, or the server's certificate is not trusted.
        NeedsAuth: the server answered 401 or 403, or the login is over.
        ConnectionLost: it could not be reached just now, or what answers there is no WebSocket server.
    """
    server = context.server
    host, port = host_and_port(server.url or "", "ws", "wss")
    place = place_of(host, port)
    try:
        async with AsyncExitStack() as stack:
            stream, unread = await _open_with_login(context, host, port)
            if isinstance(stream, trio.SSLStream):
                fd = (await stack.enter_async_context(plain_end(stream))).detach()
            else:
                fd = stream.socket.detach()
                os.set_blocking(fd, False)
            link = WebSocketLink(
                fd,
                outbox=context.outbox,
                max_message=server.limits.message_bytes,
                max_queue=UPSTREAM_QUEUE_BYTES,
                is_client=True,
                place=place,
                unread=unread,
            )
            try:
                yield RawConnection(link, outbox=context.outbox, events=context.events)
            finally:
                await link.leave(Closing(NORMAL, ""))
                link.close()
    except BaseExceptionGroup as group:
        raise leaf(group) from None


async def _open_with_login(context: OpenContext, host: str, port: int) -> tuple[Stream, bytes]:
    """As `_open`, with the login at the server if there is one; once more if it had to be renewed for that."""
    login = ServerLogin(context, place_of(host, port))
    await login.begin()
    try:
        if not login.held:
            return await _open(context.server, host, port)
        header = await login.header()
        try:
            return await _open(context.server, host, port, header)
        except _Refused as refusal:
            if refusal.status != HTTPStatus.UNAUTHORIZED:
                raise
            return await _open(context.server, host, port, await login.after_refusal(header))
    except LoginFailed as failed:
        raise failed.failure.for_run() from None
    except _Refused as refusal:
        failure = login.judged(refusal.status, refusal.challenges)
        raise failure.for_run() if failure else refused(refusal.status, login.place) from None


class _Refused(Exception):
    """An HTTP status instead of a WebSocket, and the `WWW-Authenticate` that came with it."""

    def __init__(self, event: RejectConnection) -> None:
        self.status = event.status_code
        found = [value.decode("latin-1") for name, value in event.headers if name == b"www-authenticate"]
        self.challenges = ", ".join(found)


async def _open(server: Server, host: str, port: int, login: str = "") -> tuple[Stream, bytes]:
    """Connect and shake hands. Returns what the server has already sent after its answer, too.

    Raises:
        _Refused: the server answered with another status.
    """
    seconds = server.timeouts.connect
    place = place_of(host, port)
    stream: Stream | None = None
    try:
        with trio.fail_after(seconds):
            tls = ssl.create_default_context() if urlsplit(server.url or "").scheme == "wss" else None
            stream = await connect(host, port, tls)
            return stream, await _shake_hands(stream, server, login)
    except BaseException as error:
        if stream is not None:
            await trio.aclose_forcefully(stream)
        if isinstance(error, trio.TooSlowError):
            text = f"{place} did not open a WebSocket within {seconds:g} s"
            raise ConnectionLost(text, Cause.CONNECT_TIMEOUT, place=place) from None
        if isinstance(error, trio.BrokenResourceError):
            text = f"{place} closed the connection instead of opening a WebSocket"
            raise ConnectionLost(text, Cause.CANNOT_CONNECT, place=place, error=str(error)) from None
        if isinstance(error, h11.ProtocolError | ProtocolError):
            text = f"{place} does not speak WebSocket: {error}"
            raise ConnectionLost(text, Cause.CANNOT_CONNECT, place=place, error=str(error)) from None
        raise


async def _shake_hands(stream: Stream, server: Server, login: str) -> bytes:
    parts = urlsplit(server.url or "")
    opening = WSConnection(ConnectionType.CLIENT)
    headers = {**server.headers, **({"authorization": login} if login else {})}
    request = Request(
        host=parts.netloc.rpartition("@")[2],
        target=(parts.path or "/") + (f"?{parts.query}" if parts.query else ""),
        subprotocols=[SUBPROTOCOL],
        extra_headers=[(name.encode(), value.encode()) for name, value in headers.items()],
    )
    await stream.send_all(opening.send(request))
    head = b""
    while (end := _END_OF_HEAD.search(head)) is None:
        data = await stream.receive_some(MAX_HEAD)
        head += data
        if not data or len(head) > MAX_HEAD:
            break
    opening.receive_data(head[: end.end()] if end else head + b"\r\n\r\n")
    for event in opening.events():
        if isinstance(event, RejectConnection) and event.status_code >= HTTPStatus.OK:
            raise _Refused(event)
    if opening.connection is None or end is None:
        raise ProtocolError("no answer to the opening handshake")
    return head[end.end() :]
