"""The values that the rooms hand to one another. Frozen, without I/O, clock or event loop."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from collections.abc import Mapping

ToolKey = tuple[str, str]
"""Which tool: its server's configured name, and its bare name there."""


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
    """The tool object of `tools/list`, byte for byte but for secrets and what its schema lacked."""
    parts: Mapping[str, bytes] = attrs.field(repr=False)
    """Its top-level members, each raw JSON: `inputSchema`, `outputSchema`, `annotations`, ..."""
    schema_hash: str
    """Hex SHA-256 of the canonical JSON of the whole definition (design.md §6)."""
    content_hash: str
    """The same without the name: two tools that differ in their names only have one (a rename keeps it)."""
    completed: bool = attrs.field(default=False, eq=False)
    """Whether its server left `"type": "object"` out of its schema of arguments; it has it here."""


@attrs.frozen(kw_only=True)
class GivenName:
    """A name that a tool was given where those of several servers stand side by side (`catalog.naming`)."""

    name: str
    """The name."""
    key: ToolKey
    """The tool that the name means."""
    beside: bool = False
    """Whether it is a second one, beside a meta-tool that is called like the first."""
    since: float = 0.0
    """Since when, in seconds since the epoch: nobody was shown another tool under it after that."""


@attrs.frozen(kw_only=True)
class Summary:
    """One sentence of a model about a server or a tool."""

    text: str
    """The sentence, one line."""
    keywords: tuple[str, ...] = ()
    """Words that somebody may look for and that the description lacks."""
    of: str = ""
    """What it was made of: a tool's schema hash, or the digest of a server's tools (`catalog.definitions`)."""
    at: float = 0.0
    """When, in seconds since the epoch."""


class Repair(StrEnum):
    """What had to be done to arguments; of several things, the outermost."""

    STRINGIFIED = "stringified"
    """They were a string that holds an object."""
    UNWRAPPED = "unwrapped"
    """They were wrapped once more, or stood in a slot of another name."""
    FLATTENED = "flattened"
    """They stood beside the tool's name."""
