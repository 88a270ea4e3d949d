"""The door of WebSockets: what follows once the HTTP listener has admitted a request and answers it with one.

The listener has read the request, knows who it is from, and has refused what is no opening handshake;
trio-websocket answers it. What the path says (profile, surface, session) is handed to the session as a bridge's
hello would be.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec
import trio
from trio_websocket import CloseReason

from daemon import protocol
from daemon.clients.doors.listening import PAUSE_SHARE
from daemon.wire.websocket_link import (
    GOING_AWAY,
    OUR_FAULT,
    POLICY,
    PacedConnection,
    WebSocketLink,
    WebSocketStream,
)

if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable, Callable, Mapping

    from daemon.clients.client import Principal
    from daemon.config.tuning import Limits
    from daemon.wire.outbox import Link, Outbox

PING_SECONDS = 25.0
"""Seconds between pings: below the 30 s after which the strictest proxies close what is idle."""

PONG_SECONDS = 10.0
"""How long a client has to answer one, or to say anything else."""

MISSES = 3
"""Pings in a row without an answer after which the client is gone: a laptop may sleep for a minute."""

LEAVING = CloseReason(GOING_AWAY, "mcpd is stopping, or the token counts no longer")
SILENT = CloseReason(POLICY, "pings are not answered")
FAULTY = CloseReason(OUR_FAULT, "a fault of mcpd's own ended the session; its log has it")

_OPENING = (
    b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mcp\r\nSec-WebSocket-Key: %b\r\n\r\n"
)
"""What the library is shown of the opening handshake: the one part of it that its answer depends on."""


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

    Args:
        connection: plain, connected, non-blocking; it is closed here.
        key: the `Sec-WebSocket-Key` of the request, which was admitted (`key_of_opening`).
        visitor: who it is from.
        hello: what the path and the headers ask for (`clients.requests.initialize.hello`).
        serve: serves a link, given who is at its other end, until it ends, and contains its faults.
        outbox: the daemon's outbox.
        limits: how long a message may be, and how much may wait for a client that does not read.
    """
    stream = WebSocketStream(
        connection.detach(),
        outbox=outbox,
        max_queue=limits.client_queue_bytes,
        pause_at=limits.client_queue_bytes // PAUSE_SHARE,
        is_guest=True,
        opening=_OPENING % key.encode(),
    )
    opened = PacedConnection(stream, limits.client_message_bytes)
    first = msgspec.json.encode({"jsonrpc": "2.0", "method": protocol.HELLO, "params": hello})
    link = WebSocketLink(opened, hello=first)
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


async def _keep_alive(link: WebSocketLink, stream: WebSocketStream) -> None:
    """Ping the client, and end the link when it no longer answers."""
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
