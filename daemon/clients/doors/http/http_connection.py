"""An HTTP/1.1 connection over one descriptor: requests one at a time, and their responses (RFC 9112).

The poll of all links reads and writes, so neither connections nor requests have tasks. The application sees a
request before its body is read. In the poll (`wire.outbox`), a connection ends its turn after a request, after
`EVENTS_PER_TURN` events or after `GUESTS_SECONDS`. If work is left, the connection waits until it is writable,
so a client that does not read its answers gets no turns.

- The next request is parsed only after the current response; a few bytes of it may wait.
- The descriptor is watched during a response, so that a leaving client is noticed at once.
- A body that the application does not take waits unread for a delayed response. It is then dropped unparsed,
  and the connection ends.
"""

from __future__ import annotations

import math
import re
import socket
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from http import HTTPStatus
from select import EPOLLRDHUP
from time import perf_counter
from typing import TypeVar

import msgspec
import trio
from loguru import logger

from daemon.clients.doors.http.reading import HEAD_BYTES, Head, Refusal, RequestReader
from daemon.config.listen import is_loopback, split_authority
from daemon.errors import ConnectionLost, RunError
from daemon.wire.envelope import Buffer
from daemon.wire.link import CLOSED, STUCK_SECONDS, FdWriter
from daemon.wire.outbox import GUESTS_SECONDS, IN, OUT, Outbox


def require_loopback(head: Head) -> None:
    """Raise `Refusal` unless the request's Host is this machine: a web page's requests name another host."""
    host, _port = split_authority(head.headers.get("host", ""))
    if host is None or not is_loopback(host):
        text = "only for this machine: use the host localhost, 127.0.0.1 or [::1]\n"
        raise Refusal(HTTPStatus.FORBIDDEN, text)


PLAIN: Mapping[str, str] = {"content-type": "text/plain; charset=utf-8"}


def internal_error() -> Refusal:
    """The refusal of a request at which mcpd itself has failed."""
    return Refusal(HTTPStatus.INTERNAL_SERVER_ERROR, "internal error in mcpd: see its log\n")


UNREADABLE = Head(method="", path="", headers={}, peer="")  # of a malformed request


class HttpExchange(msgspec.Struct, eq=False):
    """A request and its response."""

    head: Head
    responses: ResponseWriter  # of its connection
    on_body: Callable[[bytes], None] | None = None  # takes the whole body; None: the answer needs none
    on_gone: Callable[[], None] | None = None  # called if the client leaves before the end of the response
    on_written: Callable[[], None] | None = None  # called when nothing waits for the client
    due: float = math.inf  # time for `on_due` on trio's clock, to half a second
    on_due: Callable[[], None] | None = None
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)  # for any response
    length: int | None = 0  # bytes of the body as announced; None if unknown
    is_begun: bool = False
    is_chunked: bool = False

    @property
    def is_open(self) -> bool:
        """Whether the client is still connected and the response incomplete."""
        return self.responses.exchange is self

    @property
    def waiting(self) -> int:
        """Bytes queued for the client on this connection."""
        return self.responses.writer.queued

    def respond(
        self, status: HTTPStatus, parts: Sequence[Buffer] = (), headers: Mapping[str, str] | None = None
    ) -> None:
        """Send a whole response, unless one was sent already or the client has left."""
        if not self.is_open:
            return
        sent = {**self.headers, **(headers or {})}
        if status is not HTTPStatus.NO_CONTENT:  # RFC 9110, 8.6
            sent["content-length"] = str(sum(map(len, parts)))
        out: list[Buffer] = [self._begun(status, sent)]
        if not self.responses.reader.is_head:
            out += parts
        self.responses.writer.queue(out)
        self.finish()

    def refuse(self, refusal: Refusal) -> None:
        """Send a refusal's response after its delay."""
        headers = {**PLAIN, **refusal.headers}
        respond = partial(self.respond, refusal.status, (refusal.text.encode(),), headers)
        if refusal.delay:
            self.wait_until(trio.current_time() + refusal.delay, respond)
        else:
            respond()

    def open_stream(self, headers: Mapping[str, str]) -> None:
        """Begin a response of unknown length."""
        if self.is_open:
            self.is_chunked = self.responses.reader.takes_chunks
            framing = {"transfer-encoding": "chunked"} if self.is_chunked else {}
            self.responses.writer.queue((self._begun(HTTPStatus.OK, {**self.headers, **headers, **framing}),))

    def send(self, parts: Sequence[Buffer]) -> None:
        """Send a part of a response of unknown length."""
        size = sum(map(len, parts))
        if size and self.is_open and not self.responses.reader.is_head:
            self.responses.writer.queue((b"%x\r\n" % size, *parts, b"\r\n") if self.is_chunked else parts)

    def finish(self) -> None:
        """End the response, then serve the next request or close the connection. Idempotent."""
        if self.is_open:
            if self.is_chunked and not self.responses.reader.is_head:
                self.responses.writer.queue((b"0\r\n\r\n",))
            # They refer to the request, and would make a cycle for the garbage collector.
            self.on_body = self.on_due = self.on_gone = self.on_written = None
            self.responses.end()

    def wait_until(self, due: float, on_due: Callable[[], None]) -> None:
        """Call `on_due` at a time; replaces an earlier call that is not due yet."""
        self.due, self.on_due = due, on_due

    def _begun(self, status: HTTPStatus, headers: Mapping[str, str]) -> bytes:
        self.is_begun = True
        if self.responses.ends:
            headers = {**headers, "connection": "close"}
        # A cookie is a secret, which no cache may hold.
        made = _response.__wrapped__ if "set-cookie" in headers else _response
        return made(status, tuple(headers.items()))


KNOWN_HEADS = 256  # cached heads of responses: most answers share a few lengths

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
"""Tells a waiting client to send its body (RFC 9110, 10.1.1)."""

_UNSAFE = re.compile(r"[\r\n\0]")  # characters that would end a header, and let its value be another one


class ResponseWriter:
    """The responses of one connection, one at a time."""

    def __init__(self, writer: FdWriter, reader: RequestReader, on_done: Callable[[], None]) -> None:
        self.exchange: HttpExchange | None = None  # the request whose response is incomplete
        self.is_last = False  # whether the connection ends with this response
        self.writer, self.reader = writer, reader
        self._on_done = on_done

    def end(self) -> None:
        """End the present response."""
        self.exchange, self.is_last = None, self.ends
        self._on_done()

    def upgrade(self) -> None:
        """Release the socket for another protocol; raises Refusal if bytes follow the request."""
        if self.reader.held or not self.reader.is_complete:
            # The bytes that have come are no request.
            self.is_last = True
            raise Refusal(
                HTTPStatus.BAD_REQUEST, "a client must wait for the answer to its opening handshake\n"
            )
        self.exchange = None
        self.writer.end(ConnectionLost("another protocol from here on"))

    @property
    def ends(self) -> bool:
        """Whether the connection ends with the present response."""
        return self.is_last or self.reader.is_last or not self.reader.is_complete


@lru_cache(KNOWN_HEADS)
def _response(status: HTTPStatus, headers: tuple[tuple[str, str], ...]) -> bytes:
    lines = [f"HTTP/1.1 {status.value} {status.phrase}", *(f"{name}: {value}" for name, value in headers)]
    if any(_UNSAFE.search(line) for line in lines):
        raise ValueError("a header of a response has an end of line in it")
    return "\r\n".join((*lines, "", "")).encode("latin-1")


PIPELINED_BYTES = HEAD_BYTES  # bytes of later requests read during a response; MCP clients send none

READ_BYTES = 64 * 1024
"""Bytes of one read of a body. Other reads take `HEAD_BYTES`, so that later requests do not pile up."""

READS_PER_TURN = 16  # a megabyte before other links get a turn

EVENTS_PER_TURN = 16  # heads and parts of bodies per turn: each costs 10 to 50 us, however short

HEAD_SECONDS = 10.0  # from the first byte of a head, or from the connection, to the last byte

BODY_SECONDS = 60.0  # from the head to the end of the body: 4 MiB at 70 KB/s

IDLE_SECONDS = 75.0
"""Seconds that a connection may be idle: longer than load balancers allow, so that they close first."""

LINGER_SECONDS = 2.0
"""Seconds for a client to close after the last response. Closing first could reset the connection because of
unread bytes, and lose the response (RFC 9112, 9.6)."""

V = TypeVar("V")


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """A listener's limits for its clients."""

    door: str  # for the log
    strangers: int  # unauthenticated connections; one more closes the oldest, so that they keep nobody out
    places: int = 0  # authenticated connections, which none closes
    queue: int  # bytes that may wait for a client before it is behind
    pause: int  # bytes that may wait for a client that is read
    body: int  # bytes of the longest body
    seconds: float = math.inf  # for a whole connection, which then has one request


class HttpConnection:
    """Serves the requests of one client. Owns its socket until `close` or `release`."""

    def __init__(
        self,
        connection: socket.socket,
        serve: Callable[[HttpExchange], None],
        *,
        peer: str,
        outbox: Outbox,
        bounds: Bounds,
    ) -> None:
        """Take over a connected, non-blocking socket; `serve` gets each request's head."""
        self.writer = FdWriter(
            self, connection.fileno(), outbox=outbox, max_queue=bounds.queue, pause_at=bounds.pause
        )
        self.writer.on_written, self.writer.on_ended = self._on_written, self._on_ended
        self._reader = RequestReader()
        self.responses = ResponseWriter(self.writer, self._reader, self._on_response)
        self._socket = connection
        self._outbox = outbox
        self._serve = serve
        self._peer = peer
        self._body, self._max_body = bytearray(), bounds.body
        self._deadline = trio.current_time() + HEAD_SECONDS
        self._seen = 0  # bytes taken by the client at the last check
        self._is_idle = self._is_shut = False
        self._reads = self._piles_up = self._drops = False
        self._has_more = False  # whether bytes that were read wait for the next turn

    def __repr__(self) -> str:
        return f"<HttpConnection from {self._peer}>"

    @property
    def exchange(self) -> HttpExchange | None:
        """The request whose response is still incomplete."""
        return self.responses.exchange

    async def run(self) -> None:
        """Serve until the client leaves, breaks the protocol, or upgrades."""
        try:
            self.rewatch()
            await self.writer.until_ended()
        except OSError as error:  # the kernel has no room to watch it
            self.writer.end(ConnectionLost(f"cannot watch its descriptor: {error.strerror}"))
        finally:
            self.writer.end(ConnectionLost("the connection was closed here"))
            self._outbox.flush()

    def tick(self, now: float) -> None:
        """Disconnect a client that is too slow, and make the calls that are due."""
        exchange = self.exchange
        if exchange is None and self.writer.queued and self.writer.taken != self._seen:
            # It still takes a response, whose beginning would be worthless.
            self._seen = self.writer.taken
            self._deadline = max(self._deadline, now + STUCK_SECONDS)
        try:
            if now >= self._deadline:
                self._deadline = math.inf
                if exchange is None or exchange.is_begun:
                    self.writer.end(ConnectionLost("no request came in time, or the response was not read"))
                else:
                    text = "the request was not complete in time\n"
                    exchange.refuse(Refusal(HTTPStatus.REQUEST_TIMEOUT, text))
            if exchange is not None and now >= exchange.due and exchange.on_due is not None:
                exchange.due, on_due = math.inf, exchange.on_due
                on_due()
        except Exception as error:  # noqa: BLE001 - the boundary, as in `_on_ready`
            self._give_up(error)

    def close_when_done(self) -> None:
        """Close after the current request, or now without one: the daemon is stopping."""
        self.responses.is_last = True
        if self.exchange is None and not self.writer.queued:
            self.writer.end(ConnectionLost("mcpd is stopping"))

    def release(self) -> socket.socket:
        """Hand the socket over to its next owner."""
        self.writer.fd = CLOSED
        return self._socket

    def close(self) -> None:
        """Close the socket, unless it was released. Idempotent."""
        if self.writer.fd != CLOSED:
            self.writer.fail("the connection was closed here")
            self.writer.fd = CLOSED
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
        is_over = self.responses.is_last and self.exchange is None
        return self.writer.reason is None and not self._drops and not is_over

    def _parse(self, until: float) -> None:
        self._has_more = False
        reader = self._reader
        for _ in range(EVENTS_PER_TURN):
            if not self._may_go_on():
                break
            if not reader.is_complete:
                if (part := reader.body()) is None:
                    break
                self._body += part
                self._bound_body(len(self._body))
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
        if exchange.on_body is not None:
            self._bound_body(exchange.length or 0)
        self._drops = exchange.on_body is None
        if self._drops:
            self._deadline = math.inf  # The sender of the response sets the time.
        elif exchange.is_open and self._reader.is_awaited and not self._reader.held:
            self.writer.queue((CONTINUE,))

    def _bound_body(self, size: int) -> None:
        if size > self._max_body and self.exchange is not None:
            text = f"the body is longer than {self._max_body} bytes (limits.clientMessageBytes)\n"
            self.exchange.refuse(Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, text))

    def _complete(self) -> None:
        self._deadline = math.inf
        exchange = self.exchange
        if exchange is not None and exchange.length == 0:
            _refusable(exchange, self._serve, exchange)
        if exchange is not None and exchange.is_open and exchange.on_body is not None:
            body, self._body = bytes(self._body), bytearray()
            _refusable(exchange, exchange.on_body, body)

    def _give_up(self, error: Exception) -> None:
        """End the connection; first answer a malformed request, or an internal error, if possible."""
        if isinstance(error, RunError):
            self.writer.end(error)
            return
        exchange = self.exchange
        if isinstance(error, Refusal):
            refusal, exchange = error, exchange or HttpExchange(UNREADABLE, self.responses)
        else:
            logger.opt(exception=error).error("internal error in mcpd while serving HTTP")
            refusal = internal_error()
        self.responses.is_last = True
        if exchange is not None and not exchange.is_begun:
            self.responses.exchange = exchange
            exchange.refuse(refusal)
        else:
            self.writer.end(ConnectionLost(refusal.text))


def _refusable(exchange: HttpExchange, act: Callable[[V], None], given: V) -> None:
    """Let the application handle a request, and respond with the Refusal that it raises."""
    try:
        act(given)
    except Refusal as refusal:
        exchange.refuse(refusal)
