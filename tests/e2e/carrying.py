"""A reverse proxy that adds a header to each request, for clients that cannot be told to send one.

Everything else passes as it is: Host and Origin, streams while they last, and the end of a connection, at once.
"""

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial

import trio

CHUNK = 65536
END_OF_HEAD = b"\r\n\r\n"
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
CHUNKED = re.compile(rb"\r\ntransfer-encoding:", re.IGNORECASE)


@asynccontextmanager
async def carrying(header: str, port: int) -> AsyncIterator[int]:
    """Yields a port of this machine where requests are passed on to `port` with one more header."""
    async with trio.open_nursery() as nursery:
        carry = partial(_carry, f"\r\n{header}".encode(), port)
        listeners = await nursery.start(partial(trio.serve_tcp, carry, 0, host="127.0.0.1"))
        yield listeners[0].socket.getsockname()[1]
        nursery.cancel_scope.cancel()


async def _carry(header: bytes, port: int, client: trio.SocketStream) -> None:
    """One connection, until one of its sides ends it."""
    daemon = await trio.open_tcp_stream("127.0.0.1", port)
    async with client, daemon, trio.open_nursery() as nursery:

        async def ended(carried: Callable[[], Awaitable[None]]) -> None:
            with suppress(trio.BrokenResourceError):
                await carried()
            nursery.cancel_scope.cancel()

        nursery.start_soon(ended, partial(_requests, client, daemon, header))
        nursery.start_soon(ended, partial(_bytes, daemon, client))


async def _requests(client: trio.SocketStream, daemon: trio.SocketStream, header: bytes) -> None:
    buffer = b""
    while True:
        while END_OF_HEAD not in buffer:
            chunk = await client.receive_some(CHUNK)
            if not chunk:
                return
            buffer += chunk
        head, _, buffer = buffer.partition(END_OF_HEAD)
        assert not CHUNKED.search(head), head
        length = LENGTH.search(head)
        left = int(length[1]) if length else 0
        await daemon.send_all(head + header + END_OF_HEAD)
        while left:
            body, buffer = buffer[:left], buffer[left:]
            await daemon.send_all(body)
            left -= len(body)
            if left:
                buffer = await client.receive_some(CHUNK)
                if not buffer:
                    return


async def _bytes(source: trio.SocketStream, sink: trio.SocketStream) -> None:
    while chunk := await source.receive_some(CHUNK):
        await sink.send_all(chunk)
