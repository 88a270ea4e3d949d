"""Receives the messages that a server sends unasked, and requests the log level and updates that clients want.

A server of the handshake era is asked for both again on each connection (`WatchedServer`), a modern server in a
subscription (`HeldSubscription`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

import attrs
import msgspec
import trio
from loguru import logger
from msgspec import Raw, Struct

from daemon.catalog.authorship import UnsafeQuestion, authored
from daemon.catalog.extensions import is_unknown
from daemon.causes import Cause, Reason
from daemon.config.labels import server_of
from daemon.counting.measures import STDERR_LINE
from daemon.errors import CallError, ProtocolFault
from daemon.history.event import Event, EventKind
from daemon.history.event_words import phrase
from daemon.kit.waiting import Watch
from daemon.model import Era, Kind, StandingWishes
from daemon.ports import Subscribers, UpstreamConnection
from daemon.protocol import ACKNOWLEDGED, LIST_ROOTS, LOG_MESSAGE, RESOURCE_UPDATED, TASK_STATUS, UNREADABLE
from daemon.safety.redact import Redactor
from daemon.sandbox.egress import SeenHost
from daemon.upstreams.call_admission import Admission, names_task
from daemon.upstreams.handshake import Greeting
from daemon.upstreams.upstream_access import UpstreamAccess
from daemon.wire.envelope import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, RemoteError
from daemon.wire.requests import Exchange, PeerRequest

ASK_SECONDS = 15.0
"""Seconds that a server has to answer one of these requests: as long as for a page of a list."""

AT_ONCE = 8
"""Most subscriptions requested at the same time: after a restart, mcpd requests all of them."""

RETRY_SECONDS = 30.0
"""Seconds until a subscription request that got no answer is repeated."""

LEAST_TALKATIVE = "info"
"""The level requested once no client wants any: a level cannot be unset, and most servers begin here."""

UNSUPPORTED = "server {} does not report updated resources: it does not declare resources.subscribe"


class WatchedServer:
    """Requests the log level and the resource updates that clients want from a server of the handshake era."""

    def __init__(self, server: str, subscribers: Subscribers) -> None:
        self._server = server
        self._subscribers = subscribers
        self._before: set[str] = set()
        """Resources followed on earlier connections, not yet on this one: they may have changed unnoticed."""

    async def keep(self, connection: UpstreamConnection, greeting: Greeting) -> None:
        """Request the clients' wishes, again after each change, until cancelled."""
        async with trio.open_nursery() as nursery:
            if greeting.logs:
                nursery.start_soon(keep_level, connection, self._server, self._subscribers)
            if greeting.updates:
                nursery.start_soon(self._keep_following, connection)
            else:
                nursery.start_soon(refuse_all, self._server, self._subscribers)

    async def _keep_following(self, connection: UpstreamConnection) -> None:
        watch = self._subscribers.wishes(self._server)
        followed = _OfConnection(self._server, connection, self._subscribers, self._before)
        try:
            while True:
                wished = watch.value
                await followed.become(wished.uris)
                with trio.move_on_after(math.inf if followed.is_complete else RETRY_SECONDS):
                    await watch.wait_changed(wished)
        finally:
            self._before |= followed.held


@attrs.define(eq=False)
class _OfConnection:
    _server: str
    _connection: UpstreamConnection
    _subscribers: Subscribers
    _before: set[str]
    held: set[str] = attrs.field(factory=set, init=False)
    is_complete: bool = attrs.field(default=True, init=False)
    """Whether the server has answered every request."""
    _refused: dict[str, RemoteError] = attrs.field(factory=dict, init=False)
    _limit: trio.CapacityLimiter = attrs.field(factory=lambda: trio.CapacityLimiter(AT_ONCE), init=False)

    async def become(self, wished: frozenset[str]) -> None:
        self._refused = {uri: refusal for uri, refusal in self._refused.items() if uri in wished}
        self._before &= wished
        for uri in wished & (self.held | self._refused.keys()):
            # Who has begun to follow it only now has not been told yet.
            self._subscribers.settled(self._server, uri, self._refused.get(uri))
        self.is_complete = True
        async with trio.open_nursery() as nursery:
            for uri in self.held - wished:
                nursery.start_soon(self._end, uri)
            for uri in wished - self.held - self._refused.keys():
                nursery.start_soon(self._begin, uri)

    async def _begin(self, uri: str) -> None:
        async with self._limit:
            refusal, answered = await _ask(self._connection, "resources/subscribe", {"uri": uri})
        if refusal is None:
            self.held.add(uri)
        elif answered:
            self._refused[uri] = refusal
        else:
            self.is_complete = False
        self._subscribers.settled(self._server, uri, refusal)
        if refusal is None and uri in self._before:
            self._before.discard(uri)
            tell_missed(self._server, self._subscribers, (uri,))

    async def _end(self, uri: str) -> None:
        self.held.discard(uri)
        async with self._limit:
            await _ask(self._connection, "resources/unsubscribe", {"uri": uri})


async def keep_level(
    connection: UpstreamConnection,
    server: str,
    subscribers: Subscribers,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Request the log level that clients want; reports `started` once the server answered the first request."""
    watch = subscribers.wishes(server)
    asked: str | None = None
    while True:
        wished = watch.value
        if wished.level != asked:
            level = wished.level or LEAST_TALKATIVE
            refusal, _answered = await _ask(connection, "logging/setLevel", {"level": level})
            if refusal is not None:
                logger.bind(server=server).info("accepts no log level: {}", refusal)
            asked = wished.level
        task_status.started()
        task_status = trio.TASK_STATUS_IGNORED
        await watch.wait_changed(wished)


async def refuse_all(server: str, subscribers: Subscribers) -> None:
    """Refuse, until cancelled, to follow resources of a server that reports no updates."""
    watch = subscribers.wishes(server)
    refusal = RemoteError(METHOD_NOT_FOUND, UNSUPPORTED.format(server))
    while True:
        wished = watch.value
        for uri in wished.uris:
            subscribers.settled(server, uri, refusal)
        await watch.wait_changed(wished)


def tell_missed(server: str, subscribers: Subscribers, uris: Iterable[str]) -> None:
    """Report these resources as changed: they may have changed while mcpd received no updates."""
    for uri in uris:
        subscribers.hear(server, RESOURCE_UPDATED, Raw(msgspec.json.encode({"uri": uri})), None)


async def _ask(
    connection: UpstreamConnection, method: str, params: dict[str, object]
) -> tuple[RemoteError | None, bool]:
    """Send a request; return the refusal (or why there is no answer), and whether the server answered."""
    try:
        await connection.request(method, params, timeout=ASK_SECONDS)
    except RemoteError as refusal:
        return refusal, True
    except CallError as error:
        return RemoteError(INTERNAL_ERROR, error.message), False
    return None, True


ACK_SECONDS = 5.0
"""Seconds that a server has to acknowledge a subscription; without an answer it counts as acknowledged."""

REOPEN_FIRST, REOPEN_LATEST = 1.0, 30.0
"""Seconds until an ended subscription is reopened, doubled each time; mcpd then looks for missed changes."""


class _Filter(Struct):
    resourceSubscriptions: list[str] = []  # noqa: N815 - the wire's name


class _Acknowledged(Struct):
    notifications: _Filter


_decode_acknowledged = msgspec.json.Decoder(_Acknowledged).decode


class _Held:
    def __init__(self, uris: frozenset[str]) -> None:
        self.uris = self.honoured = uris
        """The resources of the subscription, and those whose updates the server agrees to report."""
        self.refusal: RemoteError | None = None
        self.settled = trio.Event()
        """Set once the subscription is acknowledged or has ended."""
        self.request, self.use = trio.CancelScope(), trio.CancelScope()
        """Scopes of the request, and of the subscription's use, which ends with the subscription."""
        self.since = trio.current_time()

    async def run(self, connection: UpstreamConnection, lists: Mapping[str, bool]) -> None:
        """Hold the subscription until it ends or its scope is cancelled."""
        wanted: dict[str, object] = dict(lists)
        if self.uris:
            wanted["resourceSubscriptions"] = sorted(self.uris)
        with self.request:
            try:
                await connection.request("subscriptions/listen", {"notifications": wanted}, timeout=math.inf)
            except RemoteError as refusal:
                self.refusal = None if self.settled.is_set() else refusal
            except CallError as error:
                # Over HTTP only this stream may have broken; the loss of the connection has a task of its own.
                logger.debug("a subscription ended: {}", error.message)
            self.settled.set()
            if self.refusal is None:
                self.use.cancel()


class HeldSubscription:
    """Keeps a subscription open at one modern server, over all of its connections."""

    def __init__(self, server: str, subscribers: Subscribers, missed: Callable[[], None]) -> None:
        self._server = server
        self._subscribers = subscribers
        self._missed = missed
        self._log = logger.bind(server=server)
        self._held: _Held | None = None
        self._unsupported = RemoteError(METHOD_NOT_FOUND, UNSUPPORTED.format(server))
        self._followed: frozenset[str] = frozenset()

    def acknowledged(self, params: Raw) -> None:
        """Note which resources the server's acknowledgement names."""
        held = self._held
        if held is not None and not held.settled.is_set():
            with suppress(*UNREADABLE):
                held.honoured = frozenset(_decode_acknowledged(params).notifications.resourceSubscriptions)
            held.settled.set()

    async def keep(
        self,
        connection: UpstreamConnection,
        lists: Mapping[str, bool],
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Hold a subscription until cancelled; started once it is requested. `lists`: members of its filter."""
        watch = self._subscribers.wishes(self._server)
        async with trio.open_nursery() as nursery:

            def opened() -> _Held:
                self._held = _Held(watch.value.uris)
                if lists or self._held.uris:
                    nursery.start_soon(self._held.run, connection, lists)
                else:
                    self._held.settled.set()
                return self._held

            before, held, pause, again = None, opened(), REOPEN_FIRST, False
            await trio.lowlevel.checkpoint()
            task_status.started()
            while True:
                with trio.move_on_after(ACK_SECONDS):
                    await held.settled.wait()
                held.settled.set()
                if before is not None:
                    before.request.cancel()
                self._tell(held, lists_too=again, missed=again or before is None)
                again = await self._until_due(held, watch)
                if again:
                    with trio.move_on_after(pause):
                        await watch.wait_changed(watch.value)
                    lasted = trio.current_time() - held.since
                    pause = REOPEN_FIRST if lasted > REOPEN_LATEST else min(2 * pause, REOPEN_LATEST)
                before, held = held, opened()

    def _tell(self, held: _Held, *, lists_too: bool, missed: bool) -> None:
        self._settle(held)
        if held.refusal is not None:
            self._log.info("accepts no subscription ({}); mcpd polls its lists", held.refusal)
            return
        if lists_too:
            self._missed()
        followed = held.uris & held.honoured
        if missed:
            tell_missed(self._server, self._subscribers, followed & self._followed)
        self._followed = followed

    def _settle(self, held: _Held) -> None:
        for uri in held.uris:
            unsupported = None if uri in held.honoured else self._unsupported
            self._subscribers.settled(self._server, uri, held.refusal or unsupported)

    async def _until_due(self, held: _Held, watch: Watch[StandingWishes]) -> bool:
        """Return once the subscription has ended (True), or other resources are wanted (False)."""
        with held.use:
            while watch.value.uris == held.uris:
                wished = await watch.wait_changed(watch.value)
                if wished.uris == held.uris:
                    # Who has begun to follow one of them only now has not been told yet.
                    self._settle(held)
            return False
        return True


OF_NO_CALL = frozenset({RESOURCE_UPDATED, TASK_STATUS})
"""Notifications that name their own subject: mcpd relays them without knowing a call."""


class ServerEvents:
    """Handles the events of a server's first connection: `ports.ConnectionEvents`."""

    def __init__(self, server: UpstreamAccess, redact: Redactor) -> None:
        self._server = server
        self.redact = redact
        self.subscription = HeldSubscription(server.name, server.subscribers, server.listing.may_have_changed)

    @property
    def admission(self) -> Admission | None:
        """The admission to the connection, while the connection takes calls."""
        return self._server.admission

    @property
    def era(self) -> Era:
        """The era of the connection."""
        return Era.HANDSHAKE if self._server.greeting is None else self._server.greeting.era

    def on_lost(self, reason: str) -> None:
        """Stop taking calls now, because the clean-up and the exact reason take longer."""
        if self._server.admission is not None and self._server.lifecycle is not None:
            self._server.lifecycle.ending(Reason(reason, Cause.CONNECTION_LOST))
            self._server.shut()

    def on_noise(self, line: bytes, problem: str) -> None:
        """Count a line that is not MCP: many degrade the server, a flood raises ProtocolFault."""
        server = self._server
        too_much = server.noise.add(line, trio.current_time(), self.redact.cut)
        first = server.noise.first
        if server.noise.count == 1:
            server.log.say("WARNING", f"prints something that is not MCP ({problem}): {first!r}")
        text = f"floods its stdout with what is not MCP, e.g. {first!r}"
        if server.noise.is_unbearable:
            raise ProtocolFault(text, Cause.NOISE, first=first)
        if too_much and server.admission is not None and server.lifecycle is not None:
            server.lifecycle.degraded(Reason(text, Cause.NOISE, {"first": first}))

    def on_list_changed(self, kinds: tuple[Kind, ...] = tuple(Kind)) -> None:
        """Have these lists read again."""
        self._server.listing.are_asked_for(kinds)

    def on_server_request(self, request: PeerRequest, cause: Exchange | None) -> None:
        """Pass a request to its task or a call of this connection, else refuse it; never to another client."""
        request.server = self._server.name
        if request.method == LIST_ROOTS:
            request.otherwise = self._server.roots
        try:
            request.params = authored(self._server.of, request.method, request.params)
        except UnsafeQuestion as error:
            self._server.subscribers.unsafe(self._server.name, error)
            request.refuse(INVALID_PARAMS, f"mcpd does not pass this question on: {error}")
            return
        if names_task(request.params) and (owner := self._server.subscribers.owner_of(request)) is not None:
            owner.asked(request)
            return
        admission = self.admission
        if admission is None or not admission.attribution.take(request, cause):
            self._server.subscribers.ask(request)

    def on_message(self, method: str, params: Raw, cause: Exchange | None) -> None:
        """Log a line of the server's log; pass every other message to the clients that want it."""
        if method == ACKNOWLEDGED:
            self.subscription.acknowledged(params)
            return
        if is_unknown(method):
            if cause is None:
                self._server.subscribers.hear(self._server.name, method, params, None)
            else:
                cause.notified(method, params)
            return
        if method == LOG_MESSAGE:
            self.on_log(bytes(params))
        if cause is None and self.admission is not None and method not in OF_NO_CALL:
            cause = self.admission.attribution.only_call()
        if method != LOG_MESSAGE or self.era is Era.HANDSHAKE:
            self._server.subscribers.hear(self._server.name, method, params, cause)
        elif cause is not None:
            # Since 2026-07-28 a line belongs to the request that has asked for it.
            cause.notified(method, params)

    def on_refused_host(self, seen: SeenHost) -> None:
        """Record a host that the sandbox refused to the server; logged once, because a server may retry."""
        name = self._server.name
        allow = seen.remedy(server_of(name))
        event = Event(
            kind=EventKind.HOST_REFUSED,
            server=server_of(name),
            details={"host": seen.host, "port": seen.port, "reason": str(seen.reason), "allow": allow},
        )
        self._server.subscribers.refused_host(event)
        if seen.count == 1:
            # Programs that read the log get the event itself.
            logger.bind(server=name, event=True).info("{}", phrase(event))

    def on_child(self, pid: int, mark: int) -> None:
        """Remember the child for `mcpd status`."""
        self._server.pid, self._server.children[pid] = pid, mark
        if self._server.lifecycle is not None:
            self._server.lifecycle.runs_as(mark)
        self._server.log.say("INFO", f"started {self._server.server.command} as pid {pid}")

    def on_log(self, said: bytes) -> None:
        """Keep and log a line of the server's stderr."""
        server, text = self._server, self.redact.cut(said, STDERR_LINE)
        run = 0 if server.lifecycle is None else server.lifecycle.incarnation
        server.stderr.add(text, server.wall(), run)
        server.log.stderr(text)
