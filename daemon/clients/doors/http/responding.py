"""The writing half of an HTTP connection: its responses, framed by h11, and its end.

Source: RFC 9112.
"""

from __future__ import annotations

import socket
from abc import abstractmethod
from functools import lru_cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import h11
import trio
from loguru import logger

from daemon.clients.doors.http.exchange import PLAIN
from daemon.errors import ConnectionLost, RunError
from daemon.wire.writing import CLOSED, STUCK_SECONDS, FdWriter

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from daemon.clients.doors.http.exchange import HttpExchange
    from daemon.wire.envelope import Buffer
    from daemon.wire.outbox import Outbox

IDLE_SECONDS = 75.0
"""Seconds without a request after which a kept connection is closed: longer than balancers keep theirs by
default, so that it is they who close."""

LINGER_SECONDS = 2.0
"""Seconds that a client has to close after the last response was written: what it has sent meanwhile would make
the kernel reset the connection, and could lose the response (RFC 9112, 9.6)."""


KNOWN_HEADS = 256
"""Heads of responses that are kept: most answers are of a few lengths."""


class _Size:
    """Stands for a body of this length: h11 frames it without touching it."""

    def __init__(self, size: int) -> None:
        self._size = size

    def __len__(self) -> int:
        return self._size


class ResponseWriter(FdWriter):
    """Writes the responses of one connection; the subclass reads its requests."""

    _is_socket = True

    def __init__(
        self, connection: socket.socket, *, outbox: Outbox, head_bytes: int, max_queue: int, pause_at: int
    ) -> None:
        """Take over a connected, non-blocking socket; `head_bytes` is the longest head of a request."""
        super().__init__(connection.fileno(), outbox=outbox, max_queue=max_queue, pause_at=pause_at)
        self._poll = outbox.poll.guests
        self.exchange: HttpExchange | None = None
        """The request whose response is not complete."""
        self._socket = connection
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=head_bytes)
        self._deadline = trio.current_time()
        self._is_last = self._shut = self._is_idle = self._is_head = self._closed = False

    def respond(self, status: HTTPStatus, headers: Mapping[str, str], parts: Sequence[Buffer]) -> None:
        """Send a whole response."""
        size = sum(map(len, parts))
        if status is not HTTPStatus.NO_CONTENT:  # RFC 9110, 8.6
            headers = {**headers, "content-length": str(size)}
        out: list[Buffer] = [self._begun(status, headers)]
        if size and self.exchange is not None and self.exchange.head.method != "HEAD":
            out += _framed(self._http, parts, size)
        self.queue(out)
        self.finish()

    def open_stream(self, headers: Mapping[str, str]) -> None:
        """Begin a response of unknown length."""
        self.queue((self._begun(HTTPStatus.OK, headers),))

    def send_part(self, parts: Sequence[Buffer]) -> None:
        """Send a part of a response that was begun."""
        self.queue(_framed(self._http, parts, sum(map(len, parts))))

    def finish(self) -> None:
        """End the response, and go on to the next request, or close."""
        self.queue((self._http.send(h11.EndOfMessage()) or b"",))
        self.exchange = None
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE and not self._is_last:
            self._http.start_next_cycle()
            self._forget_request()
            self._deadline, self._is_idle = trio.current_time() + IDLE_SECONDS, True
        else:
            self._is_last = True
            self._deadline = trio.current_time() + STUCK_SECONDS

    def _begun(self, status: HTTPStatus, headers: Mapping[str, str]) -> bytes:
        if self._is_last or self._http.their_state is h11.SEND_BODY:
            headers = {**headers, "connection": "close"}
        # A cookie is a secret, and kept nowhere.
        made = _response.__wrapped__ if "set-cookie" in headers else _response
        return self._http.send(made(status, tuple(headers.items()))) or b""

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
        if not self._out and self.exchange is not None and self.exchange.on_written is not None:
            self.exchange.on_written()
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
        super()._end(reason)
        if exchange is not None and exchange.on_gone is not None:
            exchange.on_gone()

    def _give_up(self, error: Exception) -> None:
        """End the connection; what is no request, and a fault of ours, is answered if there is a way to."""
        if isinstance(error, RunError):
            self._end(error)
            return
        if isinstance(error, h11.RemoteProtocolError):
            status, text, answers = HTTPStatus(error.error_status_hint), _plain(error), True
        else:
            logger.opt(exception=error).error("a fault of mcpd's own while serving HTTP")
            status, text = HTTPStatus.INTERNAL_SERVER_ERROR, "a fault of mcpd's own: see its log\n"
            answers = self.exchange is not None
        self._is_last = True
        if not answers or self._http.our_state not in {h11.IDLE, h11.SEND_RESPONSE}:
            self._end(ConnectionLost(text))
            return
        body = b"" if self._is_head else text.encode()
        self.exchange = None
        self.queue((self._begun(status, {**PLAIN, "content-length": str(len(body))}),))
        if body:
            self.queue(_framed(self._http, (body,), len(body)))
        self.finish()

    def _look_again(self) -> None:
        self._rewatch()

    @abstractmethod
    def _forget_request(self) -> None:
        """Forget what was read of the request that has been answered."""


def _framed(http: h11.Connection, parts: Iterable[Buffer], size: int) -> list[Buffer]:
    """A part of a body as it goes over the wire, its bytes untouched."""
    body: Any = _Size(size)
    out: list[Buffer] = []
    for piece in http.send_with_data_passthrough(h11.Data(data=body)) or ():
        if piece is body:
            out += parts
        else:
            out.append(piece)
    return out


@lru_cache(KNOWN_HEADS)
def _response(status: HTTPStatus, headers: tuple[tuple[str, str], ...]) -> h11.Response:
    """The head of a response; h11 checks each of its headers, which takes a tenth of a call."""
    return h11.Response(status_code=status, headers=list(headers), reason=status.phrase.encode())


def _plain(error: h11.RemoteProtocolError) -> str:
    """What h11 found, without the bytes that it repeats after a colon: a token may be among them."""
    return f"not a request of HTTP/1.1: {str(error).partition(':')[0]}\n"
