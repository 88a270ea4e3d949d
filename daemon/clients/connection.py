"""Serves one client's connection: its sessions, requests and notifications."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

import attrs
import msgspec
import trio
from loguru import logger
from msgspec import Raw

from daemon import protocol
from daemon.catalog.loaded import anonymous_key
from daemon.clients.attachment import Attachment, Request
from daemon.clients.client import Client, Principal, Selection
from daemon.clients.connected_clients import Following
from daemon.clients.context import SessionContext
from daemon.clients.dispatch import Dispatch
from daemon.clients.notifications import ConnectedClient, ListChanges, ListPlace, Savings
from daemon.clients.server_requests import has
from daemon.clients.sessions import SessionState, fault_of_key
from daemon.counting.tally import OK
from daemon.errors import CallError, ResourceDisabled, UnknownResource
from daemon.history.event import Event, EventKind
from daemon.model import Kind
from daemon.protocol import RESOURCE_NOT_FOUND
from daemon.surfaces.table import ClientInfo, may_defer
from daemon.tracing.call_trace import CallTrace, begun
from daemon.wire import envelope
from daemon.wire.envelope import RemoteError
from daemon.wire.requests import Peer

MAX_KEYS = 64
"""Sessions of one connection, at most; a few are usual. Above, the oldest without a call in flight is left."""

MAX_HELD = 256
"""Requests of one client that wait for the store to recall their sessions: as many as may be in flight."""


@attrs.define(eq=False, repr=False)
class Attachments:
    """The sessions of one connection."""

    _client: Client
    _context: SessionContext
    _on_change: Callable[[], None] = attrs.field(kw_only=True)
    _later: Callable[..., None] = attrs.field(kw_only=True)
    _turn: Callable[[], int] = attrs.field(default=lambda: 0, kw_only=True)
    _busy: Callable[[], Iterable[Attachment]] = attrs.field(default=tuple, kw_only=True)
    key: str | None = attrs.field(default=None, init=False)
    """The session key for requests that name none; None means the connection's own session."""
    own: Attachment = attrs.field(init=False)
    direct: Attachment | None = attrs.field(init=False)
    """The connection's own session, if requests without a key use it, and it needs no recall."""
    _named: dict[str, Attachment] = attrs.field(factory=dict, init=False)
    _held: dict[str, dict[bytes, Callable[[Attachment], None]]] = attrs.field(factory=dict, init=False)
    _returning: str | None = attrs.field(default=None, init=False)
    """The key under which the connection's own session is stored, until it is recalled."""

    def __attrs_post_init__(self) -> None:
        state = self._context.sessions.unnamed()
        self.own = self.direct = Attachment(self._client, state, self._context, self._turn)
        state.listen(self._on_change, self)

    @property
    def loaded(self) -> int:
        """The number of tools loaded in all sessions of the connection."""
        return sum(len(each.state.loaded.tools) for each in (self.own, *self._named.values()))

    def forget_stale(self) -> None:
        """Drop views of earlier catalogs, and instances that have ended."""
        self._client.forget_gone()
        for each in (self.own, *self._named.values()):
            each.forget_stale()

    def take_hello(self, hello: dict[str, object]) -> str:
        """Take the session keys from a bridge's hello. Returns the fault of the chosen key, or nothing."""
        key, anonymous = hello.get("session"), anonymous_key(hello.get("anonymous"))
        fault = "" if key is None else fault_of_key(key)
        if isinstance(key, str) and not fault:
            self.key, self.direct = self._client.principal.own_key(key), None
            if not self.own.selection.on_demand:
                self._context.sessions.identify(self.own.state, self.key, stored=False)
        elif anonymous is not None:
            self._identify(self._client.principal.own_key(anonymous))
        return fault

    def _identify(self, key: str) -> None:
        """Store the connection's own session under a key, or resume the session that has the key."""
        sessions = self._context.sessions
        if self._client.began is None and sessions.find(key) is None:
            sessions.identify(self.own.state, key)
            return
        self._returning, self.direct = key, None
        if self.own.selection.on_demand:
            # At once: a session without a connection is kept for minutes only.
            self._held[key] = {}
            self._later(self._serve_held, key)
        else:
            # Not stored, but still the same session to the server instances that are kept for it.
            sessions.identify(self.own.state, key, stored=False)

    def key_of(self, meta: dict[str, Raw]) -> str | None:
        """A request's session key; None means the connection's own session. Raises ValidationError."""
        if not self.own.selection.on_demand:
            return None
        if protocol.SESSION_KEY not in meta:
            return self.key or self._returning
        key = msgspec.json.decode(meta[protocol.SESSION_KEY])
        fault = fault_of_key(key)
        if fault or not isinstance(key, str):
            raise msgspec.ValidationError(f"_meta {protocol.SESSION_KEY}: {fault}")
        return self._client.principal.own_key(key)

    def present(self, key: str | None) -> Attachment | None:
        """The session with a key; None if it must be recalled first."""
        if key is None:
            return self.own
        if key in self._held:
            return None
        state = self._context.sessions.find(key)
        return None if state is None else self._join(key, state)

    def hold(self, key: str, request_id: bytes, serve: Callable[[Attachment], None]) -> bool:
        """Serve a request after its session's recall; False if too many wait. ValidationError: id in use."""
        if self.holds(request_id):
            raise msgspec.ValidationError(f"id {request_id.decode(errors='replace')} is already in flight")
        if sum(map(len, self._held.values())) >= MAX_HELD:
            return False
        if key in self._held:
            self._held[key][request_id] = serve
        else:
            self._held[key] = {request_id: serve}
            self._later(self._serve_held, key)
        return True

    def holds(self, request_id: bytes) -> bool:
        """Whether a request waits for its session's recall."""
        return any(request_id in held for held in self._held.values())

    def forget(self, request_id: bytes) -> None:
        """Drop a waiting request that its client has cancelled."""
        for held in self._held.values():
            held.pop(request_id, None)

    def leave(self) -> None:
        """Leave all sessions: the connection has ended."""
        for attachment in (self.own, *self._named.values()):
            self._part(attachment)

    async def _serve_held(self, key: str) -> None:
        try:
            attachment = self._join(key, await self._context.sessions.recall(key))
            # The store must know first that the session may have been shown something.
            await self._context.sessions.kept(attachment.state)
        finally:
            held = self._held.pop(key)
        for serve in held.values():
            serve(attachment)
        if key == self._returning and attachment.state.whole:
            self._part(self.own)
            self.own, self._returning = self._named.pop(key), None
            self.direct = self.own if self.key is None else None
        self._context.outbox.flush()

    def _join(self, key: str, state: SessionState) -> Attachment:
        known = self._named.get(key)
        if known is not None and known.state is state:
            return known
        if known is not None:
            self._part(self._named.pop(key))
        self._make_room()
        self._context.sessions.join(state, self._client.name)
        state.listen(self._on_change, self)
        attachment = self._named[key] = Attachment(self._client, state, self._context, self._turn)
        return attachment

    def _make_room(self) -> None:
        if len(self._named) >= MAX_KEYS:
            # A call loads into the session as it is when the call ends, so the session must not be left
            # meanwhile; nor may one that is about to serve held requests.
            busy = set(map(id, self._busy()))
            idle = [
                key
                for key, attachment in self._named.items()
                if id(attachment) not in busy and key not in self._held
            ]
            for key in idle[: len(self._named) - MAX_KEYS + 1]:
                self._part(self._named.pop(key))

    def _part(self, attachment: Attachment) -> None:
        attachment.state.leave(self)
        self._context.sessions.part(attachment.state)


class ClientConnection:
    """One client's connection: its sessions, calls, lists and notifications."""

    def __init__(self, peer: Peer, number: int, context: SessionContext, principal: Principal) -> None:
        self.peer = peer
        self.context = context
        self.client_log = logger.bind(session=number, **({"token": principal.token} if principal.token else {}))
        self.info = b""
        self.waiting_lists = 0
        self.nursery: trio.Nursery | None = None
        self.level = "INFO" if principal.keeps else "DEBUG"
        """Log level for the connection's beginning and end: without sessions, each request may connect."""
        self.client = Client(
            context.catalog.value.config,
            context.surfaces,
            principal,
            count=lambda profile: len(context.services.offers.of(context.catalog.value, profile).tools),
            decided=context.decided,
        )
        self.client.number = number
        self._noted_key = ""
        self.lists = ListChanges(peer, context.outbox, self.client, context.habits)
        self.savings = Savings(context.tally)
        self.dispatch = Dispatch(peer, context, self.client, self.lists, self.savings, self.later)
        peer.take_quickly = self.dispatch.take_plain
        self.calls = self.dispatch.calls
        asking = self.calls.server_requests
        self.notifier = ConnectedClient(
            peer, self.client, asking, self.sees, context.catalog, context.upstreams, context.outbox, self.later
        )
        self.waiting_follows = 0
        self.resuming: set[Following] = set()
        """Subscriptions at removed servers, which are about to move to other servers."""
        self._servers: frozenset[str] = frozenset()
        self._traces: dict[bytes, tuple[str, CallTrace]] = {}  # of requests that have no answer yet
        self._waiting: set[bytes] = set()  # ids of requests whose tasks have not begun
        self.attachments = Attachments(
            self.client,
            context,
            on_change=self.lists.announce_if_changed,
            later=self.later,
            turn=lambda: peer.link.turns,
            busy=lambda: [call.request.session for call in self.calls.open.values()],
        )

    @property
    def selection(self) -> Selection:
        """The client's selection under the present configuration."""
        return self.client.select(self.context.catalog.value.config)

    def name_client(self, info: object) -> None:
        """Record the client's name and version (MCP, `clientInfo`)."""
        if isinstance(info, dict):
            named = ClientInfo(str(info.get("name", "")), str(info.get("version", "")))
            self.client.introduce(named)
            self.savings.client, self.savings.applies = named.name, not may_defer(named)
            log = self.client_log.bind(event=True) if self.client.principal.keeps else self.client_log
            log.log(self.level, "session with {}", self.client.name)
            self._note_beginning()

    def note_end(self, seconds: float) -> None:
        """Record that the client left after `seconds`, if its arrival was recorded."""
        if self._noted_key:
            event = Event(
                kind=EventKind.SESSION_ENDED,
                session=self._noted_key,
                details={"client": self.client.name, "seconds": seconds, "calls": self.calls.total},
            )
            self.context.note(event)

    def _note_beginning(self) -> None:
        if self._noted_key or not self.client.principal.keeps:
            return
        selection = self.selection
        self._noted_key = self.attachments.key or f"#{self.client.number}"
        event = Event(
            kind=EventKind.SESSION_BEGAN,
            session=self._noted_key,
            details={
                "client": self.client.name,
                "profile": selection.profile.name,
                "surface": selection.surface.name,
                "connection": self.client.number,
            },
        )
        self.context.note(event)

    def begin_roots(self) -> None:
        """Let servers ask for the client's roots, now that its handshake is over."""
        if has(self.calls.server_requests.capabilities, "roots"):
            self.context.subscribers.roots.join(self.notifier)
            self.client.workspace.have_roots(self.notifier.roots)

    def sees(self, server: str) -> bool:
        """Whether the client's profile shows this server, or the client uses this instance."""
        if self.selection.denied:
            return False
        return self.client.has(server, self.attachments.own.view().servers)

    def serve_later(self, request_id: bytes, what: str, serve: Callable[[], Awaitable[None]]) -> None:
        """Serve a request in a task that ends with the connection; `what` describes the request in the log."""
        self._waiting.add(request_id)
        self.later(self._serve, request_id, what, serve)

    def later(self, wait: Callable[..., Awaitable[None]], *args: object) -> None:
        """Start a task unless the connection has ended: a queue may return a call after that."""
        if self.nursery is not None and not self.nursery.cancel_scope.cancel_called:
            self.nursery.start_soon(wait, *args)

    async def _serve(self, request_id: bytes, what: str, serve: Callable[[], Awaitable[None]]) -> None:
        self._waiting.discard(request_id)
        try:
            await serve()
        except Exception as error:  # noqa: BLE001 - the boundary of a request that has waited
            self.fail(request_id, what, error)
        self.end_trace(request_id)
        self.context.outbox.flush()

    def trace(self, request_id: bytes, method: str, meta: dict[str, Raw]) -> None:
        """Begin the trace of a request that is no call: calls have traces of their own."""
        if (tracer := self.context.tracer) is not None:
            self._traces[request_id] = method, begun(meta, self.peer.last_heard, *tracer.sampling)

    def end_trace(self, request_id: bytes, outcome: str = OK) -> None:
        """End the trace of a request, unless it has ended or a task goes on with the request."""
        goes_on = request_id in self._waiting or self.attachments.holds(request_id)
        if (tracer := self.context.tracer) is not None and request_id in self._traces and not goes_on:
            method, trace = self._traces.pop(request_id)
            trace.ended, trace.at = trio.current_time(), self.context.wall()
            trace.about = request_id, b"", self.attachments.own.name, self.client.protocol, "", 0, 0
            tracer.ended(trace, (method, "", ""), (method, "", ""), outcome)

    def fail(self, request_id: bytes, method: str, error: Exception) -> None:
        """Answer a request with its error; an internal error of mcpd ends the request, not the connection."""
        self.end_trace(request_id, type(error).__name__)
        if isinstance(error, msgspec.MsgspecError):
            self.peer.refuse(request_id, envelope.INVALID_PARAMS, f"Invalid params: {error}")
            return
        if isinstance(error, RemoteError):
            self.peer.refuse(request_id, error.code, error.message)
            return
        if isinstance(error, CallError):
            unknown = isinstance(error, UnknownResource | ResourceDisabled)
            code = RESOURCE_NOT_FOUND if unknown else envelope.INTERNAL_ERROR
            data = {"code": error.code, **error.details}
            self.peer.refuse(request_id, code, f"{error.code}: {error.message}", data)
            return
        self.client_log.opt(exception=error).error("internal error in mcpd while serving {}", method)
        self.peer.refuse(request_id, envelope.INTERNAL_ERROR, f"Internal error: {type(error).__name__}")

    def follow_catalog(self) -> None:
        """Notify the client of changed lists, and drop the previous catalog."""
        self._announce_changes()
        self.attachments.forget_stale()

    def move(self, profile: str) -> None:
        """Give the client another profile, and notify it of a changed list."""
        self.client_log.info("moved to profile {}", profile)
        self.client.move(profile)
        self._announce_changes()

    def list_of(self, kind: Kind, request: Request) -> tuple[ListPlace, Callable[[], tuple[bytes, ...]]]:
        """The list that a request names, and a function that returns the list's present items as raw JSON."""
        if kind is Kind.TOOL:
            return (kind, request.key), lambda: request.present_surface.list_tools(request.session.view())
        return (kind, None), lambda: self.attachments.own.view().offer.listed(kind)

    def _announce_changes(self) -> None:
        self.lists.announce_if_changed()
        if self.client.log_level is not None:
            # The newly visible servers' logs are wanted, too.
            before, self._servers = self._servers, frozenset(self.attachments.own.view().servers)
            if self._servers != before:
                self.context.subscribers.refresh_levels()
