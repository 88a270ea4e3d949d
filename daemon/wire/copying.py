"""Presents a TLS stream as a plain descriptor, which a link's poll can watch.

Two tasks copy with one buffer each, and read only as fast as they write, so two socket buffers bound the bytes
in flight. An end of stream travels after the bytes before it; a broken peer ends both directions.
"""

from __future__ import annotations

import math
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import trio

COPY_BYTES = 64 * 1024  # one read: four TLS records

LAST_SECONDS = 30.0  # time for a slow peer to take the last bytes: at most 200 KB

HURRIED_SECONDS = 0.2  # the same during cancellation, because a stop waits for it

GOODBYE_SECONDS = 1.0
"""Seconds for the peer to hang up after mcpd's last byte: a reset by unread bytes could lose it."""

_GONE = (trio.BrokenResourceError, trio.ClosedResourceError)

TlsStream = trio.SSLStream[trio.SocketStream]


@asynccontextmanager
async def plain_end(stream: TlsStream) -> AsyncIterator[socket.socket]:
    """Yield a non-blocking socket with a stream's plaintext; raises OSError if no descriptor is left.

    The caller closes the socket before leaving; leaving sends the remaining bytes and closes the stream.
    """
    try:
        ours, theirs = socket.socketpair()
    except OSError:
        await trio.aclose_forcefully(stream)
        raise
    theirs.setblocking(False)
    inner = trio.SocketStream(trio.socket.from_stdlib_socket(ours))
    # Shielded: a farewell that is written during cancellation must still go out.
    scope = trio.CancelScope(shield=True)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_copy_both, stream, inner, scope)
        try:
            yield theirs
        finally:
            hurried = trio.current_effective_deadline() == -math.inf
            scope.deadline = trio.current_time() + (HURRIED_SECONDS if hurried else LAST_SECONDS)


async def _copy_both(outer: TlsStream, inner: trio.SocketStream, scope: trio.CancelScope) -> None:
    transport = outer.transport_stream
    with scope:
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_copy_in, outer, inner, nursery.cancel_scope)
                await _copy_out(inner, outer)
                nursery.cancel_scope.cancel()
            await _hang_up(outer, transport)
        finally:
            # The sockets, not the stream: the stream drops its transport after both goodbyes. And no checkpoint
            # here, because a cancellation could fall between the two.
            inner.socket.close()
            transport.socket.close()


async def _copy_in(outer: TlsStream, inner: trio.SocketStream, both: trio.CancelScope) -> None:
    while True:
        try:
            data = await outer.receive_some(COPY_BYTES)
        except _GONE as error:
            if not isinstance(error.__cause__, ssl.SSLEOFError):
                both.cancel()
                return
            # Many clients hang up without a TLS goodbye: HTTP and WebSocket know when they are complete.
            data = b""
        try:
            if not data:
                await inner.send_eof()
                return
            await inner.send_all(data)
        except _GONE:
            # The plain end is closed; the bytes that were written to it before are still going out.
            return


async def _copy_out(inner: trio.SocketStream, outer: TlsStream) -> None:
    with suppress(*_GONE):
        while data := await inner.receive_some(COPY_BYTES):
            await outer.send_all(data)


async def _hang_up(outer: TlsStream, transport: trio.SocketStream) -> None:
    """End this side's direction, and wait a moment for the peer's end."""
    with trio.move_on_after(GOODBYE_SECONDS), suppress(*_GONE):
        with suppress(*_GONE):
            await outer.unwrap()
        await transport.send_eof()
        while await transport.receive_some(COPY_BYTES):
            pass
