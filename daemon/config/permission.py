"""Rules of a profile about calls: which tools are called, and which only if the client's user agrees."""

from __future__ import annotations

from enum import StrEnum

import attrs


class Permission(StrEnum):
    """What becomes of a call."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


@attrs.frozen(kw_only=True)
class Annotations:
    """What a server says that a tool does (MCP, tool annotations)."""

    read_only: bool | None = None
    """true: tools that change nothing, as their servers say; false: all others."""
    destructive: bool | None = None
    """true: tools that may destroy something, which are all but those that say otherwise or only read."""
    idempotent: bool | None = None
    """true: tools of which a second call with the same arguments changes nothing more, as their servers say."""
    open_world: bool | None = None
    """true: tools that reach beyond their servers, which are all but those that say otherwise."""

    @property
    def wanted(self) -> dict[str, bool]:
        """What is said, by field; nothing of what is left open."""
        said = attrs.asdict(self)
        return {name: value for name, value in said.items() if value is not None}


@attrs.frozen(kw_only=True)
class PermissionRule:
    """Which tools a rule is about, and what becomes of calls to them; with both keys, both must fit."""

    match: str | None = None
    """Tools by glob (`filesystem/write_*`) or by regex between slashes, as in `includePatterns`."""
    annotations: Annotations | None = None
    """Tools by what their servers say that they do."""
    then: Permission
    """allow: called; ask: called if the client's user agrees; deny: neither shown nor called."""
