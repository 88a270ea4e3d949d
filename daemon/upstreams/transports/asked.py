"""The requests of one server that have no answer yet, over any transport.

Each is answered once, under the id that the server gave it. A server may cancel one (MCP, cancellation), and
all end with their connection.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import attrs
import msgspec
import trio

from daemon import protocol
from daemon.wire.envelope import INVALID_REQUEST, METHOD_NOT_FOUND
from daemon.wire.requests import PeerRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from msgspec import Raw

    from daemon.wire.envelope import Buffer
    from daemon.wire.peer import Peer

MAX_SERVER_REQUESTS = 64
"""Requests of one server that may be open at a time, as many as it has calls at most: a server that asks faster
than anybody answers must not fill the memory."""


MAX_BYTES = 32 * 1024 * 1024
"""Bytes of their params together, two of the largest messages: each is kept as long as nobody has answered."""


class RequestsOfServer:
    """What one server has asked, and nobody has answered yet."""

    def __init__(self, peer: Peer) -> None:
        """Begin without any; `peer` is the server."""
        self._peer = peer
        self._open: dict[bytes, PeerRequest] = {}
        self._ended = trio.Event()

    def __len__(self) -> int:
        """How many are open."""
        return len(self._open)

    def take(self, request_id: bytes, method: str, params: Raw | None) -> PeerRequest | None:
        """Take a request in; None if it was answered at once: a ping, or what no client can be asked now."""
        if method == "ping":
            self._peer.answer(request_id, b"{}")
        elif method not in protocol.ASKED_OF_CLIENTS:
            self._peer.refuse(request_id, METHOD_NOT_FOUND, f"Method not found: {method}")
        elif request_id in self._open:
            self._peer.refuse(request_id, INVALID_REQUEST, protocol.already_in_flight(request_id))
        elif len(self._open) >= MAX_SERVER_REQUESTS:
            text = f"{MAX_SERVER_REQUESTS} requests of this server are open: wait for some to be answered"
            self._peer.refuse(request_id, INVALID_REQUEST, text)
        elif self._open and sum(map(_size, self._open.values()), len(params or b"")) > MAX_BYTES:
            text = f"open requests of this server have over {MAX_BYTES} bytes: wait for some to be answered"
            self._peer.refuse(request_id, INVALID_REQUEST, text)
        else:
            request = PeerRequest(method, params, _WayBack(self._peer, request_id, self._end))
            self._open[request_id] = request
            return request
        return None

    def withdraw(self, params: Raw) -> None:
        """End the request that the server cancels; `params` are those of the notification."""
        with suppress(msgspec.MsgspecError, RecursionError):
            if (request := self._end(protocol.cancelled_id(params))) is not None:
                request.withdraw("the server has cancelled it")

    def lose_all(self, reason: str) -> None:
        """End all: the connection is lost."""
        requests = list(self._open.values())
        self._open.clear()
        self._ended.set()
        for request in requests:
            request.withdraw(reason)

    async def wait_answered(self) -> None:
        """Return once those that are open now have ended; at once if none is."""
        asked = set(self._open)
        while not asked.isdisjoint(self._open):
            if self._ended.is_set():
                self._ended = trio.Event()
            await self._ended.wait()

    def _end(self, request_id: bytes) -> PeerRequest | None:
        """Forget one; returns it, None if it has ended already."""
        request = self._open.pop(request_id, None)
        if request is not None:
            self._ended.set()
        return request


@attrs.frozen(eq=False)
class _WayBack:
    """`wire.peer_requests.Responder` to a server."""

    _peer: Peer
    _request_id: bytes
    _end: Callable[[bytes], PeerRequest | None]

    def answer(self, result: Buffer) -> None:
        if self._end(self._request_id) is not None:
            self._peer.answer(self._request_id, result)

    def refuse(self, code: int, message: str, data: object = None) -> None:
        if self._end(self._request_id) is not None:
            self._peer.refuse(self._request_id, code, message, data)

    def refuse_as(self, error: Buffer) -> None:
        if self._end(self._request_id) is not None:
            self._peer.refuse_as(self._request_id, error)

    def report(self, params: dict[str, Raw]) -> None:
        self._peer.notify(protocol.PROGRESS, msgspec.json.encode(params))


def _size(request: PeerRequest) -> int:
    return len(request.params or b"")
