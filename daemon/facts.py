"""Facts: what upstreams and the supervisor tell the registry. Frozen and level-triggered ("it is so now")."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from daemon.model import Tool
    from daemon.states import ServerState


@attrs.frozen(kw_only=True)
class ServerStatus:
    """How a server is, as told to operators and models."""

    state: ServerState
    """What it is doing."""
    reason: str = ""
    """In words: why it is not ready, or what is wrong although it is."""
    since: float = 0.0
    """When it entered the state, in seconds since the epoch."""
    attempt: int = 0
    """Failed runs in the present streak."""
    next_retry_at: float | None = None
    """When it is tried again, in seconds since the epoch; None if no try is due."""
    incarnation: int = 0
    """Which start of this server this is: a fencing token, facts of an older one are dropped."""
    restarts: int = 0
    """Runs that ended since the daemon started, whatever ended them."""


@attrs.frozen(kw_only=True)
class StatusChanged:
    """A server's state is now this."""

    server: str
    """Which server."""
    status: ServerStatus
    """How it is."""


@attrs.frozen(kw_only=True)
class ToolsListed:
    """A server lists these tools now."""

    server: str
    """Which server."""
    incarnation: int
    """Which start of it said so."""
    tools: tuple[Tool, ...] = attrs.field(repr=False)
    """All usable tools, in the server's order."""
    quarantined: Mapping[str, str]
    """Names of tools that cannot be used, each with the reason."""


@attrs.frozen(kw_only=True)
class ListingFailed:
    """A server is connected but did not list its tools."""

    server: str
    """Which server."""
    incarnation: int
    """Which start of it."""
    reason: str
    """Why not."""


Fact = StatusChanged | ToolsListed | ListingFailed
