"""Sessions of MCP 2025-11-25 and earlier over HTTP: begun by `initialize`, named by `Mcp-Session-Id`.

A session exists only for its principal and under the path (profile, surface, servers) that began it. It ends by
DELETE, after half an hour without use, and with the daemon; tools loaded under a key outlive it.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus

import attrs
import msgspec
import trio
from loguru import logger

from daemon.clients.client import Principal
from daemon.clients.doors.http import replies
from daemon.clients.doors.http.exchange import HttpExchange, Refusal
from daemon.wire.envelope import Buffer
from daemon.wire.outbox import Link, Outbox

IDLE_SECONDS = 1800.0
"""Seconds without a request or stream that end a session: Claude Code and the Inspector just leave."""

MAX_STREAMS = 4  # open GET streams of a session, of which SDKs open one; a further one ends the oldest

MAX_UNSENT = 16  # messages that wait for a stream: a changed list is announced once


class RequestNames(msgspec.Struct, frozen=True):
    """A request's session key and workspace, if named."""

    key: str | None = None
    workspace: str | None = None  # the client's directory


@attrs.frozen(kw_only=True)
class Place:
    """The destination of a path, and its principal."""

    visitor: Principal
    profile: str
    surface: str | None = None  # none: the profile's
    servers: tuple[str, ...] = ()  # servers to see as themselves

    def hello(self, named: RequestNames) -> Mapping[str, object]:
        """The hello of a session here (`clients.requests.initialize.hello`)."""
        told = {
            "profile": self.profile,
            "surface": self.surface,
            "servers": list(self.servers) or None,
            "session": named.key,
            "workspace": named.workspace,
        }
        return {member: value for member, value in told.items() if value is not None}


class HttpSession(replies.ExchangeLink[replies.ResumableReply]):
    """A session, as the link of its messages."""

    def __init__(self, place: Place, outbox: Outbox, named: RequestNames) -> None:
        super().__init__(outbox, place.hello(named))
        self.id = secrets.token_urlsafe(24)  # 192 random bits: it cannot be guessed
        self.place = place
        self.log = replies.EventLog()
        self.used = trio.current_time()  # time of the last request or open stream
        self._listening: list[HttpExchange] = []
        self._unsent: list[bytes] = []

    @property
    def is_busy(self) -> bool:
        """Whether a request is unanswered, or a stream open."""
        self._listening = [each for each in self._listening if each.is_open]
        return bool(self.replies or self._listening)

    def waiting(self, request_id: bytes | None = None) -> float:
        """As of any link; messages of no request wait on the newest stream."""
        if request_id is None and self.is_busy and self._listening:
            return self._listening[-1].waiting
        return super().waiting(request_id)

    def say(self, frame: Sequence[Buffer]) -> None:
        """Send a message of no request over the newest stream, now or once there is one."""
        if self.is_busy and self._listening:
            self._listening[-1].send(replies.event(frame, self.log.add(replies.LISTENING, frame)))
            return
        message = b"".join(map(bytes, frame))
        if message not in self._unsent:
            self._unsent = [*self._unsent, message][-MAX_UNSENT:]

    def listen(self, exchange: HttpExchange, last_event: str | None) -> None:
        """Open a stream, or resume the one of an event; raises UnknownEvent for an unknown id."""
        stream, missed = (replies.LISTENING, []) if last_event is None else self.log.after(last_event)
        exchange.open_stream(replies.HEADERS)
        for event_id, message in missed:
            exchange.send(replies.event((message,), event_id))
        if stream == replies.LISTENING:
            self._attend(exchange)
            return
        for reply in self.replies.values():
            if reply.stream == stream:
                reply.resume(exchange)
                return
        exchange.finish()

    def _attend(self, exchange: HttpExchange) -> None:
        exchange.send((replies.COMMENT,))
        self._listening.append(exchange)
        if self.is_busy and len(self._listening) > MAX_STREAMS:
            self._listening.pop(0).finish()
        unsent, self._unsent = self._unsent, []
        for message in unsent:
            self.say((message,))
        _keep_alive(exchange)

    def end(self) -> None:
        """End the session and its streams."""
        super().end()
        self.end_streams()

    def end_streams(self) -> None:
        """End the streams that belong to no request."""
        listening, self._listening = self._listening, []
        for exchange in listening:
            exchange.finish()


class HttpSessions:
    """The sessions of all clients."""

    def __init__(
        self, start: Callable[[Link, Principal, Callable[[], None]], None], outbox: Outbox, places: int
    ) -> None:
        """Begin without sessions; `start` serves a link in a task, and calls its third argument at the end."""
        self._start = start
        self._outbox = outbox
        self._places = places
        self._known: dict[str, HttpSession] = {}

    def __len__(self) -> int:
        return len(self._known)

    def begin(self, place: Place, named: RequestNames) -> HttpSession:
        """Begin a session; raises Refusal if all places are in use."""
        if len(self._known) >= self._places:
            self._make_room()
        session = HttpSession(place, self._outbox, named)
        self._known[session.id] = session
        self._start(session, place.visitor, lambda: self.end(session))
        return session

    def find(self, session_id: str, place: Place) -> HttpSession:
        """The session with this id; raises Refusal if this place has none."""
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
        """End all sessions of some principals."""
        for session in [each for each in self._known.values() if unwanted(each.place.visitor)]:
            self.end(session)

    def end_streams(self) -> None:
        """End all streams that belong to no request: the daemon is stopping."""
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
        """End the idlest session of the principal with most: thousands of sessions end nobody else's."""
        idle = [each for each in self._known.values() if not each.is_busy]
        if not idle:
            text = f"{len(self._known)} sessions are in use (limits.connections); try again later\n"
            raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, text, headers={"retry-after": "10"})
        count = Counter(each.place.visitor.owner for each in self._known.values())
        self.end(max(idle, key=lambda each: (count[each.place.visitor.owner], -each.used)))


def _keep_alive(exchange: HttpExchange) -> None:
    """Send a comment on a stream regularly."""

    def comment() -> None:
        exchange.send((replies.COMMENT,))
        _keep_alive(exchange)

    exchange.wait_until(trio.current_time() + replies.COMMENT_SECONDS, comment)
