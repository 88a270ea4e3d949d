"""The `category` surface: `get-category-tools`, `call-category-tool` and a call tool for read-only tools.

The description of the first tool lists the categories, so that models know them even while no server is up.
"""

from __future__ import annotations

from daemon.catalog.categories import Member, ToolCategory, prospect
from daemon.config.config_model import Permission
from daemon.config.names import own_name
from daemon.errors import ToolDisabled, UnknownTool
from daemon.kit.wording import closest
from daemon.model import Kind
from daemon.surfaces import calling, describing
from daemon.surfaces.additions import read_only, refuse_held
from daemon.surfaces.answers import MAX_QUOTED, cut, instead, quoted
from daemon.surfaces.surface import RUNS_ANYTHING, Action, AwaitListing, Forward, MetaTool, Surface, View
from daemon.surfaces.wrapped import Wrapped, Wrapper

GET = "get-category-tools"
CALL = "call-category-tool"
CALL_READ_ONLY = "call-read-only-tool"
CALL_EXAMPLE = '{"category": "NAME", "name": "TOOL", "args": {}}'

_BY_CATEGORY = Wrapper("args", ("category", "name"), CALL_EXAMPLE)


def _get(view: View, arguments: bytes, *, patient: bool) -> Action:
    return describing.describe_category(view, arguments, lambda key, _member: key, tool=GET, patient=patient)


def _call(view: View, arguments: bytes, *, patient: bool) -> Action:
    wrapped = _BY_CATEGORY.unwrap(arguments)
    category, name = describing.find_category(view, wrapped.said["category"]), wrapped.name
    key = describing.member_key(category, name)
    if key is None:
        return _call_unlisted(view, category, wrapped, patient=patient)
    member = category.members[key]
    entry = view.catalog.servers[member.server]
    if not view.offer.rules.shows(member):
        if entry.tools is not None and member.tool not in entry.all_tools and not entry.switched_off:
            raise _unknown_tool(view, category, name)
        raise _disabled(view, category, member, name)
    if entry.switched_off:
        raise calling.disabled(view, (member.server, member.tool), name)
    refuse_held(view, Kind.TOOL, (member.server, member.tool), name)
    if entry.tools is not None and not member.listed:
        raise _unknown_tool(view, category, name)
    known = (entry.tools or {}).get(member.tool)
    if known is not None:
        calling.refuse_changed(view, known, name, view.offer.rules.describe(known, member))
    elif patient and _depends_on_definition(view, member):
        return AwaitListing(servers=(member.server,), calling=True)
    return _run(view, category, member, wrapped)


def _run(
    view: View, category: ToolCategory, member: Member, wrapped: Wrapped, *, lasts: bool = True
) -> Forward:
    entry = view.catalog.servers[member.server]
    tool = (entry.tools or {}).get(member.tool)
    if tool is None and _depends_on_definition(view, member):
        raise calling.never_listed(view, entry)
    label, key = f"{category.name}/{member.tool}", (member.server, member.tool)
    asks = view.offer.rules.permission(key) is Permission.ASK
    return calling.run(wrapped, key, tool, label, asks=asks, lasts=lasts)


def _depends_on_definition(view: View, member: Member) -> bool:
    """Whether a call must wait for the tool's definition: a user must not be asked about something unknown."""
    permission = view.offer.rules.permission((member.server, member.tool))
    return permission is not Permission.ALLOW or not view.catalog.servers[member.server].gate.is_open


def _call_unlisted(
    view: View, category: ToolCategory, wrapped: Wrapped, *, patient: bool
) -> Forward | AwaitListing:
    """Call a tool not listed yet: wait for the server's list if `patient`, else let the server decide."""
    name = wrapped.name
    waiting = [server for server in category.servers if view.catalog.servers[server].tools is None]
    prospects = [prospect(category, server, own_name(name, server)) for server in waiting]
    members = [member for member in prospects if member is not None] if category.open else []
    if not members:
        raise _unknown_tool(view, category, name)
    if not view.offer.rules.shows(members[0]):
        raise _disabled(view, category, members[0], name)
    if patient:
        # With several servers, the owner is unknown.
        return AwaitListing(servers=tuple(waiting), calling=len(waiting) == 1)
    # For this call only: a patient call waits for the list.
    return _run(view, category, members[0], wrapped, lasts=False)


def _disabled(view: View, category: ToolCategory, member: Member, name: str) -> ToolDisabled:
    if view.offer.rules.denies(key := (member.server, member.tool)) or view.offer.rules.hides(key):
        return calling.disabled(view, key, name)
    return ToolDisabled(
        f"{cut(name, MAX_QUOTED)} is switched off in category {category.name} by mcpd's configuration."
        f" Use another tool: {instead(view, describing.shown(view, category), name)}",
        category=category.name,
        tool=cut(name, MAX_QUOTED),
    )


def _unknown_tool(view: View, category: ToolCategory, name: str) -> UnknownTool:
    known = [key for key, member in describing.shown(view, category).items() if member.listed]
    quarantined = [
        f"server {server} lists it in a form that cannot be used: {why}"
        for server in category.servers
        if (why := view.catalog.servers[server].tool_list.quarantined.get(own_name(name, server)))
    ]
    because = f" ({quarantined[0]})" if quarantined else ""
    return UnknownTool(
        f"category {category.name} has no tool {quoted(name)}{because}. {instead(view, known, name)}",
        category=category.name,
        tool=cut(name, MAX_QUOTED),
        closest=closest(name, known),
    )


_CALL = MetaTool(
    name=CALL,
    describe=f"Run a tool of a category. Steps: 1. load the category's definitions with {GET};"
    " 2. call this with the category, the tool's name there and its own arguments.",
    properties={"category": {"type": "string"}, "name": {"type": "string"}, "args": {"type": "object"}},
    required=("category", "name", "args"),
    hints=RUNS_ANYTHING,
    does=_call,
)


class CategorySurface(Surface):
    """The tools of the `category` surface."""

    name = "category"
    tools = (
        MetaTool(
            name=GET,
            describe=lambda view: (
                f"Load the definitions of a category's tools, to run them with {CALL}."
                f"\n\n{describing.category_lines(view)}"
            ),
            properties=describing.DESCRIBING_PROPERTIES,
            required=("category",),
            does=_get,
        ),
        _CALL,
        read_only(CALL_READ_ONLY, _CALL),
    )

    def instructions(self, view: View) -> str:
        """Explain how to use the two tools."""
        return (
            f"Tools are grouped in categories, which {GET} lists. First call {GET} with a category to load its"
            f" tool definitions, then run a tool with {CALL}. meta.unavailableTools and meta.unavailableServers"
            " name what cannot be called right now."
        )

    def call_other(self, view: View, name: str, arguments: bytes, *, patient: bool) -> Action:
        """Refuse: all tools of servers are called through `call-category-tool`."""
        raise UnknownTool(
            f"there is no tool {quoted(name)} here. Tools of servers are called through {CALL}: {CALL_EXAMPLE}",
            available=[GET, CALL],
        )
