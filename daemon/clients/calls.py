"""Calls of one client in flight, and the record of each in log and counters."""

from __future__ import annotations

import math
import re
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

import attrs
import msgspec
import trio
from msgspec import Raw, Struct

from daemon import protocol
from daemon.catalog.authorship import UnsafeQuestion
from daemon.clients.links import linked_in, note_links
from daemon.clients.server_requests import NOTHING as NO_CAPABILITIES
from daemon.clients.server_requests import (
    ServerRequests,
    answerable,
    concerns_client,
    read_refusal,
    with_author,
)
from daemon.clients.subscribers import LEVELS, rank_in, wished_rank
from daemon.errors import CallError, InternalError, Overloaded, UpstreamCallError, UpstreamLost
from daemon.history.event import Event, EventKind
from daemon.surfaces.answers import error_result
from daemon.wire.envelope import is_utf8

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from daemon.clients.attachment import Request
    from daemon.clients.client import Client
    from daemon.clients.context import SessionContext
    from daemon.clients.input_required import Round
    from daemon.counting.tally import Tally
    from daemon.ports import Upstream
    from daemon.surfaces.surface import Action, Forward, View
    from daemon.wire.envelope import Buffer
    from daemon.wire.peer import Peer
    from daemon.wire.requests import PeerRequest


NOTHING: Mapping[str, Raw] = {}
"""The `_meta` of most calls."""

NAMING = ("category", "server_name", "name", "names", "tool_name", "toolNames")
"""Members of a meta-tool's arguments that hold the names of what it is asked for."""

MAX_READ = 64 * 1024
"""Bytes of the longest arguments of a meta-tool that are decoded for the log: a tenth of a millisecond."""

MAX_NAMES = 5
"""Names in a line of the log; the whole line has a bound of its own (`host.logs.LABEL_BYTES`)."""

_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_SAID = msgspec.json.Decoder(str | list[str] | None)

MAX_NAME = 64
"""Characters of the longest name in a meta-tool's arguments that is logged; anything longer is no name."""


def _named(arguments: bytes) -> str:
    """The names that a meta-tool was given, abridged; nothing that is to be passed on to a tool."""
    if len(arguments) > MAX_READ:
        return ""
    names: list[str] = []
    with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        members = _MEMBERS.decode(arguments)
        for key in NAMING:
            if key in members:
                said = _SAID.decode(members[key])
                names += [said] if isinstance(said, str) else said or []
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return ", ".join(name if _is_name(name) else "…" for name in names[:MAX_NAMES]) + more


def _is_name(said: str) -> bool:
    """Whether an argument of a meta-tool may be logged: a need in a user's own words may reveal anything."""
    # A longer one is not cut: half a secret would not be recognized as one.
    return len(said) <= MAX_NAME and not any(map(str.isspace, said))


class Parked(Protocol):
    """What is remembered of a call whose client gives what its server has asked (`input_rounds.ParkedCall`)."""

    def ask(self, request: PeerRequest) -> None:
        """Ask the client, at once or in its next round."""

    def hold(self, answer: Callable[[], None], size: int) -> None:
        """Keep the answer to the call, of so many bytes, until its client is back."""


class ClientCall(Struct, eq=False, kw_only=True):
    """A client's call, in flight from the request to its answer.

    For the upstream it is both the `CallToSend` that is sent and the `Exchange` that its answer completes: one
    object, and a msgspec struct, because making one is a good part of what a small call costs.
    """

    calls: CallsInFlight
    """The calls of its client, which alone answer the client."""
    request: Request
    """The client's request."""
    name: str
    """The tool, as the client calls it."""
    given: bytes
    """Its arguments, raw, as they arrived."""
    started: float
    """When the request arrived, in seconds on trio's clock."""
    label: str
    """The name that the log gives the call."""
    method: str = protocol.CALL_TOOL
    """The method that is sent to the server (`ports.CallToSend`)."""
    tool: str = ""
    """The server's own name for what is called, once the target is known."""
    params: tuple[Buffer, ...] = ()
    """The members of the `params` that are sent (`ports.CallToSend`)."""
    meta: Mapping[str, Raw] = NOTHING
    """The members of its `_meta` that travel on (`ports.CallToSend`)."""
    wants_progress: bool = False
    """Whether the server is asked for progress (`ports.CallToSend`)."""
    token: Raw | None = None
    """The client's own progress token."""
    upstream: Upstream | None = None
    """The server that it was, or is to be, sent to."""
    key: int | None = None
    """The key to cancel it by at that server; None until it is sent."""
    patient: bool = True
    """Whether it may still wait for lists of tools; it waits once at most."""
    woken: bool = False
    """Whether it has waited for its server's connection, which it does once at most."""
    current: bool = False
    """Whether it has waited for the server's new list."""
    agreed: tuple[str, ...] | None = None
    """The tool that its client's user has agreed to call with these arguments (`clients.approvals`)."""
    metered: bool = False
    """Whether it was counted by the limits of calls a minute (`clients.rates`)."""
    looked: bool = False
    """Whether it has waited for what its session has loaded at other daemons."""
    returns: int = 0
    """How often it was taken back from a server's queue."""
    moves: int = 0
    """How often the server that it has waited for was replaced by another one."""
    reported: float = 0.0
    """The progress that we have reported ourselves, while it waited for its server."""
    waiting: trio.CancelScope | None = None
    """The cancel scope of the task that waits on its behalf."""
    others: Mapping[str, Raw] = NOTHING
    """The other members of its params, which travel on as they are: `task`, `inputResponses`, unknown ones."""
    declared: Raw | None = None
    """The capabilities that the client declares in the request itself (MCP 2026-07-28)."""
    parked: Parked | None = None
    """What is remembered of it while its client, of MCP 2026-07-28, gives what its server has asked."""
    round: Round | None = None
    """How often its server, of MCP 2026-07-28, has asked its client for something; None if it has not."""
    level: Raw | None = None
    """The level of the log that the request itself names (MCP 2026-07-28)."""
    spared_until: float = 0.0
    """Until when it is not given up, however silent its server is (`wire.requests.Exchange`)."""
    convert: Callable[[Buffer], bytes] | None = None
    """Makes its result of what the server answers; None passes it on as it is (`surfaces.surface.Forward`)."""
    in_line: bool = False
    """Whether it waits for a place at its server (`ports.CallToSend`)."""
    shown_as: tuple[int, float] | None = None
    """The number that operators know it by, and when it began for them, in seconds since the epoch; None if it
    was not shown to any (`operators.call_commands`)."""
    finished: bytes | None = None
    """Its result, if that is held back only until it is on disk and the client has listed its tools."""

    def __repr__(self) -> str:
        """Without arguments: they may hold a secret."""
        return f"<ClientCall {self.label}>"

    def described(self) -> str:
        """How the log describes a call that reached no server: the names that it gave, and its session's."""
        asked = _named(self.given) if self.name in self.request.surface.meta_tools else ""
        state = self.request.session.state
        session = state.key if state.named else ""
        return f"{self.label}{asked and f'({asked})'}{session and f' in {session}'}"

    @property
    def is_unsent(self) -> bool:
        """Whether its server was sent nothing of it, so that another daemon may take it."""
        asked = self.round is not None or self.parked is not None
        return (self.key is None or self.in_line) and self.finished is None and not asked

    def decide(self, view: View, *, patient: bool) -> Action:
        """What is to be done about the call (`surfaces.surface.Surface.call`).

        Raises:
            CallError: it is refused.
        """
        return self.request.present_surface.call(view, self.name, self.given, patient=patient)

    def refer(self, forward: Forward, arguments: Buffer) -> None:
        """Take over where the call goes, and what is sent there."""
        self.method, self.tool, self.label = forward.method, forward.name, forward.label
        self.convert, head = forward.convert, forward.head
        if self.others:
            if self.round is not None:
                self.round.require(forward)
            head = protocol.members_before(self.others) + head
        self.params = head, arguments

    @property
    def envelope(self) -> Mapping[str, bytes]:
        """What the client itself declares and sets, for a modern server (`ports.CallToSend.envelope`)."""
        declared = {protocol.CAPABILITIES_KEY: bytes(self.declared or self.calls.server_requests.capabilities)}
        rank = self.log_rank
        return (
            declared
            if rank is None
            else {**declared, protocol.LOG_LEVEL_KEY: msgspec.json.encode(LEVELS[rank])}
        )

    @property
    def log_rank(self) -> int | None:
        """The level of the log that its client wants with it (`subscribers.LEVELS`); None: it has not said."""
        return wished_rank(self.level) if self.request.modern else self.calls.client.log_level

    @property
    def client_method(self) -> str:
        """The method of the client's request, whatever is asked of the server for it."""
        return protocol.CALL_TOOL

    def check(self) -> bool:
        """Whether the call may still be sent as it is (`ports.CallToSend.check`)."""
        return self.calls.recheck(self)

    def answered(self, result: Buffer) -> None:
        """Answer the client with the result as its author wrote it."""
        upstream = self.upstream
        if upstream is not None and upstream.is_modern and self.calls.goes_on(self, result):
            return
        self.calls.finish(self, result if self.convert is None else self.convert(result), "ok")

    def refused(self, error: Buffer) -> None:
        """Answer the client with the server's JSON-RPC error, as a result that a model can read.

        It stays an error for a request that is no call, for a client that sees the server as itself, and where
        it is for the client: what it has to do before it calls again (a URL to open, a capability), or that the
        state of its round is none.
        """
        assert self.upstream is not None, "only a server refuses"
        upstream, asking = self.upstream, self.calls.server_requests
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
                self.lost(UpstreamCallError(f"server {upstream.of} asks what no user is shown: {unsafe}"))
                return
            self.calls.refuse(self, *refusal, UpstreamCallError.code)
        else:
            self.lost(upstream_error)

    def code_of(self, error: CallError) -> int | None:
        """The JSON-RPC code of why there is no result; None: the client is told in a result, for its model."""
        del error
        return None

    def lost(self, error: CallError) -> None:
        """Answer the client with why there is no result and what to do."""
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
        """Pass a progress report on, under the client's own token."""
        if self.token is not None and not (self.reported and _progress(params) <= self.reported):
            self.calls.send_progress(self, {**params, "progressToken": self.token})

    def asked(self, request: PeerRequest) -> None:
        """Put a request of its server to the client."""
        if self.request.modern:
            self.calls.park(self, request)
        else:
            self.calls.server_requests.ask(request, self.request.id)
        self.calls.count_asked(request, parked=self.request.modern)

    def notified(self, method: str, params: Raw) -> None:
        """Pass on a notification that came with the call."""
        self.calls.notify(self, method, params)

    @property
    def asker(self) -> object:
        """Its client: all calls of a connection, else of a session, are one's; else nothing tells two apart."""
        if self.calls.client.principal.keeps:
            return self.calls.client
        # Askers are compared by identity, and each connection has read the key anew.
        return self.request if self.request.key is None else sys.intern(self.request.key)

    @property
    def answerable(self) -> frozenset[str]:
        """What its client can answer, as declared in the request itself or for the connection."""
        declared = self.declared if self.request.modern else self.calls.server_requests.capabilities
        return answerable(bytes(declared or NO_CAPABILITIES))

    def abandon(self, reason: str) -> None:
        """Give the call up wherever it is, without an answer; what was asked for it is withdrawn before."""
        self.withdraw(reason)
        self.calls.forget(self)

    def withdraw(self, reason: str) -> None:
        """Stop waiting for a server, or cancel the call there."""
        if self.waiting is not None:
            self.waiting.cancel()
        if self.upstream is not None and self.key is not None:
            self.upstream.cancel(self.key, reason)


def _progress(params: Mapping[str, Raw]) -> float:
    """The progress that a server reports; infinite if it is not a number."""
    try:
        return msgspec.json.decode(params["progress"], type=float)
    except (KeyError, msgspec.MsgspecError):
        return math.inf


def read_meta(call: ClientCall, meta: dict[str, Raw]) -> None:
    """Take over the request's `_meta`: the members that travel on, and the progress token."""
    call.meta = protocol.foreign_meta(meta)
    call.declared = meta.get(protocol.CAPABILITIES_KEY)
    call.level = meta.get(protocol.LOG_LEVEL_KEY)
    token = meta.get("progressToken")
    if token is not None and bytes(token) != b"null":
        call.token, call.wants_progress = token, True


IS_ERROR = "isError"
"""The outcome in the log of a call that its tool answered with an error: for the protocol it is a result."""


LOOKED_THROUGH = 64 * 1024
"""Bytes of the longest result that is searched for `isError`, in a quarter of a millisecond at most.

Failures are described in fewer. A longer result counts as a success.
"""

_SAYS_ERROR = re.compile(rb'"isError"\s*:\s*true')
"""Most results say `false`: a result without a match does not have to be decoded."""


class _IsError(Struct):
    isError: bool = False  # noqa: N815 - the wire's name


_decode_is_error = msgspec.json.Decoder(_IsError).decode


@attrs.define(eq=False, kw_only=True)
class CallsInFlight:
    """The calls of one client that have no answer yet.

    Those that end in one turn of the loop are logged and counted together. Nobody looks at a counter in the
    middle of a turn, so it is done just after their answers are written (`wire.outbox.Flushable`), with one
    look at the clock.
    """

    _peer: Peer
    context: SessionContext
    """What all sessions share."""
    client: Client
    recheck: Callable[[ClientCall], bool]
    """Judges a call again that has waited in a queue (`ports.CallToSend.check`)."""
    act_after: Callable[[ClientCall, Callable[[], Awaitable[None]]], None]
    """Judges and sends a call again after a wait."""
    park: Callable[[ClientCall, PeerRequest], None]
    """Asks a client that can only be answered (`clients.input_rounds`)."""
    goes_on: Callable[[ClientCall, Buffer], bool]
    """Asks for the input that a server's result names; False if it has answered."""
    open: dict[bytes, ClientCall] = attrs.field(factory=dict, init=False)
    """By the ids of their requests, raw."""
    total: int = attrs.field(default=0, init=False)
    """How many calls the client has made so far."""
    server_requests: ServerRequests = attrs.field(init=False)
    _clock: Callable[[], float] = attrs.field(init=False)
    _ended: list[tuple[ClientCall, str, bool]] = attrs.field(factory=list, init=False)
    """The calls that were answered since the last flush: outcome, and whether the tool reports failure."""

    def __attrs_post_init__(self) -> None:
        """Begin without any."""
        subscribers = self.context.subscribers
        self.server_requests = ServerRequests(
            self._peer, self.open, subscribers.sent_to_urls, subscribers.unsafe
        )
        self._clock = trio.lowlevel.current_clock().current_time

    def finish(self, call: ClientCall, result: Buffer, outcome: str) -> None:
        """Answer a call and forget it; one that was abandoned is not answered (MCP, cancellation)."""
        request = call.request
        # As `is_open` and `forget`: each call comes here, and Python calls would cost it more than this look.
        if self.open.get(request.id) is call:
            del self.open[request.id]
        else:
            if call.parked is not None:
                # Copied: what it was read into is used again.
                kept = bytes(result)
                call.parked.hold(lambda: call.calls.finish(call, kept, outcome), len(kept))
            return
        if request.modern:
            result = protocol.completed(bytes(result))
        self._peer.answer(request.id, result)
        if call.upstream is not None and call.upstream.has_resources:
            note_links(request.session.links, call.upstream.of, linked_in(result))
        failed = outcome == "ok" and is_error(result)
        self._record(call, outcome, failed=failed)
        if failed or outcome != "ok":
            self._failed(call, IS_ERROR if failed else outcome, text_in(result))

    def refuse(self, call: ClientCall, code: int, message: str, data: object, outcome: str) -> None:
        """Answer a request with a JSON-RPC error and forget it, as `finish`."""
        if self.is_open(call):
            self.forget(call)
            self._peer.refuse(call.request.id, code, message, data)
            self._record(call, outcome, failed=False)
            self._failed(call, outcome, message)
        elif call.parked is not None:
            call.parked.hold(lambda: call.calls.refuse(call, code, message, data, outcome), len(message))

    def is_open(self, call: ClientCall) -> bool:
        """Whether the client waits for an answer to a call."""
        return self.open.get(call.request.id) is call

    def interrupt(self, call: ClientCall, result: bytes) -> None:
        """Answer the client's request, but not its call: another request takes its place."""
        self.forget(call)
        # Progress belongs to the request that has ended.
        call.token = None
        self._peer.answer(call.request.id, result)
        self.context.outbox.flush()

    def take_over(self, call: ClientCall, retry: ClientCall) -> None:
        """Have a call that was interrupted answer the request of another one."""
        call.calls, call.request = self, retry.request
        call.declared, call.token = retry.declared, retry.token
        self.open[retry.request.id] = call

    def forget(self, call: ClientCall) -> None:
        """Drop a call without an answer."""
        self.open.pop(call.request.id, None)

    def send_progress(self, call: ClientCall, params: dict[str, Raw]) -> None:
        """Send the client a progress report that already has its own token."""
        self._peer.notify(protocol.PROGRESS, msgspec.json.encode(params), call.request.id)

    def notify(self, call: ClientCall, method: str, params: Raw) -> None:
        """Send the client a notification that came with its call; a log that it takes, if it is not behind."""
        request, raw, wanted = call.request, bytes(params), call.log_rank
        if method == protocol.LOG_MESSAGE:
            limit = self.context.catalog.value.config.limits.client_queue_bytes
            rank = rank_in(params)
            unsaid = request.modern if wanted is None else rank is None or rank < wanted
            if unsaid or self._peer.link.waiting(request.id) > limit:
                return
        if is_utf8(raw):
            self._peer.notify(method, raw, request.id)

    def cancel(self, request_id: bytes) -> None:
        """Abandon a call that the client cancels; it is not answered (MCP, cancellation)."""
        call = self.open.get(request_id)
        if call is not None:
            call.abandon("the client cancelled it")

    def lose_all(self, error: CallError) -> None:
        """Answer every call, if need be with an error: the daemon is stopping, nothing answers later."""
        for call in self._newest_first():
            self.lose(call, error)
        self.context.outbox.flush()

    def lose(self, call: ClientCall, error: CallError) -> None:
        """End a call wherever it is, and answer it: with an error unless its result is there already."""
        call.withdraw(error.message)
        if call.finished is None:
            call.lost(error)
        else:
            call.answered(call.finished)

    def give_back(self) -> list[bytes]:
        """Forget the calls that their servers were sent nothing of; return the ids of their requests, raw."""
        unsent = [call for call in self._newest_first() if call.is_unsent]
        for call in unsent:
            call.abandon("the daemon is stopping")
        return [call.request.id for call in unsent]

    def abandon_all(self, reason: str) -> None:
        """Abandon every call: the client is gone."""
        for call in self._newest_first():
            call.abandon(reason)
        if self.client.principal.keeps:
            # Otherwise it may come back over another connection.
            self.context.states.leave(self.client.number)
        self.server_requests.leave()
        self.context.outbox.flush()

    def count_asked(self, request: PeerRequest, *, parked: bool) -> None:
        """Count a request that was put to the client, now or in its next round, or answered in its place."""
        put = "parked" if parked else "relayed"
        self.context.tally.relayed(request.server, request.method, put if request.is_open else "refused")

    def overloaded(self, call: ClientCall, error: Overloaded) -> None:
        """Have it noted by which bound a call is refused."""
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
        for call, outcome, failed in ended:
            upstream, request, tool, seconds = call.upstream, call.request, call.tool, now - call.started
            label, server = (call.described(), "") if upstream is None else (call.label, upstream.of)
            noted = IS_ERROR if failed else outcome
            # One tuple, made once: what becomes of it is not the call's business.
            context.log.note((client, request.key, label, seconds, noted, server, tool, at))
            if upstream is None or call.method != protocol.CALL_TOOL:
                _count(context.tally, call, outcome)
            elif (key := (upstream, tool, request.surface.name, outcome)) in alike:
                alike[key].append(seconds)
            else:
                alike[key] = [seconds]
        for (upstream, tool, surface, outcome), took in alike.items():
            upstream.record(took, ok=outcome == "ok")
            context.tally.call(upstream.of, surface, outcome, took, tool)

    def _record(self, call: ClientCall, outcome: str, *, failed: bool) -> None:
        """Have a call recorded that was answered just now; `failed`: its tool says so in the result."""
        if not self._ended:
            self.context.outbox.touch(self)
        self._ended.append((call, outcome, failed))

    def _failed(self, call: ClientCall, code: str, text: str) -> None:
        """Keep what a client was told of a call that a server has failed at; nothing of mcpd's own refusals."""
        if call.upstream is not None:
            self.context.recent.failed(call.upstream.of, call.tool or call.label, code, text)

    def _newest_first(self) -> list[ClientCall]:
        """The newest calls may still be queued; ended first, they do not move up and get sent."""
        return list(reversed(self.open.values()))


def _count(tally: Tally, call: ClientCall, outcome: str) -> None:
    """Count a request that is no call, or a call that reached no server."""
    if call.method != protocol.CALL_TOOL:
        tally.request("" if call.upstream is None else call.upstream.of, call.method, outcome)
        return
    tally.meta_call(call.request.surface.name, call.label, outcome)
    if outcome != "ok":
        tally.refused(outcome)


def is_error(result: Buffer) -> bool:
    """Whether a tool reports failure in its result; False if the result has more than `LOOKED_THROUGH` bytes.

    The result is decoded only if `"isError": true` occurs anywhere in it; then the result's own member decides,
    not a text that quotes it.
    """
    if len(result) > LOOKED_THROUGH:
        return False
    # Most results do not have the member at all, which a plain search tells in a third of the time.
    raw = bytes(result)
    if b"isError" not in raw or _SAYS_ERROR.search(raw) is None:
        return False
    try:
        return _decode_is_error(result).isError
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False


class _Text(Struct):
    text: str = ""


class _Content(Struct):
    content: list[_Text] = []


_decode_content = msgspec.json.Decoder(_Content).decode


def text_in(result: Buffer) -> str:
    """The first text in a result that says what went wrong; empty if it has none, or is too large to look."""
    with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        if memoryview(result).nbytes <= LOOKED_THROUGH:
            return next((each.text for each in _decode_content(result).content if each.text), "")
    return ""
