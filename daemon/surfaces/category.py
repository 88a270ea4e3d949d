"""The `category` surface: two tools, `get-category-tools` and `call-category-tool` (seed 001).

The categories stand in the first tool's description, so a model knows them from the start, even when no server
is up. A category's schemas come from the catalog; a call goes to the server with its payload unopened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET, Raw, UnsetType

from daemon.catalog.categories import Member, bare_name, prospect
from daemon.errors import InvalidArguments, SchemaFetchError, ToolDisabled, UnknownCategory, UnknownTool
from daemon.surfaces.base import (
    ALWAYS_LOAD,
    Action,
    AwaitListing,
    Forward,
    Reply,
    View,
    choices,
    closest,
    decode_arguments,
    result,
    unavailable_entry,
)

if TYPE_CHECKING:
    from daemon.catalog.categories import Category
    from daemon.catalog.snapshot import ServerEntry

GET = "get-category-tools"
CALL = "call-category-tool"

MAX_LINES = 60
"""Most categories named in a description; an unknown category's error names more."""
MAX_LINE = 160
"""Longest line about one category, in characters."""
MAX_TEXT = 6000
"""Longest list of categories, in characters: about 1,500 tokens, whatever the configuration holds."""

DESCRIBED = ("description", "inputSchema", "outputSchema", "annotations")
"""What a model is told of a tool."""

GET_EXAMPLE = '{"category": "NAME"} or {"category": "NAME", "toolNames": ["TOOL"]}'
CALL_EXAMPLE = '{"category": "NAME", "name": "TOOL", "args": {}}'


class _GetArguments(msgspec.Struct, forbid_unknown_fields=True):
    category: str
    toolNames: list[str] | None = None  # noqa: N815 - the seed's name


class _CallArguments(msgspec.Struct, forbid_unknown_fields=True):
    category: str
    name: str
    args: Raw | UnsetType = UNSET


class CategorySurface:
    """Seed 001's two tools."""

    name = "category"

    def instructions(self, view: View) -> str:
        """How to work with the two tools."""
        return (
            "Tools are grouped in categories. First call get-category-tools with a category to load its tool"
            " definitions, then run a tool with call-category-tool. meta.unavailableTools and"
            f" meta.unavailableServers name what cannot be called right now.\n{_category_lines(view)}"
        )

    def list_tools(self, view: View) -> bytes:
        """The two definitions."""
        return msgspec.json.encode([_get_definition(view), _CALL_DEFINITION])

    def call(self, view: View, name: str, arguments: bytes, *, patient: bool) -> Action:
        """Describe a category, or forward to the tool that is meant."""
        if name == GET:
            return _describe(view, decode_arguments(arguments, _GetArguments, GET_EXAMPLE), patient=patient)
        if name == CALL:
            return _forward(view, decode_arguments(arguments, _CallArguments, CALL_EXAMPLE), patient=patient)
        raise UnknownTool(
            f"there is no tool {name!r} here. Tools of servers are called through {CALL}: {CALL_EXAMPLE}",
            available=[GET, CALL],
        )


def _describe(view: View, asked: _GetArguments, *, patient: bool) -> Action:
    category = _category(view, asked.category)
    entries = [view.catalog.servers[server] for server in category.servers]
    unknown = tuple(entry.name for entry in entries if entry.tools is None and _may_list(entry))
    if patient and unknown:
        return AwaitListing(unknown)
    for entry in entries:
        if entry.tools is None and entry.listing_error and entry.available:
            raise SchemaFetchError(
                f"server {entry.name} does not list its tools: {entry.listing_error}. It is asked again"
                f" regularly; `mcpd restart {entry.name}` starts it afresh.",
                server=entry.name,
            )
    wanted = _wanted(category, asked.toolNames)
    tools = {key: _definition(view, member) for key, member in wanted.items() if member.listed}
    return Reply(result({"tools": tools, "meta": _meta(view, category, wanted, asked.toolNames)}))


def _may_list(entry: ServerEntry) -> bool:
    """Whether waiting for the first list of a server makes sense."""
    return not entry.listing_error and str(entry.status.state) in {"starting", "stopped", "ready", "dormant"}


def _wanted(category: Category, names: list[str] | None) -> dict[str, Member]:
    """The enabled members that were asked for, by the name that clients use.

    Raises:
        UnknownTool: names were given, and the category knows none of them.
    """
    enabled = {key: member for key, member in category.members.items() if member.enabled}
    if not names:
        return enabled
    keys = [key for key in (_member_key(category, name) for name in names) if key is not None]
    if not keys:
        missing = ", ".join(names)
        raise UnknownTool(
            f"category {category.name} has none of: {missing}. {choices(enabled, names[0])}",
            category=category.name,
            closest=closest(enabled, names[0]),
        )
    return {key: enabled[key] for key in keys if key in enabled}


def _member_key(category: Category, name: str) -> str | None:
    """The key under which a category holds a tool that a client named, with or without a prefix."""
    if name in category.members:
        return name
    for server in category.servers:
        for key in (bare_name(name, server), f"{server}/{bare_name(name, server)}"):
            member = category.members.get(key)
            if member is not None and member.server == server:
                return key
    return None


def _definition(view: View, member: Member) -> dict[str, object]:
    tools = view.catalog.servers[member.server].tools
    assert tools is not None
    tool = tools[member.tool]
    definition: dict[str, object] = {key: Raw(tool.parts[key]) for key in DESCRIBED if key in tool.parts}
    description = view.profile.tool_description_overrides.get(member.tool, member.description)
    definition["description"] = tool.description if description is None else description
    definition["schemaHash"] = tool.schema_hash
    return definition


def _meta(
    view: View, category: Category, wanted: dict[str, Member], names: list[str] | None
) -> dict[str, object]:
    entries = [view.catalog.servers[server] for server in category.servers]
    meta: dict[str, object] = {
        "category": category.name,
        "sourceServer": ", ".join(category.servers),
        "epoch": sum(entry.epoch for entry in entries),
    }
    down = {entry.name: unavailable_entry(entry, view.now) for entry in entries if not entry.available}
    absent = [key for key, member in wanted.items() if not member.listed or member.server in down]
    absent += [name for name in names or () if _member_key(category, name) not in wanted]
    if absent:
        meta["unavailableTools"] = list(dict.fromkeys(absent))
    if down:
        meta["unavailableServers"] = down
    if category.skill:
        meta["skill"] = category.skill
    return meta


def _forward(view: View, asked: _CallArguments, *, patient: bool) -> Action:
    category = _category(view, asked.category)
    if asked.args is UNSET or bytes(asked.args)[:1] != b"{":
        raise InvalidArguments(
            f'"args" must be an object with the arguments of {asked.name}, {{}} if it takes none.'
            f" Call it like this: {CALL_EXAMPLE}"
        )
    key = _member_key(category, asked.name)
    if key is None:
        return _forward_unlisted(view, category, asked, patient=patient)
    member = category.members[key]
    if not member.enabled:
        raise _disabled(category, asked.name)
    entry = view.catalog.servers[member.server]
    if entry.tools is not None and not member.listed:
        raise _unknown_tool(view, category, asked.name)
    return Forward(
        server=member.server, tool=member.tool, arguments=asked.args, label=f"{category.name}/{member.tool}"
    )


def _forward_unlisted(view: View, category: Category, asked: _CallArguments, *, patient: bool) -> Action:
    """A tool that the category does not hold, but may once its server has listed: the server decides then."""
    unlisted = [server for server in category.servers if view.catalog.servers[server].tools is None]
    prospects = [prospect(category, server, bare_name(asked.name, server)) for server in unlisted]
    members = [member for member in prospects if member is not None] if category.open else []
    if not members:
        raise _unknown_tool(view, category, asked.name)
    if not members[0].enabled:
        raise _disabled(category, asked.name)
    if patient:
        return AwaitListing(tuple(unlisted))
    assert asked.args is not UNSET
    server, tool = members[0].server, members[0].tool
    return Forward(server=server, tool=tool, arguments=asked.args, label=f"{category.name}/{tool}")


def _disabled(category: Category, name: str) -> ToolDisabled:
    others = (key for key, member in category.members.items() if member.enabled)
    return ToolDisabled(
        f"{name} is switched off in category {category.name} by mcpd's configuration."
        f" Use another tool: {choices(others, name)}",
        category=category.name,
        tool=name,
    )


def _unknown_tool(view: View, category: Category, name: str) -> UnknownTool:
    known = [key for key, member in category.members.items() if member.enabled and member.listed]
    quarantined = [
        f"server {server} lists it in a form that cannot be used: {why}"
        for server in category.servers
        if (why := view.catalog.servers[server].quarantined.get(bare_name(name, server)))
    ]
    because = f" ({quarantined[0]})" if quarantined else ""
    return UnknownTool(
        f"category {category.name} has no tool {name!r}{because}. {choices(known, name)}",
        category=category.name,
        tool=name,
        closest=closest(known, name),
    )


def _category(view: View, name: str) -> Category:
    category = view.categories.get(name)
    if category is None:
        raise UnknownCategory(
            f"there is no category {name!r}. {choices(view.categories, name)}",
            category=name,
            available=list(view.categories),
        )
    return category


def _category_lines(view: View) -> str:
    """One line per category, bounded in lines and size; what is left out is said."""
    if not view.categories:
        return "There are no categories: mcpd's configuration has no servers."
    lines = ["Categories:"]
    size = 0
    for number, category in enumerate(view.categories.values()):
        text = " ".join(f"- {category.name}: {category.description}".split())
        line = text if len(text) <= MAX_LINE else text[: MAX_LINE - 1] + "…"
        size += len(line) + 1
        if number >= MAX_LINES or size > MAX_TEXT:
            rest = len(view.categories) - number
            lines.append(f"- and {rest} more: any unknown category name is answered with their names")
            break
        lines.append(line)
    return (
        "\n".join(lines) if view.categories else "There are no categories: mcpd's configuration has no servers."
    )


def _get_definition(view: View) -> dict[str, object]:
    return {
        "name": GET,
        "description": (
            "Load the definitions of the tools in one category: what each does and which arguments it takes."
            f" Then run one with {CALL}.\n\n{_category_lines(view)}"
        ),
        "inputSchema": {
            "type": "object",
            "properties": {
                "category": {"type": "string", "description": "The name of a category."},
                "toolNames": {
                    "type": "array",
                    "items": {"type": "string"},
                    "description": "Only these tools; all of the category's if left out.",
                },
            },
            "required": ["category"],
            "additionalProperties": False,
        },
        "annotations": {"title": "Load a category's tools", "readOnlyHint": True, "openWorldHint": False},
        "_meta": ALWAYS_LOAD,
    }


_CALL_DEFINITION: dict[str, object] = {
    "name": CALL,
    "description": (
        "Run a tool of a category. Steps: 1. load the category's definitions with get-category-tools;"
        " 2. call this with the category, the tool's name and its arguments."
    ),
    "inputSchema": {
        "type": "object",
        "properties": {
            "category": {"type": "string", "description": "The category of the tool."},
            "name": {"type": "string", "description": "The tool, as get-category-tools names it."},
            "args": {"type": "object", "description": "The tool's own arguments; {} if it takes none."},
        },
        "required": ["category", "name", "args"],
        "additionalProperties": False,
    },
    "annotations": {"title": "Run a tool of a category"},
    "_meta": ALWAYS_LOAD,
}
