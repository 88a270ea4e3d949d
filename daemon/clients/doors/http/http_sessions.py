"""Sessions over HTTP, begun by `initialize` and named by `Mcp-Session-Id`, and the answers to their POSTs.

An answer is JSON, or a stream of events if a message precedes the result; events are kept so that a client can
resume (MCP 2025-11-25, "Resumability and Redelivery"). A session works only for its own principal and path. It
ends by DELETE, after half an hour without use, and with the daemon; tools loaded under a key outlive it.
"""

from __future__ import annotations

import math
import secrets
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Generic, TypeVar

import attrs
import msgspec
import trio
from loguru import logger

from daemon import protocol
from daemon.clients.client import Principal
from daemon.clients.doors.http.http_connection import PLAIN, HttpExchange
from daemon.clients.doors.http.reading import Refusal
from daemon.errors import ConnectionLost
from daemon.wire import envelope
from daemon.wire.envelope import Buffer, Envelope, Line, as_line, error_code
from daemon.wire.outbox import Link, Outbox, Receiver

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


def event(frame: Sequence[Buffer], event_id: bytes = b"") -> list[Buffer]:
    """Format a message as the parts of an event; line ends become spaces."""
    head = b"id: %b\ndata: " % event_id if event_id else b"data: "
    return [head, *(as_line(bytes(part)) for part in frame), b"\n\n"]


def priming(event_id: bytes) -> bytes:
    """An event without data, whose id lets a client resume the stream (MCP 2025-11-25)."""
    return b"id: %b\nretry: %d\ndata: \n\n" % (event_id, RETRY_MS)


class EventLog:
    """The latest events of one session, by stream."""

    def __init__(self) -> None:
        self._kept: deque[tuple[int, int, bytes]] = deque()
        self._bytes = 0
        self._last = 0
        self._streams = LISTENING

    def open_stream(self) -> int:
        """Begin a stream for a request, and return its number."""
        self._streams += 1
        return self._streams

    def add(self, stream: int, frame: Sequence[Buffer] = ()) -> bytes:
        """Keep an event unless it is too long, and return its id. An empty frame only takes an id."""
        self._last += 1
        message = b"".join(map(bytes, frame))
        if message and len(message) <= MAX_KEPT_BYTES:
            self._kept.append((stream, self._last, message))
            self._bytes += len(message)
            while len(self._kept) > MAX_KEPT or self._bytes > MAX_KEPT_BYTES:
                self._bytes -= len(self._kept.popleft()[2])
        return b"%d-%d" % (stream, self._last)

    def after(self, event_id: str) -> tuple[int, list[tuple[bytes, bytes]]]:
        """An event's stream and the later kept events, as ids and messages. Raises Refusal: id unknown."""
        stream_text, _, last_text = event_id.partition("-")
        stream, last = _number(stream_text), _number(last_text)
        if not (0 <= stream <= self._streams and 0 < last <= self._last):
            text = "this Last-Event-ID was never given out in this session: open the stream without it\n"
            raise Refusal(HTTPStatus.BAD_REQUEST, text)
        missed = [(b"%d-%d" % (of, at), frame) for of, at, frame in self._kept if of == stream and at > last]
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
    """The HTTP response to one request of a client of MCP 2026-07-28."""

    def __init__(self, exchange: HttpExchange) -> None:
        """Wait for the answer; after `COMMENT_SECONDS` without one, the response becomes a stream."""
        self._exchange = exchange
        self._streams = False
        self._wait()

    @property
    def waiting(self) -> int:
        """Bytes queued for the client on the request's connection."""
        return self._exchange.waiting

    def notify(self, frame: Sequence[Buffer]) -> None:
        """Send a message before the result."""
        self._open()
        self._send(frame)

    def answer(self, frame: Sequence[Buffer]) -> None:
        """Send the result or the error, and end the response."""
        if self._streams:
            self._send(frame)
            self._exchange.finish()
        else:
            self._exchange.respond(self._status(frame), frame, JSON)

    def give_up(self) -> None:
        """End the response without an answer, because the session has ended."""
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
        _keep_alive(self._exchange, self._open)


class ResumableReply(PostReply):
    """The response to one request of a session; a client can resume it over another connection."""

    def __init__(self, exchange: HttpExchange, log: EventLog, *, primes: bool) -> None:
        """`primes` says that the client understands an event without data (MCP 2025-11-25)."""
        super().__init__(exchange)
        self.stream: int | None = None  # none before its first event
        self._log = log
        self._primes = primes

    def resume(self, exchange: HttpExchange) -> None:
        """Continue on another connection, whose stream is open; the old response ends."""
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
    """A `wire.outbox.Link` whose client sends each request as an HTTP exchange."""

    def __init__(self, outbox: Outbox, hello: Mapping[str, object]) -> None:
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
        """Send a frame as a part of its request's response; a frame of an ended request is dropped."""
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
        """Bytes queued on the connection of a request (`wire.outbox.Link.waiting`)."""
        reply = None if request_id is None else self.replies.get(request_id)
        return math.inf if reply is None else reply.waiting

    def say(self, frame: Sequence[Buffer]) -> None:
        """Drop a message that belongs to no request: MCP 2026-07-28 cannot carry it."""

    async def run(self, receiver: Receiver) -> None:
        """Pass posted messages to the receiver until the link ends."""
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
        """Take a posted message; the caller has put the reply of a request into `replies`."""
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
        """End the session without answering open requests. Idempotent."""
        self._ended.set()
        replies, self.replies = self.replies, {}
        for reply in replies.values():
            reply.give_up()


IDLE_SECONDS = 1800.0
"""Seconds without request or stream that end a session: Claude Code and the Inspector leave without DELETE."""

MAX_STREAMS = 4  # open GET streams of a session, of which SDKs open one; a further one ends the oldest

MAX_UNSENT = 16  # messages that wait for a stream: a changed list is announced once


@attrs.frozen(kw_only=True)
class Place:
    """A request's principal, and the profile, surface, servers, session key and workspace that it names."""

    visitor: Principal
    profile: str
    surface: str | None = None  # none: the profile's
    servers: tuple[str, ...] = ()  # servers to see as themselves
    # Of the request that begins a session; later ones of the session may name others.
    key: str | None = attrs.field(default=None, eq=False)
    workspace: str | None = attrs.field(default=None, eq=False)  # the client's directory

    @property
    def hello(self) -> Mapping[str, object]:
        """The hello of a session at this place (`clients.requests.initialize.hello`)."""
        members = {
            "profile": self.profile,
            "surface": self.surface,
            "servers": list(self.servers) or None,
            "session": self.key,
            "workspace": self.workspace,
        }
        return {member: value for member, value in members.items() if value is not None}


class HttpSession(ExchangeLink[ResumableReply]):
    """A session over HTTP, as the link that carries its messages."""

    def __init__(self, place: Place, outbox: Outbox) -> None:
        super().__init__(outbox, place.hello)
        self.id = secrets.token_urlsafe(24)  # 192 random bits: it cannot be guessed
        self.place = place
        self.log = EventLog()
        self.used = trio.current_time()  # time of the last request or open stream
        self._listening: list[HttpExchange] = []
        self._unsent: list[bytes] = []

    @property
    def is_busy(self) -> bool:
        """Whether a request is unanswered, or a stream open."""
        self._listening = [each for each in self._listening if each.is_open]
        return bool(self.replies or self._listening)

    def waiting(self, request_id: bytes | None = None) -> float:
        """Bytes queued for a request; without a request, those queued on the newest stream."""
        if request_id is None and self.is_busy and self._listening:
            return self._listening[-1].waiting
        return super().waiting(request_id)

    def say(self, frame: Sequence[Buffer]) -> None:
        """Send a message that belongs to no request over the newest stream, now or once one opens."""
        if self.is_busy and self._listening:
            self._listening[-1].send(event(frame, self.log.add(LISTENING, frame)))
            return
        message = b"".join(map(bytes, frame))
        if message not in self._unsent:
            self._unsent = [*self._unsent, message][-MAX_UNSENT:]

    def listen(self, exchange: HttpExchange, last_event: str | None) -> None:
        """Open a stream, or resume the stream of an event; raises Refusal for an unknown id."""
        stream, missed = (LISTENING, []) if last_event is None else self.log.after(last_event)
        exchange.open_stream(HEADERS)
        for event_id, message in missed:
            exchange.send(event((message,), event_id))
        if stream == LISTENING:
            self._attend(exchange)
            return
        for reply in self.replies.values():
            if reply.stream == stream:
                reply.resume(exchange)
                return
        exchange.finish()

    def _attend(self, exchange: HttpExchange) -> None:
        exchange.send((COMMENT,))
        self._listening.append(exchange)
        if self.is_busy and len(self._listening) > MAX_STREAMS:
            self._listening.pop(0).finish()
        unsent, self._unsent = self._unsent, []
        for message in unsent:
            self.say((message,))
        _keep_alive(exchange, lambda: None)

    def end(self) -> None:
        """End the session and its streams."""
        super().end()
        self.end_streams()

    def end_streams(self) -> None:
        """End the streams that belong to no request."""
        listening, self._listening = self._listening, []
        for exchange in listening:
            exchange.finish()


@attrs.define(eq=False)
class HttpSessions:
    """The sessions of all clients."""

    _start: Callable[[Link, Principal, Callable[[], None]], None]
    _outbox: Outbox
    _places: int
    _known: dict[str, HttpSession] = attrs.field(factory=dict, init=False)

    def __len__(self) -> int:
        return len(self._known)

    def begin(self, place: Place) -> HttpSession:
        """Begin a session; raises Refusal if all places are in use."""
        if len(self._known) >= self._places:
            self._make_room()
        session = HttpSession(place, self._outbox)
        self._known[session.id] = session
        self._start(session, place.visitor, lambda: self.end(session))
        return session

    def find(self, session_id: str, place: Place) -> HttpSession:
        """The session with this id at a place; raises Refusal if there is none."""
        session = self._known.get(session_id)
        if session is None or session.place != place:
            text = "there is no such session (it has ended, or mcpd was restarted): send initialize again\n"
            raise Refusal(HTTPStatus.NOT_FOUND, text)
        session.used = trio.current_time()
        return session

    def end(self, session: HttpSession) -> None:
        """End a session. Idempotent."""
        if self._known.pop(session.id, None) is not None:
            session.end()

    def end_all(self, unwanted: Callable[[Principal], bool] = lambda _visitor: True) -> None:
        """End the sessions of all unwanted principals."""
        for session in [each for each in self._known.values() if unwanted(each.place.visitor)]:
            self.end(session)

    def end_streams(self) -> None:
        """End all streams that belong to no request, because the daemon is stopping."""
        for session in self._known.values():
            session.end_streams()

    def tick(self, now: float) -> None:
        """End unused sessions."""
        for session in list(self._known.values()):
            if session.is_busy:
                session.used = now
            elif now - session.used >= IDLE_SECONDS:
                logger.debug("a session over HTTP was not used for {:g} s and has ended", IDLE_SECONDS)
                self.end(session)

    def _make_room(self) -> None:
        """End the longest unused session of the principal with the most: no other principal loses one."""
        idle = [each for each in self._known.values() if not each.is_busy]
        if not idle:
            text = f"{len(self._known)} sessions are in use (limits.connections); try again later\n"
            raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, text, headers={"retry-after": "10"})
        count = Counter(each.place.visitor.owner for each in self._known.values())
        self.end(max(idle, key=lambda each: (count[each.place.visitor.owner], -each.used)))


def _keep_alive(exchange: HttpExchange, open_stream: Callable[[], None]) -> None:
    """Send a comment each `COMMENT_SECONDS`, until another `wait_until` of the exchange replaces this one."""

    def comment() -> None:
        open_stream()
        exchange.send((COMMENT,))
        _keep_alive(exchange, open_stream)

    exchange.wait_until(trio.current_time() + COMMENT_SECONDS, comment)
