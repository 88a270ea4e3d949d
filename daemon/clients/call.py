"""Calls of one client in flight: what each asked for, how far it has come, and what ends it.

A call ends exactly once: it is answered, refused or lost, or it is abandoned and gets no answer at all.
"""

from __future__ import annotations

import math
import re
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec
import trio
from msgspec import Raw, Struct

from daemon import protocol
from daemon.errors import CallError, InternalError, UpstreamCallError
from daemon.surfaces.answers import error_result
from daemon.wire.requests import RemoteError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from daemon.clients.attachment import Request
    from daemon.clients.context import SessionContext
    from daemon.ports import Upstream
    from daemon.wire.envelope import Buffer
    from daemon.wire.peer import Peer

NOTHING: Mapping[str, Raw] = {}
"""The `_meta` of most calls."""

NAMING = ("category", "server_name", "name", "names", "tool_name", "toolNames")
"""Members of a meta-tool's arguments that hold the names of what it is asked for."""

MAX_READ = 64 * 1024
"""Bytes of the longest arguments of a meta-tool that are decoded for the log: a tenth of a millisecond."""

MAX_NAMES = 5
"""Names in a line of the log; the whole line has a bound of its own (`host.logs.LABEL_BYTES`)."""

LOOKED_THROUGH = 64 * 1024
"""Bytes of the longest result that is searched for `isError`, in a quarter of a millisecond at most.

Failures are described in fewer. A longer result counts as a success.
"""

IS_ERROR = "isError"
"""The outcome in the log of a call that its tool answered with an error: for the protocol it is a result."""

_SAYS_ERROR = re.compile(rb'"isError"\s*:\s*true')
"""Most results say `false`: a result without a match does not have to be decoded."""


class _IsError(Struct):
    isError: bool = False  # noqa: N815 - the wire's name


_decode_is_error = msgspec.json.Decoder(_IsError).decode
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_SAID = msgspec.json.Decoder(str | list[str] | None)

MAX_NAME = 64
"""Characters of the longest name in a meta-tool's arguments that is logged; anything longer is no name."""

WAITING_STEP = 1e-6
"""By how much each report of ours raises a call's progress, which must rise with each (MCP, progress): so
little that nearly everything that its server reports later is more."""


def read_refusal(error: Buffer, redact: Callable[[str], str]) -> UpstreamCallError:
    """A server's JSON-RPC error as one that a model can read, without the secrets that the server may quote.

    Long data become text, cut to its beginning.
    """
    remote = RemoteError.from_wire(error)
    message = redact(remote.message)
    data: object = redact(remote.data.decode(errors="replace"))
    with suppress(msgspec.MsgspecError, ValueError, RecursionError):
        data = msgspec.json.decode(str(data))
    told = {"code": remote.code, "message": message, "data": data}
    return UpstreamCallError(f"the server refused the call: {message} ({remote.code})", upstream=told)


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
    """Whether it may still wait for a server; it waits once at most."""
    current: bool = False
    """Whether it has waited for the server's new list."""
    looked: bool = False
    """Whether it has waited for what its session has loaded at other daemons."""
    returns: int = 0
    """How often it was taken back from a server's queue."""
    reported: float = 0.0
    """The progress that we have reported ourselves, while it waited for its server."""
    waiting: trio.CancelScope | None = None
    """The cancel scope of the task that waits on its behalf."""
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

    def read_meta(self, meta: dict[str, Raw]) -> None:
        """Take over the request's `_meta`: the members that travel on, and the progress token."""
        self.meta = protocol.foreign_meta(meta)
        token = meta.get("progressToken")
        if token is not None and bytes(token) != b"null":
            self.token, self.wants_progress = token, True

    def check(self) -> bool:
        """Whether the call may still be sent as it is (`ports.CallToSend.check`)."""
        return self.calls.recheck(self)

    def wait_scope(self) -> trio.CancelScope:
        """A cancel scope for the task that waits on this call's behalf: withdrawing the call ends the wait."""
        self.waiting = trio.CancelScope()
        return self.waiting

    def answered(self, result: Buffer) -> None:
        """Answer the client with the result as its author wrote it."""
        self.calls.finish(self, result, "ok")

    def refused(self, error: Buffer) -> None:
        """Answer the client with the server's JSON-RPC error, as a result that a model can read."""
        assert self.upstream is not None, "only a server refuses"
        self.lost(read_refusal(error, self.calls.redact.of(self.upstream.name)))

    def lost(self, error: CallError) -> None:
        """Answer the client with why there is no result and what to do."""
        try:
            result = error_result(error)
        except (TypeError, ValueError, RecursionError) as fault:
            result = error_result(InternalError(f"{error.code}, and its details cannot be shown: {fault}"))
        self.calls.finish(self, result, error.code)

    def progressed(self, params: dict[str, Raw]) -> None:
        """Pass a progress report on, under the client's own token."""
        if self.token is not None and not (self.reported and _progress(params) <= self.reported):
            self.calls.send_progress(self, {**params, "progressToken": self.token})

    def still_waits(self, text: str) -> None:
        """Report to the client that the call still waits for its server."""
        if self.token is not None:
            self.reported += WAITING_STEP
            progress, message = (Raw(msgspec.json.encode(value)) for value in (self.reported, text))
            told = {"progressToken": self.token, "progress": progress, "message": message}
            self.calls.send_progress(self, told)

    def conclude(self, error: CallError) -> None:
        """Answer the call now, with an error if it has no result yet."""
        self.withdraw(error.message)
        if self.finished is None:
            self.lost(error)
        else:
            self.answered(self.finished)

    def abandon(self, reason: str) -> None:
        """Give the call up wherever it is, without an answer."""
        self.calls.forget(self)
        self.withdraw(reason)

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


class CallsInFlight:
    """The calls of one client that have no answer yet."""

    def __init__(
        self, peer: Peer, number: int, context: SessionContext, recheck: Callable[[ClientCall], bool]
    ) -> None:
        """Begin without any.

        Args:
            peer: the client.
            number: the connection's number, for the log.
            context: what all sessions share.
            recheck: judges a call again that has waited in a queue (`ports.CallToSend.check`).
        """
        self.open: dict[bytes, ClientCall] = {}
        """By the ids of their requests, raw."""
        self.total = 0
        """How many calls the client has made so far."""
        self.recheck = recheck
        self.redact = context.redact
        self._peer = peer
        self._number = number
        self._context = context
        self._clock = trio.lowlevel.current_clock().current_time

    def finish(self, call: ClientCall, result: Buffer, outcome: str) -> None:
        """Answer a call and forget it; one that was abandoned is not answered (MCP, cancellation)."""
        request = call.request
        if self.open.get(request.id) is not call:
            return
        del self.open[request.id]
        if request.modern:
            result = protocol.completed(bytes(result))
        self._peer.answer(request.id, result)
        context, upstream, seconds = self._context, call.upstream, self._clock() - call.started
        failed = outcome == "ok" and is_error(result)
        label = call.told() if upstream is None else call.label
        context.log.note(self._number, label, seconds, IS_ERROR if failed else outcome)
        surface = request.surface.name
        if upstream is not None:
            upstream.record(seconds, ok=outcome == "ok")
            context.tally.call(upstream.name, surface, outcome, seconds, call.tool)
        else:
            context.tally.meta_call(surface, call.label, outcome)
            if outcome != "ok":
                context.tally.refused(outcome)

    def forget(self, call: ClientCall) -> None:
        """Drop a call without an answer."""
        self.open.pop(call.request.id, None)

    def send_progress(self, call: ClientCall, params: dict[str, Raw]) -> None:
        """Send the client a progress report that already has its own token."""
        self._peer.notify(protocol.PROGRESS, msgspec.json.encode(params), call.request.id)

    def cancel(self, request_id: bytes) -> None:
        """Abandon a call that the client cancels; it is not answered (MCP, cancellation)."""
        call = self.open.get(request_id)
        if call is not None:
            call.abandon("the client cancelled it")

    def lose_all(self, error: CallError) -> None:
        """Answer every call, if need be with an error: the daemon is stopping, nothing answers later."""
        for call in self._newest_first():
            call.conclude(error)
        self._context.outbox.flush()

    def abandon_all(self, reason: str) -> None:
        """Abandon every call: the client is gone."""
        for call in self._newest_first():
            call.abandon(reason)
        self._context.outbox.flush()

    def _newest_first(self) -> list[ClientCall]:
        """The newest calls may still be queued; ended first, they do not move up and get sent."""
        return list(reversed(self.open.values()))


def is_error(result: Buffer) -> bool:
    """Whether a tool reports failure in its result; False if the result has more than `LOOKED_THROUGH` bytes.

    The result is decoded only if `"isError": true` occurs anywhere in it; then the result's own member decides,
    not a text that quotes it.
    """
    raw = memoryview(result)
    if raw.nbytes > LOOKED_THROUGH or _SAYS_ERROR.search(raw) is None:
        return False
    try:
        return _decode_is_error(raw).isError
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
