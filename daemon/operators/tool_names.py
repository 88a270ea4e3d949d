"""What an operator means by the name of a tool: `SERVER/TOOL`, or what clients and models call it.

Prompts, resources and templates have names of their own kind (`switch`, `prompt`, `read`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon.errors import InvalidArguments, UnknownTool
from daemon.kit.wording import closest, meant, quoted
from daemon.surfaces.answers import MAX_NAMED, choices

if TYPE_CHECKING:
    from collections.abc import Iterable

    from daemon.catalog.snapshot import Catalog
    from daemon.model import Tool, ToolKey
    from daemon.operators.base import OperatorContext

MAX_NEAR = 3
"""Most tools that are proposed for a name that none has."""


def tool_named(catalog: Catalog, name: str) -> ToolKey:
    """The tool that a name means, listed or not: `SERVER/TOOL`, `mcp__SERVER__TOOL`, or `TOOL` of one server.

    A bare name that several servers have is refused, although models know one of them by it: which one that is
    depends on who was there first.

    Raises:
        InvalidArguments: several servers have a tool of that name.
        UnknownTool: none has.
    """
    owners = [key for key in _listed(catalog) if key[1] == name]
    if len(owners) > 1:
        named = ", ".join(f"{server}/{own}" for server, own in owners[:MAX_NAMED])
        raise InvalidArguments(f"{len(owners)} servers have a tool {quoted(name)}: write one of {named}")
    found = owners[0] if owners else catalog.names.key_of(name, catalog.servers)
    if found is not None:
        return found
    known = {f"{server}/{own}": own for server, own in _listed(catalog)}
    alike = closest(name, known.values())
    near = closest(name, known) or [whole for whole, own in known.items() if own in alike][:MAX_NEAR]
    hint = meant(near) if near else "`mcpd tools` lists them."
    raise UnknownTool(f"no server has a tool {quoted(name)}. {hint}", tool=name)


def known_tool(context: OperatorContext, server: str, name: str) -> Tool:
    """A tool that a server lists, by its own name.

    Raises:
        UnknownServer: there is no such server.
        UnknownTool: it lists no such tool, or one that cannot be used.
    """
    entry = context.catalog.servers.get(server)
    if entry is None:
        raise context.unknown(server)
    found = (entry.tools or {}).get(name)
    if found is not None:
        return found
    why, text = entry.quarantined.get(name), f"server {server} has no tool {quoted(name)}"
    if why is None:
        raise UnknownTool(f"{text}. {tools_like(server, entry.tools or {}, name)}", tool=name)
    raise UnknownTool(f"{text} that can be used: {why}", tool=name)


def tools_like(server: str, tools: Iterable[str], name: str) -> str:
    """What an error says after a name that a server has not: the closest of its tools, as they are typed."""
    own = list(tools)
    near = [f"{server}/{each}" for each in closest(name, own)]
    return choices([f"{server}/{each}" for each in own], name, near)


def _listed(catalog: Catalog) -> list[ToolKey]:
    return [(entry.name, own) for entry in catalog.servers.values() for own in entry.tools or ()]
