"""Sessions of MCP 2025-11-25 and earlier over HTTP: begun by `initialize`, named by `Mcp-Session-Id`.

A session belongs to who began it, and to what the path names that it was begun under (a profile, a surface,
servers): for anybody else, and under any other path, it does not exist. It ends when its client deletes it,
when nothing was asked in it for half an hour, and with the daemon; what was loaded under a key outlives it.
"""

from __future__ import annotations

import secrets
from collections import Counter
from http import HTTPStatus
from typing import TYPE_CHECKING

import attrs
import msgspec
import trio
from loguru import logger

from daemon.clients.doors.http.exchange import Refusal
from daemon.clients.doors.http.replies import (
    COMMENT,
    COMMENT_SECONDS,
    HEADERS,
    LISTENING,
    EventLog,
    ExchangeLink,
    ResumableReply,
    event,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from daemon.clients.client import Principal
    from daemon.clients.doors.http.exchange import HttpExchange
    from daemon.wire.envelope import Buffer
    from daemon.wire.outbox import Link, Outbox


IDLE_SECONDS = 1800.0
"""Seconds without a request or an open stream after which a session is forgotten: Claude Code and the Inspector
leave theirs without a word."""

MAX_STREAMS = 4
"""Open GET streams of one session; with one more the oldest ends. SDKs open one."""

MAX_UNSENT = 16
"""Messages that wait for a session without a stream to open one: a list that has changed is announced once."""


class RequestNames(msgspec.Struct, frozen=True):
    """What a request names beside the place that it asks for."""

    key: str | None = None
    """The key of its session; None if it names none."""
    workspace: str | None = None
    """The directory that its client works in; None if it names none."""


@attrs.frozen(kw_only=True)
class Place:
    """What a path leads to, and who asked for it."""

    visitor: Principal
    """Who asked."""
    profile: str
    """The name of a profile."""
    surface: str | None = None
    """The name of a surface; None leaves it to the profile."""
    servers: tuple[str, ...] = ()
    """The servers that are wanted as themselves; empty for none."""

    def hello(self, named: RequestNames) -> Mapping[str, object]:
        """What a session is told of it (`clients.requests.initialize.hello`), with what its request names."""
        told = {
            "profile": self.profile,
            "surface": self.surface,
            "servers": list(self.servers) or None,
            "session": named.key,
            "workspace": named.workspace,
        }
        return {member: value for member, value in told.items() if value is not None}


class HttpSession(ExchangeLink[ResumableReply]):
    """A session, as the link of its messages."""

    def __init__(self, place: Place, outbox: Outbox, named: RequestNames) -> None:
        """Begin a session with a new id."""
        super().__init__(outbox, place.hello(named))
        self.id = secrets.token_urlsafe(24)
        """192 random bits: it cannot be guessed."""
        self.place = place
        self.log = EventLog()
        self.used = trio.current_time()
        """When something was last asked, or a stream last open."""
        self._listening: list[HttpExchange] = []
        self._unsent: list[bytes] = []

    @property
    def is_busy(self) -> bool:
        """Whether a request has no answer yet, or a stream is open."""
        self._listening = [each for each in self._listening if each.is_open]
        return bool(self.replies or self._listening)

    def waiting(self, request_id: bytes | None = None) -> float:
        """As of any link; what belongs to no request waits on the newest stream, if there is one."""
        if request_id is None and self.is_busy and self._listening:
            return self._listening[-1].waiting
        return super().waiting(request_id)

    def say(self, frame: Sequence[Buffer]) -> None:
        """Send what belongs to no request over the newest stream, now or once there is one."""
        if self.is_busy and self._listening:
            self._listening[-1].send(event(frame, self.log.add(LISTENING, frame)))
            return
        message = b"".join(map(bytes, frame))
        if message not in self._unsent:
            self._unsent = [*self._unsent, message][-MAX_UNSENT:]

    def listen(self, exchange: HttpExchange, last_event: str | None) -> None:
        """Open a stream, or go on with the one that an event was sent on.

        Raises:
            UnknownEvent: the event was never sent.
        """
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
        """Begin without any.

        Args:
            start: serves a link of a visitor in a task, and calls its third argument when that ends.
            outbox: the daemon's outbox.
            places: how many sessions there may be.
        """
        self._start = start
        self._outbox = outbox
        self._places = places
        self._known: dict[str, HttpSession] = {}

    def __len__(self) -> int:
        """How many there are."""
        return len(self._known)

    def begin(self, place: Place, named: RequestNames) -> HttpSession:
        """Begin a session.

        Raises:
            Refusal: there are too many, and all are in use.
        """
        if len(self._known) >= self._places:
            self._make_room()
        session = HttpSession(place, self._outbox, named)
        self._known[session.id] = session
        self._start(session, place.visitor, lambda: self.end(session))
        return session

    def find(self, session_id: str, place: Place) -> HttpSession:
        """The session with this id.

        Raises:
            Refusal: there is none, or it is not for this place.
        """
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
        """End all sessions of some visitors."""
        for session in [each for each in self._known.values() if unwanted(each.place.visitor)]:
            self.end(session)

    def end_streams(self) -> None:
        """End all streams that belong to no request: nothing is said there any more."""
        for session in self._known.values():
            session.end_streams()

    def tick(self, now: float) -> None:
        """End the sessions that nobody has used for long."""
        for session in list(self._known.values()):
            if session.is_busy:
                session.used = now
            elif now - session.used >= IDLE_SECONDS:
                logger.debug("a session over HTTP was not used for {:g} s and has ended", IDLE_SECONDS)
                self.end(session)

    def _make_room(self) -> None:
        """End the idlest session of whoever has most: who begins thousands ends nobody else's."""
        idle = [each for each in self._known.values() if not each.is_busy]
        if not idle:
            text = f"{len(self._known)} sessions are in use (limits.connections); try again later\n"
            raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, text, headers={"retry-after": "10"})
        count = Counter(each.place.visitor.owner for each in self._known.values())
        self.end(max(idle, key=lambda each: (count[each.place.visitor.owner], -each.used)))


def _keep_alive(exchange: HttpExchange) -> None:
    """Have a comment sent on a stream, again and again."""

    def comment() -> None:
        exchange.send((COMMENT,))
        _keep_alive(exchange)

    exchange.wait_until(trio.current_time() + COMMENT_SECONDS, comment)
