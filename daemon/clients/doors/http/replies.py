"""Answers to POSTs: as JSON, or as a stream of events once something comes before the result.

The link of a session takes each answer to the request that it belongs to. Events of a session are kept for a
client that comes back. Sources: WHATWG HTML, 9.2; MCP 2025-11-25, "Resumability and Redelivery".
"""

from __future__ import annotations

import math
from collections import deque
from http import HTTPStatus
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec
import trio

from daemon import protocol
from daemon.clients.doors.http.exchange import PLAIN
from daemon.errors import ConnectionLost
from daemon.wire import envelope
from daemon.wire.envelope import error_code
from daemon.wire.frames import as_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from daemon.clients.doors.http.exchange import HttpExchange
    from daemon.wire.envelope import Buffer, Envelope
    from daemon.wire.frames import Line
    from daemon.wire.outbox import Outbox, Receiver


HEADERS = {
    "content-type": "text/event-stream",
    "cache-control": "no-cache, no-transform",
    "x-accel-buffering": "no",
}
"""The headers of a stream; the last keeps nginx from collecting events before it passes them on."""

COMMENT = b": mcpd\n\n"
"""An event that says nothing: it shows balancers and clients that the stream is alive."""

COMMENT_SECONDS = 15.0
"""Seconds without an event after which a comment is sent; balancers cut after 30 to 60 s of silence."""

RETRY_MS = 1000
"""Milliseconds after which a client is asked to come back when its stream has broken."""

MAX_KEPT = 256
"""Events of one session that are kept: more than a client misses in the seconds before it comes back."""

MAX_KEPT_BYTES = 1024 * 1024
"""Bytes of them: a longer event is sent and not kept."""

LISTENING = 0
"""The number of the stream that belongs to no request."""


class UnknownEvent(Exception):
    """A `Last-Event-ID` was never given out in this session."""


def event(frame: Sequence[Buffer], event_id: bytes = b"") -> list[Buffer]:
    """A message as an event, in parts.

    Args:
        frame: the parts of the message; line ends in it become spaces.
        event_id: the event's id; empty for none.
    """
    head = b"id: %b\ndata: " % event_id if event_id else b"data: "
    return [head, *(part if _is_plain(part) else as_line(bytes(part)) for part in frame), b"\n\n"]


def priming(event_id: bytes) -> bytes:
    """An event without data, which gives a client the id to come back with (MCP 2025-11-25)."""
    return b"id: %b\nretry: %d\ndata: \n\n" % (event_id, RETRY_MS)


def _is_plain(part: Buffer) -> bool:
    raw = part if isinstance(part, bytes) else bytes(part)
    return b"\r" not in raw and b"\n" not in raw


class EventLog:
    """The latest events of one session, by the stream that they were sent on."""

    def __init__(self) -> None:
        """Begin without any."""
        self._kept: deque[tuple[int, int, bytes]] = deque()
        self._bytes = 0
        self._last = 0
        self._streams = LISTENING

    def open_stream(self) -> int:
        """The number of a new stream that belongs to a request."""
        self._streams += 1
        return self._streams

    def add(self, stream: int, frame: Sequence[Buffer] = ()) -> bytes:
        """Keep an event, if it is not too long; return its id. An empty frame only takes an id."""
        self._last += 1
        message = b"".join(map(bytes, frame))
        if message and len(message) <= MAX_KEPT_BYTES:
            self._kept.append((stream, self._last, message))
            self._bytes += len(message)
            while len(self._kept) > MAX_KEPT or self._bytes > MAX_KEPT_BYTES:
                self._bytes -= len(self._kept.popleft()[2])
        return b"%d-%d" % (stream, self._last)

    def after(self, event_id: str) -> tuple[int, list[tuple[bytes, bytes]]]:
        """The stream of an event, and what is kept of it since, as ids and messages.

        Raises:
            UnknownEvent: this id was never given out.
        """
        stream_text, _, last_text = event_id.partition("-")
        stream, last = _number(stream_text), _number(last_text)
        if not (0 <= stream <= self._streams and 0 < last <= self._last):
            raise UnknownEvent(event_id)
        missed = [(b"%d-%d" % (of, at), said) for of, at, said in self._kept if of == stream and at > last]
        return stream, missed


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else -1  # noqa: PLR2004 - below 10^18


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


R = TypeVar("R", bound=PostReply)


class ExchangeLink(Generic[R]):
    """A `wire.outbox.Link` whose peer's requests are exchanges."""

    def __init__(self, outbox: Outbox, hello: Mapping[str, object]) -> None:
        """Begin; `hello` is what its session is told first (`protocol.HELLO`)."""
        self.queued = 0
        self.turns = 0
        self.is_held = False
        self.replies: dict[bytes, R] = {}
        """The requests without an answer, by their ids as raw JSON."""
        self._outbox = outbox
        self._hello = b"".join(map(bytes, envelope.notification(protocol.HELLO, msgspec.json.encode(hello))))
        self._receiver: Receiver | None = None
        self._early: list[tuple[Envelope, Line]] = []
        self._ended = trio.Event()
        self._fault: Exception | None = None

    @property
    def is_over(self) -> bool:
        """Whether the link has ended."""
        return self._ended.is_set()

    def send(self, frame: Sequence[Buffer], request_id: bytes | None = None, *, ends: bool = False) -> None:
        """Hand a frame to the request that it belongs to; one of a request that is over is dropped."""
        if request_id is None:
            self.say(frame)
        elif (reply := self.replies.get(request_id)) is None:
            return
        elif ends:
            del self.replies[request_id]
            reply.answer(frame)
        else:
            reply.notify(frame)

    def waiting(self, request_id: bytes | None = None) -> float:
        """Bytes that wait on the connection of a request (`wire.outbox.Link.waiting`)."""
        reply = None if request_id is None else self.replies.get(request_id)
        return math.inf if reply is None else reply.waiting

    def say(self, frame: Sequence[Buffer]) -> None:
        """Send what belongs to no request: there is no way to, in MCP 2026-07-28."""

    async def run(self, receiver: Receiver) -> None:
        """Hand over what was posted until the link is ended."""
        receiver.on_lines([self._hello])
        self._receiver = receiver
        early, self._early = self._early, []
        for message, line in early:
            receiver.on_message(message, line)
        self._outbox.flush()
        try:
            await self._ended.wait()
        finally:
            self._receiver = None
            self.end()
        raise self._fault or ConnectionLost("its session has ended")

    def post(self, message: Envelope, line: Line) -> None:
        """Take a message; what answers it, if it is a request, is in `replies` by now."""
        self.turns += 1
        if self._receiver is None:
            self._early.append((message, line))
            return
        try:
            self._receiver.on_message(message, line)
        except Exception as error:  # noqa: BLE001 - it is the session's fault, and ends `run`: not the connection's
            self._fault = error
            self.end()

    def end(self) -> None:
        """End the session; requests without an answer get none. Idempotent."""
        self._ended.set()
        replies, self.replies = self.replies, {}
        for reply in replies.values():
            reply.give_up()
