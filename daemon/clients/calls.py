"""The calls of one client in flight, and the record of each in log and counters."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import ClassVar

import attrs
import msgspec
import trio
from msgspec import Raw, Struct

from daemon import protocol
from daemon.catalog.authorship import UnsafeQuestion
from daemon.catalog.extensions import carried, with_tasks
from daemon.catalog.tool_results import text_in
from daemon.clients.attachment import Request, linked_in, note_links
from daemon.clients.client import Client
from daemon.clients.connected_clients import LEVELS, rank_in, wished_rank
from daemon.clients.context import SessionContext
from daemon.clients.input_required import Parked, Round
from daemon.clients.server_requests import NOTHING as NO_CAPABILITIES
from daemon.clients.server_requests import (
    ServerRequests,
    answerable,
    concerns_client,
    needs_tasks,
    read_refusal,
    with_author,
)
from daemon.counting.recent_calls import TEXT, named_in
from daemon.counting.tally import CANCELLED, IS_ERROR, OK, Tally
from daemon.errors import CallError, InternalError, Overloaded, UpstreamCallError, UpstreamLost
from daemon.history.event import Event, EventKind
from daemon.ports import Upstream
from daemon.surfaces.answers import error_result
from daemon.surfaces.calling import call_by_app
from daemon.surfaces.surface import Action, Forward, View
from daemon.tracing.call_trace import CallTrace
from daemon.tracing.tracer import Tracer
from daemon.wire.envelope import Buffer, is_utf8
from daemon.wire.requests import Peer, PeerRequest

NOTHING: Mapping[str, Raw] = {}
"""The `_meta` of most calls: none."""

MAX_ARGUMENTS = 64 * 1024
"""Characters of a call's arguments in a record or a trace."""

LARGE = 4096
"""Bytes of arguments above which a record is made at once: an unwritten record would keep them in memory."""


class ClientCall(Struct, eq=False, kw_only=True):
    """A client's call: `CallToSend` and `Exchange` in one msgspec struct, because its creation costs time."""

    cuts: ClassVar[bool] = True
    """Whether mcpd keeps a result that is too large for the client, and sends its beginning and end."""
    calls: CallsInFlight
    request: Request
    name: str
    given: bytes
    started: float
    label: str
    method: str = protocol.CALL_TOOL
    tool: str = ""
    params: tuple[Buffer, ...] = ()
    meta: Mapping[str, Raw] = NOTHING
    wants_progress: bool = False
    token: Raw | None = None
    upstream: Upstream | None = None
    forward: Forward | None = None
    """The surface's decision at the last sending; None before the first."""
    refusal: CallError | None = None
    key: int | None = None
    """The key by which the server's calls are cancelled; None until the call is sent."""
    patient: bool = True
    """Whether the call may still wait for lists of tools, which it does only once."""
    woken: bool = False
    """Whether the call has waited for its server's connection, which it does only once."""
    current: bool = False
    agreed: tuple[str, ...] | None = None
    """The tool that the user has approved with these arguments (`clients.approvals`)."""
    metered: bool = False
    """Whether the limits of calls per minute have counted the call (`clients.client`)."""
    synced: bool = False
    """Whether the call has waited for the tools that its session loaded at other daemons."""
    returns: int = 0
    moves: int = 0
    """Count of waits for another instance after the call's own had ended."""
    reported: float = 0.0
    """The progress that mcpd has reported during waits."""
    waiting: trio.CancelScope | None = None
    others: Mapping[str, Raw] = NOTHING
    declared: Raw | None = None
    parked: Parked | None = None
    """Set while a client of MCP 2026-07-28 answers the server's questions."""
    round: Round | None = None
    """Set while a server of MCP 2026-07-28 asks for input in rounds."""
    level: Raw | None = None
    spared_until: float = 0.0
    """A time on trio's clock before which the call cannot time out (`wire.requests.Exchange`)."""
    convert: Callable[[Buffer], bytes] | None = None
    """Converts the server's answer; None passes it on unchanged (`surfaces.surface.Forward`)."""
    polls: bool = False
    """Whether mcpd declares the tasks extension for the client and polls the task (`clients.task_results`)."""
    script: str = ""
    """The digest of the script that the call runs, or that made the call; empty without a script."""
    made_by: ClientCall | None = None
    """For a script's call, the client's call that runs the script; None for a client's own call."""
    makes: CallsInFlight | None = None
    """The calls of the script that this call runs; None before the script starts."""
    in_line: bool = False
    shown_as: tuple[int, float] | None = None
    """The call's number for operators, and its start in seconds since the epoch; None until it is listed."""
    finished: bytes | None = None
    """The result, while the store saves the loaded tools and the client lists its tools."""
    trace: CallTrace | None = None
    """None while telemetry is off, and once the call has ended."""

    def __repr__(self) -> str:
        """Leaves the arguments out: they may hold a secret."""
        return f"<ClientCall {self.label}>"

    def described(self) -> str:
        """The log's words for a call that reached no server: its label, the names in it, its session."""
        asked = named_in(self.given) if self.name in self.request.surface.meta_tools else ""
        state = self.request.session.state
        session = state.key if state.named else ""
        return f"{self.label}{asked and f'({asked})'}{session and f' in {session}'}"

    @property
    def is_unsent(self) -> bool:
        """Whether nothing was sent to the server, so that another daemon may take the call."""
        asked = self.round is not None or self.parked is not None or (self.polls and self.key is None)
        return (self.key is None or self.in_line) and self.finished is None and not (asked or self.script)

    def decide(self, view: View, *, patient: bool) -> Action:
        """Have the surface decide about the call. Raises CallError if the call is refused."""
        decide = partial(self.request.present_surface.call, view, self.name, self.given, patient=patient)
        return call_by_app(view, self.name, self.given, decide) if view.apps else decide()

    def refer(self, forward: Forward, arguments: Buffer) -> None:
        """Set the call's destination and the arguments to send there."""
        self.forward = forward
        self.method, self.tool, self.label = forward.method, forward.name, forward.label
        self.convert, head = forward.convert, forward.head
        if self.others:
            if self.round is not None:
                self.round.require(forward)
            head = protocol.members_before(self.others) + head
        self.params = head, arguments

    @property
    def envelope(self) -> Mapping[str, bytes]:
        """The client's capabilities and log level, for a modern server (`ports.CallToSend.envelope`)."""
        capabilities = self.declared or self.calls.server_requests.capabilities
        alone = self.request.session.selection.only or (self.upstream is not None and self.upstream.is_own)
        passing = carried(capabilities, alone=bool(alone))
        told = {protocol.CAPABILITIES_KEY: with_tasks(passing) if self.polls else passing}
        if self.log_rank is not None:
            told[protocol.LOG_LEVEL_KEY] = msgspec.json.encode(LEVELS[self.log_rank])
        return told

    @property
    def log_rank(self) -> int | None:
        """The rank of the log level that the client wants (`connected_clients.LEVELS`); None if unset."""
        return wished_rank(self.level) if self.request.modern else self.calls.client.log_level

    @property
    def client_method(self) -> str:
        """The method of the client's request, which may differ from the one sent."""
        return protocol.CALL_TOOL

    def check(self) -> bool:
        """Whether the call may still be sent as it is (`ports.CallToSend.check`)."""
        goes = self.calls.recheck(self)
        if not goes:
            self.key = None  # It has left the queue, and nothing was sent.
        return goes

    def answered(self, result: Buffer) -> None:
        """Answer the client with the server's result."""
        upstream, observed = self.upstream, self.calls.context.observed
        if upstream is not None and upstream.is_modern and self.calls.goes_on(self, result):
            return
        tool = None if self.forward is None else self.forward.tool
        if tool is not None and tool.schema_hash not in observed.resting:
            observed.take(tool, result)
        result = result if self.convert is None else self.convert(result)
        too_large = len(result) > self.calls.client.selection.most_bytes and self.cuts
        if not (too_large and self.calls.context.results.take(self, result)):
            self.calls.finish(self, result, "ok")

    def refused(self, error: Buffer) -> None:
        """Answer the client with the server's JSON-RPC error, as a result that a model can read.

        Requests other than calls, clients that see the server as itself, and errors on which the client must
        act (open a URL, declare a capability, drop an invalid state) get the JSON-RPC error.
        """
        assert self.upstream is not None, "only a server refuses"
        upstream, asking = self.upstream, self.calls.server_requests
        if self.method == protocol.CALL_TOOL and not self.polls and needs_tasks(error):
            # The server has refused before it began.
            self.polls = True
            self.calls.act_after(self, trio.lowlevel.checkpoint)
            return
        upstream_error = read_refusal(error, self.calls.context.redact.of(upstream.of))
        if (
            asking.takes_url(upstream.name, error)
            or (self.request.modern and concerns_client(error, self.others))
            or self.request.session.selection.servers
            or self.code_of(upstream_error) is not None
        ):
            try:
                refusal = with_author(upstream.of, upstream_error)
            except UnsafeQuestion as unsafe:
                asking.unsafe(upstream.of, unsafe)
                self.lost(
                    UpstreamCallError(
                        f"server {upstream.of} sent a question that mcpd does not show to users: {unsafe}"
                    )
                )
                return
            self.calls.refuse(self, *refusal, UpstreamCallError.code)
        else:
            self.lost(upstream_error)

    def code_of(self, error: CallError) -> int | None:
        """The JSON-RPC code for an error; None if the model gets the error as a result."""
        del error
        return None

    def lost(self, error: CallError) -> None:
        """Answer the client with an error that says what to do next."""
        self.refusal = error
        if isinstance(error, Overloaded):
            self.calls.overloaded(self, error)
        if (code := self.code_of(error)) is not None:
            data = {"code": error.code, **error.details}
            self.calls.refuse(self, code, f"{error.code}: {error.message}", data, error.code)
            return
        if isinstance(error, UpstreamLost) and self.upstream is not None:
            error = error.at(self.upstream.name)
        try:
            result = error_result(error)
        except (TypeError, ValueError, RecursionError) as fault:
            result = error_result(InternalError(f"{error.code}, and its details cannot be shown: {fault}"))
        self.calls.finish(self, result, error.code)

    def progressed(self, params: dict[str, Raw]) -> None:
        """Pass a progress report on under the client's own token."""
        if self.token is not None and not (self.reported and _progress(params) <= self.reported):
            self.calls.send_progress(self, {**params, "progressToken": self.token})

    def asked(self, request: PeerRequest) -> None:
        """Relay a server's request to the client."""
        if self.request.modern:
            self.calls.park(self, request)
        else:
            self.calls.server_requests.ask(request, self.request.id)
        self.calls.count_asked(request, parked=self.request.modern)

    def notified(self, method: str, params: Raw) -> None:
        """Pass on a call's notification; an unknown kind only to a client that sees the server as itself."""
        if method == protocol.LOG_MESSAGE or self.request.session.selection.only:
            self.calls.notify(self, method, params)

    @property
    def asker(self) -> object:
        """Identifies the client: by connection, else by session, else by the request alone."""
        if self.calls.client.principal.keeps:
            return self.calls.client
        # Compared by identity, and each connection has its own copy of the key.
        return self.request if self.request.key is None else sys.intern(self.request.key)

    @property
    def answerable(self) -> frozenset[str]:
        """The methods that the client can answer."""
        declared = self.declared if self.request.modern else self.calls.server_requests.capabilities
        return answerable(bytes(declared or NO_CAPABILITIES))

    def abandon(self, reason: str) -> None:
        """Drop the call without an answer, and withdraw the questions asked for it."""
        self.calls.note_end(self, CANCELLED, trio.current_time() - self.started, self.calls.context.wall(), 0)
        self.withdraw(reason)
        self.calls.forget(self)

    def withdraw(self, reason: str) -> None:
        """Stop waiting for a server, or cancel the call there."""
        if self.waiting is not None:
            self.waiting.cancel()
        if self.upstream is not None and self.key is not None:
            self.upstream.cancel(self.key, reason)


def _progress(params: Mapping[str, Raw]) -> float:
    try:
        return msgspec.json.decode(params["progress"], type=float)
    except (KeyError, msgspec.MsgspecError):
        return math.inf


def record_key(call: ClientCall) -> tuple[int, int, str]:
    """The decision, session and client of a call, whose records share a part."""
    return id(call.forward), id(call.request.session), call.request.client


@attrs.define(eq=False, kw_only=True)
class CallsInFlight:
    """The unanswered calls of one client; the calls that end in one turn are recorded together."""

    _peer: Peer
    context: SessionContext
    client: Client
    recheck: Callable[[ClientCall], bool]
    act_after: Callable[..., None]
    park: Callable[[ClientCall, PeerRequest], None]
    """Relays a server's request to a client that can only be asked in an answer (`clients.asking`)."""
    make_record: Callable[..., bytes]
    """Makes the audit's record of an ended call (`clients.call_records.record_of`)."""
    goes_on: Callable[[ClientCall, Buffer], bool]
    """Handles a result that asks for input; False if it is an answer."""
    open: dict[bytes, ClientCall] = attrs.field(factory=dict, init=False)
    total: int = attrs.field(default=0, init=False)
    recorded: dict[tuple[int, int, str], tuple[bytes, object]] = attrs.field(factory=dict, init=False)
    """The shared part of records by `record_key`, whose ids stay valid (`clients.call_records`)."""
    server_requests: ServerRequests = attrs.field(init=False)
    _clock: Callable[[], float] = attrs.field(init=False)
    _ended: list[tuple[ClientCall, str, int, str]] = attrs.field(factory=list, init=False)

    def __attrs_post_init__(self) -> None:
        subscribers = self.context.subscribers
        self.server_requests = ServerRequests(
            self._peer, self.open, subscribers.sent_to_urls, subscribers.unsafe
        )
        self._clock = trio.lowlevel.current_clock().current_time

    def finish(self, call: ClientCall, result: Buffer, outcome: str) -> None:
        """Answer a call and forget it. An abandoned call gets no answer (MCP, cancellation)."""
        request = call.request
        # Inlines `is_open` and `forget`: every call comes here, and Python calls would cost more.
        if self.open.get(request.id) is call:
            del self.open[request.id]
        else:
            if call.parked is not None:
                # Copied: the buffer is reused.
                kept = bytes(result)
                call.parked.hold(lambda: call.calls.finish(call, kept, outcome), len(kept))
            return
        if request.modern:
            result = protocol.completed(bytes(result))
        self._peer.answer(request.id, result)
        if call.upstream is not None and call.upstream.has_resources:
            note_links(request.session.links, call.upstream.of, linked_in(result))
        failed = outcome == "ok" and protocol.is_error(result)
        noted = IS_ERROR if failed else outcome
        self._queue(call, noted, len(result), "" if noted == OK else text_in(result))

    def refuse(self, call: ClientCall, code: int, message: str, data: object, outcome: str) -> None:
        """Answer a call with a JSON-RPC error and forget it."""
        if self.is_open(call):
            self.forget(call)
            self._peer.refuse(call.request.id, code, message, data)
            if call.trace is not None:
                call.trace.code = str(code)
            self._queue(call, outcome, len(message), message)
        elif call.parked is not None:
            call.parked.hold(lambda: call.calls.refuse(call, code, message, data, outcome), len(message))

    def is_open(self, call: ClientCall) -> bool:
        """Whether the client waits for an answer to a call."""
        return self.open.get(call.request.id) is call

    def interrupt(self, call: ClientCall, result: bytes) -> None:
        """Answer the client's request while the call goes on; a later request will bring the call's answer."""
        self.forget(call)
        if call.parked is None:
            # Another call ends: this one has, if it was sent.
            self.note_end(call, OK, trio.current_time() - call.started, self.context.wall(), len(result))
        # Progress belongs to the request that has ended.
        call.token = None
        self._peer.answer(call.request.id, result)
        self.context.outbox.flush()

    def take_over(self, call: ClientCall, retry: ClientCall) -> None:
        """Let an interrupted call answer the request of its client's retry."""
        call.calls, call.request = self, retry.request
        call.declared, call.token = retry.declared, retry.token
        self.open[retry.request.id] = call

    def forget(self, call: ClientCall) -> None:
        """Drop a call without an answer."""
        self.open.pop(call.request.id, None)

    def send_progress(self, call: ClientCall, params: dict[str, Raw]) -> None:
        """Send a progress report, which holds the client's token."""
        self._peer.notify(protocol.PROGRESS, msgspec.json.encode(params), call.request.id)

    def notify(self, call: ClientCall, method: str, params: Raw) -> None:
        """Send a notification that belongs to a call; a log line only if it reaches the client's level."""
        request, raw, wanted = call.request, bytes(params), call.log_rank
        limit = self.context.catalog.value.config.limits.client_queue_bytes
        if method == protocol.LOG_MESSAGE:
            rank = rank_in(params)
            if request.modern if wanted is None else rank is None or rank < wanted:
                return
        if is_utf8(raw) and self._peer.link.waiting(request.id) <= limit:
            self._peer.notify(method, raw, request.id)

    def cancel(self, request_id: bytes) -> None:
        """Abandon a call that the client cancels; it is not answered (MCP, cancellation)."""
        call = self.open.get(request_id)
        if call is not None:
            call.abandon("the client cancelled it")

    def lose_all(self, error: CallError) -> None:
        """End and answer all calls, because the daemon is stopping."""
        for call in self._newest_first():
            self.lose(call, error)
        self.context.outbox.flush()

    def lose(self, call: ClientCall, error: CallError) -> None:
        """End a call and answer with its result, or with the error if there is no result yet."""
        call.withdraw(error.message)
        if call.finished is None:
            call.lost(error)
        else:
            call.answered(call.finished)

    def give_back(self) -> list[bytes]:
        """Forget the unsent calls, and return their raw request ids."""
        unsent = [call for call in self._newest_first() if call.is_unsent]
        for call in unsent:
            call.abandon("the daemon is stopping")
        return [call.request.id for call in unsent]

    def abandon_all(self, reason: str) -> None:
        """Abandon every call, because the client has left."""
        for call in self._newest_first():
            call.abandon(reason)
        self.client.left = True
        if self.client.principal.keeps:
            # Otherwise it may come back over another connection.
            self.context.states.leave(self.client.number)
        self.server_requests.leave()
        self.context.outbox.flush()

    def count_asked(self, request: PeerRequest, *, parked: bool) -> None:
        """Count whether a server's request was relayed, parked or refused."""
        put = "parked" if parked else "relayed"
        self.context.tally.relayed(request.server, request.method, put if request.is_open else "refused")

    def overloaded(self, call: ClientCall, error: Overloaded) -> None:
        """Record which limit refused a call."""
        if self.is_open(call):
            data = error.details
            server = str(data.get("server", "" if call.upstream is None else call.upstream.of))
            details = {"bound": str(data["bound"])} if "bound" in data else {}
            self.context.gather(Event(kind=EventKind.OVERLOADED, server=server, details=details))

    def flush(self) -> None:
        """Record the calls that have ended."""
        ended, self._ended = self._ended, []
        context, client, now, at = self.context, self.client, self._clock(), self.context.wall()
        alike: dict[tuple[Upstream, str, str, str], list[float]] = {}
        for call, outcome, size, text in ended:
            upstream, request, tool, seconds = call.upstream, call.request, call.tool, now - call.started
            label, server = (call.described(), "") if upstream is None else (call.label, upstream.of)
            # One tuple, made once: the recorders take it apart.
            context.log.note((client, request.key, label, seconds, outcome, server, tool, at, text))
            self.note_end(call, outcome, seconds, at, size)
            if upstream is None or call.method != protocol.CALL_TOOL:
                _count(context.tally, call, outcome)
            elif (key := (upstream, tool, request.surface.name, outcome)) in alike:
                alike[key].append(seconds)
            else:
                alike[key] = [seconds]
        for (upstream, tool, surface, outcome), took in alike.items():
            upstream.record(took, ok=outcome == OK)
            context.tally.call(upstream.of, surface, outcome, took, tool)

    def note_end(self, call: ClientCall, outcome: str, seconds: float, at: float, size: int) -> None:
        """Trace and record a call that ended `at` (seconds since the epoch) with an answer of `size` bytes."""
        trace, tracer = call.trace, self.context.tracer
        if trace is not None and tracer is not None:
            call.trace = None
            _end_trace(call, trace, tracer, outcome, at, size)
        # A script counts as sent once it runs, and a call whose server has asked for input was sent before.
        began = call.round is not None or (call.makes is not None and call.upstream is not None)
        sent = began or (call.key is not None and not call.in_line)
        if (not sent and outcome in {OK, CANCELLED}) or not (audit := self.context.audit).on:
            return
        plain = sent and trace is None and not audit.keys.arguments
        given = bytes(call.params[-1]) if call.params else call.given
        if len(call.given) > LARGE:
            audit.note(bytes, self.make_record(call, sent, trace, given, outcome, seconds, at, size))
        elif plain and (known := self.recorded.get(record_key(call))):
            # Thousands of calls that wait to be recorded would fill the processor's caches.
            audit.note(known[0], given, outcome, seconds, at, size)
        else:
            audit.note(self.make_record, call, sent, trace, given, outcome, seconds, at, size)

    def _queue(self, call: ClientCall, outcome: str, size: int, text: str) -> None:
        """Queue an ended call for recording, and note a server's failure with the text that the client got."""
        if not self._ended:
            self.context.outbox.touch(self.flush)
        self._ended.append((call, outcome, size, text[:TEXT]))
        if outcome != OK and call.upstream is not None:
            self.context.recent.failed(call.upstream.of, call.tool or call.label, outcome, text)

    def _newest_first(self) -> list[ClientCall]:
        """The calls, newest first: otherwise ending a call could let a later, queued one be sent."""
        return list(reversed(self.open.values()))


def _count(tally: Tally, call: ClientCall, outcome: str) -> None:
    if call.method != protocol.CALL_TOOL:
        tally.request("" if call.upstream is None else call.upstream.of, call.method, outcome)
        return
    tally.meta_call(call.request.surface.name, call.label, outcome)
    if outcome != OK:
        tally.refused(outcome)


def _end_trace(call: ClientCall, trace: CallTrace, tracer: Tracer, outcome: str, at: float, size: int) -> None:
    request, upstream = call.request, call.upstream
    trace.ended, trace.at = trio.current_time(), at
    # A client can make up any name, and there may only be so many.
    known = upstream is not None or call.name in request.surface.meta_tools
    said = call.name if call.made_by is None else call.label
    name = (said or call.label.partition("/prompt:")[2]) if known else ""
    own = call.method, call.tool or name, "" if upstream is None else upstream.of
    version = protocol.MODERN_VERSION if request.modern else call.calls.client.protocol
    arguments = call.given[:MAX_ARGUMENTS] if tracer.arguments else b""
    uri = call.label.partition("/resource:")[2] if call.method == protocol.READ_RESOURCE else ""
    trace.about = request.id, arguments, request.session.name, version, uri, len(call.given), size
    tracer.ended(trace, (call.client_method, name, ""), own, outcome)
