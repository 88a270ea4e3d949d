"""Takes a client's `tools/call` to its server, for all sessions and surfaces.

A call to a running server is sent in the client's own turn of the loop; a call that must wait gets a task.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial

import attrs
import msgspec
import trio
from loguru import logger
from msgspec import Raw, Struct

from daemon import errors, protocol
from daemon.catalog.loaded import Source
from daemon.catalog.naming import mcpd_uri
from daemon.clients.approvals import ask_about_held, may_send
from daemon.clients.asking import park, resume
from daemon.clients.attachment import Attachment, Request, note_links
from daemon.clients.call_records import record_of
from daemon.clients.calls import NOTHING, CallsInFlight, ClientCall
from daemon.clients.client import Client
from daemon.clients.context import SessionContext
from daemon.clients.login_links import hand_link
from daemon.clients.notifications import Announcement, ListChanges, Savings
from daemon.clients.sessions import SessionState
from daemon.clients.task_results import goes_on
from daemon.clients.waits import reporting, wait_awake, wait_known
from daemon.ports import CallRoute, Upstream
from daemon.protocol import CALL_TOOL
from daemon.surfaces.surface import AwaitListing, Forward, ReadResult, Reply, RunScript, View
from daemon.tracing.call_trace import begun, with_trace
from daemon.wire import envelope
from daemon.wire.envelope import MAX_DEPTH, Buffer, Line, opens_many
from daemon.wire.requests import Peer

MAX_PLAIN = 64 * 1024
"""Bytes of the longest call that `plain_call` reads: for longer ones the saving is negligible."""

SHALLOW_BYTES = 2 * (MAX_DEPTH - 2)
"""Bytes of the longest arguments that cannot exceed the nesting limit."""


class PlainCall(Struct, frozen=True, gc=False):
    """A `tools/call` without `_meta`."""

    request_id: bytes
    """Raw JSON."""
    name: str
    arguments: bytes

    def __repr__(self) -> str:
        """Leaves the arguments out: they may hold a secret."""
        return f"<PlainCall {self.name}>"


class _PlainParams(Struct, gc=False):
    name: str
    arguments: Raw


class _PlainRequest(Struct, gc=False):
    jsonrpc: str
    id: int
    method: str
    params: _PlainParams


_decode_call = msgspec.json.Decoder(_PlainRequest).decode
_BRACE = ord("{")
_PLAIN_BYTES = len(b'{"jsonrpc":"2.0","id":,"method":"tools/call","params":{"name":"","arguments":}}')


def plain_call(line: Line) -> PlainCall | None:
    """Read a `tools/call` in its usual form; None for any other message, which needs a full parse.

    A line as long as its known members has no room for a second `id`, an escaped key or a `_meta`.
    """
    if len(line) > MAX_PLAIN or not line.isascii():
        return None
    try:
        asked = _decode_call(line)
    except (msgspec.MsgspecError, RecursionError):
        return None
    params = asked.params
    name = params.name
    request_id, arguments = b"%d" % asked.id, bytes(params.arguments)
    if (
        len(line) != _PLAIN_BYTES + len(request_id) + len(name) + len(arguments)
        or asked.method != CALL_TOOL
        or asked.jsonrpc != "2.0"
        or arguments[0] != _BRACE
        or (len(arguments) > SHALLOW_BYTES and opens_many(line))
    ):
        return None
    return PlainCall(request_id, name, arguments)


def _noted(error: Exception, label: str, session: int) -> str:
    """Log an internal error of mcpd, and return its text for the client."""
    logger.bind(session=session).opt(exception=error).error("internal error in mcpd while serving {}", label)
    return f"Internal error: {type(error).__name__}"


def _known_id(call: ClientCall) -> bytes:
    """The id of the client's request behind a call; for a script's call, the request that runs the script."""
    return call.request.id if call.made_by is None else _known_id(call.made_by)


MAX_CALLS = 256
"""Calls that one client may have in flight: eight times as many as the busiest agent observed."""

MAX_RETURNS = 3
"""Times that a queued call may go back to wait for a new list: servers may change faster than queues move."""

MAX_MOVES = 3
"""Times that one call may wait for another instance after its own has ended."""


@attrs.define(eq=False)
class Dispatch:
    """Judges the calls of one client, and sends, answers or delays them."""

    _peer: Peer
    _context: SessionContext
    _client: Client
    _lists: ListChanges
    _savings: Savings
    _later: Callable[..., None]
    repaired: int = attrs.field(default=0, init=False)
    calls: CallsInFlight = attrs.field(init=False)
    direct: Attachment | None = attrs.field(default=None, init=False)
    """The session of plain calls; None before a first request, or if calls must name or await their session."""
    _open: dict[bytes, ClientCall] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.calls = CallsInFlight(
            peer=self._peer,
            context=self._context,
            client=self._client,
            recheck=self._recheck,
            act_after=partial(self._later, self._act_after),
            park=park,
            make_record=record_of,
            goes_on=goes_on,
        )
        self._open = self.calls.open

    def take_plain(self, line: Line) -> bool:
        """Begin a plain call of the connection's own session; False for any other message."""
        if self.direct is None or (call := plain_call(line)) is None:
            return False
        try:
            request = self.direct.request(call.request_id, self._peer.link.turns)
            if denied := self._client.selection.denied:
                self._peer.refuse(call.request_id, envelope.INVALID_REQUEST, denied)
            else:
                self.begin(request, call.name, call.arguments)
        except Exception as error:  # noqa: BLE001 - the boundary of a request
            self._peer.refuse(
                call.request_id, envelope.INTERNAL_ERROR, _noted(error, call.name, self._client.number)
            )
        return True

    def begin(
        self,
        request: Request,
        name: str,
        arguments: bytes,
        meta: dict[str, Raw] | None = None,
        others: Mapping[str, Raw] = NOTHING,
        make: Callable[..., ClientCall] = ClientCall,
    ) -> None:
        """Accept a call, and answer it through the peer, now or later."""
        call = make(
            calls=self.calls,
            request=request,
            name=name,
            given=arguments,
            started=self._peer.last_heard,
            label=name,
            others=others,
        )
        self.accept(call, meta)

    def accept(self, call: ClientCall, meta: dict[str, Raw] | None) -> None:
        """Accept a call; `meta` is its request's `_meta`."""
        request, name = call.request, call.name
        if request.id in self._open or request.id in self._lists.open:
            self._peer.refuse(request.id, envelope.INVALID_REQUEST, protocol.already_in_flight(request.id))
            return
        self._open[request.id] = call
        self.calls.total += 1
        try:
            if meta:
                _read_meta(call, meta)
            if self._context.tracer is not None:
                call.trace = begun(call.meta, call.started, *self._context.tracer.sampling)
                call.meta = with_trace(call.meta, call.trace)
            if len(self._open) > MAX_CALLS:
                text = f"{MAX_CALLS} calls of this client are in flight. Wait for some to end."
                raise errors.Overloaded(text, bound="calls in flight of one client")
            if refuses := self._context.audit.refuses:
                raise errors.AuditUnavailable(refuses)
            if not call.given.startswith(b"{"):
                raise errors.InvalidArguments(f'"arguments" of {name} must be an object')
            if meta and call.others and resume(call):
                return
            self._act(call)
        except Exception as error:  # noqa: BLE001 - the boundary of a call
            self.fail(call, error)

    def answering(self, peer: Peer, later: Callable[..., None]) -> Dispatch:
        """Make a dispatch for the same client whose answers go to another peer."""
        return Dispatch(peer, self._context, self._client, self._lists, self._savings, later)

    def spared(self, call: ClientCall, size: int) -> None:
        """Record how many bytes of results a script has kept out of the model's context."""
        self._savings.answered(call.request.surface.name, -size)

    # --- the path of one call -------------------------------------------------------------------------------

    def _act(self, call: ClientCall) -> None:
        session = call.request.session
        view = session.view(call.request.turn)
        known: Forward | None = view.forwards.get(call.name)
        arguments: bytes | Raw = call.given
        if known is None and call.name in view.wrapped:
            known, arguments = view.wrapped[call.name].find(call.given)
        if known is not None:
            # Checked first to save a Python call: only the surface `load` has loaded tools.
            if self._send(call, known, arguments) and view.loaded.tools:
                self._count(view, known)
            return
        action = call.decide(view, patient=call.patient)
        if view.catalog.names.provisional and not isinstance(action, AwaitListing):
            self._context.settle_names()
        if isinstance(action, Forward):
            if self._send(call, action, action.arguments):
                self._note(call, view, action)
        elif isinstance(action, Reply):
            self._reply(call, action)
        elif isinstance(action, RunScript):
            self._context.run_script(self, call, action)
        elif isinstance(action, ReadResult):
            read = partial(self._context.results.read, call, action)
            self._later(self._act_after, call, read, lambda call: call.answered(call.finished))
        else:
            call.patient = False
            self._later(self._act_after, call, partial(self._known, call, action))

    def _send(self, call: ClientCall, forward: Forward, arguments: Buffer) -> bool:
        """Send a call. Returns False if the call has to wait first."""
        call.label = forward.label
        upstream = self._context.upstreams.get(forward.server)
        if upstream is None:
            text = f"server {forward.server} is disabled in mcpd's configuration. Use another tool."
            raise errors.UpstreamUnavailable(text, server=forward.server, state="disabled")
        if upstream.instances is not None:
            own = call.request.session.instances
            instance = own.of(upstream)
            if instance is None:
                # The client's directory is found first, or the call is judged by the instance's lists.
                self._later(self._act_after, call, partial(self._client.workspace.find, _known_id(call)))
                return False
            upstream = instance
            forward = own.telling(forward) if own.losses else forward
        call.upstream = upstream
        if upstream.is_stale and not call.current and self._needs_list(call, upstream):
            self._wait_current(call, upstream)
            return False
        if (forward.ask is not None or self._client.selection.metered) and not self._may_go(
            call, forward, arguments
        ):
            return False
        if call.others or forward.convert is not None:
            call.refer(forward, arguments)
        else:
            # As `refer` for a plain call, without another Python call.
            call.forward = forward
            call.method, call.tool, call.params = forward.method, forward.name, (forward.head, arguments)
        route = upstream if upstream.second is None or call.request.modern else upstream.second
        try:
            call.key = route.send(call, call, self._client.number)
        except (errors.UpstreamUnavailable, errors.ScriptToRun) as error:
            return self._unsent(call, upstream, route, forward, error)
        if call.trace is not None:
            call.trace.was_sent(trio.current_time(), in_line=call.in_line)
        return True

    def _unsent(
        self, call: ClientCall, upstream: Upstream, route: CallRoute, forward: Forward, error: errors.CallError
    ) -> bool:
        """Wake the call's server, or run the script behind the tool. Returns False if the call waits."""
        maker = call.made_by
        # A script that is a tool calls no other one.
        if isinstance(error, errors.ScriptToRun) and (maker is None or maker.upstream is None):
            # An upstream that takes calls was made with the configuration in force.
            code, _ = self._context.catalog.value.config.mcp_servers[forward.server].scripts[forward.name]
            inputs = b'{"_mcpd_arguments":%b}' % bytes(call.params[-1])
            self._context.run_script(self, call, RunScript(code=code, inputs=inputs))
            return True
        if call.woken or not route.can_wake:
            raise error
        call.patient, call.woken, call.current = False, True, True
        report = reporting(call, self._context.outbox.flush)
        self._later(self._act_after, call, partial(wait_awake, self._context, upstream, route, report))
        return False

    def _may_go(self, call: ClientCall, forward: Forward, arguments: Buffer) -> bool:
        if forward.ask is not None and not may_send(call, forward.ask, arguments):
            return False
        selection = self._client.selection
        if not selection.metered or call.metered:
            return True
        call.metered = True
        config = self._context.catalog.value.config
        seconds = self._context.rates.take(config, selection.profile, forward.server)
        if seconds:
            self._later(self._act_after, call, partial(trio.sleep, seconds))
        return not seconds

    def _count(self, view: View, forward: Forward) -> bool:
        loaded = view.loaded.tools.get((forward.server, forward.name))
        if loaded is not None:
            self._context.tally.load(True, str(loaded.source))
        return loaded is not None

    def _note(self, call: ClientCall, view: View, forward: Forward) -> None:
        if forward.page:
            links = call.request.session.links
            note_links(links, forward.server, (mcpd_uri(forward.server, forward.page),))
        if forward.repair is not None:
            self.repaired += 1
            self._context.mended.note(call.request.client, str(forward.repair))
            self._context.tally.repaired(str(forward.repair))
        if forward.loading is not None:
            if not self._count(view, forward):
                self._context.tally.load(False, str(forward.loading.source))
            call.request.session.load(forward.loading)
            return
        self._count(view, forward)
        view.remember(call.name, call.given, forward)

    def _recheck(self, call: ClientCall) -> bool:
        """Judge a queued call again: its tool may have changed. Returns False if the call waits again."""
        request, upstream = call.request, call.upstream
        session = request.session
        assert upstream is not None
        if call.trace is not None:
            call.trace.was_sent(trio.current_time(), in_line=False)
        if upstream.is_stale and call.returns < MAX_RETURNS and self._needs_list(call, upstream):
            call.returns += 1
            self._wait_current(call, upstream)
            return False
        try:
            action = call.decide(session.view(request.turn), patient=False)
        except errors.ToolChanged as error:
            session.was_told(error.key, unloads=error.unloads)
            raise
        except errors.ToolHeld as error:
            if ask_about_held(call, error):
                return False
            raise
        if isinstance(action, Forward) and action.server == upstream.of:
            if action.ask is not None and not may_send(call, action.ask, action.arguments):
                return False
            # The server may have renamed it in the meantime.
            call.refer(session.instances.telling(action), call.params[-1])
        elif self._context.catalog.value.held((upstream.of, call.tool)) or (
            call.method == protocol.CALL_TOOL and session.selection.profile.permissions
        ):
            # The name means something else now, so permissions and trust cannot judge the call as before.
            text = f"{call.label} no longer has this name. Nothing was sent: call it again."
            raise errors.UpstreamUnavailable(text, server=upstream.of)
        return True

    def _reply(self, call: ClientCall, reply: Reply) -> None:
        session = call.request.session
        session.was_shown(reply.shown)
        self._savings.answered(call.request.surface.name, len(reply.result))
        if reply.loading is None:
            call.answered(reply.result)
            return
        # The client is notified first: its model may call the tool as soon as it reads the answer.
        session.load(reply.loading)
        key = session.state.key
        announced = self._lists.expect(key) if reply.loading.tools else None
        if key is None and announced is None:
            call.answered(reply.result)
            return
        result = call.finished = bytes(reply.result)
        wait = partial(self._loaded, session.state, announced)
        self._later(self._act_after, call, wait, lambda _call: call.answered(result))

    async def _loaded(self, state: SessionState, announced: Announcement | None) -> None:
        # Tools acknowledged as loaded must survive a crash.
        await self._context.sessions.kept(state)
        if announced is not None:
            await self._lists.wait_listed(announced)

    def _needs_list(self, call: ClientCall, upstream: Upstream) -> bool:
        """Whether a call needs the server's list: to know the tools that the client saw, or held ones."""
        entry = self._context.catalog.value.servers.get(upstream.of)
        return call.request.session.selection.on_demand or (entry is not None and not entry.gate.is_open)

    def _wait_current(self, call: ClientCall, upstream: Upstream) -> None:
        call.patient, call.current = False, True
        self._later(self._act_after, call, upstream.wait_current)

    async def _known(self, call: ClientCall, awaited: AwaitListing) -> None:
        request, report = call.request, reporting(call, self._context.outbox.flush)
        await wait_known(self._context, awaited, request.session, _known_id(call), report)
        await self._context.settled()

    async def _act_after(
        self,
        call: ClientCall,
        wait: Callable[[], Awaitable[None]],
        act: Callable[[ClientCall], None] | None = None,
    ) -> None:
        """Continue a call after a wait, unless the call ended meanwhile; without `act` it is judged again."""
        scope = call.waiting = trio.CancelScope()
        began = trio.current_time()
        try:
            with scope:
                await wait()
                call.waiting = None
                if call.upstream is not None and call.upstream.is_gone and call.moves < MAX_MOVES:
                    # The awaited instance has ended or was replaced: wait for the next one.
                    call.moves += 1
                    call.patient, call.woken = True, False
                # No await from here on: current facts may be outdated in a moment. A call abandoned or answered
                # meanwhile must not run.
                if self._open.get(call.request.id) is call:
                    (act or self._act)(call)
        except Exception as error:  # noqa: BLE001 - the boundary of a call
            self.fail(call, error)
        finally:
            if call.trace is not None:
                call.trace.waited(wait, began, trio.current_time())
        self._context.outbox.flush()

    def fail(self, call: ClientCall, error: Exception) -> None:
        """Answer a call with its error; an internal error of mcpd ends only this call."""
        if isinstance(error, errors.CallError):
            if isinstance(error, errors.ToolChanged):
                call.request.session.was_told(error.key, unloads=error.unloads)
            elif ask_about_held(call, error) or (
                isinstance(error, errors.UpstreamUnavailable) and hand_link(call, error)
            ):
                return
            elif isinstance(error, errors.ToolNotLoaded):
                if self._context.look is not None and call.request.key is not None and not call.synced:
                    # It may have been loaded at another daemon a moment ago.
                    call.synced = True
                    self._later(self._act_after, call, self._context.look)
                    return
                self._context.tally.load(False, str(Source.MANUAL))
            call.lost(error)
            return
        text = _noted(error, call.label, self._client.number)
        call.calls.refuse(call, envelope.INTERNAL_ERROR, text, None, errors.InternalError.code)


def _read_meta(call: ClientCall, meta: dict[str, Raw]) -> None:
    # The progress token, and the members to pass on.
    call.meta = protocol.foreign_meta(meta)
    call.declared = meta.get(protocol.CAPABILITIES_KEY)
    call.level = meta.get(protocol.LOG_LEVEL_KEY)
    token = meta.get("progressToken")
    if token is not None and bytes(token) != b"null":
        call.token, call.wants_progress = token, True
