"""An HTTP/1.1 connection over one descriptor: requests one at a time, and their responses.

h11 parses and frames; the poll of all links says when there is something to read, and writes what is queued
(`wire.writing`), so neither a connection nor a request has a task of its own to wake. What a request means is
up to an application, which is shown each request as soon as its head is there, before its body is read.

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
from http import HTTPStatus
from select import EPOLLRDHUP
from time import perf_counter
from typing import TYPE_CHECKING, TypeVar

import h11
import trio

from daemon.clients.doors.http.exchange import HEAD_BYTES, PLAIN, HttpExchange, Refusal, head_of
from daemon.clients.doors.http.responding import ResponseWriter
from daemon.errors import ConnectionLost
from daemon.wire.outbox import GUESTS_SECONDS, IN, OUT
from daemon.wire.writing import CLOSED, STUCK_SECONDS

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from daemon.wire.outbox import Outbox

PIPELINED_BYTES = HEAD_BYTES
"""Bytes of later requests that are read while a response is under way; clients of MCP send none."""

READ_BYTES = 64 * 1024
"""Bytes of one read of a body; outside of one it is `HEAD_BYTES`, as h11 takes a whole head of any length."""

READS_PER_TURN = 16
"""Reads before other links get a turn: a megabyte."""

EVENTS_PER_TURN = 16
"""Heads, ends and parts of bodies before other links get a turn: a request has three or four, and each costs 20
to 100 us, however few bytes it has."""

HEAD_SECONDS = 10.0
"""Seconds from the first byte of a head, or from the connection, to its last."""

BODY_SECONDS = 60.0
"""Seconds from the head to the end of the body: 4 MiB at 70 KB/s."""

V = TypeVar("V")


class HttpConnection(ResponseWriter):
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
        super().__init__(
            connection, outbox=outbox, head_bytes=HEAD_BYTES, max_queue=max_queue, pause_at=pause_at
        )
        self.received = b""
        """What was read since the last response, while nothing but a head was: what an upgrade begins with."""
        self._serve = serve
        self._peer = peer
        self._max_body = max_body
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._deadline = trio.current_time() + HEAD_SECONDS
        self._seen = 0
        """What the client had taken when it was last looked at."""
        self._reads = self._piles_up = self._drops = False
        self._has_more = False
        """Whether something that was read waits for the next turn."""

    def __repr__(self) -> str:
        return f"<HttpConnection from {self._peer}>"

    async def run(self) -> None:
        """Serve until the connection ends: the client leaves, breaks a rule, or upgrades."""
        try:
            self._rewatch()
            await self._until_ended()
        except OSError as error:  # the kernel has no room to watch it
            self._end(ConnectionLost(f"waiting for it failed: {error.strerror}"))
        finally:
            self._end(ConnectionLost("the connection was closed here"))
            self._outbox.flush()

    def tick(self, now: float) -> None:
        """Do what is due: give up on a client that is too slow, call what waits for its time."""
        exchange = self.exchange
        self._allow_for_reading(now)
        try:
            if now >= self._deadline:
                self._deadline = math.inf
                if exchange is None or self._http.our_state is not h11.SEND_RESPONSE:
                    self._end(ConnectionLost("no request came in time, or the response was not read"))
                else:
                    text = "the request was not complete in time\n"
                    exchange.respond(HTTPStatus.REQUEST_TIMEOUT, (text.encode(),), PLAIN)
            if exchange is not None and now >= exchange.due and exchange.on_due is not None:
                exchange.due, on_due = math.inf, exchange.on_due
                on_due()
        except Exception as error:  # noqa: BLE001 - the boundary, as in `_on_ready`
            self._give_up(error)

    def _allow_for_reading(self, now: float) -> None:
        """Give a client time that still takes a response: what it has of it would be worth nothing."""
        if self.exchange is None and self.queued and self._taken != self._seen:
            self._seen = self._taken
            self._deadline = max(self._deadline, now + STUCK_SECONDS)

    def close_when_done(self) -> None:
        """Serve the request that is under way, if any, as the last one: the daemon is stopping."""
        self._is_last = True
        if self.exchange is None and not self._out:
            self._end(ConnectionLost("mcpd is stopping"))

    # --- requests ------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Write, and have the next request served, in its turn, if it has come already."""
        super().flush()
        if self._may_go_on() and self.exchange is None and self._http.trailing_data[0]:
            self._has_more = True
            self._rewatch()

    def _on_ready(self, ready: int) -> None:
        try:
            if self._piles_up and ready & EPOLLRDHUP:
                raise ConnectionLost("the client closed the connection")
            if self._has_more:
                self._parse(perf_counter() + GUESTS_SECONDS)
            elif ready & ~OUT:
                self._read_on(perf_counter() + GUESTS_SECONDS)
            if self._blocked and ready & ~IN and self._reason is None:
                self._note(not self._write())
        except Exception as error:  # noqa: BLE001 - the boundary: a fault ends this connection alone
            self._give_up(error)

    def _read_on(self, until: float) -> None:
        for _ in range(READS_PER_TURN):
            size = READ_BYTES if self._http.their_state is h11.SEND_BODY else HEAD_BYTES
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
                if self.exchange is None:
                    self.received += chunk
                self._http.receive_data(chunk)
                self._parse(until)
            if len(chunk) < size or not self._reads or perf_counter() >= until:
                return

    def _may_go_on(self) -> bool:
        """Whether anything that the client sends still counts."""
        return self._reason is None and not self._drops and not (self._is_last and self.exchange is None)

    def _parse(self, until: float) -> None:
        """Take what has come: to the end of a request at most, and no longer than a turn."""
        self._has_more = False
        for _ in range(EVENTS_PER_TURN):
            if not self._may_go_on():
                break
            if self.exchange is None and self.queued > self._pause_at:
                # Nobody's answers pile up here: who does not read them is served on when they are read.
                self._has_more = True
                break
            match self._http.next_event():
                case h11.Request() as request:
                    self._begin(request)
                case h11.Data(data=data):
                    self._take(data)
                case h11.EndOfMessage():
                    self._complete()
                    break
                case _:  # NEED_DATA, PAUSED, or the end
                    break
            if perf_counter() >= until:
                self._has_more = True
                break
        else:
            self._has_more = True
        self._rewatch()

    def _begin(self, request: h11.Request) -> None:
        self._is_idle, self._is_head = False, request.method == b"HEAD"
        self._deadline = trio.current_time() + BODY_SECONDS
        head = head_of(request, self._peer)
        length = head.headers.get("content-length", None if "transfer-encoding" in head.headers else "0")
        exchange = self.exchange = HttpExchange(head, self, length=None if length is None else int(length))
        if exchange.length == 0:
            return  # Its end comes next, and only then may the response leave the connection open.
        _refusable(exchange, self._serve, exchange)
        if exchange.on_body is not None and (exchange.length or 0) > self._max_body:
            _refuse_body(exchange, self._max_body)
        self._drops = exchange.on_body is None
        if self._drops:
            self._deadline = math.inf  # Of its body: whoever holds the response back says when it is due.
        elif exchange.is_open and self._http.they_are_waiting_for_100_continue:
            self.queue((self._http.send(h11.InformationalResponse(status_code=100, headers=[])) or b"",))

    def _take(self, data: bytes) -> None:
        if self.exchange is None:
            return
        if self.exchange.on_body is not None:  # else it is refused already, in a moment
            self._body.append(bytes(data))
        self._body_bytes += len(data)
        if self._body_bytes > self._max_body:
            _refuse_body(self.exchange, self._max_body)

    def _complete(self) -> None:
        self._deadline = math.inf
        exchange = self.exchange
        if exchange is not None and exchange.length == 0:
            _refusable(exchange, self._serve, exchange)
        if exchange is not None and exchange.is_open and exchange.on_body is not None:
            body, self._body = b"".join(self._body), []
            _refusable(exchange, exchange.on_body, body)

    def _rewatch(self) -> None:
        if self._write_fd == CLOSED:
            return
        runs = self._reason is None
        waits = self.exchange is not None and len(self._http.trailing_data[0]) > PIPELINED_BYTES
        self._piles_up = runs and not self._has_more and self.exchange is not None and (self._drops or waits)
        self._reads = runs and not (self._paused or self._piles_up or self._has_more)
        reads = EPOLLRDHUP if self._piles_up else IN if self._reads else 0
        writes = OUT if runs and (self._blocked or self._has_more) else 0
        self._poll.watch(self._write_fd, reads | writes, self._on_ready)

    def _forget_request(self) -> None:
        self._body, self._body_bytes, self.received = [], 0, self._http.trailing_data[0]


def _refusable(exchange: HttpExchange, act: Callable[[V], None], given: V) -> None:
    """Have the application act on a request, and respond with its refusal if it refuses."""
    try:
        act(given)
    except Refusal as refusal:
        exchange.refuse(refusal)


def _refuse_body(exchange: HttpExchange, most: int) -> None:
    text = f"the body is longer than {most} bytes (limits.clientMessageBytes)\n"
    exchange.respond(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, (text.encode(),), PLAIN)
