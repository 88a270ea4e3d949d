"""The WebSocket door: serves a connection whose opening handshake the HTTP listener has admitted."""

from __future__ import annotations

import math
import socket
from collections.abc import Awaitable, Callable, Mapping

import msgspec
import trio
from wsproto.connection import Connection, ConnectionType
from wsproto.events import CloseConnection
from wsproto.frame_protocol import CloseReason
from wsproto.utilities import generate_accept_token

from daemon import protocol
from daemon.clients.client import Principal
from daemon.clients.doors.listening import PAUSE_SHARE
from daemon.config.tuning import Limits
from daemon.wire.outbox import Link, Outbox
from daemon.wire.websocket_link import WebSocketLink

PING_SECONDS = 25.0  # seconds between pings: the strictest proxies close an idle connection after 30 s

PONG_SECONDS = 10.0  # seconds for an answer, or any other sign of life

MISSES = 3  # unanswered pings in a row that end a connection: a laptop may sleep for a minute

LEAVING = CloseConnection(CloseReason.GOING_AWAY, "mcpd is stopping, or the token was revoked")
SILENT = CloseConnection(CloseReason.POLICY_VIOLATION, "pings are not answered")
FAULTY = CloseConnection(
    CloseReason.INTERNAL_ERROR, "an internal error in mcpd ended the session; its log has it"
)

_ACCEPTED = (
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Accept: %b\r\nSec-WebSocket-Protocol: mcp\r\n\r\n"
)


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
    """Serve a client over a WebSocket until it ends.

    `connection` is plain, non-blocking and closed here; `key` is the admitted `Sec-WebSocket-Key`; `hello` the
    demands of path and headers.
    """
    link = WebSocketLink(
        connection.detach(),
        Connection(ConnectionType.SERVER),
        outbox=outbox,
        max_message=limits.client_message_bytes,
        max_queue=limits.client_queue_bytes,
        pause_at=limits.client_queue_bytes // PAUSE_SHARE,
        hello=msgspec.json.encode({"jsonrpc": "2.0", "method": protocol.HELLO, "params": hello}),
    )
    link.writer.queue((_ACCEPTED % generate_accept_token(key.encode()),))
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_keep_alive, link)
            await serve(link, visitor)
            nursery.cancel_scope.cancel()
    finally:
        is_cancelled = trio.current_effective_deadline() == -math.inf
        await link.leave(LEAVING if is_cancelled else FAULTY)
        link.close()


async def _keep_alive(link: WebSocketLink) -> None:
    misses = 0
    while misses < MISSES:
        await trio.sleep(PING_SECONDS - PONG_SECONDS)
        link.was_heard = False
        link.ping()
        await trio.sleep(PONG_SECONDS)
        if link.was_heard:
            misses = 0
        elif not link.queued:
            misses += 1  # Otherwise the ping has not left yet, or its answer would not be read.
    link.give_up(SILENT)
