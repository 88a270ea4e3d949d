"""One client as what all clients share knows it: whom it is for, and how it is told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Hashable

    from daemon.wire.peer_requests import PeerRequest


class Subscriber(Protocol):
    """One client, as what belongs to none of its requests is for it, or is not."""

    @property
    def level(self) -> int | None:
        """The level that it has set for the logs of servers; None if it has set none."""

    @property
    def asker(self) -> object:
        """The client, as its requests name it (`wire.requests.Exchange.asker`)."""

    def sees(self, server: str) -> bool:
        """Whether its profile has this server, or it uses this instance of one."""

    def say(self, method: str, params: bytes) -> None:
        """Send what it can do without; dropped if it is behind, or takes nothing just now."""

    def owe(self, key: Hashable, method: str, params: bytes, request_id: bytes | None = None) -> None:
        """Send what it must learn, as soon as it takes it.

        Args:
            key: what it is about: of two that wait, only the newer is sent.
            method: the method of the notification.
            params: its params.
            request_id: the request of the client's that it belongs to, if any.
        """

    def is_pending(self, key: Hashable) -> bool:
        """Whether something about this waits for it."""

    def forgive(self, key: Hashable) -> None:
        """Send no more what is owed about this."""

    def ask(self, request: PeerRequest, until: float) -> None:
        """Put a server's request to it that belongs to none of its own.

        Args:
            request: the request.
            until: when it ends without an answer, on trio's clock.
        """
