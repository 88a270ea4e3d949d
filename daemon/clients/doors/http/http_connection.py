"""An HTTP/1.1 connection over one descriptor: requests one at a time, and their responses.

The poll of all links says when there is something to read, and writes what is queued (`wire.writing`), so
neither a connection nor a request has a task of its own to wake. What a request means is up to an application,
which is shown each request as soon as its head is there, before its body is read.

Anybody may send, so a connection is a guest of the poll (`wire.outbox`): its turn ends with a request, after
`EVENTS_PER_TURN` and after `GUESTS_SECONDS`, whichever comes first. What was read by then waits, and nothing
more is read before its next turn. A connection with work left asks to be called when it can be written to: that
keeps its place in the queue, and calls nobody who does not read the answers.

Invariants.
- A request is read only when the response to the one before it is complete; a few bytes of it may wait.
- The descriptor is watched while a response is under way: a client that leaves is noticed at once.
- A body that nobody takes, such as that of a refused request, is not read while its response is held back, is
  dropped afterwards without being parsed, and the connection is closed.

Source: RFC 9112.
"""

from __future__ import annotations

import math
import socket
from http import HTTPStatus
from select import EPOLLRDHUP
from time import perf_counter
from typing import TYPE_CHECKING, TypeVar

import trio
from loguru import logger

from daemon.clients.doors.http.exchange import CONTINUE, PLAIN, HttpExchange, Refusal, ResponseWriter
from daemon.clients.doors.http.reading import HEAD_BYTES, BadRequest, RequestReader
from daemon.errors import ConnectionLost, RunError
from daemon.wire.outbox import GUESTS_SECONDS, IN, OUT
from daemon.wire.writing import CLOSED, STUCK_SECONDS, FdWriter

if TYPE_CHECKING:
    from collections.abc import Callable

    from daemon.wire.outbox import Outbox


PIPELINED_BYTES = HEAD_BYTES
"""Bytes of later requests that are read while a response is under way; clients of MCP send none."""

READ_BYTES = 64 * 1024
"""Bytes of one read of a body; outside of one it is `HEAD_BYTES`, so that later requests do not pile up."""

READS_PER_TURN = 16
"""Reads before other links get a turn: a megabyte."""

EVENTS_PER_TURN = 16
"""Heads and parts of bodies before other links get a turn: each costs 10 to 50 us, however few bytes it has."""

HEAD_SECONDS = 10.0
"""Seconds from the first byte of a head, or from the connection, to its last."""

BODY_SECONDS = 60.0
"""Seconds from the head to the end of the body: 4 MiB at 70 KB/s."""

IDLE_SECONDS = 75.0
"""Seconds without a request after which a kept connection is closed: longer than balancers keep theirs by
default, so that it is they who close."""

LINGER_SECONDS = 2.0
"""Seconds that a client has to close after the last response was written: what it has sent meanwhile would make
the kernel reset the connection, and could lose the response (RFC 9112, 9.6)."""

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
        """Take over a connected, non-blocking socket.

        Args:
            connection: the socket.
            serve: shown each request when its head is there; answers it, or says what takes its body. Both may
                raise `Refusal`, which is the response then.
            peer: the address at the other end.
            outbox: the daemon's outbox.
            max_body: bytes of the longest body.
            max_queue: bytes that may wait for the client before it is behind.
            pause_at: bytes waiting for it above which nothing more is read.
        """
        self.writer = FdWriter(self, connection.fileno(), outbox=outbox, max_queue=max_queue, pause_at=pause_at)
        """Has what waits for the client."""
        self.writer.on_written, self.writer.on_ended = self._on_written, self._on_ended
        self._reader = RequestReader()
        self.responses = ResponseWriter(self.writer, self._reader, self._on_response)
        """Writes the response to the request that is under way."""
        self._socket = connection
        self._outbox = outbox
        self._serve = serve
        self._peer = peer
        self._body = _RequestBody(max_body)
        self._deadline = trio.current_time() + HEAD_SECONDS
        self._seen = 0
        """What the client had taken when it was last looked at."""
        self._is_idle = self._is_shut = self._is_released = False
        self._reads = self._piles_up = self._drops = False
        self._has_more = False
        """Whether something that was read waits for the next turn."""

    def __repr__(self) -> str:
        return f"<HttpConnection from {self._peer}>"

    @property
    def exchange(self) -> HttpExchange | None:
        """The request whose response is not complete."""
        return self.responses.exchange

    async def run(self) -> None:
        """Serve until the connection ends: the client leaves, breaks a rule, or upgrades."""
        try:
            self.rewatch()
            await self.writer.until_ended()
        except OSError as error:  # the kernel has no room to watch it
            self.writer.end(ConnectionLost(f"waiting for it failed: {error.strerror}"))
        finally:
            self.writer.end(ConnectionLost("the connection was closed here"))
            self._outbox.flush()

    def tick(self, now: float) -> None:
        """Do what is due: give up on a client that is too slow, call what waits for its time."""
        exchange = self.exchange
        if exchange is None and self.writer.queued and self.writer.taken != self._seen:
            # It still takes a response, and what it has of it would be worth nothing.
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
        """Serve the request that is under way, if any, as the last one: the daemon is stopping."""
        self.responses.is_last = True
        if self.exchange is None and not self.writer.queued:
            self.writer.end(ConnectionLost("mcpd is stopping"))

    def upgrade(self) -> None:
        """End this connection's part: its socket goes on under another protocol.

        Raises:
            Refusal: the client has sent more than the request.
        """
        if self._reader.held or not self._reader.is_complete:
            # What has come already is no request.
            self.responses.is_last = True
            raise Refusal(
                HTTPStatus.BAD_REQUEST, "a client must wait for the answer to its opening handshake\n"
            )
        self.responses.exchange = None
        self.writer.end(ConnectionLost("another protocol from here on"))

    def release(self) -> socket.socket:
        """Hand the socket over to whoever goes on."""
        self.writer.fd, self._is_released = CLOSED, True
        return self._socket

    def close(self) -> None:
        """Close the socket, unless it was handed over. Idempotent."""
        if not self._is_released:
            self._is_released = True
            self.writer.fail("the connection was closed here")
            self.writer.is_closed, self.writer.fd = True, CLOSED
            self._socket.close()

    # --- called by the poll and the writer -----------------------------------------------------------------

    def rewatch(self) -> None:
        """Have the poll watch for what is wanted now (`wire.writing.WriterOwner`)."""
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
        """Go on when responses were written: with the next request if it has come already, or to the end."""
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

    # --- requests ------------------------------------------------------------------------------------------

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
        """Whether anything that the client sends still counts."""
        is_over = self.responses.is_last and self.exchange is None
        return self.writer.reason is None and not self._drops and not is_over

    def _parse(self, until: float) -> None:
        """Take what has come: to the end of a request at most, and no longer than a turn."""
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
                # Nobody's answers pile up here: who does not read them is served on when they are read.
                self._has_more = True
                break
            elif (head := reader.head(self._peer)) is None:
                break
            else:
                self._begin(HttpExchange(head, self, length=reader.length))
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
            return  # It is complete, and only then may the response leave the connection open.
        _refusable(exchange, self._serve, exchange)
        if exchange.on_body is not None and (exchange.length or 0) > self._body.most:
            self._body.refuse(exchange)
        self._drops = exchange.on_body is None
        if self._drops:
            self._deadline = math.inf  # Of its body: whoever holds the response back says when it is due.
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
        """End the connection; what is no request, and a fault of ours, is answered if there is a way to."""
        if isinstance(error, RunError):
            self.writer.end(error)
            return
        if isinstance(error, BadRequest):
            status, text, answers = error.status, error.text, True
        else:
            logger.opt(exception=error).error("a fault of mcpd's own while serving HTTP")
            status, text = HTTPStatus.INTERNAL_SERVER_ERROR, "a fault of mcpd's own: see its log\n"
            answers = self.exchange is not None
        self.responses.is_last = True
        if answers and not self.responses.is_begun:
            self.responses.respond(status, PLAIN, (text.encode(),))
        else:
            self.writer.end(ConnectionLost(text))


class _RequestBody:
    """The body of the request under way, as far as it has come."""

    def __init__(self, most: int) -> None:
        """Begin without one; `most` is how many bytes it may have."""
        self.most = most
        self._parts: list[bytes] = []
        self._size = 0

    def take(self, part: bytes, exchange: HttpExchange | None) -> None:
        """Keep a part; a body that is too long is refused."""
        self._size += len(part)
        self._parts.append(part)
        if self._size > self.most and exchange is not None:
            self.refuse(exchange)

    def whole(self) -> bytes:
        """All of it, which is kept no longer."""
        body = b"".join(self._parts)
        self.clear()
        return body

    def clear(self) -> None:
        """Begin again."""
        self._parts, self._size = [], 0

    def refuse(self, exchange: HttpExchange) -> None:
        """Respond that it is too long."""
        text = f"the body is longer than {self.most} bytes (limits.clientMessageBytes)\n"
        exchange.respond(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, (text.encode(),), PLAIN)


def _refusable(exchange: HttpExchange, act: Callable[[V], None], given: V) -> None:
    """Have the application act on a request, and respond with its refusal if it refuses."""
    try:
        act(given)
    except Refusal as refusal:
        exchange.refuse(refusal)
