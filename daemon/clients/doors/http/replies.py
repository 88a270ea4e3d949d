"""How one POST is answered: as JSON, or as a stream of events once something comes before the result."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

import trio

from daemon.clients.doors.http.events import COMMENT, COMMENT_SECONDS, HEADERS, event, priming
from daemon.clients.doors.http.exchange import PLAIN
from daemon.wire import envelope
from daemon.wire.error_objects import error_code

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from daemon.clients.doors.http.events import EventLog
    from daemon.clients.doors.http.exchange import HttpExchange
    from daemon.wire.envelope import Buffer

JSON = {"content-type": "application/json"}

STATUSES: Mapping[int, HTTPStatus] = {
    envelope.PARSE_ERROR: HTTPStatus.BAD_REQUEST,
    envelope.INVALID_REQUEST: HTTPStatus.BAD_REQUEST,
    envelope.INVALID_PARAMS: HTTPStatus.BAD_REQUEST,
    envelope.METHOD_NOT_FOUND: HTTPStatus.NOT_FOUND,
    -32020: HTTPStatus.BAD_REQUEST,
    -32021: HTTPStatus.BAD_REQUEST,
    -32022: HTTPStatus.BAD_REQUEST,
}
"""The status of a response that is a JSON-RPC error (MCP 2026-07-28); others have 200."""


class PostReply:
    """The answer to one request of a client of MCP 2026-07-28."""

    def __init__(self, exchange: HttpExchange) -> None:
        """Begin without an answer; a stream is opened if none comes for `COMMENT_SECONDS`."""
        self._exchange = exchange
        self._streams = False
        self._wait()

    @property
    def waiting(self) -> int:
        """Bytes that wait for the client on its connection."""
        return self._exchange.waiting

    def notify(self, frame: Sequence[Buffer]) -> None:
        """Send what comes before the result."""
        self._open()
        self._send(frame)

    def answer(self, frame: Sequence[Buffer]) -> None:
        """Send the result, or the error, and end the response."""
        if self._streams:
            self._send(frame)
            self._exchange.finish()
        else:
            self._exchange.respond(self._status(frame), frame, JSON)

    def give_up(self) -> None:
        """End the response without an answer: the session has ended."""
        if self._streams:
            self._exchange.finish()
        else:
            self._exchange.respond(HTTPStatus.NOT_FOUND, (b"the session has ended\n",), PLAIN)

    def _status(self, frame: Sequence[Buffer]) -> HTTPStatus:
        code = error_code(frame)
        return HTTPStatus.OK if code is None else STATUSES.get(code, HTTPStatus.OK)

    def _open(self) -> None:
        if not self._streams:
            self._streams = True
            self._exchange.open_stream(HEADERS)

    def _send(self, frame: Sequence[Buffer]) -> None:
        self._exchange.send(event(frame))
        self._wait()

    def _wait(self) -> None:
        self._exchange.wait_until(trio.current_time() + COMMENT_SECONDS, self._comment)

    def _comment(self) -> None:
        self._open()
        self._exchange.send((COMMENT,))
        self._wait()


class ResumableReply(PostReply):
    """The answer to one request of a session: its client may come back for it over another connection."""

    def __init__(self, exchange: HttpExchange, log: EventLog, *, primes: bool) -> None:
        """Begin without an answer.

        Args:
            exchange: the POST.
            log: the events of the session.
            primes: whether the client understands an event without data (MCP 2025-11-25).
        """
        super().__init__(exchange)
        self.stream: int | None = None
        """The number of its stream; None while it has none."""
        self._log = log
        self._primes = primes

    def resume(self, exchange: HttpExchange) -> None:
        """Go on over another connection, whose response is a stream already; the one before ends."""
        self._exchange.finish()
        self._exchange = exchange
        self._wait()

    def _status(self, frame: Sequence[Buffer]) -> HTTPStatus:
        return HTTPStatus.OK

    def _open(self) -> None:
        if self.stream is None:
            self.stream = self._log.open_stream()
            super()._open()
            if self._primes:
                self._exchange.send((priming(self._log.add(self.stream)),))

    def _send(self, frame: Sequence[Buffer]) -> None:
        assert self.stream is not None
        self._exchange.send(event(frame, self._log.add(self.stream, frame)))
        self._wait()
