"""Answers to POSTs: JSON, or a stream of events once a message precedes the result.

A session's link routes answers to requests, and keeps events for a client that comes back. WHATWG HTML, 9.2;
MCP 2025-11-25, "Resumability and Redelivery".
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Generic, TypeVar

import msgspec
import trio

from daemon import protocol
from daemon.clients.doors.http.exchange import PLAIN, HttpExchange
from daemon.errors import ConnectionLost
from daemon.wire import envelope
from daemon.wire.envelope import Buffer, Envelope, Line, as_line, error_code
from daemon.wire.outbox import Outbox, Receiver

HEADERS = {
    "content-type": "text/event-stream",
    "cache-control": "no-cache, no-transform",
    "x-accel-buffering": "no",
}  # the headers of a stream; the last keeps nginx from buffering events

COMMENT = b": mcpd\n\n"  # keeps a stream alive for balancers and clients

COMMENT_SECONDS = 15.0  # longest silence of a stream; balancers cut after 30 to 60 s

RETRY_MS = 1000  # A client's delay before it resumes a broken stream

MAX_KEPT = 256  # kept events of a session: more than a client misses within seconds

MAX_KEPT_BYTES = 1024 * 1024  # bytes of kept events: a longer one is sent and not kept

LISTENING = 0  # the stream that belongs to no request


class UnknownEvent(Exception):
    """A `Last-Event-ID` was never given out in this session."""


def event(frame: Sequence[Buffer], event_id: bytes = b"") -> list[Buffer]:
    """Format a message as an event, in parts; line ends become spaces."""
    head = b"id: %b\ndata: " % event_id if event_id else b"data: "
    return [head, *(part if _is_plain(part) else as_line(bytes(part)) for part in frame), b"\n\n"]


def priming(event_id: bytes) -> bytes:
    """An event without data, which gives a client the id to come back with (MCP 2025-11-25)."""
    return b"id: %b\nretry: %d\ndata: \n\n" % (event_id, RETRY_MS)


def _is_plain(part: Buffer) -> bool:
    raw = part if isinstance(part, bytes) else bytes(part)
    return b"\r" not in raw and b"\n" not in raw


class EventLog:
    """The latest events of one session, by stream."""

    def __init__(self) -> None:
        self._kept: deque[tuple[int, int, bytes]] = deque()
        self._bytes = 0
        self._last = 0
        self._streams = LISTENING

    def open_stream(self) -> int:
        """Number a new stream for a request."""
        self._streams += 1
        return self._streams

    def add(self, stream: int, frame: Sequence[Buffer] = ()) -> bytes:
        """Keep an event unless it is too long; return its id. An empty frame only takes an id."""
        self._last += 1
        message = b"".join(map(bytes, frame))
        if message and len(message) <= MAX_KEPT_BYTES:
            self._kept.append((stream, self._last, message))
            self._bytes += len(message)
            while len(self._kept) > MAX_KEPT or self._bytes > MAX_KEPT_BYTES:
                self._bytes -= len(self._kept.popleft()[2])
        return b"%d-%d" % (stream, self._last)

    def after(self, event_id: str) -> tuple[int, list[tuple[bytes, bytes]]]:
        """The stream of an event, and its later kept events as ids and messages; raises UnknownEvent."""
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
}  # the status of a response that is a JSON-RPC error (MCP 2026-07-28); others have 200


class PostReply:
    """The answer to one request of a client of MCP 2026-07-28."""

    def __init__(self, exchange: HttpExchange) -> None:
        """Begin without an answer; a stream opens after `COMMENT_SECONDS` without one."""
        self._exchange = exchange
        self._streams = False
        self._wait()

    @property
    def waiting(self) -> int:
        """Bytes that wait for the client on its connection."""
        return self._exchange.waiting

    def notify(self, frame: Sequence[Buffer]) -> None:
        """Send a message before the result."""
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
    """The answer to one request of a session, resumable over another connection."""

    def __init__(self, exchange: HttpExchange, log: EventLog, *, primes: bool) -> None:
        """Begin without an answer; `primes`: the client understands an event without data (MCP 2025-11-25)."""
        super().__init__(exchange)
        self.stream: int | None = None  # none before its first event
        self._log = log
        self._primes = primes

    def resume(self, exchange: HttpExchange) -> None:
        """Go on over another connection, whose stream is open; the old response ends."""
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
        """Begin; its session gets the `hello` first (`protocol.HELLO`)."""
        self.queued = 0
        self.turns = 0
        self.is_held = False
        self.replies: dict[bytes, R] = {}  # unanswered requests, by raw id
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
        """Hand a frame to its request; drop one of an ended request."""
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
        """Drop a message of no request, which MCP 2026-07-28 cannot carry."""

    async def run(self, receiver: Receiver) -> None:
        """Hand over posted messages until the link is ended."""
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
        """Take a message; a request has its entry in `replies` by now."""
        self.turns += 1
        if self._receiver is None:
            self._early.append((message, line))
            return
        try:
            self._receiver.on_message(message, line)
        except Exception as error:  # noqa: BLE001 - the session's fault ends `run`, not the connection
            self._fault = error
            self.end()

    def end(self) -> None:
        """End the session; requests without an answer get none. Idempotent."""
        self._ended.set()
        replies, self.replies = self.replies, {}
        for reply in replies.values():
            reply.give_up()
