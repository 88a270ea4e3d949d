"""What servers ask of one client while they work on its calls: sampling, elicitation, roots.

A request goes to its client as a request of ours, on the stream of the call that has caused it, and its
answer goes back as the bytes that the client wrote. It ends with its call: a client that hangs up, or cancels,
leaves no server waiting.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw

from daemon import protocol
from daemon.clients.capabilities import NOTHING, answer_instead, lacking
from daemon.wire.envelope import INVALID_REQUEST

if TYPE_CHECKING:
    from daemon.errors import CallError
    from daemon.wire.envelope import Buffer
    from daemon.wire.outbox import Outbox
    from daemon.wire.peer import Peer
    from daemon.wire.peer_requests import PeerRequest

MAX_OPEN = 16
"""Questions that one client may have before it at a time: more than a user answers, and a bound for a server
that asks without end."""

_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode


class ServerRequests:
    """The open requests of one client that speaks a revision with requests from servers (to 2025-11-25)."""

    def __init__(self, peer: Peer, outbox: Outbox) -> None:
        """Begin without any; `peer` is the client."""
        self.capabilities: Raw = NOTHING
        """What the client has declared in `initialize`, raw (MCP, client capabilities)."""
        self._peer = peer
        self._outbox = outbox
        self._open = 0

    def ask(self, request: PeerRequest, request_id: bytes | None) -> RelayedRequest | None:
        """Put a request to the client; None if it was answered at once, in its place.

        Args:
            request: the request.
            request_id: the client's request that it belongs to; None if it belongs to a task alone.
        """
        if lacks := lacking(self.capabilities, request):
            answer_instead(request, lacks)
            return None
        if self._open >= MAX_OPEN:
            request.refuse(INVALID_REQUEST, f"{MAX_OPEN} requests are before this client already")
            return None
        self._open += 1
        asked = RelayedRequest(self, request)
        asked.uid = self._peer.requests.open(asked, forwarded=False)
        self._peer.send_request(asked.uid, request.method, _params(request, asked.uid), request_id)
        self._outbox.flush()
        return asked

    def close(self, asked: RelayedRequest, reason: str) -> None:
        """Take a request back that is still before the client."""
        if self._peer.requests.take(asked.uid) is not None:
            self._open -= 1
            self._peer.notify(*protocol.cancelled(asked.uid, reason))

    def ended(self) -> None:
        """Note that a request was answered."""
        self._open -= 1


class RelayedRequest:
    """A request that is before a client: the `wire.requests.Exchange` of our request to it."""

    def __init__(self, asking: ServerRequests, request: PeerRequest) -> None:
        """Begin; `uid` is set once the request is sent."""
        self.uid = 0
        self._asking = asking
        self._request = request
        self._token = _token_of(request)
        request.on_withdrawn = self.withdraw

    def withdraw(self, reason: str) -> None:
        """Take it back from the client: nobody wants the answer any more."""
        self._asking.close(self, reason)

    def end(self, reason: str) -> None:
        """Take it back, and tell the server that its call has ended."""
        self._asking.close(self, reason)
        self._request.refuse(INVALID_REQUEST, reason)

    def answered(self, result: Buffer) -> None:
        """Hand the answer to the server."""
        self._asking.ended()
        self._request.answer(result)

    def refused(self, error: Buffer) -> None:
        """Hand the client's error to the server."""
        self._asking.ended()
        self._request.refuse_as(error)

    def lost(self, error: CallError) -> None:
        """Tell the server that there will be no answer."""
        self._asking.ended()
        self._request.refuse(INVALID_REQUEST, error.message)

    def progressed(self, params: dict[str, Raw]) -> None:
        """Pass the client's progress on, under the server's token."""
        if self._token is not None:
            self._request.report({**params, "progressToken": self._token})

    def asked(self, request: PeerRequest) -> None:
        """Refuse: a client asks nothing back."""
        request.refuse(INVALID_REQUEST, "a client cannot ask anything of a server in return")

    def notified(self, method: str, params: Raw) -> None:
        """Ignore it: a client's notifications concern the daemon."""

    @property
    def expires(self) -> bool:
        """Nothing is forwarded to a client, so nothing is given up here."""
        return True

    @property
    def asker(self) -> object:
        """The request itself."""
        return self


def _token_of(request: PeerRequest) -> Raw | None:
    if request.params is None or b"progressToken" not in bytes(request.params):
        return None
    try:
        return protocol.meta_of(request.params).get("progressToken")
    except msgspec.MsgspecError:
        return None


def _params(request: PeerRequest, uid: int) -> tuple[Buffer, ...]:
    """The server's params as it wrote them, but for the progress token, which is ours on this side."""
    if request.params is None:
        return (b"{}",)
    if _token_of(request) is None:
        return (request.params,)
    members = _decode_members(request.params)
    meta = {**protocol.meta_of(request.params), "progressToken": uid}
    return (msgspec.json.encode({**members, "_meta": meta}),)
