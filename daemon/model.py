"""The values that rooms exchange: frozen, without I/O, clock or event loop."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import attrs
import msgspec

ToolKey = tuple[str, str]
"""The server's configured name, and the tool's own name."""


class Era(StrEnum):
    """The two eras of MCP."""

    HANDSHAKE = "handshake"
    """2024-11-05 to 2025-11-25: `initialize`, sessions, server-to-client requests."""
    MODERN = "modern"
    """2026-07-28: stateless, `server/discover`, an envelope in the `_meta` of every request."""


class StandingWishes(msgspec.Struct, frozen=True, kw_only=True):
    """Lasting requests of clients to a server: log level and followed resources."""

    level: str | None = None
    uris: frozenset[str] = frozenset()


class Kind(StrEnum):
    """The kinds of definitions that servers list (MCP, server features)."""

    TOOL = "tool"
    PROMPT = "prompt"
    RESOURCE = "resource"
    TEMPLATE = "template"
    """A URI template (RFC 6570)."""
    SKILL = "skill"
    """A skill (SEP-2640); its hash covers the digests of its files."""


@attrs.frozen(kw_only=True)
class Definition:
    """A tool, prompt, resource or template as its server described it."""

    kind: Kind
    server: str
    name: str
    raw: bytes = attrs.field(repr=False)
    """The server's bytes, except for removed secrets and a completed schema."""
    schema_hash: str
    """Hex SHA-256 of the definition's canonical JSON."""
    content_hash: str
    """The hash without `name`, which a rename does not change."""


class AppLink(msgspec.Struct, frozen=True, kw_only=True):
    """A tool's relation to MCP Apps (SEP-1865)."""

    page: str = ""
    """The server's URI of the app that shows the tool's results; empty without one."""
    for_models: bool = True
    for_apps: bool = True


NO_APP = AppLink()
"""The link of most tools: no app, and open to models and apps."""


@attrs.frozen(kw_only=True)
class Tool(Definition):
    """A tool, with the parts that calls and descriptions need."""

    kind: Kind = Kind.TOOL
    description: str
    parts: Mapping[str, bytes] = attrs.field(repr=False)
    completed: bool = attrs.field(default=False, eq=False)
    """Whether a missing `"type": "object"` was added to its input schema."""
    app: AppLink = attrs.field(default=NO_APP, eq=False, repr=False)


@attrs.frozen(kw_only=True)
class GivenName:
    """A name given to a tool, prompt or URI among several servers (`catalog.naming`)."""

    name: str
    key: ToolKey
    kind: Kind = Kind.TOOL
    """The kind; `RESOURCE` includes templates."""
    beside: bool = False
    """Whether the name is a second one, for lists in which a meta-tool has the first name."""
    since: float = 0.0


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """A model's sentence about a server or a tool."""

    text: str
    keywords: tuple[str, ...] = ()
    """Search terms that the description lacks."""
    of: str = ""
    """The source: a tool's schema hash, or the server's digest (`catalog.definitions`)."""
    at: float = 0.0


class Approval(msgspec.Struct, frozen=True, kw_only=True):
    """The approval of one form of a definition."""

    identity: str
    """The server's identity (`config.lock_file.identity_of`)."""
    kind: Kind
    name: str
    """The name; empty means that the first list of this kind was accepted, and later definitions are new."""
    raw: bytes = b""
    by: str = ""
    at: float = 0.0
    """Seconds since the epoch."""


Known = Mapping[tuple[Kind, str], tuple[Approval, ...]]
"""The approvals of one identity, oldest first."""


class Repair(StrEnum):
    """The repair that arguments got; of several repairs, the outermost."""

    STRINGIFIED = "stringified"
    """The arguments were a string that contains an object."""
    UNWRAPPED = "unwrapped"
    """The arguments were wrapped once too often, or in a member with another name."""
    FLATTENED = "flattened"
    """The arguments were next to the tool's name instead of in their member."""
