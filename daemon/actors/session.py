"""One client conversation: its requests, its view of the catalog, its calls in flight.

The session speaks the protocol, in both eras; what a call means is its surface's to say, and how a call gets to
a server and back is `callpath`'s.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import trio
from loguru import logger
from msgspec import UNSET, Raw

from daemon import protocol
from daemon.callpath import Calls
from daemon.clients.announcements import MAX_SUBSCRIPTIONS, Announcements
from daemon.clients.deferring import defers_tools
from daemon.clients.fastpath import PlainCall, plain_call
from daemon.clients.savings import Savings
from daemon.context import SessionStatistics
from daemon.errors import ProtocolFault, RunError, leaf
from daemon.membership import MAX_HELD, Membership
from daemon.seat import Seat
from daemon.surfaces.base import AwaitListing
from daemon.wire import envelope
from daemon.wire.peer import Peer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from daemon.context import SessionContext
    from daemon.errors import CallError
    from daemon.seat import Asked
    from daemon.surfaces.base import Surface
    from daemon.wire.envelope import BadMessage
    from daemon.wire.frames import Line
    from daemon.wire.outbox import Link

MAX_FAULTS = 100
"""Malformed messages after which a client is cut off: it does not speak JSON-RPC (reliability.md §4)."""

MAX_WAITING_LISTS = 16
"""`tools/list` of one client that wait for servers to list their own; further ones get what is known."""

PAGE_SHARE = 2
"""A page of `tools/list` takes at most half of what may wait for a client. By default that is 4 MiB: all 1,519
tools of 46 real servers, for many clients never ask for a second page."""


class Session:
    """Serves one client over one link."""

    def __init__(self, link: Link, number: int, context: SessionContext, uid: int | None = None) -> None:
        """Attach to a link of a user, None is the daemon's own; `run` does the work."""
        self.number = number
        self._context = context
        self._peer = Peer(link, context.outbox, self, strict=True, take_quickly=self._take_plain_call)
        self._log = logger.bind(session=number)
        self._seat = Seat(context, uid)
        self._announcements = Announcements(
            self._peer, context.outbox, context.habits, lambda: self._seat.client
        )
        self._savings = Savings(context.tally)
        self._calls = Calls(self._peer, number, context, self._announcements, self._savings)
        self._membership = Membership(
            self._seat,
            context,
            on_change=self._announcements.announce_if_changed,
            later=self._calls.later,
            turn=lambda: link.turns,
            busy=lambda: self._calls.guests,
        )
        self._waiting_lists = 0
        self._late_hello = False
        self._protocol = ""
        self._faults = 0
        self._since = context.wall()

    async def run(self) -> None:
        """Serve until the client hangs up; its calls are then cancelled at the servers."""
        self._context.sessions.watch(self._announcements.announce_if_changed, self)
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(self._calls.run)
                await self._peer.run()
        except BaseExceptionGroup as group:
            error = leaf(group)
            if not isinstance(error, RunError):
                raise
            self._log.info("session of {} ended: {}", self.client or "an unnamed client", error)
        finally:
            self._calls.abandon_all("the client is gone")
            self._membership.leave()
            self._context.sessions.unwatch(self)

    @property
    def surface(self) -> Surface:
        """What the client's calls mean."""
        return self._seat.surface

    @property
    def client(self) -> str:
        """What the client calls itself."""
        return self._seat.client

    @property
    def key(self) -> str | None:
        """The key of its session; None if that ends with the connection."""
        return self._membership.key

    def move(self, profile: str) -> None:
        """An operator gives the client another profile: it is told if that shows it other tools."""
        self._log.info("moved to profile {}", profile)
        self._seat.move(profile)
        self._announcements.announce_if_changed()

    @property
    def in_flight(self) -> int:
        """Calls without an answer yet."""
        return len(self._calls.guests)

    def lose_calls(self, error: CallError) -> None:
        """Answer what is in flight with an error: the daemon goes down."""
        self._calls.lose_all(error)

    def statistics(self) -> SessionStatistics:
        """A snapshot for `mcpd status`."""
        return SessionStatistics(
            number=self.number,
            key=self.key,
            client=self.client,
            protocol=self._protocol,
            profile=self._seat.profile.name,
            surface=self.surface.name,
            since=self._since,
            calls=self._calls.total,
            in_flight=self.in_flight,
            loaded=self._membership.loaded,
            own=self._membership.own.conversation.loaded,
            repaired=self._calls.repaired,
            tokens_not_sent=self._savings.tokens,
        )

    def _take_plain_call(self, line: Line) -> bool:
        """Take a call in that says nothing of its session, if this is one: it belongs to the connection's."""
        if (call := plain_call(line)) is None:
            return False
        own = self._membership.direct
        try:
            if own is not None and not self._announcements.subscribed and self._calls.repeat(call, own):
                return True
            self._seat.settled = True
            if self._seat.denied:
                self._peer.refuse(call.request_id, envelope.INVALID_REQUEST, self._seat.denied)
            elif own is not None:
                self._begin_call(call, own)
            else:
                self._with_session({}, call.request_id, partial(self._begin_call, call))
        except Exception as error:  # noqa: BLE001 - the boundary of a request
            self._fail(call.request_id, "tools/call", error)
        return True

    # --- wire.peer.PeerEvents ---------------------------------------------------------------------------------

    def on_request(self, request_id: bytes, method: str, params: Raw | None) -> None:
        """Answer a request, now or in time."""
        self._seat.settled = True
        if self._seat.denied:
            self._peer.refuse(request_id, envelope.INVALID_REQUEST, self._seat.denied)
            return
        if method not in _OF_CONNECTIONS and method not in _OF_SESSIONS:
            served = ", ".join([*_OF_CONNECTIONS, *_OF_SESSIONS])
            text = f"Method not found: {method}. mcpd serves tools: {served}"
            self._peer.refuse(request_id, envelope.METHOD_NOT_FOUND, text)
            return
        try:
            self._serve(request_id, method, params)
        except Exception as error:  # noqa: BLE001 - the boundary of a request
            self._fail(request_id, method, error)

    def _serve(self, request_id: bytes, method: str, params: Raw | None) -> None:
        meta = protocol.meta_of(params)
        modern = protocol.VERSION_KEY in meta
        if modern and not self._accept_version(request_id, meta):
            return
        if method in _OF_CONNECTIONS:
            _OF_CONNECTIONS[method](self, request_id, params)
        else:
            serve = self._list_tools if method == "tools/list" else self._call_tool
            self._with_session(meta, request_id, partial(serve, request_id, params, modern))

    def _fail(self, request_id: bytes, method: str, error: Exception) -> None:
        """What goes wrong with a request is its answer; a fault of ours costs this one, not the session."""
        if isinstance(error, (msgspec.MsgspecError, protocol.UnknownCursor)):
            self._peer.refuse(request_id, envelope.INVALID_PARAMS, f"Invalid params: {error}")
            return
        self._log.opt(exception=error).error("a fault of mcpd's own while serving {}", method)
        self._peer.refuse(request_id, envelope.INTERNAL_ERROR, f"Internal error: {type(error).__name__}")

    @contextmanager
    def _contained(self, request_id: bytes, method: str) -> Iterator[None]:
        """The boundary of a request that has waited."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - the boundary of a request
            self._fail(request_id, method, error)

    def on_notification(self, method: str, params: Raw | None) -> None:
        """Take in cancellations and the bridge's hello; the rest concerns nothing that we do."""
        try:
            if method == "notifications/cancelled" and params is not None:
                self._cancel(params)
            elif method == protocol.HELLO and params is not None:
                self._greet(msgspec.json.decode(params, type=dict[str, object]))
        except msgspec.MsgspecError as error:
            self._log.warning("a {} that cannot be read: {}", method, error)

    def on_lost(self, reason: str) -> None:
        """`run` ends next; nothing to do before."""

    def on_bad_message(self, fault: BadMessage, line: bytes) -> None:
        """Refuse what is no JSON-RPC; keep the connection, but not for ever."""
        self._faults += 1
        self._peer.refuse(fault.request_id, fault.code, fault.message)
        if self._faults >= MAX_FAULTS:
            self._context.outbox.flush()
            raise ProtocolFault(f"{self._faults} malformed messages")

    # --- requests ------------------------------------------------------------------------------------------

    def _initialize(self, request_id: bytes, params: Raw | None) -> None:
        fields = {} if params is None else msgspec.json.decode(params, type=dict[str, object])
        self._name_client(fields.get("clientInfo"))
        result = protocol.initialize_result(fields.get("protocolVersion"), self._instructions())
        self._protocol = msgspec.json.decode(result)["protocolVersion"]
        self._announcements.handshaken = True
        self._peer.answer(request_id, result)

    def _discover(self, request_id: bytes, params: Raw | None) -> None:
        self._peer.answer(request_id, protocol.discover_result(self._instructions()))

    def _ping(self, request_id: bytes, params: Raw | None) -> None:
        self._peer.answer(request_id, b"{}")

    def _list_tools(self, request_id: bytes, params: Raw | None, modern: bool, asked: Asked) -> None:  # noqa: FBT001
        cursor = protocol.decode_list(params or b"{}").cursor
        self._announcements.asked(asked.key)
        awaited = self.surface.awaits(asked.view())
        if awaited and cursor is None and self._waiting_lists < MAX_WAITING_LISTS:
            self._waiting_lists += 1
            awaiting = AwaitListing(servers=awaited)
            self._calls.later(self._answer_when_listed, request_id, modern, asked, awaiting)
        else:
            self._answer_list(request_id, cursor, asked, modern=modern)

    async def _answer_when_listed(
        self,
        request_id: bytes,
        modern: bool,  # noqa: FBT001
        asked: Asked,
        awaited: AwaitListing,
    ) -> None:
        try:
            with self._contained(request_id, "tools/list"):
                await self._calls.wait_known(awaited)
                self._answer_list(request_id, None, asked, modern=modern)
        finally:
            self._waiting_lists -= 1
        self._context.outbox.flush()

    def _answer_list(self, request_id: bytes, cursor: str | None, asked: Asked, *, modern: bool) -> None:
        self._context.settle_names()
        view = asked.view()
        tools = self.surface.list_tools(view)
        limits = view.catalog.config.limits
        page = protocol.list_page(tools, cursor, limits.client_queue_bytes // PAGE_SHARE)
        self._announcements.given(
            asked.key,
            tools,
            lambda: self.surface.list_tools(asked.view()),
            first=cursor is None,
            last=page.stop == len(tools),
        )
        servers_own = self.surface.listed(view)
        first = len(tools) - len(servers_own)
        part = servers_own[max(0, page.start - first) : max(0, page.stop - first)]
        asked.was_listed(part, view, whole=len(part) == len(view.offer.all))
        if cursor is None:
            sent, full = sum(map(len, tools)), view.offer.listing_bytes
            self._context.tally.listed(self.surface.name, sent, full)
            self._savings.listed(self.surface.name, asked.key, sent=sent, full=full)
        self._peer.answer(request_id, protocol.list_result(tools, page, modern=modern))

    def _listen(self, request_id: bytes, params: Raw | None) -> None:
        """A 2026-07-28 subscription: acknowledged first, then open until the client cancels it."""
        if self._is_second(request_id):
            return
        if self._announcements.is_full:
            text = f"{MAX_SUBSCRIPTIONS} subscriptions are open; cancel one first"
            self._peer.refuse(request_id, envelope.INVALID_REQUEST, text)
            return
        honoured = protocol.honoured(params)
        if honoured:
            self._announcements.subscribe(request_id)
        told = protocol.of_subscription(request_id, notifications=honoured)
        self._peer.notify("notifications/subscriptions/acknowledged", told)

    def _call_tool(self, request_id: bytes, params: Raw | None, modern: bool, asked: Asked) -> None:  # noqa: FBT001
        wanted = protocol.decode_call(params or b"{}")
        arguments = b"{}" if wanted.arguments is UNSET else bytes(wanted.arguments)
        self._begin_call(PlainCall(request_id, wanted.name, arguments), asked, wanted.meta, modern=modern)

    def _begin_call(
        self, call: PlainCall, asked: Asked, meta: dict[str, Raw] | None = None, *, modern: bool = False
    ) -> None:
        if not self._is_second(call.request_id):
            self._calls.begin(call, asked, meta, modern=modern)

    def _is_second(self, request_id: bytes) -> bool:
        """Whether a request was refused because another one with its id is in flight."""
        if not self._calls.holds(request_id) and not self._announcements.holds(request_id):
            return False
        text = f"Invalid Request: id {request_id.decode(errors='replace')} is already in flight"
        self._peer.refuse(request_id, envelope.INVALID_REQUEST, text)
        return True

    def _with_session(self, meta: dict[str, Raw], request_id: bytes, serve: Callable[[Asked], None]) -> None:
        """Serve a request in the session that it names, now or once that is recalled."""
        key = self._membership.key_of(meta)
        asked = self._membership.present(key)
        if asked is not None:
            serve(asked)
        elif not self._membership.hold(key or "", request_id, partial(self._serve_held, request_id, serve)):
            text = f"{MAX_HELD} requests wait for their sessions to be recalled; try again in a moment"
            self._peer.refuse(request_id, envelope.INVALID_REQUEST, text)

    def _serve_held(self, request_id: bytes, serve: Callable[[Asked], None], asked: Asked) -> None:
        with self._contained(request_id, "a request of a session that had to be recalled"):
            serve(asked)

    # --- small parts ---------------------------------------------------------------------------------------

    def _instructions(self) -> str:
        profile = self._seat.profile
        text = profile.instructions or self.surface.instructions(self._membership.own.view())
        return f"{text}\n{profile.prompt}" if profile.prompt else text

    def _accept_version(self, request_id: bytes, meta: dict[str, Raw]) -> bool:
        version = msgspec.json.decode(meta[protocol.VERSION_KEY])
        if version != protocol.MODERN_VERSION:
            self._peer.refuse(request_id, *protocol.unsupported(version))
            return False
        self._protocol = version
        if not self.client and protocol.CLIENT_INFO_KEY in meta:
            self._name_client(msgspec.json.decode(meta[protocol.CLIENT_INFO_KEY]))
        return True

    def _name_client(self, info: object) -> None:
        if isinstance(info, dict):
            name, version = str(info.get("name", "")), str(info.get("version", ""))
            self._seat.client = f"{name} {version}".strip()[:100]
            self._savings.applies = not defers_tools(name, version)
            self._log.info("session with {}", self.client)

    def _greet(self, hello: dict[str, object]) -> None:
        if self._seat.settled:
            if not self._late_hello:
                self._late_hello = True
                self._log.warning("a hello was refused: only one is taken, before the first request")
            return
        self._seat.settled = True
        self._seat.greet(hello)
        if fault := self._membership.greet(hello):
            self._log.warning("what this client loads is not remembered: {}", fault)
        if moved := self._context.moved(self.key):
            self.move(moved)
        if self._seat.denied:
            self._log.warning("{}", self._seat.denied)

    def _cancel(self, params: Raw) -> None:
        request_id = bytes(msgspec.json.decode(params, type=dict[str, Raw]).get("requestId", b""))
        self._calls.cancel(request_id, "the client cancelled it")
        self._membership.forget(request_id)
        self._announcements.unsubscribe(request_id)


_OF_CONNECTIONS: dict[str, Callable[[Session, bytes, Raw | None], None]] = {
    "initialize": Session._initialize,  # noqa: SLF001
    "server/discover": Session._discover,  # noqa: SLF001
    "ping": Session._ping,  # noqa: SLF001
    "subscriptions/listen": Session._listen,  # noqa: SLF001
}
"""What concerns the connection, whatever session."""

_OF_SESSIONS = ("tools/list", "tools/call")
"""What depends on what a session has loaded."""
