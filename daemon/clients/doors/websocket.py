"""The WebSocket door: serves connections whose opening handshake the HTTP listener has admitted."""

from __future__ import annotations

import math
import socket
from collections.abc import Awaitable, Callable, Mapping

import msgspec
import trio
from trio_websocket import CloseReason

from daemon import protocol
from daemon.clients.client import Principal
from daemon.clients.doors.listening import PAUSE_SHARE
from daemon.config.tuning import Limits
from daemon.wire import websocket_link
from daemon.wire.outbox import Link, Outbox

PING_SECONDS = 25.0  # seconds between pings: the strictest proxies close an idle connection after 30 s

PONG_SECONDS = 10.0  # seconds for an answer, or any other sign of life

MISSES = 3  # unanswered pings in a row that end a connection: a laptop may sleep for a minute

LEAVING = CloseReason(websocket_link.GOING_AWAY, "mcpd is stopping, or the token was revoked")
SILENT = CloseReason(websocket_link.POLICY, "pings are not answered")
FAULTY = CloseReason(websocket_link.OUR_FAULT, "an internal error in mcpd ended the session; its log has it")

_OPENING = (
    b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mcp\r\nSec-WebSocket-Key: %b\r\n\r\n"
)  # the library's view of the opening handshake: the parts that its answer depends on


async def serve_websocket(
    connection: socket.socket,
    key: str,
    visitor: Principal,
    hello: Mapping[str, object],
    serve: Callable[[Link, Principal], Awaitable[None]],
    *,
    outbox: Outbox,
    limits: Limits,
) -> None:
    """Serve a client over a WebSocket until the connection ends.

    `connection` is plain, non-blocking and closed here; `key` is the client's `Sec-WebSocket-Key`; `hello`
    holds the wishes in its path and headers.
    """
    stream = websocket_link.WebSocketStream(
        connection.detach(),
        outbox=outbox,
        max_queue=limits.client_queue_bytes,
        pause_at=limits.client_queue_bytes // PAUSE_SHARE,
        is_guest=True,
        opening=_OPENING % key.encode(),
    )
    opened = websocket_link.PacedConnection(stream, limits.client_message_bytes)
    first = msgspec.json.encode({"jsonrpc": "2.0", "method": protocol.HELLO, "params": hello})
    link = websocket_link.WebSocketLink(opened, hello=first)
    try:
        async with trio.open_nursery() as nursery:
            await opened.shake_hands(nursery)
            nursery.start_soon(_keep_alive, link, stream)
            await serve(link, visitor)
            nursery.cancel_scope.cancel()
    finally:
        is_cancelled = trio.current_effective_deadline() == -math.inf
        await link.leave(LEAVING if is_cancelled else FAULTY)
        stream.close()


async def _keep_alive(link: websocket_link.WebSocketLink, stream: websocket_link.WebSocketStream) -> None:
    misses = 0
    while misses < MISSES:
        await trio.sleep(PING_SECONDS - PONG_SECONDS)
        stream.was_heard = False
        link.ping()
        await trio.sleep(PONG_SECONDS)
        if stream.was_heard:
            misses = 0
        elif not link.queued:
            misses += 1  # Otherwise the ping has not left yet, or its answer would not be read.
    link.give_up(SILENT)
