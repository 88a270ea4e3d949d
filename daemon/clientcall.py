"""One `tools/call` of a client: what it asked for, how far it has come, and what ends it."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

import msgspec
import trio

from daemon import protocol
from daemon.errors import CallError, InternalError, UpstreamCallError
from daemon.surfaces.answers import error_result
from daemon.wire.peer import RemoteError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from msgspec import Raw

    from daemon.context import Guest
    from daemon.ports import Upstream
    from daemon.wire.envelope import Buffer, PlainCall

NOTHING: Mapping[str, Raw] = {}
"""The `_meta` of most calls."""


class Owner(Protocol):
    """Who the call came through: it alone answers the client."""

    def finish(self, call: ClientCall, result: Buffer, outcome: str) -> None:
        """Answer the call and forget it."""

    def forget(self, call: ClientCall) -> None:
        """Drop the call without an answer."""

    def send_progress(self, params: dict[str, Raw]) -> None:
        """Pass a progress report on, its token already the client's."""

    def redact(self, text: str) -> str:
        """The text without secrets."""

    def recheck(self, call: ClientCall) -> bool:
        """Judge the call again that has waited in line: False if it was taken back.

        Raises:
            CallError: it must not be sent as it is.
        """


def read_refusal(error: Buffer, redact: Callable[[str], str]) -> UpstreamCallError:
    """A server's JSON-RPC error as one that a model can read; it may quote what only the server was given."""
    remote = RemoteError.from_wire(error)
    message = redact(remote.message)
    told = {"code": remote.code, "message": message, "data": None}
    with suppress(msgspec.MsgspecError, TypeError, ValueError, RecursionError):
        told["data"] = msgspec.json.decode(redact(msgspec.json.encode(remote.data).decode()))
    return UpstreamCallError(f"the server refused the call: {message} ({remote.code})", upstream=told)


class ClientCall:
    """In flight from the client's request to its answer.

    To a server it is the `CallToSend` that it is sent and the `Exchange` that its answer ends in: one object,
    for making one is a good part of what a small call costs.
    """

    __slots__ = (
        "_owner",
        "_waiting",
        "arguments",
        "current",
        "given",
        "guest",
        "key",
        "label",
        "meta",
        "modern",
        "name",
        "patient",
        "request_id",
        "returns",
        "started",
        "token",
        "tool",
        "turn",
        "upstream",
        "wants_progress",
    )

    def __init__(self, owner: Owner, guest: Guest, asked: PlainCall, *, turn: int, started: float) -> None:
        """Take a request in.

        Args:
            owner: who it came through.
            guest: whose it is.
            asked: which tool, as the client calls it, with which arguments.
            turn: the connection's turn that it came in (`wire.peer.Peer.turn`).
            started: when, on trio's clock (seconds).
        """
        self._owner = owner
        self._waiting: trio.CancelScope | None = None
        self.guest = guest
        self.request_id, self.name, self.given = asked
        self.label = self.name
        self.modern = False
        self.turn = turn
        self.started = started
        self.upstream: Upstream | None = None
        self.key: int | None = None
        # Whether there is time to wait for a server; a second wait there is not.
        self.patient = True
        # Whether it has waited for the server's new list.
        self.current = False
        # How often it was taken back from a line.
        self.returns = 0
        # What is sent, once it is known where to (`ports.CallToSend`).
        self.tool = ""
        self.arguments: Buffer = self.given
        self.meta = NOTHING
        self.token: Raw | None = None
        self.wants_progress = False

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
        return self._owner.recheck(self)

    def wait_scope(self) -> trio.CancelScope:
        """A scope for the task that waits on this call's behalf, so that giving up ends the wait."""
        self._waiting = trio.CancelScope()
        return self._waiting

    def answered(self, result: Buffer) -> None:
        """The result, as its author wrote it."""
        self._owner.finish(self, result, "ok")

    def refused(self, error: Buffer) -> None:
        """The server's JSON-RPC error becomes a result that a model can read."""
        self.lost(read_refusal(error, self._owner.redact))

    def lost(self, error: CallError) -> None:
        """There is no result; say why and what to do."""
        try:
            result = error_result(error)
        except (TypeError, ValueError, RecursionError) as fault:
            result = error_result(InternalError(f"{error.code}, and its details cannot be shown: {fault}"))
        self._owner.finish(self, result, error.code)

    def progressed(self, params: dict[str, Raw]) -> None:
        """A progress report, under the client's own token."""
        if self.token is not None:
            self._owner.send_progress({**params, "progressToken": self.token})

    def abandon(self, reason: str) -> None:
        """Give the call up wherever it is; it is not answered any more."""
        self._owner.forget(self)
        self.withdraw(reason)

    def withdraw(self, reason: str) -> None:
        """Stop waiting for a server, or tell it that its answer is not wanted."""
        if self._waiting is not None:
            self._waiting.cancel()
        if self.upstream is not None and self.key is not None:
            self.upstream.cancel(self.key, reason)
