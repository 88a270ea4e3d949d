"""Opens connections to servers by their `type`; the base of those over stdio, unix socket and WebSocket.

Transport modules are loaded in a worker thread when first needed. A forwarded request is spliced together from
the client's bytes, and its answer handed back as bytes.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any

import attrs
import msgspec
import trio
from msgspec import Raw

from daemon import protocol
from daemon.authorization.logins import ServerLogins
from daemon.catalog.kinds import CHANGED
from daemon.causes import Cause
from daemon.config.config_model import Server, TransportType
from daemon.errors import Overloaded, RunError
from daemon.model import Era
from daemon.ports import CallToSend, ConnectionEvents, UpstreamConnection
from daemon.processes.children import Children
from daemon.sandbox.egress import Egress
from daemon.sandbox.launch import Lesson, Sandboxes
from daemon.sandbox.policy import DaemonPlaces
from daemon.secrets.commands import RunSecrets
from daemon.wire.envelope import INVALID_REQUEST, JOINED_BYTES, METHOD_NOT_FOUND, BadMessage, Buffer
from daemon.wire.outbox import Link, Outbox
from daemon.wire.requests import NO_CLIENT, Exchange, Peer, PeerRequest

MODULES = {kind: f"daemon.upstreams.transports.{kind}" for kind in TransportType}
"""Each module has `open_connection(context)`, which yields a `ports.UpstreamConnection` as a context."""


@attrs.frozen(kw_only=True)
class OpenContext:
    """A server, and the parts of the daemon that a connection to it needs."""

    server: Server
    events: ConnectionEvents
    outbox: Outbox
    children: Children
    logins: ServerLogins | None = None
    introduced: Callable[[str], bytes] = lambda _server: b""
    """Returns a server's earlier introduction (`catalog.extensions`), perhaps of an earlier daemon."""
    sandboxes: Sandboxes = attrs.Factory(lambda self: Sandboxes(self.children, DaemonPlaces()), takes_self=True)
    egress: Egress | None = None
    """The proxy of a sandboxed server, with the hosts that it refused over all runs."""
    lessons: Mapping[str, Lesson] = attrs.field(factory=dict)
    """Servers whose next runs are watched and unconfined, by name."""
    secrets: RunSecrets = attrs.Factory(lambda self: RunSecrets(self.children), takes_self=True)


async def connector(context: OpenContext) -> AbstractAsyncContextManager[UpstreamConnection]:
    """The context manager that will connect to a server; RunError if the entry or a secret is faulty."""
    if faults := context.server.faults:
        error, variable = str(faults[0]), faults[0].variable
        named = {} if variable is None else {"variable": variable}
        key = faults[0].path.rpartition(".env.")[2]
        if variable is not None and context.server.written.env.get(key) == f"${{{variable}}}":
            named["env"] = key
        raise RunError("; ".join(map(str, faults)), Cause.CONFIGURATION, error=error, **named)
    module: Any = await trio.to_thread.run_sync(importlib.import_module, MODULES[context.server.type])
    context = attrs.evolve(context, server=await context.secrets.filled(context.server))
    opened: AbstractAsyncContextManager[UpstreamConnection] = module.open_connection(context)
    return opened


MAX_SERVER_REQUESTS = 64
"""Most open requests of one server, the default of its calls in flight, to bound memory."""


MAX_BYTES = 32 * 1024 * 1024
"""Most bytes of open requests' params, two largest messages: each is kept until answered."""


class RequestsOfServer:
    """The open requests of one server."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._open: dict[bytes, PeerRequest] = {}
        self._ended = trio.Event()

    def __len__(self) -> int:
        return len(self._open)

    def take(self, request_id: bytes, method: str, params: Raw | None) -> PeerRequest | None:
        """Register a request; None if mcpd answered it at once: a ping, or a method unknown to clients."""
        if method == "ping":
            self._peer.answer(request_id, b"{}")
        elif method not in protocol.ASKED_OF_CLIENTS:
            self._peer.refuse(request_id, METHOD_NOT_FOUND, f"Method not found: {method}")
        elif request_id in self._open:
            self._peer.refuse(request_id, INVALID_REQUEST, protocol.already_in_flight(request_id))
        elif len(self._open) >= MAX_SERVER_REQUESTS:
            text = f"{MAX_SERVER_REQUESTS} requests of this server are open: wait for some to be answered"
            self._peer.refuse(request_id, INVALID_REQUEST, text)
        elif self._open and sum(map(_size, self._open.values()), len(params or b"")) > MAX_BYTES:
            text = f"open requests of this server have over {MAX_BYTES} bytes: wait for some to be answered"
            self._peer.refuse(request_id, INVALID_REQUEST, text)
        else:
            request = PeerRequest(method, params, _WayBack(self._peer, request_id, self._end))
            self._open[request_id] = request
            return request
        return None

    def withdraw(self, params: Raw) -> None:
        """End the request that the server cancels; `params` are the notification's."""
        with suppress(msgspec.MsgspecError, RecursionError):
            if (request := self._end(protocol.cancelled_id(params))) is not None:
                request.withdraw("the server has cancelled it")

    def lose_all(self, reason: str) -> None:
        """End all requests, because the connection is lost."""
        requests = list(self._open.values())
        self._open.clear()
        self._ended.set()
        for request in requests:
            request.withdraw(reason)

    async def wait_answered(self) -> None:
        """Return once all requests that are open now have ended."""
        asked = set(self._open)
        while not asked.isdisjoint(self._open):
            if self._ended.is_set():
                self._ended = trio.Event()
            await self._ended.wait()

    def _end(self, request_id: bytes) -> PeerRequest | None:
        request = self._open.pop(request_id, None)
        if request is not None:
            self._ended.set()
        return request


class _WayBack(msgspec.Struct, frozen=True, eq=False):
    _peer: Peer
    _request_id: bytes
    _end: Callable[[bytes], PeerRequest | None]

    def answer(self, result: Buffer) -> None:
        if self._end(self._request_id) is not None:
            self._peer.answer(self._request_id, result)

    def refuse(self, code: int, message: str, data: object = None) -> None:
        if self._end(self._request_id) is not None:
            self._peer.refuse(self._request_id, code, message, data)

    def refuse_as(self, error: Buffer) -> None:
        if self._end(self._request_id) is not None:
            self._peer.refuse_as(self._request_id, error)

    def report(self, params: dict[str, Raw]) -> None:
        self._peer.notify(protocol.PROGRESS, msgspec.json.encode(params))


def _size(request: PeerRequest) -> int:
    return len(request.params or b"")


UPSTREAM_QUEUE_BYTES = 16 * 1024 * 1024
"""Queued bytes from which new calls are refused while a server does not read: one largest message."""

_PLAIN_CALL = b'{"jsonrpc":"2.0","id":%d,"method":"%b","params":{%b}}'
"""A request without added params, the usual one: a small frame, made in one step."""

_encode = msgspec.json.encode


class RawConnection:
    """`ports.UpstreamConnection` over a `Peer`."""

    def __init__(self, link: Link, *, outbox: Outbox, events: ConnectionEvents) -> None:
        self.link = link
        self._outbox = outbox
        self._events = events
        self._peer = Peer(link, outbox, self, strict=False, cancelled=protocol.cancelled)
        self.capabilities = protocol.CLIENT_CAPABILITIES
        self._meta: dict[str, object] = {}
        self._own_meta: dict[str, bytes] = {}
        self._asked = RequestsOfServer(self._peer)
        self.wait_answered = self._asked.wait_answered
        self.given_up = self._peer.requests.given_up

    @property
    def last_heard(self) -> float:
        """When the server last sent anything (trio's clock); the current time while its link is held."""
        return trio.current_time() if self.link.is_held else self._peer.last_heard

    @property
    def carrying(self) -> int | None:
        """The request whose answer carries the current message; None if the transport cannot tell."""
        return None

    @property
    def in_flight(self) -> int:
        """The number of forwarded requests without an answer."""
        return self._peer.requests.forwarded

    def adopt(self, era: Era, version: str) -> None:
        """Use this era's envelope from now on."""
        modern = era is not Era.HANDSHAKE
        self._meta = protocol.envelope_meta(version, self.capabilities) if modern else {}
        self._own_meta = {key: _encode(value) for key, value in self._meta.items()}

    async def request(self, method: str, params: dict[str, object], *, timeout: float) -> bytes:  # noqa: ASYNC109 - see ports.UpstreamConnection
        """Send a request of mcpd itself, and wait (`ports.UpstreamConnection.request`)."""
        if self._meta:
            params = {**params, "_meta": self._meta}
        # MCP, cancellation: "the `initialize` request MUST NOT be cancelled by clients".
        return await self._peer.request(method, params, timeout=timeout, tells=method != "initialize")

    def notify(self, method: str, params: dict[str, object] | None = None) -> None:
        """Send a notification."""
        self._peer.notify(method, _encode(params or {}))
        self._outbox.flush()

    def call(self, call: CallToSend, exchange: Exchange) -> int:
        """Forward a request (`ports.UpstreamConnection.call`)."""
        if self.link.queued > UPSTREAM_QUEUE_BYTES:
            raise Overloaded(
                f"the server does not read: {self.link.queued} bytes are waiting for it. Try again later.",
                bound="bytes that wait for the server",
            )
        uid = self._peer.requests.open(exchange)
        if self._own_meta or call.meta or call.wants_progress or len(call.params[-1]) > JOINED_BYTES:
            self._peer.send_request(uid, call.method, _params(call, self._own_meta, uid))
        else:
            self.link.send((_PLAIN_CALL % (uid, call.method.encode(), b"".join(call.params)),))
        return uid

    def cancel(self, key: int, reason: str) -> None:
        """Cancel a call."""
        self._peer.cancel(key, reason)

    def expire(self, *, idle: float, total: float, alive: Iterable[int] = ()) -> Iterator[tuple[int, Exchange]]:
        """Cancel and yield calls that took too long (`ports.UpstreamConnection.expire`)."""
        for uid in self._peer.requests.overdue(idle=idle, total=total, alive=alive):
            exchange = self._peer.cancel(uid, "timed out")
            if exchange is not None:
                yield uid, exchange

    async def run(self) -> None:
        """Receive until the link ends."""
        await self._peer.run()

    def on_request(self, request_id: bytes, method: str, params: Raw | None) -> None:
        """Pass on requests for clients; refuse those that came in the answer to mcpd's own request."""
        request = self._asked.take(request_id, method, params)
        if request is None:
            return
        cause = self._peer.requests.exchange_of(self.carrying)
        if cause is None and self.carrying is not None:
            request.refuse(INVALID_REQUEST, NO_CLIENT)
        else:
            self._events.on_server_request(request, cause)

    def on_notification(self, method: str, params: Raw | None) -> None:
        """Pass on notifications about a request, the catalog or the log."""
        if method == protocol.PROGRESS and params is not None:
            self._peer.requests.progress(params)
        elif method in CHANGED:
            self._events.on_list_changed(CHANGED[method])
        elif method == protocol.CANCEL and params is not None:
            self._asked.withdraw(params)
        else:
            said = Raw(b"{}") if params is None else params
            self._events.on_message(method, said, self._peer.requests.exchange_of(self.carrying))

    def on_lost(self, reason: str) -> None:
        """Report the loss at once: the exit status may arrive a moment later."""
        self._events.on_lost(reason)
        self._asked.lose_all(reason)

    def on_bad_message(self, fault: BadMessage, line: bytes) -> None:
        """Count a line on stdout that is not MCP; this alone never ends a connection."""
        self._events.on_noise(line, fault.message)


def _params(call: CallToSend, own_meta: Mapping[str, bytes], uid: int) -> tuple[Buffer, ...]:
    meta = {**call.meta, **own_meta, **(call.envelope if own_meta else {})}
    members = [_encode(key) + b":" + bytes(value) for key, value in meta.items()]
    if call.wants_progress:
        members.append(b'"progressToken":%d' % uid)
    comma = b"," if call.params[-1] else b""
    added = b'%b"_meta":{%b}' % (comma, b",".join(members)) if members else b""
    return (b"{", *call.params, added, b"}")
