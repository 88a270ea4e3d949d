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
from daemon.surfaces.listing import usual_tools
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


async def tools(context: OperatorContext, params: ToolsParams) -> dict[str, object]:
    """The tools of each category, and the list and instructions that a model is given.

    Raises:
        InvalidArguments: there is no such profile or surface.
    """
    catalog = context.catalog
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
        "description": known if member.description is None else member.description,
        "enabled": member.enabled,
        "listed": member.listed,
        "available": member.listed and member.enabled and entry.available,
        "schemaHash": None if tool is None else tool.schema_hash,
    }
