"""From a client's `tools/call` to a server and back: the path that all sessions and surfaces share.

A call to a server that is up goes out in the caller's own turn of the loop, without a task of its own, and its
answer comes back as the bytes that the server wrote. Only a call that must wait for a server gets a task, in
the nursery of its session, so that it ends with it. A call ends exactly once: answered, refused or lost.

What a surface decides about a call whose arguments it does not open holds until something changes that it has
looked at (`Guest.moment`): the next call of that name goes the same way without being judged again.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import attrs
import msgspec
import trio
from loguru import logger
from msgspec import Struct

from daemon import protocol
from daemon.awaiting import wait_indexed, wait_listed, wait_up
from daemon.catalog.loaded import Source
from daemon.clientcall import ClientCall
from daemon.errors import (
    CallError,
    InvalidArguments,
    Overloaded,
    ToolChanged,
    ToolNotLoaded,
    UpstreamUnavailable,
)
from daemon.surfaces.base import AwaitListing, Forward, Reply
from daemon.wire import envelope

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from msgspec import Raw

    from daemon.clients.announcements import Announcement, Announcements
    from daemon.clients.fastpath import PlainCall
    from daemon.clients.savings import Savings
    from daemon.context import Guest, SessionContext
    from daemon.ports import Upstream
    from daemon.wire.envelope import Buffer
    from daemon.wire.peer import Peer

MAX_CALLS = 256
"""Calls that one client may have in flight: eight times what the busiest real agent was seen to do."""

IS_ERROR = "isError"
"""In the log, how a call ended that its tool answered with an error: for the protocol it is a result."""

MAX_RETURNS = 3
"""How often a call in line goes back to wait for a new list: a server may change faster than its line moves."""

MAX_WAYS = 1024
"""Names whose way is remembered: more tools than one client calls between two changes."""


class _Way(Struct, frozen=True):
    """Where calls of a name go."""

    forward: Forward
    source: str | None
    """Who loaded the tool, if it is loaded."""
    surface: str
    """The surface that it was decided on."""


class Calls:
    """The calls of one client."""

    def __init__(
        self,
        peer: Peer,
        number: int,
        context: SessionContext,
        announcements: Announcements,
        savings: Savings,
    ) -> None:
        """Attach to a client's peer; `run` hosts what has to wait."""
        self.total = 0
        self.repaired = 0
        self._peer = peer
        self._number = number
        self._context = context
        self._announcements = announcements
        self._savings = savings
        self._open: dict[bytes, ClientCall] = {}
        self._ways: dict[str, _Way] = {}
        self._moment: object = None
        self._clock = trio.lowlevel.current_clock().current_time
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

    def begin(self, asked: PlainCall, guest: Guest, meta: dict[str, Raw] | None, *, modern: bool) -> None:
        """Take a call in, whose id is not in flight; it is answered through the peer, now or later."""
        call = self._open_call(asked, guest, guest.surface.name)
        if meta is not None:
            call.read_meta(meta, modern=modern)
        try:
            if len(self._open) > MAX_CALLS:
                raise Overloaded(f"{MAX_CALLS} calls of this client are in flight. Wait for some to end.")
            if not call.given.startswith(b"{"):
                raise InvalidArguments(f'"arguments" of {call.name} must be an object')
            self._act(call)
        except Exception as error:  # noqa: BLE001 - the boundary of a call
            self._fail(call, error)

    def repeat(self, asked: PlainCall, guest: Guest) -> bool:
        """Send a call the way that the last one of its name went; False if it has to be judged anew."""
        way = self._ways.get(asked.name)
        if way is None or guest.moment(self._peer.link.turns) is not self._moment:
            return False
        if asked.request_id in self._open or len(self._open) >= MAX_CALLS:
            return False
        call = self._open_call(asked, guest, way.surface)
        try:
            self._go(call, way)
        except Exception as error:  # noqa: BLE001 - the boundary of a call
            self._fail(call, error)
        return True

    def cancel(self, request_id: bytes, reason: str) -> None:
        """Give a call up at the client's wish; it is not answered (MCP, cancellation)."""
        call = self._open.get(request_id)
        if call is not None:
            call.abandon(reason)

    def lose_all(self, error: CallError) -> None:
        """Answer every call, if need be with an error: the daemon goes down and nobody will answer later."""
        for call in self._newest_first():
            call.conclude(error)
        self._context.outbox.flush()

    def abandon_all(self, reason: str) -> None:
        """Give every call up: the client is gone."""
        for call in self._newest_first():
            call.abandon(reason)
        self._context.outbox.flush()

    def _newest_first(self) -> list[ClientCall]:
        """What was begun last may still be in line; given up first, it does not move up and get sent."""
        return list(reversed(self._open.values()))

    # --- clientcall.Owner ----------------------------------------------------------------------------------

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
        seconds = self._clock() - call.started
        surface = call.surface
        label = call.label if call.upstream is not None else call.told()
        failed = outcome == "ok" and protocol.is_error(result)
        self._context.log.note(self._number, label, seconds, IS_ERROR if failed else outcome)
        if call.upstream is not None:
            call.upstream.record(seconds, ok=outcome == "ok")
            self._context.tally.call(call.upstream.name, surface, outcome, seconds, call.tool)
        else:
            self._context.tally.meta_call(surface, call.label, outcome)
            if outcome != "ok":
                self._context.tally.refused(outcome)

    def forget(self, call: ClientCall) -> None:
        """Drop a call without an answer."""
        self._open.pop(call.request_id, None)

    def redactor_of(self, server: str) -> Callable[[str], str]:
        """What takes secrets out of what a server says."""
        return self._context.redact.of(server)

    def recheck(self, call: ClientCall) -> bool:
        """Judge a call again that has waited in line: the tool may be another by now.

        Raises:
            CallError: it must not be sent as it is.
        """
        upstream = call.upstream
        assert upstream is not None
        if upstream.is_stale and call.guest.compares and call.returns < MAX_RETURNS:
            call.returns += 1
            self._wait_current(call, upstream)
            return False
        try:
            action = call.guest.surface.call(call.guest.view(call.turn), call.name, call.given, patient=False)
        except ToolChanged as error:
            call.guest.was_told(error.key)
            raise
        if isinstance(action, Forward) and action.server == upstream.name:
            # Its server may have renamed it meanwhile.
            call.label = action.label
            call.tool, call.params = action.tool, protocol.tool_params(action.tool, call.params[-1])
        return True

    def _open_call(self, asked: PlainCall, guest: Guest, surface: str) -> ClientCall:
        """Nothing of it is looked at yet."""
        peer, name, given = self._peer, asked.name, asked.arguments
        call = ClientCall(
            self, guest, surface, asked.request_id, name, given, peer.link.turns, peer.last_heard, name
        )
        self._open[asked.request_id] = call
        self.total += 1
        return call

    # --- one call's way ------------------------------------------------------------------------------------

    def _act(self, call: ClientCall) -> None:
        guest = call.guest
        moment = guest.moment(call.turn)
        if moment is not self._moment:
            self._ways.clear()
            self._moment = moment
        elif (way := self._ways.get(call.name)) is not None:
            self._go(call, way)
            return
        view = guest.view(call.turn)
        action = guest.surface.call(view, call.name, call.given, patient=call.patient)
        if view.catalog.names.provisional and not isinstance(action, AwaitListing):
            self._context.settle_names()
        match action:
            case Reply():
                self._reply(call, action)
            case Forward():
                if self._forward(call, action, action.arguments):
                    self._note_forward(call, action)
            case AwaitListing():
                call.patient = False
                self.later(self._act_after, call, partial(self._known, action, self._reporting(call)))

    def _go(self, call: ClientCall, way: _Way) -> None:
        if self._forward(call, way.forward, call.given) and way.source is not None:
            self._context.tally.load(True, way.source)

    def _reply(self, call: ClientCall, reply: Reply) -> None:
        guest = call.guest
        guest.was_shown(reply.shown)
        self._savings.answered(call.surface, len(reply.result))
        if reply.loading is None:
            call.answered(reply.result)
            return
        # The client is told before it is answered: its model may call the tool as soon as it reads the answer.
        guest.load(reply.loading)
        told = self._announcements.expect(guest.key) if reply.loading.tools else None
        if guest.key is None and told is None:
            call.answered(reply.result)
        else:
            call.finished = bytes(reply.result)
            self.later(self._answer_when_loaded, call, call.finished, told)

    async def _answer_when_loaded(self, call: ClientCall, result: bytes, told: Announcement | None) -> None:
        with self._contained(call), call.wait_scope():
            # What was acknowledged as loaded must be found again, whatever happens to us next.
            await call.guest.kept()
            if told is not None:
                await self._announcements.wait_listed(told)
            call.answered(result)
        self._context.outbox.flush()

    def _forward(self, call: ClientCall, forward: Forward, arguments: Buffer) -> bool:
        """Send a call. Returns whether it is on its way, or has to wait first."""
        call.label = forward.label
        upstream = self._context.upstreams.get(forward.server)
        if upstream is None:
            text = f"server {forward.server} is disabled in mcpd's configuration. Use another tool."
            raise UpstreamUnavailable(text, server=forward.server, state="disabled")
        call.upstream = upstream
        if upstream.is_stale and call.guest.compares and not call.current:
            self._wait_current(call, upstream)
            return False
        call.tool, call.params = forward.tool, protocol.tool_params(forward.tool, arguments)
        try:
            call.key = upstream.send(call, call, self._number)
        except UpstreamUnavailable:
            if not (call.patient and upstream.can_wake):
                raise
            call.patient, call.current = False, True
            self.later(self._act_after, call, partial(self._awake, upstream, self._reporting(call)))
            return False
        return True

    def _note_forward(self, call: ClientCall, forward: Forward) -> None:
        """What is to be counted, loaded and remembered, now that a call is on its way."""
        tally, guest = self._context.tally, call.guest
        if forward.repair is not None:
            self.repaired += 1
            self._context.mended.note(guest.client, str(forward.repair))
            tally.repaired(str(forward.repair))
        if forward.loading is not None:
            tally.load(False, str(forward.loading.source))
            guest.load(forward.loading)
            return
        source = guest.source_of((forward.server, forward.tool))
        if source is not None:
            tally.load(True, source)
        if forward.verbatim and self._moment is not None and guest.moment(call.turn) is self._moment:
            if len(self._ways) >= MAX_WAYS:
                self._ways.clear()
            # Without the arguments of the call that showed the way: they may be megabytes, and a secret.
            self._ways[call.name] = _Way(attrs.evolve(forward, arguments=b"{}"), source, call.surface)

    def _wait_current(self, call: ClientCall, upstream: Upstream) -> None:
        """The server has said that its tools changed: a call is judged by the new list, not by the old one."""
        call.patient, call.current = False, True
        self.later(self._act_after, call, upstream.wait_current)

    def _reporting(self, call: ClientCall) -> Callable[[str], None] | None:
        """What tells the client how the server is that its call waits for; None: it has not asked for it."""

        def report(text: str) -> None:
            call.still_waits(text)
            self._context.outbox.flush()

        return report if call.wants_progress else None

    async def _known(self, awaited: AwaitListing, report: Callable[[str], None] | None) -> None:
        await self.wait_known(awaited, report)
        await self._context.settled()

    async def _awake(self, upstream: Upstream, report: Callable[[str], None] | None) -> None:
        woken = await wait_up(upstream, report)
        await self._context.settled()
        if woken:
            await upstream.wait_current()

    async def _act_after(self, call: ClientCall, wait: Callable[[], Awaitable[None]]) -> None:
        """Judge a call anew after a wait, by what is known then."""
        with self._contained(call), call.wait_scope():
            await wait()
            # Nothing may be awaited from here on: what is current now may not be so in a moment.
            # One that was given up, or answered, meanwhile must not run.
            if self._open.get(call.request_id) is call:
                self._act(call)
        self._context.outbox.flush()

    async def wait_known(self, awaited: AwaitListing, report: Callable[[str], None] | None = None) -> None:
        """Wait, within bounds, for what an answer depends on."""
        context = self._context
        await wait_listed(awaited, context.upstreams, context.catalog, report)
        if awaited.indexed:
            await wait_indexed(context.index, context.catalog)

    @contextmanager
    def _contained(self, call: ClientCall) -> Iterator[None]:
        """The boundary of a call that has waited."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - the boundary of a call
            self._fail(call, error)

    def _fail(self, call: ClientCall, error: Exception) -> None:
        """What goes wrong with a call is its answer; a fault of ours costs this call and nothing else."""
        if isinstance(error, CallError):
            if isinstance(error, ToolChanged):
                call.guest.was_told(error.key)
            elif isinstance(error, ToolNotLoaded):
                self._context.tally.load(False, str(Source.MANUAL))
            call.lost(error)
            return
        told = logger.bind(session=self._number).opt(exception=error)
        told.error("a fault of mcpd's own while serving {}", call.label)
        self.forget(call)
        text = f"Internal error: {type(error).__name__}"
        self._peer.refuse(call.request_id, envelope.INTERNAL_ERROR, text)

    def later(self, wait: Callable[..., Awaitable[None]], *args: object) -> None:
        """Do something that waits, while the session lasts: a line may give a call back that outlived it."""
        if self._spawn is not None:
            self._spawn(wait, *args)
