"""Who is at the other end of a client's connection, as its door has found out."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import attrs

from daemon.catalog.loaded import OTHERS

if TYPE_CHECKING:
    from daemon.config.listen import ConsoleRole


@attrs.frozen(kw_only=True)
class Principal:
    """Who a connection's requests come from, and what they may reach."""

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
