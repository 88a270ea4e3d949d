"""Categories as frozen values: which tools are shown together, and what the operator says about each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs


def from_the_key(**arguments: Any) -> Any:
    """A field that no file can set; the reader fills it in."""
    return attrs.field(metadata={"in_file": False}, **arguments)


@attrs.frozen(kw_only=True)
class Override:
    """What the operator says about one tool."""

    enabled: bool = True
    """false: the tool is neither described nor callable."""
    description: str | None = None
    """Shown instead of the server's own description."""


@attrs.frozen(kw_only=True)
class ToolSelection:
    """Which tools belong to a category. Names may be bare, `server/tool` or `mcp__server__tool`."""

    include_names: tuple[str, ...] = ()
    """Tools by name, in the order in which they are shown."""
    include_patterns: tuple[str, ...] = ()
    """Tools by glob (`git_*`) or by regex between slashes (`/^git_(log|show)$/`)."""
    exclude_patterns: tuple[str, ...] = ()
    """Tools to leave out again, written like `includePatterns`."""
    overrides: Mapping[str, Override] = attrs.field(factory=dict)
    """Tool name to what is changed about it."""


@attrs.frozen(kw_only=True)
class Category:
    """A named set of tools, shown to models as one line until they ask for more."""

    name: str = from_the_key()
    """Its key in `categories`."""
    description: str = ""
    """What its tools are good for, in words for a model that chooses."""
    server: str | None = None
    """The server that bare tool names belong to; when absent, every name is `server/tool`."""
    skill: str | None = None
    """A text handed out with the tools: how to use them well."""
    tools: ToolSelection = attrs.field(factory=ToolSelection)
    """Which tools; when absent, all of the server's."""
