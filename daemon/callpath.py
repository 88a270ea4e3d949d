"""From a client's `tools/call` to a server and back: the path that all sessions and surfaces share.

A call to a server that is up goes out in the caller's own turn of the loop, without a task of its own, and its
answer comes back as the bytes that the server wrote. Only a call that must wait for a server gets a task, in
the nursery of its session, so that it ends with it. A call ends exactly once: answered, refused or lost.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import attrs
import msgspec
import trio
from loguru import logger
from msgspec import UNSET

from daemon import protocol
from daemon.awaiting import wait_indexed, wait_listed
from daemon.errors import (
    CallError,
    InternalError,
    InvalidArguments,
    Overloaded,
    UpstreamCallError,
    UpstreamUnavailable,
)
from daemon.ports import ToolCall
from daemon.surfaces.answers import error_result
from daemon.surfaces.base import AwaitListing, Forward, Reply
from daemon.wire import envelope
from daemon.wire.peer import RemoteError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

    from msgspec import Raw

    from daemon.catalog.snapshot import Catalog
    from daemon.config.model import Config
    from daemon.measures import Mended
    from daemon.ports import Upstream
    from daemon.search.index import Index
    from daemon.surfaces.base import Loading, Means, Surface, View
    from daemon.watch import Watch
    from daemon.wire.envelope import Buffer
    from daemon.wire.link import Outbox
    from daemon.wire.peer import Peer

MAX_CALLS = 256
"""Calls that one client may have in flight: eight times what the busiest real agent was seen to do."""


class CallLog(Protocol):
    """Where ended calls are noted; must not block."""

    def note(self, session: int, label: str, seconds: float, outcome: str) -> None:
        """Note one call; `outcome` is `ok` or an error code of design.md §6."""


@attrs.frozen(kw_only=True)
class SessionContext:
    """What all sessions share."""

    config: Config
    """The configuration."""
    catalog: Watch[Catalog]
    """The newest catalog."""
    upstreams: Mapping[str, Upstream]
    """Running servers by name."""
    surfaces: Mapping[str, Surface]
    """Surfaces by name."""
    means: Means
    """What surfaces work with."""
    index: Watch[Index]
    """The newest search index."""
    mended: Mended
    """How often arguments had to be repaired, by client."""
    settle_names: Callable[[], None]
    """A client is shown, or uses, names of tools: from now on they mean what they mean."""
    outbox: Outbox
    """The daemon's outbox."""
    log: CallLog
    """Where calls are noted."""
    wall: Callable[[], float]
    """Seconds since the epoch."""


@attrs.frozen(kw_only=True)
class SessionStatistics:
    """How a session is, for `mcpd status`."""

    number: int
    """Counts connections since the daemon started."""
    client: str
    """What the client calls itself."""
    protocol: str
    """The revision it speaks, empty until known."""
    profile: str
    """Its profile."""
    surface: str
    """Its surface."""
    since: float
    """When it connected, in seconds since the epoch."""
    calls: int
    """Tool calls so far."""
    in_flight: int
    """Calls without an answer yet."""
    loaded: int
    """Tools that it has loaded."""
    repaired: int
    """Calls whose arguments had to be repaired."""


class Guest(Protocol):
    """Whose calls they are: what it is shown is decided anew for each."""

    @property
    def client(self) -> str:
        """What it calls itself."""

    @property
    def surface(self) -> Surface:
        """What its calls mean."""

    def view(self) -> View:
        """What it sees of the catalog now."""

    def load(self, loading: Loading) -> None:
        """Tools that a call of its has loaded."""


class Calls:
    """The calls of one client."""

    def __init__(self, guest: Guest, peer: Peer, number: int, context: SessionContext) -> None:
        """Attach to a client's peer; `run` hosts what has to wait."""
        self.total = 0
        self.repaired = 0
        self._guest = guest
        self._peer = peer
        self._number = number
        self._context = context
        self._open: dict[bytes, ClientCall] = {}
        self._spawn: Callable[..., None] | None = None

    @property
    def in_flight(self) -> int:
        """Calls without an answer yet."""
        return len(self._open)

    def holds(self, request_id: bytes) -> bool:
        """Whether a call with this id is in flight."""
        return request_id in self._open

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Host waiting calls until cancelled; started once calls may begin."""
        async with trio.open_nursery() as nursery:
            self._spawn = nursery.start_soon
            task_status.started()
            await trio.sleep_forever()

    def begin(self, request_id: bytes, asked: protocol.CallParams, *, modern: bool) -> None:
        """Take a `tools/call` in, whose id is not in flight; it is answered through the peer, now or later."""
        meta = asked.meta or {}
        token = meta.get("progressToken")
        if token is not None and bytes(token) == b"null":
            token = None
        call = ClientCall(self, request_id, asked.name, token=token, modern=modern)
        self._open[request_id] = call
        self.total += 1
        arguments = b"{}" if asked.arguments is UNSET else bytes(asked.arguments)
        with self._contained(call):
            if len(self._open) > MAX_CALLS:
                raise Overloaded(f"{MAX_CALLS} calls of this client are in flight. Wait for some to end.")
            if not arguments.startswith(b"{"):
                raise InvalidArguments(f'"arguments" of {asked.name} must be an object')
            self._act(call, asked.name, arguments, protocol.foreign_meta(meta), patient=True)

    def cancel(self, request_id: bytes, reason: str) -> None:
        """Give a call up at the client's wish; it is not answered (MCP, cancellation)."""
        call = self._open.get(request_id)
        if call is not None:
            call.abandon(reason)

    def lose_all(self, error: CallError) -> None:
        """Answer every call with an error: the daemon goes down and nobody will answer later."""
        for call in self._newest_first():
            call.withdraw(error.message)
            call.lost(error)
        self._context.outbox.flush()

    def abandon_all(self, reason: str) -> None:
        """Give every call up: the client is gone."""
        for call in self._newest_first():
            call.abandon(reason)
        self._context.outbox.flush()

    def _newest_first(self) -> list[ClientCall]:
        """What was begun last may still be in line; given up first, it does not move up and get sent."""
        return list(reversed(self._open.values()))

    def send_progress(self, params: dict[str, Raw]) -> None:
        """Pass a progress report on, its token already the client's."""
        self._peer.notify("notifications/progress", msgspec.json.encode(params))

    def finish(self, call: ClientCall, result: Buffer, outcome: str) -> None:
        """Answer a call and forget it. A call that was given up is not answered (MCP, cancellation)."""
        if self._open.get(call.request_id) is not call:
            return
        del self._open[call.request_id]
        if call.modern:
            result = protocol.completed(bytes(result))
        self._peer.answer(call.request_id, result)
        seconds = trio.current_time() - call.started
        self._context.log.note(self._number, call.label, seconds, outcome)
        if call.upstream is not None:
            call.upstream.record(seconds, ok=outcome == "ok")

    def forget(self, call: ClientCall) -> None:
        """Drop a call without an answer."""
        self._open.pop(call.request_id, None)

    def _act(
        self, call: ClientCall, name: str, arguments: bytes, meta: dict[str, Raw], *, patient: bool
    ) -> None:
        view = self._guest.view()
        action = self._guest.surface.call(view, name, arguments, patient=patient)
        if view.catalog.names.provisional and not isinstance(action, AwaitListing):
            self._context.settle_names()
        match action:
            case Reply(result=result, loading=loading):
                call.answered(result)
                self._load(loading)
            case Forward() as action:
                self._load(action.loading)
                self._forward(call, action, meta, may_wake=patient)
            case AwaitListing() as awaited:
                self.later(self._act_when_known, call, name, arguments, meta, awaited)

    def _load(self, loading: Loading | None) -> None:
        if loading is not None:
            self._guest.load(loading)

    def _forward(self, call: ClientCall, forward: Forward, meta: dict[str, Raw], *, may_wake: bool) -> None:
        call.label = forward.label
        if forward.repair is not None:
            self.repaired += 1
            self._context.mended.note(self._guest.client, str(forward.repair))
        upstream = self._context.upstreams.get(forward.server)
        if upstream is None:
            text = f"server {forward.server} is disabled in mcpd's configuration. Use another tool."
            raise UpstreamUnavailable(text, server=forward.server, state="disabled")
        request = ToolCall(
            tool=forward.tool, arguments=forward.arguments, meta=meta, wants_progress=call.token is not None
        )
        call.upstream = upstream
        try:
            call.key = upstream.send(request, call)
        except UpstreamUnavailable:
            if not (may_wake and upstream.can_wake):
                raise
            self.later(self._send_when_awake, call, upstream, request)

    async def _send_when_awake(self, call: ClientCall, upstream: Upstream, request: ToolCall) -> None:
        with self._contained(call), call.wait_scope():
            await upstream.wake()
            if self._is_wanted(call):
                call.key = upstream.send(request, call)
        self._context.outbox.flush()

    async def _act_when_known(
        self, call: ClientCall, name: str, arguments: bytes, meta: dict[str, Raw], awaited: AwaitListing
    ) -> None:
        with self._contained(call), call.wait_scope():
            await self.wait_known(awaited)
            if self._is_wanted(call):
                self._act(call, name, arguments, meta, patient=False)
        self._context.outbox.flush()

    async def wait_known(self, awaited: AwaitListing) -> None:
        """Wait, within bounds, for what an answer depends on."""
        context = self._context
        await wait_listed(awaited.servers, context.upstreams, context.catalog)
        if awaited.indexed:
            await wait_indexed(context.index, context.catalog)

    def _is_wanted(self, call: ClientCall) -> bool:
        """Whether nobody gave the call up, or answered it, while it waited: it must not run then."""
        return self._open.get(call.request_id) is call

    @contextmanager
    def _contained(self, call: ClientCall) -> Iterator[None]:
        """What goes wrong with a call is its answer; a fault of ours costs this call and nothing else."""
        try:
            yield
        except CallError as error:
            call.lost(error)
        except Exception as error:  # noqa: BLE001 - the boundary of a call
            logger.bind(session=self._number).exception("a fault of mcpd's own while serving {}", call.label)
            self.forget(call)
            text = f"Internal error: {type(error).__name__}"
            self._peer.refuse(call.request_id, envelope.INTERNAL_ERROR, text)

    def later(self, wait: Callable[..., Awaitable[None]], *args: object) -> None:
        """Do something that waits, while the session lasts."""
        assert self._spawn is not None, "calls begin while `run` hosts them"
        self._spawn(wait, *args)


class ClientCall:
    """One `tools/call` of a client, in flight: the `Exchange` that its server's answer ends in."""

    __slots__ = ("_calls", "_waiting", "key", "label", "modern", "request_id", "started", "token", "upstream")

    def __init__(self, calls: Calls, request_id: bytes, label: str, *, token: Raw | None, modern: bool) -> None:
        self._calls = calls
        self._waiting: trio.CancelScope | None = None
        self.request_id = request_id
        self.label = label
        self.token = token
        self.modern = modern
        self.started = trio.current_time()
        self.upstream: Upstream | None = None
        self.key: int | None = None

    def wait_scope(self) -> trio.CancelScope:
        """A scope for the task that waits on this call's behalf, so that giving up ends the wait."""
        self._waiting = trio.CancelScope()
        return self._waiting

    def answered(self, result: Buffer) -> None:
        """The result, as its author wrote it."""
        self._calls.finish(self, result, "ok")

    def refused(self, error: Buffer) -> None:
        """The server's JSON-RPC error becomes a result that a model can read."""
        remote = RemoteError.from_wire(error)
        self.lost(
            UpstreamCallError(
                f"the server refused the call: {remote.message} ({remote.code})",
                upstream={"code": remote.code, "message": remote.message, "data": remote.data},
            )
        )

    def lost(self, error: CallError) -> None:
        """There is no result; say why and what to do."""
        try:
            result = error_result(error)
        except (TypeError, ValueError, RecursionError) as fault:
            result = error_result(InternalError(f"{error.code}, and its details cannot be shown: {fault}"))
        self._calls.finish(self, result, error.code)

    def progressed(self, params: dict[str, Raw]) -> None:
        """A progress report, under the client's own token."""
        if self.token is not None:
            self._calls.send_progress({**params, "progressToken": self.token})

    def abandon(self, reason: str) -> None:
        """Give the call up wherever it is; it is not answered any more."""
        self._calls.forget(self)
        self.withdraw(reason)

    def withdraw(self, reason: str) -> None:
        """Stop waiting for a server, or tell it that its answer is not wanted."""
        if self._waiting is not None:
            self._waiting.cancel()
        if self.upstream is not None and self.key is not None:
            self.upstream.cancel(self.key, reason)
