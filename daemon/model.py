"""The values that the rooms hand to one another. Frozen, without I/O, clock or event loop."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from daemon.states import ServerState


class Era(StrEnum):
    """The two ways in which MCP is spoken."""

    HANDSHAKE = "handshake"
    """2024-11-05 to 2025-11-25: `initialize`, sessions, server-to-client requests."""
    MODERN = "modern"
    """2026-07-28: stateless, `server/discover`, an envelope in the `_meta` of every request."""


@attrs.frozen(kw_only=True)
class Tool:
    """One tool as its server described it."""

    server: str
    """The configured name of its server."""
    name: str
    """Its bare name, as the server calls it."""
    description: str
    """The server's text, unabridged; empty if it gave none."""
    raw: bytes = attrs.field(repr=False)
    """The tool object of `tools/list`, byte for byte."""
    parts: Mapping[str, bytes] = attrs.field(repr=False)
    """Its top-level members, each raw JSON: `inputSchema`, `outputSchema`, `annotations`, ..."""
    schema_hash: str
    """Hex SHA-256 of the canonical JSON of what a caller depends on (design.md §6)."""


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


# --- facts, told to the registry ---------------------------------------------------------------------------


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
