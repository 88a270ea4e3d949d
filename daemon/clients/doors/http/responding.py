"""The writing half of an HTTP connection: its responses, and its end.

Responses are framed here and not by h11, which takes 60 us for each of them.

Source: RFC 9112.
"""

from __future__ import annotations

import socket
from abc import abstractmethod
from http import HTTPStatus
from typing import TYPE_CHECKING

import trio
from loguru import logger

from daemon.clients.doors.http.reading import RequestReader
from daemon.errors import ConnectionLost, RunError
from daemon.wire.writing import CLOSED, STUCK_SECONDS, FdWriter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from daemon.clients.doors.http.exchange import HttpExchange
    from daemon.clients.doors.http.reading import Begun
    from daemon.wire.envelope import Buffer
    from daemon.wire.outbox import Outbox

IDLE_SECONDS = 75.0
"""Seconds without a request after which a kept connection is closed: longer than balancers keep theirs by
default, so that it is they who close."""

LINGER_SECONDS = 2.0
"""Seconds that a client has to close after the last response was written: what it has sent meanwhile would make
the kernel reset the connection, and could lose the response (RFC 9112, 9.6)."""


class ResponseWriter(FdWriter):
    """Writes the responses of one connection; the subclass reads its requests."""

    _is_socket = True

    def __init__(
        self, connection: socket.socket, *, peer: str, outbox: Outbox, max_queue: int, pause_at: int
    ) -> None:
        """Take over a connected, non-blocking socket; `peer` is the address at the other end."""
        super().__init__(connection.fileno(), outbox=outbox, max_queue=max_queue, pause_at=pause_at)
        self.exchange: HttpExchange | None = None
        """The request whose response is not complete."""
        self._socket = connection
        self._reader = RequestReader(peer)
        self._begun: Begun | None = None
        """What was read of the request that is to be answered."""
        self._is_answered = self._is_streamed = False
        """Whether its response was begun, and whether that has no announced length."""
        self._deadline = trio.current_time()
        self._seen = 0
        """What the client had taken when it was last looked at."""
        self._is_last = self._shut = self._is_idle = self._closed = False

    def respond(self, status: HTTPStatus, headers: Mapping[str, str], parts: Sequence[Buffer]) -> None:
        """Send a whole response."""
        size = sum(map(len, parts))
        if status is not HTTPStatus.NO_CONTENT:  # RFC 9110, 8.6
            headers = {**headers, "content-length": str(size)}
        self._answer(status, headers)
        if size and (self.exchange is None or self.exchange.head.method != "HEAD"):
            self.queue(parts)
        self.finish()

    def open_stream(self, headers: Mapping[str, str]) -> None:
        """Begin a response of unknown length, which ends with the connection if its client knows no chunks."""
        self._is_streamed = True
        if self._chunks:
            headers = {**headers, "transfer-encoding": "chunked"}
        self._answer(HTTPStatus.OK, headers)

    def send_part(self, parts: Sequence[Buffer]) -> None:
        """Send a part of a response that was begun."""
        if not self._chunks:
            self.queue(parts)
        elif size := sum(map(len, parts)):
            self.queue((b"%x\r\n" % size, *parts, b"\r\n"))

    def finish(self) -> None:
        """End the response, and go on to the next request, or close."""
        if self._is_streamed and self._chunks:
            self.queue((b"0\r\n\r\n",))
        self.exchange = None
        if self._may_go_on:
            self._reader.begin_next()
            self._begun, self._is_answered, self._is_streamed = None, False, False
            self._forget_request()
            self._deadline, self._is_idle = trio.current_time() + IDLE_SECONDS, True
        else:
            self._is_last = True
            self._deadline = trio.current_time() + STUCK_SECONDS

    def _allow_for_reading(self, now: float) -> None:
        """Give a client time that still takes a response: what it has of it would be worth nothing."""
        if self.exchange is None and self.queued and self._taken != self._seen:
            self._seen = self._taken
            self._deadline = max(self._deadline, now + STUCK_SECONDS)

    @property
    def _chunks(self) -> bool:
        return self._begun is not None and self._begun.chunks

    @property
    def _may_go_on(self) -> bool:
        """Whether another request may follow the present one on this connection."""
        begun = self._begun
        return begun is not None and begun.keeps and self._reader.is_complete and not self._is_last

    def _answer(self, status: HTTPStatus, headers: Mapping[str, str]) -> None:
        """Send the head of a response.

        Raises:
            ValueError: a header would end before its value does.
        """
        self._is_answered = True
        if not self._may_go_on:
            headers = {**headers, "connection": "close"}
        lines = [f"HTTP/1.1 {status.value} {status.phrase}", *map(": ".join, headers.items()), "\r\n"]
        head = "\r\n".join(lines)
        if head.count("\n") != len(lines) or head.count("\r") != len(lines):
            raise ValueError("a header of a response has an end of line in it")
        self.queue((head.encode("latin-1"),))

    def release(self) -> socket.socket:
        """Stop reading and hand the socket over, with `received`, to whoever speaks another protocol on it."""
        self._write_fd, self._closed = CLOSED, True
        return self._socket

    def upgrade(self) -> None:
        """End this connection's part: its socket goes on under another protocol."""
        self.exchange = None
        self._end(ConnectionLost("another protocol from here on"))

    def close(self) -> None:
        """Close the socket. Idempotent."""
        if not self._closed:
            self._fail("the connection was closed here")
            self._closed = self._write_closed = True
            self._write_fd = CLOSED
            self._socket.close()

    def _note(self, blocked: bool) -> None:  # noqa: FBT001 - as in FdWriter
        super()._note(blocked)
        if (
            self._is_last
            and self.exchange is None
            and not self._out
            and not self._shut
            and self._reason is None
        ):
            self._shut = True
            self._deadline = trio.current_time() + LINGER_SECONDS
            try:
                self._socket.shutdown(socket.SHUT_WR)
            except OSError as error:
                self._end(ConnectionLost(f"closing failed: {error.strerror}"))

    def _end(self, reason: Exception) -> None:
        exchange, self.exchange = self.exchange, None
        if not isinstance(reason, RunError):
            logger.opt(exception=reason).error("a fault of mcpd's own ended a connection over HTTP")
        super()._end(reason)
        if exchange is not None and exchange.on_gone is not None:
            exchange.on_gone()

    def _look_again(self) -> None:
        self._rewatch()
        self.queue(())  # Flushed again, it serves what has come meanwhile.

    @abstractmethod
    def _forget_request(self) -> None:
        """Forget what was read of the request that has been answered."""
