"""Roots outside of any call: servers ask for them as soon as they are up, and when they are told of a change.

Such a request belongs to no call. It goes to the only client that has roots and sees the server; if there are
more, or none, it is refused. A server that was refused is told of a change once there is such a client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from daemon.protocol import LIST_ROOTS
from daemon.wire.envelope import INVALID_REQUEST
from daemon.wire.requests import NO_CLIENT

if TYPE_CHECKING:
    from daemon.wire.peer_requests import PeerRequest


class RootsClient(Protocol):
    """One client that has roots."""

    def sees(self, server: str) -> bool:
        """Whether its profile has anything of this server."""

    def ask(self, request: PeerRequest) -> None:
        """Take a server's request for its roots."""

    def tell(self, server: str) -> None:
        """Tell a server that its roots have changed."""


class RootsOfClients:
    """The clients that have roots."""

    def __init__(self) -> None:
        """Begin without any."""
        self._clients: dict[RootsClient, None] = {}
        self._refused: set[str] = set()

    def ask(self, request: PeerRequest) -> None:
        """Put a request that belongs to no call to the only client that can be meant, or refuse it."""
        only = self._only(request.server) if request.method == LIST_ROOTS else None
        if only is not None:
            only.ask(request)
            return
        if request.method == LIST_ROOTS:
            self._refused.add(request.server)
        request.refuse(INVALID_REQUEST, NO_CLIENT)

    def join(self, client: RootsClient) -> None:
        """Ask this client, too, from now on."""
        self._clients[client] = None
        self._tell_refused()

    def leave(self, client: RootsClient) -> None:
        """Ask this client no more."""
        self._clients.pop(client, None)
        self._tell_refused()

    def gone(self, server: str) -> None:
        """Tell a server nothing more that will never be again."""
        self._refused.discard(server)

    def _tell_refused(self) -> None:
        for server in list(self._refused):
            only = self._only(server)
            if only is not None:
                self._refused.discard(server)
                only.tell(server)

    def _only(self, server: str) -> RootsClient | None:
        found = [client for client in self._clients if client.sees(server)]
        return found[0] if len(found) == 1 else None
