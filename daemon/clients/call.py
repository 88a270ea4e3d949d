"""Calls of one client in flight: what each asked for, how far it has come, and what ends it.

A call ends exactly once: it is answered, refused or lost, or it is abandoned and gets no answer at all.
"""

from __future__ import annotations

import math
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

import msgspec
import trio
from msgspec import Raw, Struct

from daemon import protocol
from daemon.catalog.authorship import UnsafeQuestion, authored_elicitation, words_of
from daemon.clients.identity import NOTHING as NO_CAPABILITIES
from daemon.clients.identity import answerable
from daemon.clients.server_requests import REQUIRED
from daemon.clients.subscribers import asked_level
from daemon.errors import (
    CallError,
    InternalError,
    PromptDisabled,
    ResourceDisabled,
    UnknownPrompt,
    UnknownResource,
    UpstreamCallError,
    UpstreamLost,
)
from daemon.surfaces.answers import error_result
from daemon.surfaces.base import AwaitListing
from daemon.wire.envelope import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, read_error
from daemon.wire.requests import RemoteError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from daemon.clients.attachment import Request
    from daemon.clients.client import Client
    from daemon.clients.input_required import Round
    from daemon.clients.server_requests import ServerRequests
    from daemon.config.redaction import Redactors
    from daemon.ports import Upstream
    from daemon.surfaces.base import Action, Forward, View
    from daemon.wire.envelope import Buffer
    from daemon.wire.requests import PeerRequest


MISSING_CAPABILITY = -32021
"""JSON-RPC code of 2026-07-28 for a call that needs a capability which its client has not declared."""


def read_refusal(error: Buffer, redact: Callable[[str], str]) -> UpstreamCallError:
    """A server's JSON-RPC error as one that a model can read (`without_secrets`)."""
    code, message, data = without_secrets(error, redact)
    told = {"code": code, "message": message, "data": data}
    return UpstreamCallError(f"the server refused the call: {message} ({code})", upstream=told)


def with_author(server: str, refusal: tuple[int, str, object]) -> tuple[int, str, object]:
    """A refusal whose text and URLs name the server that sends users there (`elicitations.REQUIRED`).

    Raises:
        UnsafeQuestion: a URL is not to be shown.
    """
    code, message, data = refusal
    if code != REQUIRED or not isinstance(data, dict) or not isinstance(data.get("elicitations"), list):
        return refusal
    asked = [authored_elicitation(server, each) for each in data["elicitations"] if isinstance(each, dict)]
    return code, words_of(server, message), {**data, "elicitations": asked}


def without_secrets(error: Buffer, redact: Callable[[str], str]) -> tuple[int, str, object]:
    """Code, message and data of a server's JSON-RPC error, without the secrets that the server may quote.

    Long data become text, cut to its beginning.
    """
    remote = RemoteError.from_wire(error)
    message = redact(remote.message)
    data: object = redact(remote.data.decode(errors="replace"))
    with suppress(msgspec.MsgspecError, ValueError, RecursionError):
        data = msgspec.json.decode(str(data))
    return remote.code, message, data


def concerns_client(error: Buffer, others: Mapping[str, Raw]) -> bool:
    """Whether an error is about how a client of MCP 2026-07-28 has called, and not about what it has called.

    Args:
        error: the server's error object, raw.
        others: the members of the call's params beside name, arguments and `_meta`.
    """
    code = read_error(error)[0]
    return code == MISSING_CAPABILITY or (code == INVALID_PARAMS and "requestState" in others)


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


class Calls(Protocol):
    """The calls of one client in flight, as each of them needs it (`clients.calls`)."""

    client: Client
    """The client."""
    server_requests: ServerRequests
    """What servers have asked the client."""
    log_level: int | None
    """The level that the client has set for the logs of servers; None if it has set none."""
    redact: Redactors
    """Removes secrets from what a server says about a failed call."""
    number: int
    """The number of its connection."""

    def park(self, call: ClientCall, request: PeerRequest) -> None:
        """Ask a client that can only be answered: its call is parked (`clients.parking`)."""

    def count_asked(self, request: PeerRequest, *, parked: bool) -> None:
        """Count a request that was put to the client, now or in its next round, or answered in its place."""

    def goes_on(self, call: ClientCall, result: Buffer) -> bool:
        """Ask for the input that a server's result names; False if it has answered (`clients.input_rounds`)."""

    def recheck(self, call: ClientCall) -> bool:
        """Judge a call again that has waited in a queue (`ports.CallToSend.check`)."""

    @property
    def act_after(self) -> Callable[[ClientCall, Callable[[], Awaitable[None]]], None]:
        """Judges and sends a call again after a wait."""

    def finish(self, call: ClientCall, result: Buffer, outcome: str) -> None:
        """Answer a call and forget it; `outcome` is `ok` or an error code."""

    def refuse(self, call: ClientCall, code: int, message: str, data: object, outcome: str) -> None:
        """Answer a request with a JSON-RPC error and forget it."""

    def forget(self, call: ClientCall) -> None:
        """Drop a call without an answer."""

    def is_open(self, call: ClientCall) -> bool:
        """Whether the client waits for an answer to a call."""

    def interrupt(self, call: ClientCall, result: bytes) -> None:
        """Answer the client's request, but not its call: another request takes its place."""

    def take_over(self, call: ClientCall, retry: ClientCall) -> None:
        """Have a call that was interrupted answer the request of another one."""

    def lose(self, call: ClientCall, error: CallError) -> None:
        """End a call wherever it is, and answer it: with an error unless its result is there already."""

    def send_progress(self, call: ClientCall, params: dict[str, Raw]) -> None:
        """Send the client a progress report that already has its own token."""

    def notify(self, call: ClientCall, method: str, params: Raw) -> None:
        """Send the client a notification that came with its call, if it takes it."""


class Parked(Protocol):
    """What is remembered of a call whose client gives what its server has asked."""

    def ask(self, request: PeerRequest) -> None:
        """Ask the client, at once or in its next round."""

    def hold(self, answer: Callable[[], None], size: int) -> None:
        """Keep the answer to the call, of so many bytes, until its client is back."""


class ClientCall(Struct, eq=False, kw_only=True):
    """A client's call, in flight from the request to its answer.

    For the upstream it is both the `CallToSend` that is sent and the `Exchange` that its answer completes: one
    object, and a msgspec struct, because making one is a good part of what a small call costs.
    """

    calls: Calls
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
    """The tool that its client's user has agreed to call with these arguments (`clients.permissions`)."""
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
    """Makes its result of what the server answers; None passes it on as it is (`surfaces.base.Forward`)."""
    in_line: bool = False
    """Whether it waits for a place at its server (`ports.CallToSend`)."""
    shown_as: tuple[int, float] | None = None
    """The number that operators know it by, and when it began for them, in seconds since the epoch; None if it
    was not shown to any (`operators.calls`)."""
    finished: bytes | None = None
    """Its result, if that is held back only until it is on disk and the client has listed its tools."""

    def __repr__(self) -> str:
        """Without arguments: they may hold a secret."""
        return f"<ClientCall {self.label}>"

    def told(self) -> str:
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
        """What is to be done about the call (`surfaces.base.Surface.call`).

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
        told = {protocol.CAPABILITIES_KEY: bytes(self.declared or self.calls.server_requests.capabilities)}
        level = asked_level(self.level, modern=self.request.modern, level=self.calls.log_level)
        return told if level is None else {**told, protocol.LOG_LEVEL_KEY: level}

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

        It stays an error for a client that sees the server as itself, and where it is for the client: what it
        has to do before it calls again (a URL to open, a capability), or that the state of its round is none.
        """
        assert self.upstream is not None, "only a server refuses"
        upstream, asking = self.upstream, self.calls.server_requests
        redact = self.calls.redact.of(upstream.of)
        if (
            asking.takes_url(upstream.name, error)
            or (self.request.modern and concerns_client(error, self.others))
            or self.request.session.selection.servers
        ):
            try:
                refusal = with_author(upstream.of, without_secrets(error, redact))
            except UnsafeQuestion as unsafe:
                asking.unsafe(upstream.of, unsafe)
                self.lost(UpstreamCallError(f"server {upstream.of} asks what no user is shown: {unsafe}"))
                return
            self.calls.refuse(self, *refusal, UpstreamCallError.code)
        else:
            self.lost(read_refusal(error, redact))

    def lost(self, error: CallError) -> None:
        """Answer the client with why there is no result and what to do."""
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
        if self.calls.client.visitor.keeps:
            return self.calls
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


def wait_scope(call: ClientCall) -> trio.CancelScope:
    """A cancel scope for the task that waits on a call's behalf: withdrawing the call ends the wait."""
    call.waiting = trio.CancelScope()
    return call.waiting


NO_COMPLETION = b'{"completion":{"values":[]}}'
"""The answer in place of a server that completes nothing."""


def _awaits_nothing(_view: View) -> AwaitListing:
    return AwaitListing()


class ForwardedRequest(ClientCall, eq=False, kw_only=True):
    """A request of a client that a server answers."""

    route: Callable[[View], Action]
    """Says where it goes by what is known now; raises a `CallError` if it goes nowhere."""
    awaits: Callable[[View], AwaitListing] = _awaits_nothing
    """Says which servers may list what it asks for, but have not yet."""

    def decide(self, view: View, *, patient: bool) -> Action:
        """Where it goes (`ClientCall.decide`)."""
        try:
            return self.route(view)
        except (UnknownPrompt, UnknownResource):
            if patient and (awaited := self.awaits(view)).servers:
                return awaited
            raise

    def told(self) -> str:
        """How the log describes a request that reached no server."""
        return self.label

    def answered(self, result: Buffer) -> None:
        """Answer the client with the result as its author wrote it.

        What a modern client reads from an older server has to say that it must not be cached.
        """
        if self.method == protocol.READ_RESOURCE and self.request.modern:
            result = protocol.completed(bytes(result), protocol.UNCACHED)
        super().answered(result)

    def refused(self, error: Buffer) -> None:
        """Answer with the server's own error, without the secrets that it may quote."""
        assert self.upstream is not None, "only a server refuses"
        self.calls.server_requests.takes_url(self.upstream.name, error)
        code, message, data = without_secrets(error, self.calls.redact.of(self.upstream.of))
        if self.method == protocol.COMPLETE and code == METHOD_NOT_FOUND:
            self.answered(NO_COMPLETION)
        else:
            self.calls.refuse(self, code, message, data, UpstreamCallError.code)

    def lost(self, error: CallError) -> None:
        """Answer with why there is no result and what to do."""
        data = {"code": error.code, **error.details}
        self.calls.refuse(self, self._code_of(error), f"{error.code}: {error.message}", data, error.code)

    def _code_of(self, error: CallError) -> int:
        if isinstance(error, UnknownResource | ResourceDisabled) and not self.request.modern:
            return protocol.RESOURCE_NOT_FOUND
        wrong = (UnknownPrompt, PromptDisabled, UnknownResource, ResourceDisabled)
        return INVALID_PARAMS if isinstance(error, wrong) else INTERNAL_ERROR
