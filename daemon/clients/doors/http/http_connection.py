"""An HTTP/1.1 connection over one descriptor: requests one at a time, and their responses (RFC 9112).

The poll of all links reads and writes, so neither connections nor requests have tasks. The application sees a
request before its body is read. As a guest of the poll (`wire.outbox`), a connection ends its turn with a
request, after `EVENTS_PER_TURN` or `GUESTS_SECONDS`. With work left it waits to be writable, so that a client
that does not read its answers gets no turns.

- The next request is parsed only after the current response; a few bytes of it may wait.
- The descriptor is watched during a response, so that a leaving client is noticed at once.
- A body that nobody takes waits unread for a delayed response, is then dropped unparsed, and ends the
  connection.
"""

from __future__ import annotations

import math
import socket
from collections.abc import Callable
from http import HTTPStatus
from select import EPOLLRDHUP
from time import perf_counter
from typing import TypeVar

import trio
from loguru import logger

from daemon.clients.doors.http.exchange import CONTINUE, PLAIN, HttpExchange, Refusal, ResponseWriter
from daemon.clients.doors.http.reading import HEAD_BYTES, BadRequest, RequestReader
from daemon.errors import ConnectionLost, RunError
from daemon.wire.link import CLOSED, STUCK_SECONDS, FdWriter
from daemon.wire.outbox import GUESTS_SECONDS, IN, OUT, Outbox

PIPELINED_BYTES = HEAD_BYTES  # bytes of later requests read during a response; MCP clients send none

READ_BYTES = 64 * 1024
"""Bytes of one read of a body; otherwise `HEAD_BYTES`, so that later requests do not pile up."""

READS_PER_TURN = 16  # a megabyte before other links get a turn

EVENTS_PER_TURN = 16  # heads and parts of bodies per turn: each costs 10 to 50 us, however short

HEAD_SECONDS = 10.0  # from the first byte of a head, or from the connection, to the last byte

BODY_SECONDS = 60.0  # from the head to the end of the body: 4 MiB at 70 KB/s

IDLE_SECONDS = 75.0
"""A kept connection's time without a request: longer than balancers', so that they close first."""

LINGER_SECONDS = 2.0
"""A client's time to close after the last response: its unread bytes would reset the connection and could lose
the response (RFC 9112, 9.6)."""

V = TypeVar("V")


class HttpConnection:
    """Serves the requests of one client. Owns its socket until `close` or `release`."""

    def __init__(
        self,
        connection: socket.socket,
        serve: Callable[[HttpExchange], None],
        *,
        peer: str,
        outbox: Outbox,
        max_body: int,
        max_queue: int,
        pause_at: int,
    ) -> None:
        """Take over a connected, non-blocking socket; bounds are bytes.

        `serve` sees each request when its head is there. It answers, or sets a taker of the body; both may
        raise `Refusal`.
        """
        self.writer = FdWriter(self, connection.fileno(), outbox=outbox, max_queue=max_queue, pause_at=pause_at)
        self.writer.on_written, self.writer.on_ended = self._on_written, self._on_ended
        self._reader = RequestReader()
        self.responses = ResponseWriter(self.writer, self._reader, self._on_response)
        self._socket = connection
        self._outbox = outbox
        self._serve = serve
        self._peer = peer
        self._body = _RequestBody(max_body)
        self._deadline = trio.current_time() + HEAD_SECONDS
        self._seen = 0  # bytes taken by the client at the last check
        self._is_idle = self._is_shut = self._is_released = False
        self._reads = self._piles_up = self._drops = False
        self._has_more = False  # whether bytes that were read wait for the next turn

    def __repr__(self) -> str:
        return f"<HttpConnection from {self._peer}>"

    @property
    def exchange(self) -> HttpExchange | None:
        """The request whose response is incomplete."""
        return self.responses.exchange

    async def run(self) -> None:
        """Serve until the client leaves, breaks a rule, or upgrades."""
        try:
            self.rewatch()
            await self.writer.until_ended()
        except OSError as error:  # the kernel has no room to watch it
            self.writer.end(ConnectionLost(f"waiting for it failed: {error.strerror}"))
        finally:
            self.writer.end(ConnectionLost("the connection was closed here"))
            self._outbox.flush()

    def tick(self, now: float) -> None:
        """Give up on a slow client, and call what is due."""
        exchange = self.exchange
        if exchange is None and self.writer.queued and self.writer.taken != self._seen:
            # It still takes a response, whose beginning would be worthless.
            self._seen = self.writer.taken
            self._deadline = max(self._deadline, now + STUCK_SECONDS)
        try:
            if now >= self._deadline:
                self._deadline = math.inf
                if exchange is None or self.responses.is_begun:
                    self.writer.end(ConnectionLost("no request came in time, or the response was not read"))
                else:
                    text = "the request was not complete in time\n"
                    exchange.respond(HTTPStatus.REQUEST_TIMEOUT, (text.encode(),), PLAIN)
            if exchange is not None and now >= exchange.due and exchange.on_due is not None:
                exchange.due, on_due = math.inf, exchange.on_due
                on_due()
        except Exception as error:  # noqa: BLE001 - the boundary, as in `_on_ready`
            self._give_up(error)

    def close_when_done(self) -> None:
        """Make the current request, if any, the last one: the daemon is stopping."""
        self.responses.is_last = True
        if self.exchange is None and not self.writer.queued:
            self.writer.end(ConnectionLost("mcpd is stopping"))

    def release(self) -> socket.socket:
        """Hand the socket over to its next owner."""
        self.writer.fd, self._is_released = CLOSED, True
        return self._socket

    def close(self) -> None:
        """Close the socket, unless it was handed over. Idempotent."""
        if not self._is_released:
            self._is_released = True
            self.writer.fail("the connection was closed here")
            self.writer.is_closed, self.writer.fd = True, CLOSED
            self._socket.close()

    def rewatch(self) -> None:
        """Have the poll watch for reading, writing, both or neither (`wire.link.WriterOwner`)."""
        writer = self.writer
        if writer.fd == CLOSED:
            return
        runs = writer.reason is None
        waits = self.exchange is not None and len(self._reader.held) > PIPELINED_BYTES
        self._piles_up = runs and not self._has_more and self.exchange is not None and (self._drops or waits)
        self._reads = runs and not (writer.is_paused or self._piles_up or self._has_more)
        reads = EPOLLRDHUP if self._piles_up else IN if self._reads else 0
        writes = OUT if runs and (writer.is_blocked or self._has_more) else 0
        self._outbox.poll.guests.watch(writer.fd, reads | writes, self._on_ready)

    look_again = rewatch

    def _on_ready(self, ready: int) -> None:
        try:
            if self._piles_up and ready & EPOLLRDHUP:
                raise ConnectionLost("the client closed the connection")
            if self._has_more:
                self._parse(perf_counter() + GUESTS_SECONDS)
            elif ready & ~OUT:
                self._read_on(perf_counter() + GUESTS_SECONDS)
            if self.writer.is_blocked and ready & ~IN and self.writer.reason is None:
                self.writer.note(not self.writer.write())
        except Exception as error:  # noqa: BLE001 - the boundary: a fault ends this connection alone
            self._give_up(error)

    def _on_written(self) -> None:
        """Continue after a write: with a request that has come already, or to the end."""
        exchange, writer = self.exchange, self.writer
        if not writer.queued and exchange is not None and exchange.on_written is not None:
            exchange.on_written()
        if exchange is not None or writer.reason is not None:
            return
        if not self.responses.is_last:
            if self._reader.held and not self._has_more:
                self._has_more = True
                self.rewatch()
        elif not writer.queued and not self._is_shut:
            self._is_shut = True
            self._deadline = trio.current_time() + LINGER_SECONDS
            try:
                self._socket.shutdown(socket.SHUT_WR)
            except OSError as error:
                writer.end(ConnectionLost(f"closing failed: {error.strerror}"))

    def _on_ended(self) -> None:
        exchange, self.responses.exchange = self.exchange, None
        if exchange is not None and exchange.on_gone is not None:
            exchange.on_gone()

    def _on_response(self) -> None:
        now = trio.current_time()
        self._is_idle = not self.responses.is_last
        self._deadline = now + (IDLE_SECONDS if self._is_idle else STUCK_SECONDS)

    def _read_on(self, until: float) -> None:
        for _ in range(READS_PER_TURN):
            size = HEAD_BYTES if self._reader.is_complete else READ_BYTES
            try:
                chunk = self._socket.recv(size)
            except BlockingIOError:
                return
            except OSError as error:
                raise ConnectionLost(f"reading failed: {error.strerror}") from None
            if not chunk:
                raise ConnectionLost("the client closed the connection")
            if self._may_go_on():
                if self._is_idle:
                    self._is_idle = False
                    self._deadline = trio.current_time() + HEAD_SECONDS
                self._reader.feed(chunk)
                self._parse(until)
            if len(chunk) < size or not self._reads or perf_counter() >= until:
                return

    def _may_go_on(self) -> bool:
        """Whether further bytes of the client count."""
        is_over = self.responses.is_last and self.exchange is None
        return self.writer.reason is None and not self._drops and not is_over

    def _parse(self, until: float) -> None:
        """Parse to the end of a request at most, and no longer than a turn."""
        self._has_more = False
        reader = self._reader
        for _ in range(EVENTS_PER_TURN):
            if not self._may_go_on():
                break
            if not reader.is_complete:
                if (part := reader.body()) is None:
                    break
                self._body.take(part, self.exchange)
            elif self.exchange is not None:
                break
            elif self.writer.queued > self.writer.pause_at:
                # A client that does not read its answers is served again when it does.
                self._has_more = True
                break
            elif (head := reader.head(self._peer)) is None:
                break
            else:
                self._begin(HttpExchange(head, self.responses, length=reader.length))
            if reader.is_complete:
                self._complete()
                break
            if perf_counter() >= until:
                self._has_more = True
                break
        else:
            self._has_more = True
        self.rewatch()

    def _begin(self, exchange: HttpExchange) -> None:
        self._is_idle, self._deadline = False, trio.current_time() + BODY_SECONDS
        self._body.clear()
        self.responses.exchange = exchange
        if exchange.length == 0:
            return  # Served once complete: only then may the response leave the connection open.
        _refusable(exchange, self._serve, exchange)
        if exchange.on_body is not None and (exchange.length or 0) > self._body.most:
            self._body.refuse(exchange)
        self._drops = exchange.on_body is None
        if self._drops:
            self._deadline = math.inf  # The sender of the response sets the time.
        elif exchange.is_open and self._reader.is_awaited and not self._reader.held:
            self.writer.queue((CONTINUE,))

    def _complete(self) -> None:
        self._deadline = math.inf
        exchange = self.exchange
        if exchange is not None and exchange.length == 0:
            _refusable(exchange, self._serve, exchange)
        if exchange is not None and exchange.is_open and exchange.on_body is not None:
            _refusable(exchange, exchange.on_body, self._body.whole())

    def _give_up(self, error: Exception) -> None:
        """End the connection; answer a malformed request, and our own fault, if possible."""
        if isinstance(error, RunError):
            self.writer.end(error)
            return
        if isinstance(error, BadRequest):
            status, text, answers = error.status, error.text, True
        else:
            logger.opt(exception=error).error("internal error in mcpd while serving HTTP")
            status, text = HTTPStatus.INTERNAL_SERVER_ERROR, "internal error in mcpd: see its log\n"
            answers = self.exchange is not None
        self.responses.is_last = True
        if answers and not self.responses.is_begun:
            self.responses.respond(status, PLAIN, (text.encode(),))
        else:
            self.writer.end(ConnectionLost(text))


class _RequestBody:
    """The part of the current request's body that has come."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._parts: list[bytes] = []
        self._size = 0

    def take(self, part: bytes, exchange: HttpExchange | None) -> None:
        """Keep a part; refuse a body that is too long."""
        self._size += len(part)
        self._parts.append(part)
        if self._size > self.most and exchange is not None:
            self.refuse(exchange)

    def whole(self) -> bytes:
        """Hand over the whole body."""
        body = b"".join(self._parts)
        self.clear()
        return body

    def clear(self) -> None:
        """Start over."""
        self._parts, self._size = [], 0

    def refuse(self, exchange: HttpExchange) -> None:
        """Respond that the body is too long."""
        text = f"the body is longer than {self.most} bytes (limits.clientMessageBytes)\n"
        exchange.respond(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, (text.encode(),), PLAIN)


def _refusable(exchange: HttpExchange, act: Callable[[V], None], given: V) -> None:
    """Have the application act on a request; its refusal becomes the response."""
    try:
        act(given)
    except Refusal as refusal:
        exchange.refuse(refusal)
