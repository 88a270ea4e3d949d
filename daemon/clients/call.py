"""Calls of one client in flight: what each asked for, how far it has come, and what ends it.

A call ends exactly once: answered, refused or lost; or it is given up, and nobody answers it any more.
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
"""Members of a meta-tool's arguments that name what it is about."""

MAX_READ = 64 * 1024
"""Bytes of a meta-tool's arguments that are looked into for the log: a tenth of a millisecond."""

MAX_NAMES = 5
"""Names in a line of the log; the whole line has a bound of its own (`host.logs.LABEL_BYTES`)."""

LOOKED_THROUGH = 64 * 1024
"""Bytes of a result that is looked through for `isError`, in a quarter of a millisecond at the most.

What failed is told in fewer. A longer one counts as one that succeeded.
"""

IS_ERROR = "isError"
"""In the log, how a call ended that its tool answered with an error: for the protocol it is a result."""

_SAYS_ERROR = re.compile(rb'"isError"\s*:\s*true')
"""Most results say that it is false: what is not said to be true need not be opened."""


class _IsError(Struct):
    isError: bool = False  # noqa: N815 - the wire's name


_decode_is_error = msgspec.json.Decoder(_IsError).decode
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_SAID = msgspec.json.Decoder(str | list[str] | None)

MAX_NAME = 64
"""Characters of one of them; what is longer is no name."""

WAITING_STEP = 1e-6
"""By how much each report of ours raises a call's progress, which must rise with each (MCP, progress): so
little that next to nothing of what its server reports later is not more."""


def read_refusal(error: Buffer, redact: Callable[[str], str]) -> UpstreamCallError:
    """A server's JSON-RPC error as one that a model can read; it may quote what only the server was given.

    Long data are given as text, of which the beginning is left.
    """
    remote = RemoteError.from_wire(error)
    message = redact(remote.message)
    data: object = redact(remote.data.decode(errors="replace"))
    with suppress(msgspec.MsgspecError, ValueError, RecursionError):
        data = msgspec.json.decode(str(data))
    told = {"code": remote.code, "message": message, "data": data}
    return UpstreamCallError(f"the server refused the call: {message} ({remote.code})", upstream=told)


def _named(arguments: bytes) -> str:
    """The names that a meta-tool was given, in short; nothing of what is to be passed on to a tool."""
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
    """Whether what a meta-tool was given may be logged: a need in somebody's own words may tell anything."""
    # A longer one is not cut: half a secret would not be known as one.
    return len(said) <= MAX_NAME and not any(map(str.isspace, said))


class ClientCall(Struct, eq=False, kw_only=True):
    """In flight from the client's request to its answer.

    To a server it is the `CallToSend` that it is sent and the `Exchange` that its answer ends in: one object,
    and a struct of msgspec's, for making one is a good part of what a small call costs.
    """

    calls: CallsInFlight
    """Where it is in flight: they alone answer the client."""
    request: Request
    """The client's."""
    name: str
    """The tool, as the client calls it."""
    given: bytes
    """Its arguments, as they came."""
    started: float
    """When, on trio's clock (seconds)."""
    label: str
    """What the log calls it."""
    method: str = protocol.CALL_TOOL
    """What is asked of the server (`ports.CallToSend`)."""
    tool: str = ""
    """What it is asked for, by the server's own name for it, once it is known where to send it."""
    params: tuple[Buffer, ...] = ()
    """What it is sent with (`ports.CallToSend`)."""
    meta: Mapping[str, Raw] = NOTHING
    """What of its `_meta` travels on (likewise)."""
    wants_progress: bool = False
    """Whether the server is asked for progress (likewise)."""
    token: Raw | None = None
    """The client's own progress token."""
    upstream: Upstream | None = None
    """Where it was sent, or is to be."""
    key: int | None = None
    """What it can be given up by there."""
    patient: bool = True
    """Whether there is time to wait for a server; a second wait there is not."""
    current: bool = False
    """Whether it has waited for the server's new list."""
    returns: int = 0
    """How often it was taken back from a line."""
    reported: float = 0.0
    """The progress that we have reported ourselves, while it waited for its server."""
    waiting: trio.CancelScope | None = None
    """The wait of the task that waits on its behalf."""
    finished: bytes | None = None
    """Its result, where that only waits to be on disk and for the client to list its tools."""

    def __repr__(self) -> str:
        """Without arguments: they may hold a secret."""
        return f"<ClientCall {self.label}>"

    def told(self) -> str:
        """What the log says of a call that no server had: what it named, and its session if that has a name."""
        asked = _named(self.given) if self.name in self.request.surface.meta_tools else ""
        state = self.request.session.state
        session = state.key if state.named else ""
        return f"{self.label}{asked and f'({asked})'}{session and f' in {session}'}"

    def read_meta(self, meta: dict[str, Raw]) -> None:
        """Take the `_meta` of the request in: what of it travels on, and the progress token."""
        self.meta = protocol.foreign_meta(meta)
        token = meta.get("progressToken")
        if token is not None and bytes(token) != b"null":
            self.token, self.wants_progress = token, True

    def check(self) -> bool:
        """Whether it is still to be sent as it is (`ports.CallToSend.check`)."""
        return self.calls.recheck(self)

    def wait_scope(self) -> trio.CancelScope:
        """A scope for the task that waits on this call's behalf, so that giving up ends the wait."""
        self.waiting = trio.CancelScope()
        return self.waiting

    def answered(self, result: Buffer) -> None:
        """The result, as its author wrote it."""
        self.calls.finish(self, result, "ok")

    def refused(self, error: Buffer) -> None:
        """The server's JSON-RPC error becomes a result that a model can read."""
        assert self.upstream is not None, "only a server refuses"
        self.lost(read_refusal(error, self.calls.redact.of(self.upstream.name)))

    def lost(self, error: CallError) -> None:
        """There is no result; say why and what to do."""
        try:
            result = error_result(error)
        except (TypeError, ValueError, RecursionError) as fault:
            result = error_result(InternalError(f"{error.code}, and its details cannot be shown: {fault}"))
        self.calls.finish(self, result, error.code)

    def progressed(self, params: dict[str, Raw]) -> None:
        """A progress report, under the client's own token."""
        if self.token is not None and not (self.reported and _progress(params) <= self.reported):
            self.calls.send_progress({**params, "progressToken": self.token})

    def still_waits(self, text: str) -> None:
        """Report that the call is not forgotten, though its server is not up yet."""
        if self.token is not None:
            self.reported += WAITING_STEP
            progress, message = (Raw(msgspec.json.encode(value)) for value in (self.reported, text))
            told = {"progressToken": self.token, "progress": progress, "message": message}
            self.calls.send_progress(told)

    def conclude(self, error: CallError) -> None:
        """Answer it now, with an error if it has no result yet."""
        self.withdraw(error.message)
        if self.finished is None:
            self.lost(error)
        else:
            self.answered(self.finished)

    def abandon(self, reason: str) -> None:
        """Give the call up wherever it is; it is not answered any more."""
        self.calls.forget(self)
        self.withdraw(reason)

    def withdraw(self, reason: str) -> None:
        """Stop waiting for a server, or tell it that its answer is not wanted."""
        if self.waiting is not None:
            self.waiting.cancel()
        if self.upstream is not None and self.key is not None:
            self.upstream.cancel(self.key, reason)


def _progress(params: Mapping[str, Raw]) -> float:
    """How far a server says that it is; endlessly far if it does not say it in a number."""
    try:
        return msgspec.json.decode(params["progress"], type=float)
    except (KeyError, msgspec.MsgspecError):
        return math.inf


class CallsInFlight:
    """The calls of one client that have no answer yet, by the ids of their requests."""

    def __init__(
        self, peer: Peer, number: int, context: SessionContext, recheck: Callable[[ClientCall], bool]
    ) -> None:
        """Begin without any.

        Args:
            peer: the client.
            number: of the connection, for the log.
            context: what all sessions share.
            recheck: judges a call again that has waited in line (`ports.CallToSend.check`).
        """
        self.open: dict[bytes, ClientCall] = {}
        self.total = 0
        """Calls so far."""
        self.recheck = recheck
        self.redact = context.redact
        self._peer = peer
        self._number = number
        self._context = context
        self._clock = trio.lowlevel.current_clock().current_time

    def finish(self, call: ClientCall, result: Buffer, outcome: str) -> None:
        """Answer a call and forget it. A call that was given up is not answered (MCP, cancellation)."""
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

    def send_progress(self, params: dict[str, Raw]) -> None:
        """Pass a progress report on, its token already the client's."""
        self._peer.notify("notifications/progress", msgspec.json.encode(params))

    def cancel(self, request_id: bytes) -> None:
        """Give a call up at the client's wish; it is not answered (MCP, cancellation)."""
        call = self.open.get(request_id)
        if call is not None:
            call.abandon("the client cancelled it")

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
        return list(reversed(self.open.values()))


def is_error(result: Buffer) -> bool:
    """Whether a tool has said that it failed; False of a result of more than `LOOKED_THROUGH` bytes.

    The result is opened only if that stands in it, wherever. A text that only quotes it is none: the result's
    own member decides.
    """
    raw = memoryview(result)
    if raw.nbytes > LOOKED_THROUGH or _SAYS_ERROR.search(raw) is None:
        return False
    try:
        return _decode_is_error(raw).isError
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
