"""The other end of a client connection: its principal, and the subscriber that notifications go to."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Protocol

import attrs

from daemon.catalog.loaded import OTHERS

if TYPE_CHECKING:
    from collections.abc import Hashable

    from daemon.config.listen import ConsoleRole
    from daemon.wire.requests import PeerRequest


@attrs.frozen(kw_only=True)
class Principal:
    """The user or token that a connection's requests come from, and what they may reach."""

    owner: str = ""
    """Whose sessions a key means, as in `uid 1000: ` or `token ci: `; empty: those of the daemon's own user."""
    token: str = ""
    """The name of the token that was shown; empty if none was, or if it has no name."""
    profiles: tuple[str, ...] | None = None
    """The profiles that it may use, the first for requests that name none; None is all of them."""
    console: ConsoleRole | None = None
    """What its token may do in the console; None: nothing."""
    workspaces: tuple[str, ...] | None = None
    """Globs of the directories that it may name as its workspace; None is any."""
    keeps: bool = True
    """Whether what it loads and is shown outside of a session with a key is kept from one request to the next:
    not where nothing tells two clients of a connection apart (MCP 2026-07-28 over HTTP)."""

    def own_key(self, key: str) -> str:
        """A session's key as the daemon knows it: the same key of somebody else means another session."""
        return f"{self.owner}{key}"


def local_user(uid: int, workspaces: tuple[str, ...] = ()) -> Principal:
    """The visitor behind a unix socket, whose user the kernel names; `workspaces` bind all but us and root."""
    if uid == os.getuid():
        return Principal()
    return Principal(owner=f"{OTHERS}{uid}: ", workspaces=workspaces if uid else None)


LOCAL_USER = Principal()
"""The daemon's own user."""


class Subscriber(Protocol):
    """One client, as the sender of notifications and requests that belong to none of its own requests."""

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

    def enqueue(self, key: Hashable, method: str, params: bytes, request_id: bytes | None = None) -> None:
        """Send what it must learn, as soon as it takes it.

        Args:
            key: what it is about: of two that wait, only the newer is sent.
            method: the method of the notification.
            params: its params.
            request_id: the request of the client's that it belongs to, if any.
        """

    def is_pending(self, key: Hashable) -> bool:
        """Whether something about this waits for it."""

    def discard_pending(self, key: Hashable) -> None:
        """Send no more what is owed about this."""

    def ask(self, request: PeerRequest, until: float) -> None:
        """Put a server's request to it that belongs to none of its own.

        Args:
            request: the request.
            until: when it ends without an answer, on trio's clock.
        """
