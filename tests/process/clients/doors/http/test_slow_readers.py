"""Clients that take their time to read a response, and those that take nothing of it."""

from __future__ import annotations

import socket
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from daemon.clients.doors.http.http_connection import LINGER_SECONDS, HttpConnection
from daemon.wire.link import STUCK_SECONDS
from daemon.wire.outbox import Outbox

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from trio.testing import MockClock

    from daemon.clients.doors.http.exchange import HttpExchange

BUFFER = 32 * 1024
"""Bytes that the kernel is asked to hold for either end."""

LONG = b"x" * (64 * BUFFER)

PATIENCE = 1000 * STUCK_SECONDS
"""Seconds of the virtual clock."""


def give(exchange: HttpExchange) -> None:
    """Answer with more than the client takes at once."""
    exchange.respond(HTTPStatus.OK, (LONG,))


@asynccontextmanager
async def asked(request: bytes) -> AsyncIterator[tuple[HttpConnection, trio.SocketStream, trio.Event]]:
    """A connection whose client has sent a request; the client's end; and that the connection has ended."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)
        client = trio.socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
        await client.connect(listener.getsockname())
        stream = trio.SocketStream(client)
        accepted, _ = listener.accept()
    accepted.setblocking(False)
    connection = HttpConnection(
        accepted, give, peer="", outbox=Outbox(), max_body=1, max_queue=1 << 30, pause_at=1 << 30
    )
    ended = trio.Event()

    async def run() -> None:
        try:
            await connection.run()
        finally:
            connection.close()
            ended.set()

    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery, stream:
            nursery.start_soon(run)
            await stream.send_all(request)
            while not connection.writer.queued:
                await trio.testing.wait_all_tasks_blocked(0.01)
            yield connection, stream, ended
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize("last", ["", "Connection: close\r\n"])
async def test_whoever_reads_slowly_gets_all_of_it(mock_clock: MockClock, last: str) -> None:
    request = f"GET / HTTP/1.1\r\nHost: localhost\r\n{last}\r\n".encode()
    async with asked(request) as (connection, stream, _):
        taken = 0
        while taken < len(LONG):
            chunk = await stream.receive_some(BUFFER)
            assert chunk, f"cut after {taken} bytes"
            taken += len(chunk)
            await trio.testing.wait_all_tasks_blocked(0.01)
            mock_clock.jump(STUCK_SECONDS / 10)
            connection.tick(trio.current_time())


async def test_whoever_does_not_close_after_the_last_response_is_closed(mock_clock: MockClock) -> None:
    async with asked(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n") as (
        connection,
        stream,
        ended,
    ):
        while await stream.receive_some():
            pass
        assert not ended.is_set()
        mock_clock.jump(LINGER_SECONDS)
        connection.tick(trio.current_time())
        await ended.wait()
