"""All clients, as the notifications of servers reach them that are not about a call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from daemon.clients.roots import RootsOfClients

if TYPE_CHECKING:
    from msgspec import Raw

    from daemon.wire.peer_requests import PeerRequest
    from daemon.wire.requests import Exchange


class Hearer(Protocol):
    """One client, which takes from a server's notifications what is for it."""

    def hear(self, server: str, method: str, params: Raw, cause: Exchange | None) -> None:
        """Take a notification of a server (`ports.ConnectionEvents.on_message`), or leave it."""


class ConnectedClients:
    """The clients that are connected: `ports.Audience`."""

    def __init__(self) -> None:
        """Begin without any."""
        self.roots = RootsOfClients()
        """The clients that have roots."""
        self._hearers: dict[object, Hearer] = {}

    def join(self, hearer: Hearer) -> None:
        """Take notifications to this client, too, until it leaves."""
        self._hearers[hearer] = hearer

    def leave(self, hearer: Hearer) -> None:
        """Take nothing to this client any more."""
        self._hearers.pop(hearer, None)

    def hear(self, server: str, method: str, params: Raw, cause: Exchange | None) -> None:
        """Take a server's notification to all clients; each decides whether it is for it."""
        for hearer in list(self._hearers.values()):
            hearer.hear(server, method, params, cause)

    def ask(self, request: PeerRequest) -> None:
        """Put a server's request that no call has caused to the only client that can be meant, or refuse it."""
        self.roots.ask(request)
