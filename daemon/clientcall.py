"""One `tools/call` of a client: what it asked for, how far it has come, and what ends it."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

import msgspec
import trio
from msgspec import Raw, Struct

from daemon import protocol
from daemon.errors import CallError, InternalError, UpstreamCallError
from daemon.surfaces.answers import error_result
from daemon.wire.requests import RemoteError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from daemon.context import Guest
    from daemon.ports import Upstream
    from daemon.wire.envelope import Buffer

NOTHING: Mapping[str, Raw] = {}
"""The `_meta` of most calls."""

NAMING = ("category", "server_name", "name", "names", "tool_name", "toolNames")
"""Members of a meta-tool's arguments that name what it is about."""

MAX_READ = 64 * 1024
"""Bytes of a meta-tool's arguments that are looked into for the log: a tenth of a millisecond."""

MAX_NAMES = 5
"""Names in a line of the log; the whole line has a bound of its own (`logs.LABEL_BYTES`)."""

_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_SAID = msgspec.json.Decoder(str | list[str] | None)

MAX_NAME = 64
"""Characters of one of them; what is longer is no name."""

WAITING_STEP = 1e-6
"""By how much each report of ours raises a call's progress, which must rise with each (MCP, progress): so
little that next to nothing of what its server reports later is not more."""


class Owner(Protocol):
    """Who the call came through: it alone answers the client."""

    def finish(self, call: ClientCall, result: Buffer, outcome: str) -> None:
        """Answer the call and forget it."""

    def forget(self, call: ClientCall) -> None:
        """Drop the call without an answer."""

    def send_progress(self, params: dict[str, Raw]) -> None:
        """Pass a progress report on, its token already the client's."""

    def redactor_of(self, server: str) -> Callable[[str], str]:
        """What takes secrets out of what a server says."""

    def recheck(self, call: ClientCall) -> bool:
        """Judge the call again that has waited in line: False if it was taken back.

        Raises:
            CallError: it must not be sent as it is.
        """


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


class ClientCall(Struct, eq=False):
    """In flight from the client's request to its answer.

    To a server it is the `CallToSend` that it is sent and the `Exchange` that its answer ends in: one object,
    and a struct of msgspec's, for making one is a good part of what a small call costs.
    """

    owner: Owner
    """Who it came through."""
    guest: Guest
    """Whose it is."""
    surface: str
    """The surface that it came in on."""
    request_id: bytes
    """Its client's, as it came."""
    name: str
    """The tool, as the client calls it."""
    given: bytes
    """Its arguments, as they came."""
    turn: int
    """The connection's turn that it came in (`wire.outbox.Link.turns`)."""
    started: float
    """When, on trio's clock (seconds)."""
    label: str
    """What the log calls it."""
    tool: str = ""
    """The tool, as its server calls it, once it is known where to send it."""
    method: str = protocol.CALL_TOOL
    """What is sent (`ports.CallToSend`)."""
    params: tuple[Buffer, ...] = ()
    """What it is sent with (likewise)."""
    meta: Mapping[str, Raw] = NOTHING
    """What of its `_meta` travels on (likewise)."""
    wants_progress: bool = False
    """Whether the server is asked for progress (likewise)."""
    token: Raw | None = None
    """The client's own progress token."""
    modern: bool = False
    """Whether the request is of the 2026-07-28 era."""
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
        asked = _named(self.given) if self.name in self.guest.surface.meta_tools else ""
        session = self.guest.session
        return f"{self.label}{asked and f'({asked})'}{session and f' in {session}'}"

    def read_meta(self, meta: dict[str, Raw], *, modern: bool) -> None:
        """Take the `_meta` of the request in: what of it travels on, and the progress token.

        Args:
            meta: as it came.
            modern: whether the request is of the 2026-07-28 era.
        """
        self.modern = modern
        self.meta = protocol.foreign_meta(meta)
        token = meta.get("progressToken")
        if token is not None and bytes(token) != b"null":
            self.token, self.wants_progress = token, True

    def check(self) -> bool:
        """Whether it is still to be sent as it is (`ports.CallToSend.check`)."""
        return self.owner.recheck(self)

    def wait_scope(self) -> trio.CancelScope:
        """A scope for the task that waits on this call's behalf, so that giving up ends the wait."""
        self.waiting = trio.CancelScope()
        return self.waiting

    def answered(self, result: Buffer) -> None:
        """The result, as its author wrote it."""
        self.owner.finish(self, result, "ok")

    def refused(self, error: Buffer) -> None:
        """The server's JSON-RPC error becomes a result that a model can read."""
        assert self.upstream is not None, "only a server refuses"
        self.lost(read_refusal(error, self.owner.redactor_of(self.upstream.name)))

    def lost(self, error: CallError) -> None:
        """There is no result; say why and what to do."""
        try:
            result = error_result(error)
        except (TypeError, ValueError, RecursionError) as fault:
            result = error_result(InternalError(f"{error.code}, and its details cannot be shown: {fault}"))
        self.owner.finish(self, result, error.code)

    def progressed(self, params: dict[str, Raw]) -> None:
        """A progress report, under the client's own token."""
        if self.token is not None and not (self.reported and _progress(params) <= self.reported):
            self.owner.send_progress({**params, "progressToken": self.token})

    def still_waits(self, text: str) -> None:
        """Report that the call is not forgotten, though its server is not up yet."""
        if self.token is not None:
            self.reported += WAITING_STEP
            progress, message = (Raw(msgspec.json.encode(value)) for value in (self.reported, text))
            told = {"progressToken": self.token, "progress": progress, "message": message}
            self.owner.send_progress(told)

    def conclude(self, error: CallError) -> None:
        """Answer it now, with an error if it has no result yet."""
        self.withdraw(error.message)
        if self.finished is None:
            self.lost(error)
        else:
            self.answered(self.finished)

    def abandon(self, reason: str) -> None:
        """Give the call up wherever it is; it is not answered any more."""
        self.owner.forget(self)
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
