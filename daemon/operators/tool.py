"""`mcpd tools SERVER/TOOL`: one tool as its server defines it, and arguments that it takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from daemon.errors import UnknownTool
from daemon.operators.base import Command
from daemon.surfaces.answers import choices
from daemon.surfaces.arguments.examples import example_of
from daemon.surfaces.arguments.validators import Validators

if TYPE_CHECKING:
    from collections.abc import Iterator

    from daemon.operators.base import OperatorContext
    from daemon.surfaces.arguments.validators import Validator

MAX_EXAMPLE = 4096
"""Bytes of the longest example: a longer one is no help on a command line."""

MORE = 2
"""Optional arguments that an example shows where none is required."""


class ToolParams(msgspec.Struct):
    """A tool, by its server's own name for it."""

    server: str
    tool: str


async def tool(context: OperatorContext, params: ToolParams) -> dict[str, object]:
    """The definition of a tool, whether it can be called, and arguments that fit its schema.

    Raises:
        UnknownServer: there is no such server.
        UnknownTool: it lists no such tool.
    """
    catalog, server, name = context.catalog, params.server, params.tool
    entry = catalog.servers.get(server)
    if entry is None:
        raise context.unknown(server)
    known = (entry.tools or {}).get(name)
    if known is None:
        why = entry.quarantined.get(name)
        text = f"server {server} has no tool {name!r}"
        if why is None:
            raise UnknownTool(f"{text}. {choices(entry.tools or {}, name)}", tool=name)
        raise UnknownTool(f"{text} that can be used: {why}", tool=name)
    key = (server, name)
    enabled = key not in catalog.switched_tools and key not in catalog.off and not entry.disabled
    return {
        "server": server,
        "tool": name,
        "categories": [each.name for each in catalog.categories.values() if _holds(each.members, key)],
        "enabled": enabled,
        "available": enabled and entry.available,
        **context.state_of(server),
        "schemaHash": known.schema_hash,
        "definition": Raw(known.raw),
        "example": _example(Validators().of(known)),
    }


TOOL = Command("tool", ToolParams, tool)


def _holds(members: Any, key: tuple[str, str]) -> bool:
    return any((member.server, member.tool) == key for member in members.values())


def _example(validator: Validator | None) -> object:
    """Arguments that fit a schema; None if none were found."""
    if validator is None:
        return None
    for made in _candidates(validator.schema):
        if validator.proves(made) and len(msgspec.json.encode(made)) <= MAX_EXAMPLE:
            return made
    return None


def _candidates(schema: dict[str, Any]) -> Iterator[object]:
    """Examples of a schema, the most telling one first."""
    made = example_of(schema)
    properties = schema.get("properties")
    if made == {} and isinstance(properties, dict) and properties:
        yield example_of({**schema, "required": list(properties)[:MORE]})
    yield made
    yield {}
