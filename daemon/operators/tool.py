"""`mcpd tools SERVER/TOOL`: one tool as its server defines it, and arguments that it takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from daemon.errors import UnknownTool
from daemon.kit.wording import quoted
from daemon.operators.base import Command
from daemon.operators.loaded_words import change_in_words
from daemon.operators.tool_changes import last_change
from daemon.operators.tool_names import known_tool, tool_named
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


_USUAL = (
    (("path", "dir", "directory", "folder", "cwd", "repo", "repository"), "."),
    (("url", "uri"), "https://example.com"),
    (("timezone", "tz"), "UTC"),
)
"""Texts that work on most machines for an argument whose name ends so, where its schema proposes none."""

_MADE_UP = "text"
"""What `example_of` writes where any text fits."""


class ToolParams(msgspec.Struct):
    """A tool, by its server's own name for it; without a server, by any name (`tool_names`)."""

    tool: str
    server: str = ""


async def tool(context: OperatorContext, params: ToolParams) -> dict[str, object]:
    """The definition of a tool, whether it can be called, and arguments that fit its schema.

    Raises:
        UnknownServer: there is no such server.
        UnknownTool: it lists no such tool.
        InvalidArguments: a name alone is that of several.
    """
    catalog, server, name = context.catalog, params.server, params.tool
    if not server:
        server, name = tool_named(catalog, name)
    try:
        known = known_tool(context, server, name)
    except UnknownTool as error:
        if (change := await last_change(context, server, name)) is None:
            raise
        raise UnknownTool(f"{error} {change_in_words(change, quoted(name))}", tool=name) from None
    entry = catalog.servers[server]
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
        "changed": await last_change(context, server, name),
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
    for made in _each_with_usual(validator.schema):
        if validator.proves(made) and len(msgspec.json.encode(made)) <= MAX_EXAMPLE:
            return made
    return None


def _each_with_usual(schema: dict[str, Any]) -> Iterator[object]:
    for made in _candidates(schema):
        yield _with_usual(made)
        # Where a pattern or an enumeration refuses what is usual.
        yield made


def _with_usual(made: object) -> object:
    """An example with what is usual for an argument of such a name in place of what was made up."""
    if not isinstance(made, dict):
        return made
    return {key: _usual(key) if value == _MADE_UP else value for key, value in made.items()}


def _usual(name: str) -> str:
    last = name.lower().replace("-", "_").rpartition("_")[2]
    return next((value for words, value in _USUAL if last in words), _MADE_UP)


def _candidates(schema: dict[str, Any]) -> Iterator[object]:
    """Examples of a schema, the most telling one first."""
    made = example_of(schema)
    properties = schema.get("properties")
    if made == {} and isinstance(properties, dict) and properties:
        yield example_of({**schema, "required": list(properties)[:MORE]})
    yield made
    yield {}
