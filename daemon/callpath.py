"""From a client's `tools/call` to a server and back: the path that all sessions and surfaces share.

A call to a server that is up goes out in the caller's own turn of the loop, without a task of its own, and its
answer comes back as the bytes that the server wrote. Only a call that must wait for a server gets a task, in
the nursery of its session, so that it ends with it. A call ends exactly once: answered, refused or lost.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import attrs
import msgspec
import trio
from loguru import logger
from msgspec import UNSET

from daemon import protocol
from daemon.awaiting import wait_indexed, wait_listed
from daemon.catalog.loaded import Source
from daemon.errors import (
    CallError,
    InternalError,
    InvalidArguments,
    Overloaded,
    ToolChanged,
    ToolNotLoaded,
    UpstreamCallError,
    UpstreamUnavailable,
)
from daemon.ports import ToolCall
from daemon.surfaces.answers import error_result
from daemon.surfaces.base import AwaitListing, Forward, Reply
from daemon.wire import envelope
from daemon.wire.peer import RemoteError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from msgspec import Raw

    from daemon.context import Guest, SessionContext
    from daemon.ports import Upstream
    from daemon.wire.envelope import Buffer
    from daemon.wire.peer import Peer

MAX_CALLS = 256
"""Calls that one client may have in flight: eight times what the busiest real agent was seen to do."""

MAX_RETURNS = 3
"""How often a call in line goes back to wait for a new list: a server may change faster than its line moves."""


@attrs.frozen
class _Intent:
    """What a client asked for, to be judged again after a wait."""

    name: str
    arguments: bytes = attrs.field(repr=False)
    meta: dict[str, Raw] = attrs.field(repr=False)
    patient: bool = attrs.field(default=True, kw_only=True)
    """Whether there is time to wait for a server; a second wait there is not."""
    current: bool = attrs.field(default=False, kw_only=True)
    """Whether it has waited for the server's new list."""
    returns: int = attrs.field(default=0, kw_only=True)
    """How often it was taken back from a line."""


class Calls:
    """The calls of one client."""

    def __init__(self, peer: Peer, number: int, context: SessionContext) -> None:
        """Attach to a client's peer; `run` hosts what has to wait."""
        self.total = 0
        self.repaired = 0
        self._peer = peer
        self._number = number
        self._context = context
        self._open: dict[bytes, ClientCall] = {}
        self._spawn: Callable[..., None] | None = None

    @property
    def guests(self) -> list[Guest]:
        """Whose calls have no answer yet: one for each call."""
        return [call.guest for call in self._open.values()]

    def holds(self, request_id: bytes) -> bool:
        """Whether a call with this id is in flight."""
        return request_id in self._open

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Host waiting calls until cancelled; started once calls may begin."""
        async with trio.open_nursery() as nursery:
            self._spawn = nursery.start_soon
            task_status.started()
            try:
                await trio.sleep_forever()
            finally:
                self._spawn = None

    def begin(self, request_id: bytes, asked: protocol.CallParams, guest: Guest, *, modern: bool) -> None:
        """Take a `tools/call` in, whose id is not in flight; it is answered through the peer, now or later."""
        meta = asked.meta or {}
        token = meta.get("progressToken")
        if token is not None and bytes(token) == b"null":
            token = None
        call = ClientCall(self, guest, request_id, asked.name, token=token, modern=modern, turn=self._peer.turn)
        self._open[request_id] = call
        self.total += 1
        arguments = b"{}" if asked.arguments is UNSET else bytes(asked.arguments)
        with self._contained(call):
            if len(self._open) > MAX_CALLS:
                raise Overloaded(f"{MAX_CALLS} calls of this client are in flight. Wait for some to end.")
            if not arguments.startswith(b"{"):
                raise InvalidArguments(f'"arguments" of {asked.name} must be an object')
            self._act(call, _Intent(asked.name, arguments, protocol.foreign_meta(meta)))

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
        surface = call.guest.surface.name
        if call.upstream is not None:
            call.upstream.record(seconds, ok=outcome == "ok")
            self._context.tally.call(call.upstream.name, surface, outcome, seconds)
        else:
            self._context.tally.meta_call(surface, call.label, outcome)
            if outcome != "ok":
                self._context.tally.refused(outcome)

    def forget(self, call: ClientCall) -> None:
        """Drop a call without an answer."""
        self._open.pop(call.request_id, None)

    def _act(self, call: ClientCall, intent: _Intent) -> None:
        view = call.guest.view(call.turn)
        surface = call.guest.surface
        action = surface.call(view, intent.name, intent.arguments, patient=intent.patient)
        if view.catalog.names.provisional and not isinstance(action, AwaitListing):
            self._context.settle_names()
        match action:
            case Reply():
                self._reply(call, action)
            case Forward() as action:
                self._forward(call, action, intent)
            case AwaitListing() as awaited:
                known = attrs.evolve(intent, patient=False)
                self.later(self._act_after, call, known, partial(self._known, awaited))

    def _reply(self, call: ClientCall, reply: Reply) -> None:
        guest = call.guest
        guest.was_shown(reply.shown)
        if reply.loading is None:
            call.answered(reply.result)
        elif not guest.loads:
            call.answered(reply.result)
            guest.load(reply.loading)
        else:
            # What was acknowledged as loaded must be found again, whatever happens to us next.
            guest.load(reply.loading)
            self.later(self._answer_when_kept, call, bytes(reply.result))

    async def _answer_when_kept(self, call: ClientCall, result: bytes) -> None:
        with self._contained(call), call.wait_scope():
            await call.guest.kept()
            call.answered(result)
        self._context.outbox.flush()

    def _forward(self, call: ClientCall, forward: Forward, intent: _Intent) -> None:
        call.label = forward.label
        upstream = self._context.upstreams.get(forward.server)
        if upstream is None:
            text = f"server {forward.server} is disabled in mcpd's configuration. Use another tool."
            raise UpstreamUnavailable(text, server=forward.server, state="disabled")
        call.upstream = upstream
        if upstream.is_stale and call.guest.compares and not intent.current:
            self._wait_current(call, upstream, intent)
            return
        request = ToolCall(
            tool=forward.tool,
            arguments=forward.arguments,
            meta=intent.meta,
            wants_progress=call.token is not None,
            check=partial(self._check, call, upstream, intent),
        )
        try:
            call.key = upstream.send(request, call)
        except UpstreamUnavailable:
            if not (intent.patient and upstream.can_wake):
                raise
            awake = attrs.evolve(intent, patient=False, current=True)
            self.later(self._act_after, call, awake, partial(self._awake, upstream))
            return
        self._note_forward(call, forward)

    def _note_forward(self, call: ClientCall, forward: Forward) -> None:
        """What is to be counted and loaded, now that the call is on its way."""
        if forward.repair is not None:
            self.repaired += 1
            self._context.mended.note(call.guest.client, str(forward.repair))
            self._context.tally.repaired(str(forward.repair))
        tally = self._context.tally
        if forward.loading is not None:
            tally.load(False, str(forward.loading.source))
            call.guest.load(forward.loading)
        elif (source := call.guest.source_of((forward.server, forward.tool))) is not None:
            tally.load(True, source)

    def _wait_current(self, call: ClientCall, upstream: Upstream, intent: _Intent) -> None:
        """The server has said that its tools changed: a call is judged by the new list, not by the old one."""
        current = attrs.evolve(intent, patient=False, current=True)
        self.later(self._act_after, call, current, upstream.wait_current)

    def _check(self, call: ClientCall, upstream: Upstream, intent: _Intent) -> bool:
        """Judge a call again that has waited in line: the tool may be another by now.

        Raises:
            CallError: it must not be sent as it is.
        """
        if upstream.is_stale and call.guest.compares and intent.returns < MAX_RETURNS:
            self._wait_current(call, upstream, attrs.evolve(intent, returns=intent.returns + 1))
            return False
        try:
            call.guest.surface.call(call.guest.view(call.turn), intent.name, intent.arguments, patient=False)
        except ToolChanged as error:
            call.guest.was_told(error.key)
            raise
        return True

    async def _known(self, awaited: AwaitListing) -> None:
        await self.wait_known(awaited)
        await self._context.settled()

    async def _awake(self, upstream: Upstream) -> None:
        woken = await upstream.wake()
        await self._context.settled()
        if woken:
            await upstream.wait_current()

    async def _act_after(self, call: ClientCall, intent: _Intent, wait: Callable[[], Awaitable[None]]) -> None:
        """Judge a call anew after a wait, by what is known then."""
        with self._contained(call), call.wait_scope():
            await wait()
            # Nothing may be awaited from here on: what is current now may not be so in a moment.
            # One that was given up, or answered, meanwhile must not run.
            if self._open.get(call.request_id) is call:
                self._act(call, intent)
        self._context.outbox.flush()

    async def wait_known(self, awaited: AwaitListing) -> None:
        """Wait, within bounds, for what an answer depends on."""
        context = self._context
        await wait_listed(awaited.servers, context.upstreams, context.catalog)
        if awaited.indexed:
            await wait_indexed(context.index, context.catalog)

    @contextmanager
    def _contained(self, call: ClientCall) -> Iterator[None]:
        """What goes wrong with a call is its answer; a fault of ours costs this call and nothing else."""
        try:
            yield
        except ToolChanged as error:
            call.guest.was_told(error.key)
            call.lost(error)
        except CallError as error:
            if isinstance(error, ToolNotLoaded):
                self._context.tally.load(False, str(Source.MANUAL))
            call.lost(error)
        except Exception as error:  # noqa: BLE001 - the boundary of a call
            logger.bind(session=self._number).exception("a fault of mcpd's own while serving {}", call.label)
            self.forget(call)
            text = f"Internal error: {type(error).__name__}"
            self._peer.refuse(call.request_id, envelope.INTERNAL_ERROR, text)

    def later(self, wait: Callable[..., Awaitable[None]], *args: object) -> None:
        """Do something that waits, while the session lasts: a line may give a call back that outlived it."""
        if self._spawn is not None:
            self._spawn(wait, *args)


class ClientCall:
    """One `tools/call` of a client, in flight: the `Exchange` that its server's answer ends in."""

    __slots__ = (
        "_calls",
        "_waiting",
        "guest",
        "key",
        "label",
        "modern",
        "request_id",
        "started",
        "token",
        "turn",
        "upstream",
    )

    def __init__(
        self,
        calls: Calls,
        guest: Guest,
        request_id: bytes,
        label: str,
        *,
        token: Raw | None,
        modern: bool,
        turn: int,
    ) -> None:
        self._calls = calls
        self.guest = guest
        self._waiting: trio.CancelScope | None = None
        self.request_id = request_id
        self.label = label
        self.token = token
        self.modern = modern
        self.turn = turn
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
