"""A server behind a WebSocket: one JSON-RPC message per WebSocket message, subprotocol `mcp`.

The library receives whole messages and answers the protocol's own pings; whether the server is alive is asked
at the level of MCP. A message over the limit closes the connection with code 1009, because a WebSocket cannot
skip one, so the limit is generous and the loss is named.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import trio
from trio_websocket import ConnectionClosed, ConnectionRejected, HandshakeError, open_websocket_url

from daemon.transports.network import host_and_port, opening_error, place_of, refused
from daemon.transports.raw import RawConnection

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from trio_websocket import WebSocketConnection

    from daemon.transports.context import OpenContext

SUBPROTOCOL = "mcp"

GOODBYE_SECONDS = 1.0
"""How long the server has to answer our close frame: it is a courtesy, and a stop waits for it."""

RECEIVE_BYTES = 256 * 1024
"""One read from the socket; the library's 4 KiB would make 4000 reads of one large message."""

TOO_BIG = 1009


@asynccontextmanager
async def open_connection(context: OpenContext) -> AsyncIterator[RawConnection]:
    """Connect and shake hands; say goodbye on the way out.

    Raises:
        CannotStart: the url is wrong, or the server's certificate is not trusted.
        NeedsAuth: the server answered 401 or 403.
        ConnectionLost: it could not be reached just now.
    """
    place = place_of(*host_and_port(context.server.url or "", "ws", "wss"))
    async with _socket(context, place) as socket:
        link = MessageLink(socket, outbox=context.outbox, place=place)
        try:
            yield RawConnection(link, outbox=context.outbox, events=context.events)
        finally:
            link.close()


@asynccontextmanager
async def _socket(context: OpenContext, place: str) -> AsyncIterator[WebSocketConnection]:
    """The library's connection, its errors in our words."""
    server = context.server
    opening = open_websocket_url(
        server.url or "",
        subprotocols=[SUBPROTOCOL],
        extra_headers=[(name.encode(), value.encode()) for name, value in server.headers.items()],
        max_message_size=server.limits.message_bytes,
        receive_buffer_size=RECEIVE_BYTES,
        connect_timeout=server.timeouts.connect,
        disconnect_timeout=GOODBYE_SECONDS,
    )
    try:
        socket = await opening.__aenter__()
    except ConnectionRejected as rejection:
        raise refused(rejection.status_code, place) from None
    except (HandshakeError, ConnectionClosed, OSError, trio.BrokenResourceError) as error:
        raise opening_error(error, place) from None
    try:
        yield socket
    finally:
        ...
