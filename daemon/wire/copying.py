"""A stream over TLS as a plain descriptor, which is all that a link's poll knows.

Two tasks copy, each with one buffer. A direction that is not read from is not written to, so what waits is
bounded by the buffers of two sockets. The end of either direction is passed on as such, after everything before
it; a peer that is gone ends both.
"""

from __future__ import annotations

import math
import socket
import ssl
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

COPY_BYTES = 64 * 1024
"""One read: four records of TLS."""

LAST_SECONDS = 30.0
"""How long a slow peer has to take what was written before the plain side was closed: some 200 KB at most."""

HURRIED_SECONDS = 0.2
"""The same when we are being cancelled: a stop waits for it."""

GOODBYE_SECONDS = 1.0
"""How long a peer has to hang up after we have said that nothing more comes. Bytes of its that nobody reads
would reset the connection, and it could lose our last ones."""

_GONE = (trio.BrokenResourceError, trio.ClosedResourceError)

TlsStream = trio.SSLStream[trio.SocketStream]


@asynccontextmanager
async def plain_end(stream: TlsStream) -> AsyncIterator[socket.socket]:
    """The plain end of a stream whose handshake is done: a connected, non-blocking socket.

    The caller closes it before leaving. Leaving closes the stream when all that was written to the plain end is
    taken, or it is too late for that.

    Raises:
        OSError: there is no descriptor left; the stream is closed.
    """
    try:
        ours, theirs = socket.socketpair()
    except OSError:
        await trio.aclose_forcefully(stream)
        raise
    theirs.setblocking(False)
    inner = trio.SocketStream(trio.socket.from_stdlib_socket(ours))
    # Shielded: what is written while we are cancelled, as a farewell, is still to go out.
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
            # Not through the stream, which lets go of its transport once both sides have said goodbye; and
            # without a checkpoint, at which we may be cancelled between the two.
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
            # Many clients hang up without saying so in TLS: HTTP and WebSocket know when they are complete.
            data = b""
        try:
            if not data:
                await inner.send_eof()
                return
            await inner.send_all(data)
        except _GONE:
            # The plain end is closed; what was written to it before that is still on its way out.
            return


async def _copy_out(inner: trio.SocketStream, outer: TlsStream) -> None:
    with suppress(*_GONE):
        while data := await inner.receive_some(COPY_BYTES):
            await outer.send_all(data)


async def _hang_up(outer: TlsStream, transport: trio.SocketStream) -> None:
    """Say that nothing more comes, and wait a moment for the peer to do the same."""
    with trio.move_on_after(GOODBYE_SECONDS), suppress(*_GONE):
        with suppress(*_GONE):
            await outer.unwrap()
        await transport.send_eof()
        while await transport.receive_some(COPY_BYTES):
            pass
