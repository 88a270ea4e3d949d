"""`mcpd tools`: the tools that exist, and what a model sees of them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw

from daemon.config.model import DEFAULT_PROFILE
from daemon.errors import InvalidArguments
from daemon.operators.base import Command
from daemon.surfaces.answers import choices, quoted
from daemon.surfaces.base import View
from daemon.surfaces.searching import usual_tools
from daemon.surfaces.table import SURFACES, of_anyone

if TYPE_CHECKING:
    from daemon.catalog.categories import Member
    from daemon.catalog.snapshot import Catalog
    from daemon.operators.base import OperatorContext
    from daemon.surfaces.base import Surface


class ToolsParams(msgspec.Struct):
    """The category and the view that are asked for; by default everything, in the default profile."""

    category: str | None = None
    """The name of a category; None means all."""
    profile: str = DEFAULT_PROFILE
    """The profile whose view is shown."""
    surface: str | None = None
    """The surface to show; None means the one that an unknown client of the profile has."""
    server: str | None = None
    """A server whose own tools are asked for, in whatever category they are; then nothing else counts."""


async def tools(context: OperatorContext, params: ToolsParams) -> dict[str, object]:
    """The tools of each category, and the list and instructions that a model is given; or those of a server.

    Raises:
        InvalidArguments: there is no such profile or surface.
        UnknownServer: there is no such server.
    """
    catalog = context.catalog
    if params.server is not None:
        return _of_server(context, params.server)
    surface, view = view_of(context, params.profile, params.surface)
    return {
        "categories": {
            category.name: {
                "description": category.description,
                "servers": list(category.servers),
                "tools": {key: _tool(catalog, member) for key, member in category.members.items()},
            }
            for category in catalog.categories.values()
            if params.category in {None, category.name}
        },
        "surface": {
            "name": surface.name,
            "instructions": surface.instructions(view),
            "tools": [Raw(tool) for tool in surface.list_tools(view)],
        },
    }


TOOLS = Command("tools", ToolsParams, tools)


def _of_server(context: OperatorContext, server: str) -> dict[str, object]:
    """All that a server lists, by its own names."""
    catalog = context.catalog
    entry = catalog.servers.get(server)
    if entry is None:
        raise context.unknown(server)
    redact = context.redact.of(server)
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
            for name, tool in (entry.tools or {}).items()
        },
        "quarantined": {redact(name): redact(why) for name, why in entry.quarantined.items()},
    }


def _differs(catalog: Catalog, server: str) -> bool:
    """Whether a category has the name of a server, and other tools than that."""
    category = catalog.categories.get(server)
    if category is None:
        return False
    listed = {(server, name) for name in catalog.servers[server].tools or ()}
    return {(member.server, member.tool) for member in category.members.values()} != listed


def view_of(
    context: OperatorContext, profile_name: str = DEFAULT_PROFILE, surface_name: str | None = None
) -> tuple[Surface, View]:
    """The surface and the view that a client of a profile has now; by default the surface of an unknown client.

    Raises:
        InvalidArguments: there is no such profile or surface.
    """
    catalog = context.catalog
    profile = catalog.config.profiles.get(profile_name)
    if profile is None:
        known = choices(catalog.config.profiles, profile_name)
        raise InvalidArguments(f"no profile is named {quoted(profile_name)}. {known}")
    # An operator who names a surface wants to see it, whatever the switches say.
    name = surface_name or of_anyone(catalog.config, profile)
    if name not in SURFACES:
        raise InvalidArguments(f"no surface is named {quoted(name)}. {choices(SURFACES, name)}")
    return SURFACES[name], View(
        catalog=catalog,
        profile=profile,
        now=context.wall,
        means=context.means,
        usual=partial(usual_tools, context.means, catalog, profile),
    )


def _tool(catalog: Catalog, member: Member) -> dict[str, object]:
    entry = catalog.servers[member.server]
    tool = (entry.tools or {}).get(member.tool)
    known = "" if tool is None else tool.description
    return {
        "server": member.server,
        "tool": member.tool,
        "description": known if member.description is None else member.description,
        "enabled": member.enabled,
        "listed": member.listed,
        "available": member.listed and member.enabled and entry.available,
        "schemaHash": None if tool is None else tool.schema_hash,
    }
