"""`mcpd tools`, `mcpd tools SERVER/TOOL`, `mcpd search`: all tools, and how a model sees them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import msgspec
from msgspec import Raw

from daemon.config.config_model import Profile
from daemon.config.listen import DEFAULT_PROFILE
from daemon.errors import InvalidArguments, UnknownTool
from daemon.history.event import Event, EventKind
from daemon.history.event_words import of_tool
from daemon.history.journal import EventQuery
from daemon.kit.wording import closest, meant, some
from daemon.operators.base import Command, OperatorContext
from daemon.operators.news import held_report
from daemon.operators.report_words import change_in_words
from daemon.surfaces.answers import MAX_NAMED, choices, quoted
from daemon.surfaces.calling import find, unknown_tool, usual_tools
from daemon.surfaces.explaining import example_of
from daemon.surfaces.finding import scored
from daemon.surfaces.surface import Surface, View
from daemon.surfaces.table import SURFACES, of_anyone
from daemon.surfaces.validators import Validator, validator_of

if TYPE_CHECKING:
    from daemon.catalog.categories import Member
    from daemon.catalog.snapshot import Catalog
    from daemon.model import Tool, ToolKey
    from daemon.operators import reports


class ToolsParams(msgspec.Struct):
    """The category, profile and surface to show; without a profile, the operator's view."""

    category: str | None = None
    profile: str | None = DEFAULT_PROFILE
    surface: str | None = None
    """The surface; None for the one that an unknown client of the profile gets."""
    server: str | None = None
    """The server whose own tools are listed; category and surface are then ignored."""


async def tools(
    context: OperatorContext, params: ToolsParams
) -> reports.ToolsReport | reports.ServerToolsReport:
    """The tools of each category, or of a server; raises `InvalidArguments` or `UnknownServer`."""
    catalog = context.catalog
    surface, view = view_of(context, params.profile, params.surface)
    if params.server is not None:
        return _of_server(context, params.server, view)
    return {
        "categories": {
            category.name: {
                "description": category.description,
                "servers": list(category.servers),
                "tools": {
                    key: _tool(catalog, member)
                    for key, member in category.members.items()
                    if _shows(view, (member.server, member.tool))
                },
            }
            for category in view.categories.values()
            if params.category in {None, category.name}
        },
        "surface": {
            "name": surface.name,
            "instructions": surface.instructions(view),
            "tools": [Raw(tool) for tool in surface.list_tools(view)],
        },
    }


TOOLS = Command("tools", ToolsParams, tools, reads=True)


def _shows(view: View, key: ToolKey) -> bool:
    """Whether a report includes a tool. Tools that are off or held count unless the profile conceals them."""
    return view.profile is EVERYTHING or not view.offer.rules.conceals(key)


def _shown(view: View, server: str, tools: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    return ((name, each) for name, each in tools.items() if _shows(view, (server, name)))


def _of_server(context: OperatorContext, server: str, view: View) -> reports.ServerToolsReport:
    catalog = context.catalog
    entry, redact = context.entry_of(server), context.redact.of(server)
    off = catalog.off | catalog.switched_tools
    return {
        "server": server,
        **context.state_of(server),
        "known": entry.tools is not None,
        "isCategory": _differs(catalog, server),
        "tools": {
            name: {
                "description": tool.description,
                "enabled": (enabled := not entry.disabled and (server, name) not in off),
                "available": enabled and entry.usable,
                "schemaHash": tool.schema_hash,
            }
            for name, tool in _shown(view, server, entry.tools or {})
        },
        "held": {name: held_report(each) for name, each in _shown(view, server, entry.tool_list.held)},
        "quarantined": {redact(name): redact(why) for name, why in entry.tool_list.quarantined.items()},
    }


def _differs(catalog: Catalog, server: str) -> bool:
    """Whether a category has the name of a server, but other tools."""
    category = catalog.categories.get(server)
    if category is None:
        return False
    listed = {(server, name) for name in catalog.servers[server].all_tools}
    return {(member.server, member.tool) for member in category.members.values()} != listed


EVERYTHING = Profile(name="operator")
"""A profile that hides nothing, for operators' own requests."""


def view_of(
    context: OperatorContext, profile_name: str | None = DEFAULT_PROFILE, surface_name: str | None = None
) -> tuple[Surface, View]:
    """A profile's surface and view; by default an unknown client's surface. Raises `InvalidArguments`."""
    catalog = context.catalog
    profile = EVERYTHING if profile_name is None else catalog.config.profiles.get(profile_name)
    if profile is None:
        known = choices(catalog.config.profiles, profile_name or "")
        raise InvalidArguments(f"no profile is named {quoted(profile_name or '')}. {known}")
    # An operator who names a surface wants to see it, whatever the switches say.
    name = surface_name or of_anyone(catalog.config, profile)
    if name not in SURFACES:
        raise InvalidArguments(f"no surface is named {quoted(name)}. {choices(SURFACES, name)}")
    return SURFACES[name], View(
        catalog=catalog,
        profile=profile,
        now=context.wall,
        services=context.services,
        usual=partial(usual_tools, context.services, catalog, profile),
    )


def _tool(catalog: Catalog, member: Member) -> reports.MemberReport:
    entry = catalog.servers[member.server]
    tool, held = (entry.tools or {}).get(member.tool), entry.tool_list.held.get(member.tool)
    known = "" if tool is None else tool.description
    return {
        "server": member.server,
        "tool": member.tool,
        "description": known if member.description is None else member.description,
        "enabled": member.enabled,
        "listed": member.listed,
        "held": None if held is None else held_report(held),
        "available": member.listed and member.enabled and entry.available,
        "schemaHash": None if tool is None else tool.schema_hash,
    }


MAX_FOUND = 1000  # most tools in an answer


class SearchParams(msgspec.Struct):
    """Several wordings of a query, where to search, and the number of tools."""

    queries: list[str]
    category: str | None = None
    limit: int = 20
    profile: str | None = DEFAULT_PROFILE


async def search(context: OperatorContext, params: SearchParams) -> dict[str, object]:
    """The matching tools with their scores, best first; raises `InvalidArguments` or `UnknownCategory`."""
    _surface, view = view_of(context, params.profile)
    return scored(view, params.queries, params.category, max(1, min(params.limit, MAX_FOUND)))


SEARCH = Command("search", SearchParams, search, reads=True)


class ToolParams(msgspec.Struct):
    """A tool by its server's own name; without `server`, by any of its names (`tool_named`)."""

    tool: str
    server: str = ""
    profile: str | None = None


async def tool(context: OperatorContext, params: ToolParams) -> reports.ToolReport:
    """A tool's definition and example arguments; raises `UnknownServer`, `UnknownTool`, `InvalidArguments`."""
    catalog, server, name = context.catalog, params.server, params.tool
    view = view_of(context, params.profile)[1]
    if not server:
        server, name = tool_named(catalog, name, partial(_shows, view))
    held = catalog.held((server, name))
    try:
        if params.profile is not None:
            _refuse_unseen(context, view, (server, name))
        known = known_tool(context, server, name)
    except UnknownTool as error:
        if (change := await last_change(context, server, name)) is None:
            raise
        raise UnknownTool(f"{error} {change_in_words(change, quoted(name))}", tool=name) from None
    entry = catalog.servers[server]
    key = (server, name)
    enabled = key not in catalog.switched_tools and key not in catalog.off and not entry.disabled
    approval = entry.gate.approval_of(known)
    return {
        "server": server,
        "tool": name,
        "categories": [each.name for each in catalog.categories.values() if _holds(each.members, key)],
        "enabled": enabled,
        "available": enabled and entry.available and held is None,
        **context.state_of(server),
        "schemaHash": known.schema_hash,
        "changed": await last_change(context, server, name),
        "held": None if held is None else held_report(held),
        "approved": None if approval is None else {"by": approval.by, "at": round(approval.at, 3)},
        "definition": Raw(known.raw),
        "observed": None if (shape := context.services.shapes(known.schema_hash)) is None else shape.python,
        "example": _example(validator_of(known)),
    }


TOOL = Command("tool", ToolParams, tool, reads=True)


def _refuse_unseen(context: OperatorContext, view: View, key: ToolKey) -> None:
    """Refuse a tool that a model's call could not reach, unless it is only switched off; raises `CallError`."""
    if key[1] not in context.entry_of(key[0]).tool_list.definitions or not _shows(view, key):
        find(view, "/".join(key), patient=False)
        raise unknown_tool(view, "/".join(key))


MAX_NEAR = 3  # most tools that are proposed for an unknown name


def tool_named(catalog: Catalog, name: str, shows: Callable[[ToolKey], bool] = bool) -> ToolKey:
    """The tool with a name, listed or not; a bare `TOOL` must be one that `shows` accepts.

    Other names are `SERVER/TOOL` and `mcp__SERVER__TOOL`. Raises `UnknownTool`, or `InvalidArguments`
    for a bare name that several servers have.
    """
    listed = list(filter(shows, _listed(catalog)))
    owners = [key for key in listed if key[1] == name]
    if len(owners) > 1:
        named = ", ".join(f"{server}/{own}" for server, own in owners[:MAX_NAMED])
        raise InvalidArguments(f"{len(owners)} servers have a tool {quoted(name)}: write one of {named}")
    found = owners[0] if owners else catalog.names.key_of(name, catalog.servers)
    if found is not None:
        return found
    known = {f"{server}/{own}": own for server, own in listed}
    if name in catalog.servers:
        own = some([each for each in known if each.startswith(f"{name}/")], MAX_NAMED)
        tools = f"write one of its tools: {own}" if own else f"it has no tools now (`mcpd status {name}`)"
        raise UnknownTool(f"{name} is a server: {tools}", tool=name)
    alike = closest(name, known.values())
    near = closest(name, known) or [whole for whole, own in known.items() if own in alike][:MAX_NEAR]
    hint = meant(near) if near else "`mcpd tools` lists them."
    raise UnknownTool(f"no server has a tool {quoted(name)}. {hint}", tool=name)


def known_tool(context: OperatorContext, server: str, name: str) -> Tool:
    """A tool that a server lists, by its own name; raises `UnknownServer` or `UnknownTool`."""
    entry = context.entry_of(server)
    found = entry.tool_list.all.get(name)
    if found is not None:
        return cast("Tool", found)
    why, text = entry.tool_list.quarantined.get(name), f"server {server} has no tool {quoted(name)}"
    if why is None:
        raise UnknownTool(f"{text}. {tools_like(server, entry.tools or {}, name)}", tool=name)
    raise UnknownTool(f"tool {quoted(name)} of server {server} cannot be used: {why}", tool=name)


def tools_like(server: str, tools: Iterable[str], name: str) -> str:
    """The end of an error: the closest tools of a server, as they are typed."""
    own = list(tools)
    near = [f"{server}/{each}" for each in closest(name, own)]
    return choices([f"{server}/{each}" for each in own], name, near)


def _listed(catalog: Catalog) -> list[ToolKey]:
    return [(entry.name, own) for entry in catalog.servers.values() for own in entry.tool_list.all]


MOST = 200  # most changes of a server's lists that are read, the newest: some milliseconds


_KINDS = frozenset({EventKind.LISTS_CHANGED})


_EXPLAINED = frozenset({"invalid_changed", "invalid_deleted", "invalid_renamed"})
"""Statuses of loaded tools that a change of the server's list causes."""


async def last_change(context: OperatorContext, server: str, name: str) -> reports.ChangeReport | None:
    """The last time (`at`) that a tool came, changed or went, and the change in words (`what`)."""
    return _newest(await _changes(context, server), name)


async def explain(context: OperatorContext, loaded: Sequence[reports.LoadedToolReport]) -> None:
    """Add `changed` to invalid loaded tools: the change since loading that made them invalid."""
    lost = [tool for tool in loaded if tool["status"] in _EXPLAINED]
    for server in dict.fromkeys(tool["server"] for tool in lost):
        of_server = [tool for tool in lost if tool["server"] == server]
        events = await _changes(context, server, min(tool["loadedAt"] for tool in of_server))
        for tool in of_server:
            change = _newest([event for event in events if event.at >= tool["loadedAt"]], tool["name"])
            if change is not None:
                tool["changed"] = change


async def _changes(context: OperatorContext, server: str, since: float = 0.0) -> Sequence[Event]:
    return await context.history.recent(EventQuery(server=server, kinds=_KINDS, since=since, limit=MOST))


def _newest(events: Sequence[Event], name: str) -> reports.ChangeReport | None:
    """The newest change of one tool in these events."""
    for event in reversed(events):
        if what := of_tool(event, name):
            return {"at": round(event.at, 3), "what": what}
    return None


MAX_EXAMPLE = 4096  # bytes of the longest example: a longer one is no help on a command line


MORE = 2  # optional arguments in an example of a tool without required ones


_USUAL = (
    (("path", "dir", "directory", "folder", "cwd", "repo", "repository"), "."),
    (("url", "uri"), "https://example.com"),
    (("timezone", "tz"), "UTC"),
)
"""Values that work on most machines, by the last word of an argument's name; used if the schema has none."""


_MADE_UP = "text"
"""The placeholder that `example_of` writes where any text is valid."""


def _holds(members: Any, key: tuple[str, str]) -> bool:
    return any((member.server, member.tool) == key for member in members.values())


def _example(validator: Validator | None) -> object:
    if validator is None:
        return None
    for made in _each_with_usual(validator.schema):
        if validator.proves(made) and len(msgspec.json.encode(made)) <= MAX_EXAMPLE:
            return made
    return None


def _each_with_usual(schema: dict[str, Any]) -> Iterator[object]:
    """Yield each example twice: with usual values in place of invented ones, then unchanged."""
    for made in _candidates(schema):
        if isinstance(made, dict):
            yield {key: _usual(key) if value == _MADE_UP else value for key, value in made.items()}
        # Where a pattern or an enumeration refuses what is usual.
        yield made


def _usual(name: str) -> str:
    last = name.lower().replace("-", "_").rpartition("_")[2]
    return next((value for words, value in _USUAL if last in words), _MADE_UP)


def _candidates(schema: dict[str, Any]) -> Iterator[object]:
    made = example_of(schema)
    properties = schema.get("properties")
    if made == {} and isinstance(properties, dict) and properties:
        yield example_of({**schema, "required": list(properties)[:MORE]})
    yield made
    yield {}
