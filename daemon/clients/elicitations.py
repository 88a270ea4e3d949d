"""Elicitations that send a client's user to a URL (MCP 2025-11-25): who got one is told when it is complete.

A server says so in a notification of its own, when the call that it began in may long have ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import trio
from msgspec import Raw, Struct

from daemon.kit.latest import keep_latest
from daemon.wire.requests import RemoteError

if TYPE_CHECKING:
    from daemon.clients.subscribers import ConnectedClients
    from daemon.wire.envelope import Buffer
    from daemon.wire.peer import Peer
    from daemon.wire.requests import Exchange


class UserAnswer:
    """`wire.peer_requests.Responder` of a question of ours, for the task that waits for the answer."""

    def __init__(self) -> None:
        """Begin without an answer."""
        self.given = trio.Event()
        """Set once there is an answer, or there will be none."""
        self.result: bytes | None = None
        """The client's result, raw; None without one."""
        self.why = ""
        """Why there is none."""

    def answer(self, result: Buffer) -> None:
        """Take the client's result."""
        self.result = bytes(result)
        self.given.set()

    def refuse(self, code: int, message: str, data: object = None) -> None:
        """Take the reason why there is none."""
        self.why = f"the client has not asked: {message} ({code})"
        self.given.set()

    def refuse_as(self, error: Buffer) -> None:
        """Take the client's error."""
        told = RemoteError.from_wire(error)
        self.refuse(told.code, told.message)

    def report(self, params: dict[str, Raw]) -> None:
        """Nothing: nobody waits for how far a user is."""


COMPLETE = "notifications/elicitation/complete"
"""The notification that a user is done at a URL."""

REQUIRED = -32042
"""The JSON-RPC code of a call that needs a user to go to a URL first (MCP 2025-11-25)."""

MAX_KNOWN = 64
"""URLs that one client's user may still be at, of all servers; the oldest is forgotten first."""


class _Elicitation(Struct):
    elicitationId: object = None  # noqa: N815 - the wire's name
    mode: object = None


class _Data(Struct):
    elicitations: list[_Elicitation] = []


class _Required(Struct):
    code: int
    data: _Data


_decode = msgspec.json.Decoder(_Elicitation).decode
_decode_required = msgspec.json.Decoder(_Required).decode
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class UrlElicitations:
    """The URLs that one client was given: a `clients.audience.Hearer`."""

    def __init__(self, peer: Peer, audience: ConnectedClients) -> None:
        """Begin without any; `peer` is the client."""
        self._peer = peer
        self._audience = audience
        self._known: dict[tuple[str, str], None] = {}

    def __len__(self) -> int:
        """How many are not complete, as far as is known."""
        return len(self._known)

    def given(self, server: str, params: Raw | None) -> None:
        """Remember an `elicitation/create` that the client gets, if it names a URL."""
        if params is not None and b"elicitationId" in bytes(params):
            try:
                self._remember(server, _decode(params))
            except _UNREADABLE:
                return

    def required(self, server: str, error: Buffer) -> bool:
        """Remember where an error sends the client's user, if its code is `REQUIRED`. Returns whether it is."""
        try:
            found = _decode_required(error)
        except _UNREADABLE:
            return False
        if found.code != REQUIRED:
            return False
        for each in found.data.elicitations:
            self._remember(server, each)
        return True

    def hear(self, server: str, method: str, params: Raw, cause: Exchange | None) -> None:
        """Pass the notification on that an elicitation of this client's is complete."""
        del cause
        if method != COMPLETE:
            return
        try:
            found = _decode(params).elicitationId
        except _UNREADABLE:
            return
        if isinstance(found, str) and (server, found) in self._known:
            del self._known[server, found]
            self._peer.notify(method, bytes(params))

    def leave(self) -> None:
        """Hear nothing more: the client is gone."""
        self._audience.leave(self)

    def _remember(self, server: str, elicitation: _Elicitation) -> None:
        if elicitation.mode != "url" or not isinstance(elicitation.elicitationId, str):
            return
        self._audience.join(self)
        keep_latest(self._known, (server, elicitation.elicitationId), None, MAX_KNOWN)
