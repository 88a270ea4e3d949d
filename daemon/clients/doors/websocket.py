"""The door of WebSockets: answers the opening handshake and makes a link of the connection.

A client reaches it through the HTTP listener, which has read the request and knows who it is from. What the
path says (profile, surface, session) is handed to the session as a bridge's hello would be.
"""

from __future__ import annotations

import math
import re
from http import HTTPStatus
from typing import TYPE_CHECKING

import msgspec
import trio
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, RejectConnection, Request
from wsproto.utilities import RemoteProtocolError

from daemon import protocol
from daemon.clients.doors.listening import PAUSE_SHARE
from daemon.wire.websocket import GOING_AWAY, OUR_FAULT, POLICY, Closing, WebSocketLink, framed

if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable, Callable, Mapping

    from daemon.clients.client import Principal
    from daemon.config.tuning import Limits
    from daemon.wire.outbox import Link, Outbox

SUBPROTOCOL = "mcp"

PING_SECONDS = 25.0
"""Seconds between pings: below the 30 s after which the strictest proxies close what is idle."""

PONG_SECONDS = 10.0
"""How long a client has to answer one, or to say anything else."""

MISSES = 3
"""Pings in a row without an answer after which the client is gone: a laptop may sleep for a minute."""

ANSWER_SECONDS = 10.0
"""How long a client has to take the answer to its handshake, which fits an empty buffer of any socket."""

LEAVING = Closing(GOING_AWAY, "mcpd is stopping, or the token counts no longer")
SILENT = Closing(POLICY, "pings are not answered")
FAULTY = Closing(OUR_FAULT, "a fault of mcpd's own ended the session; its log has it")

_END_OF_HEAD = re.compile(rb"\n\r?\n")


class _NotServed(Exception):
    """What was asked for is no WebSocket that is served here; carries the answer."""

    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.status = status


async def serve_websocket(
    connection: socket.socket,
    head: bytes,
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
        head: all that was read from it: the request, which was admitted.
        visitor: who it is from.
        hello: what the path and the headers ask for (`clients.requests.initialize.hello`).
        serve: serves a link, given who is at its other end, until it ends, and contains its faults.
        outbox: the daemon's outbox.
        limits: how long a message may be, and how much may wait for a client that does not read.
    """
    with connection:
        try:
            answer = _accepted(head)
        except _NotServed as refusal:
            await _send(connection, _refusal(refusal))
            return
        if not await _send(connection, answer):
            return
        # As if the client had sent it: before anything of its own.
        first = msgspec.json.encode({"jsonrpc": "2.0", "method": protocol.HELLO, "params": hello})
        link = WebSocketLink(
            connection.detach(),
            outbox=outbox,
            max_message=limits.client_message_bytes,
            max_queue=limits.client_queue_bytes,
            pause_at=limits.client_queue_bytes // PAUSE_SHARE,
            unread=b"".join(framed((first,), masked=True)),
        )
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_keep_alive, link)
            await serve(link, visitor)
            nursery.cancel_scope.cancel()
    finally:
        is_cancelled = trio.current_effective_deadline() == -math.inf
        await link.leave(LEAVING if is_cancelled else FAULTY)
        link.close()


def _accepted(head: bytes) -> bytes:
    """The answer that opens the WebSocket."""
    end = _END_OF_HEAD.search(head)
    if end is None or end.end() < len(head):
        raise _NotServed(HTTPStatus.BAD_REQUEST, "a client must wait for the answer to its opening handshake")
    opening = WSConnection(ConnectionType.SERVER)
    try:
        opening.receive_data(head)
        (request,) = opening.events()
    except RemoteProtocolError as error:
        hint = error.event_hint
        status = hint.status_code if isinstance(hint, RejectConnection) else HTTPStatus.BAD_REQUEST
        raise _NotServed(HTTPStatus(status), f"not the opening handshake of a WebSocket: {error}") from None
    except ValueError as error:
        # The name in Host, or no request at all.
        text = f"not the opening handshake of a WebSocket: {error}"
        raise _NotServed(HTTPStatus.BAD_REQUEST, text) from None
    if not isinstance(request, Request) or SUBPROTOCOL not in request.subprotocols:
        text = f"offer the subprotocol {SUBPROTOCOL} (Sec-WebSocket-Protocol): nothing else is spoken here"
        raise _NotServed(HTTPStatus.BAD_REQUEST, text)
    return opening.send(AcceptConnection(subprotocol=SUBPROTOCOL))


def _refusal(refusal: _NotServed) -> bytes:
    body = f"{refusal}\n".encode()
    return (
        f"HTTP/1.1 {refusal.status.value} {refusal.status.phrase}\r\nConnection: close\r\n"
        f"Sec-WebSocket-Version: 13\r\nContent-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode() + body


async def _send(connection: socket.socket, data: bytes) -> bool:
    """Send the answer to the handshake. Returns whether it was taken."""
    with trio.move_on_after(ANSWER_SECONDS):
        while data:
            try:
                data = data[connection.send(data) :]
            except BlockingIOError:
                await trio.lowlevel.wait_writable(connection)
            except OSError:
                return False
    return not data


async def _keep_alive(link: WebSocketLink) -> None:
    """Ping the client, and end the link when it no longer answers."""
    misses = 0
    while misses < MISSES:
        await trio.sleep(PING_SECONDS - PONG_SECONDS)
        link.was_heard = False
        link.ping()
        await trio.sleep(PONG_SECONDS)
        if link.was_heard:
            misses = 0
        elif link.is_read and not link.queued:
            # Otherwise the ping has not left yet, or its answer would not be read.
            misses += 1
    link.give_up(SILENT)
