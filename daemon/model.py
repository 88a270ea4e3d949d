"""The values that the packages hand to one another. Frozen, without I/O, clock or event loop."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

import attrs
import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

ToolKey = tuple[str, str]
"""The key of a tool: its server's configured name and its bare name there."""


class Era(StrEnum):
    """The two ways in which MCP is spoken."""

    HANDSHAKE = "handshake"
    """2024-11-05 to 2025-11-25: `initialize`, sessions, server-to-client requests."""
    MODERN = "modern"
    """2026-07-28: stateless, `server/discover`, an envelope in the `_meta` of every request."""


@attrs.frozen(kw_only=True)
class StandingWishes:
    """What clients want of one server beside answers to their requests."""

    level: str | None = None
    """The level of its log that the most talkative of them has set; None if none has set one."""
    uris: frozenset[str] = frozenset()
    """The resources whose updates somebody follows, by the server's own URIs."""


class Kind(StrEnum):
    """What a server can list (MCP, server features)."""

    TOOL = "tool"
    PROMPT = "prompt"
    RESOURCE = "resource"
    TEMPLATE = "template"
    """A template of resources' URIs (RFC 6570)."""


@attrs.frozen(kw_only=True)
class Definition:
    """One tool, prompt, resource or template of resources as its server described it."""

    kind: Kind
    """Which of these it is."""
    server: str
    """The configured name of its server."""
    name: str
    """What identifies it there: the name of a tool or prompt, a resource's URI, a template."""
    raw: bytes = attrs.field(repr=False)
    """Its object in the server's list, byte for byte but for removed secrets and a completed schema."""
    schema_hash: str
    """Hex SHA-256 of the canonical JSON of the whole definition."""
    content_hash: str
    """The hash of the definition without `name`, which a rename keeps."""


@attrs.frozen(kw_only=True)
class Tool(Definition):
    """One tool, with what its calls and its descriptions need."""

    kind: Kind = Kind.TOOL
    description: str
    """The server's text, unabridged; empty if it gave none."""
    parts: Mapping[str, bytes] = attrs.field(repr=False)
    """Its top-level members, each raw JSON: `inputSchema`, `outputSchema`, `annotations`, ..."""
    completed: bool = attrs.field(default=False, eq=False)
    """Whether its server left `"type": "object"` out of its input schema, where it was added."""


@attrs.frozen(kw_only=True)
class GivenName:
    """A name that was given to a tool, a prompt or a URI for lists of several servers (`catalog.naming`)."""

    name: str
    """The name."""
    key: ToolKey
    """What the name means: the server, and its own name or URI there."""
    kind: Kind = Kind.TOOL
    """What was named: a tool, a prompt, or a `RESOURCE`, which is the URI of a resource or a template."""
    beside: bool = False
    """Whether it is a second name, for lists with a meta-tool that has the same name as the tool."""
    since: float = 0.0
    """Since when the name means this tool, in seconds since the epoch."""


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """One sentence by a model about a server or a tool."""

    text: str
    """The sentence, one line."""
    keywords: tuple[str, ...] = ()
    """Words that a search may use and that the description lacks."""
    of: str = ""
    """What it was made from: a tool's schema hash, or the digest of its tools (`catalog.definitions`)."""
    at: float = 0.0
    """When it was made, in seconds since the epoch."""


class Repair(StrEnum):
    """How arguments were repaired; of several repairs, the outermost."""

    STRINGIFIED = "stringified"
    """They were a string that holds an object."""
    UNWRAPPED = "unwrapped"
    """They were wrapped once more, or were in a slot of another name."""
    FLATTENED = "flattened"
    """They were beside the tool's name instead of in their slot."""
