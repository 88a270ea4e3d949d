"""What servers ask of one client while they work on its calls: sampling, elicitation, roots.

A request goes to its client as a request of ours, on the stream of the call that has caused it, and its
answer goes back as the bytes that the client wrote. It ends with its call (`upstreams.attribution`): a client
that hangs up, or cancels, leaves no server waiting.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import trio
from msgspec import Raw, Struct

from daemon import protocol
from daemon.clients.identity import NOTHING, answer_instead, has, lacking
from daemon.kit.mailbox import keep_latest
from daemon.wire.envelope import INTERNAL_ERROR, INVALID_REQUEST, is_error_object
from daemon.wire.requests import RemoteError

if TYPE_CHECKING:
    from collections.abc import Container

    from daemon.clients.subscribers import ConnectedClients
    from daemon.errors import CallError
    from daemon.wire.envelope import Buffer
    from daemon.wire.peer import Peer
    from daemon.wire.requests import Exchange, PeerRequest


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


MAX_OPEN = 32
"""Requests that may be before one client at a time: more than a user answers."""

MAX_OF_SERVER = 8
"""Those of one server among them: a server that asks without end leaves room for the others."""

_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode


class ServerRequests:
    """The open requests of one client that speaks a revision with requests from servers (to 2025-11-25)."""

    def __init__(self, peer: Peer, audience: ConnectedClients, calls: Container[bytes]) -> None:
        """Begin without any.

        Args:
            peer: the client.
            audience: all clients.
            calls: the ids of the client's open calls.
        """
        self.capabilities: Raw = NOTHING
        """What the client has declared in `initialize`, raw (MCP, client capabilities)."""
        self.elicitations = UrlElicitations(peer, audience)
        self.unsafe = audience.unsafe
        """Notes a question that is not put to the client."""
        self.told_roots: set[str] = set()
        """The servers that have asked for the client's roots."""
        self._peer = peer
        self._calls = calls
        self._open: set[RelayedRequest] = set()

    def ask(self, request: PeerRequest, request_id: bytes | None) -> RelayedRequest | None:
        """Put a request to the client; None if it was answered at once, in its place.

        Args:
            request: the request.
            request_id: the client's request that it belongs to; None if it belongs to none.
        """
        server = request.server
        if lacks := lacking(self.capabilities, request):
            answer_instead(request, lacks)
        elif sum(each.server == server for each in self._open) >= MAX_OF_SERVER:
            text = f"{MAX_OF_SERVER} requests of this server are before this client already"
            request.refuse(INVALID_REQUEST, text)
        elif len(self._open) >= MAX_OPEN:
            request.refuse(INVALID_REQUEST, f"{MAX_OPEN} requests are before this client already")
        else:
            if request.method == protocol.LIST_ROOTS:
                self.told_roots.add(server)
            self.elicitations.given(server, request.params)
            asked = RelayedRequest(self, request, request_id)
            self._open.add(asked)
            asked.uid = self._peer.requests.open(asked, forwarded=False)
            self._peer.send_request(asked.uid, request.method, _params(request, asked), request_id)
            return asked
        return None

    async def ask_ourselves(self, method: str, request_id: bytes | None, seconds: float) -> bytes:
        """Ask the client something that mcpd itself needs to know, and return its result, raw.

        Args:
            method: what is asked, without params.
            request_id: the client's request on whose account it is asked; over HTTP it goes out on its stream.
            seconds: how long the client has to answer.

        Raises:
            RemoteError: the client refuses.
            UpstreamTimeout: it does not answer in time.
            UpstreamLost: it is gone.
        """
        return await self._peer.request(method, {}, timeout=seconds, tells=False, request_id=request_id)

    def close(self, asked: RelayedRequest, reason: str) -> None:
        """Take a request back that is still before the client."""
        if self._peer.requests.take(asked.uid) is not None:
            self.ended(asked)
            # Over HTTP, the stream that it went out on ends with its call.
            stream = asked.request_id if asked.request_id in self._calls else None
            self._peer.notify(*protocol.cancelled(asked.uid, reason), stream)

    def ended(self, asked: RelayedRequest) -> None:
        """Note that a request has an answer, or gets none."""
        self._open.discard(asked)

    def is_asked_about(self, request_id: bytes) -> bool:
        """Whether something is before the client that belongs to this request of its."""
        return any(each.request_id == request_id for each in self._open)

    def takes_url(self, server: str, error: Buffer) -> bool:
        """Whether a server's error sends the client's user to a URL, which the client can do."""
        return has(self.capabilities, "elicitation", "url") and self.elicitations.required(server, error)


class RelayedRequest:
    """A request that is before a client: the `wire.requests.Exchange` of our request to it."""

    spared_until = 0.0

    def __init__(self, asking: ServerRequests, request: PeerRequest, request_id: bytes | None) -> None:
        """Begin; `uid` is set once the request is sent."""
        self.uid = 0
        self.server = request.server
        self.request_id = request_id
        self.token = _token_of(request)
        """The server's own progress token, if it wants to be told of progress."""
        self.limit: trio.CancelScope | None = None
        """The cancel scope of the task that bounds it, if no call does."""
        self._asking = asking
        self._request = request
        request.on_withdrawn = self.withdraw

    def withdraw(self, reason: str) -> None:
        """Take it back from the client: nobody wants the answer any more."""
        self._release()
        self._asking.close(self, reason)

    def answered(self, result: Buffer) -> None:
        """Hand the answer to the server; what is no object is none (MCP)."""
        self._ended()
        if bytes(memoryview(result)[:1]) == b"{":
            self._request.answer(result)
        else:
            self._request.refuse(INTERNAL_ERROR, "the client has answered with something that is no object")

    def refused(self, error: Buffer) -> None:
        """Hand the client's error to the server."""
        self._ended()
        if is_error_object(error):
            self._request.refuse_as(error)
        else:
            self._request.refuse(INTERNAL_ERROR, "the client has refused with what is no error object")

    def lost(self, error: CallError) -> None:
        """Tell the server that there will be no answer."""
        self._ended()
        self._request.refuse(INTERNAL_ERROR, f"the client has not answered: {error.message}")

    def progressed(self, params: dict[str, Raw]) -> None:
        """Pass the client's progress on, under the server's token."""
        if self.token is not None:
            self._request.report({**params, "progressToken": self.token})

    def asked(self, request: PeerRequest) -> None:
        """Refuse: a client asks nothing back."""
        request.refuse(INVALID_REQUEST, "a client cannot ask anything of a server in return")

    def notified(self, method: str, params: Raw) -> None:
        """Ignore it: a client's notifications concern the daemon."""

    @property
    def asker(self) -> object:
        """The request itself."""
        return self

    @property
    def answerable(self) -> frozenset[str]:
        """None: a client asks nothing back."""
        return frozenset()

    def _ended(self) -> None:
        self._release()
        self._asking.ended(self)

    def _release(self) -> None:
        if self.limit is not None:
            self.limit.cancel()


def _token_of(request: PeerRequest) -> Raw | None:
    if request.params is None or b"progressToken" not in bytes(request.params):
        return None
    try:
        token = protocol.meta_of(request.params).get("progressToken")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return None if token is None else token.copy()


def _params(request: PeerRequest, asked: RelayedRequest) -> tuple[Buffer, ...]:
    """The server's params as it wrote them, but for the progress token, which is ours on this side."""
    if request.params is None:
        return (b"{}",)
    if asked.token is None:
        return (request.params,)
    members = _decode_members(request.params)
    meta = {**protocol.meta_of(request.params), "progressToken": asked.uid}
    return (msgspec.json.encode({**members, "_meta": meta}),)
