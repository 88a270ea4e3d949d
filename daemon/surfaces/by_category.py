"""Finding and describing the tools of a category, for the surfaces `category` and `browse`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from daemon.config.names import own_name
from daemon.errors import UnknownCategory, UnknownTool
from daemon.kit.wording import closest
from daemon.surfaces.answers import (
    MAX_NAMED,
    MAX_QUOTED,
    choices,
    cut,
    decode_arguments,
    names_within,
    quoted,
    result,
    room_of,
    roomy_lines,
    share_of,
    size_of,
    some_of,
)
from daemon.surfaces.base import Action, AwaitListing, Reply, View
from daemon.surfaces.describing import (
    Described,
    Page,
    outlined,
    paged,
    position,
    require_lists,
    unavailable,
    unlisted,
)
from daemon.surfaces.summing import category_line, first_instructions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from daemon.catalog.categories import Member, ToolCategory
    from daemon.catalog.snapshot import ServerEntry

NAMED_IN_NOTE = 2
"""Tools in the example of how to ask for definitions: two, to show that there may be several."""

NO_CATEGORIES = "There are no categories: mcpd's configuration has no servers."


DESCRIBE_EXAMPLE = '{"category": "NAME"} or {"category": "NAME", "toolNames": ["TOOL"]}'


class _DescribeArguments(msgspec.Struct, forbid_unknown_fields=True):
    """The arguments that ask for a category: all of its tools or some, from a cursor on."""

    category: str
    toolNames: list[str] | None = None  # noqa: N815 - the seed's name
    cursor: str | None = None


DESCRIBING_PROPERTIES: dict[str, object] = {
    "category": {"type": "string"},
    "toolNames": {"type": "array", "items": {"type": "string"}},
}
"""The schemas of a call without the cursor."""


def find_category(view: View, name: str) -> ToolCategory:
    """The category of that name.

    Raises:
        UnknownCategory: the profile has none of that name; the text names those that it has.
    """
    category = view.categories.get(name)
    if category is None:
        raise UnknownCategory(
            f"there is no category {quoted(name)}. {choices(view.categories, name, room=share_of(view))}",
            category=cut(name, MAX_QUOTED),
            available=some_of(view.categories, share_of(view)),
        )
    return category


def category_lines(view: View) -> str:
    """One line per category, bounded in lines and size; the last line counts what is left out."""
    categories = view.categories.values()
    if not categories:
        return NO_CATEGORIES
    rest_text = "any unknown category name is answered with their names"

    def entries(room: int) -> list[tuple[str, str]]:
        return [(category.name, category_line(view, category, room)) for category in categories]

    return "Categories:\n" + roomy_lines(entries, view.means.index_characters, rest_text)


def describe_category(
    view: View, arguments: bytes, name_of: Callable[[str, Member], str], *, tool: str, patient: bool
) -> Action:
    """Answer with a category's known tools and their schemas, and with what cannot be called now.

    If the schemas of all tools do not fit into one answer, there is a line for each tool instead, and how to
    ask for the schemas of some.

    Args:
        view: the view of the session.
        arguments: which category, which of its tools, and where to continue, as raw JSON.
        name_of: returns what a client calls a member, given the category's key for it.
        tool: the meta-tool that was called.
        patient: whether servers that have not listed their tools may be waited for.

    Raises:
        UnknownTool: tools were named, and the category has none of them.
        SchemaFetchError: one of the servers is up and does not list its tools.
        InvalidArguments: the arguments or the cursor are not valid.
        UnknownCategory: there is no such category.
    """
    asked = decode_arguments(arguments, _DescribeArguments, DESCRIBE_EXAMPLE)
    category, wanted, cursor = find_category(view, asked.category), asked.toolNames or [], asked.cursor
    entries = entries_of(view, category)
    waiting = unlisted(entries)
    if patient and waiting:
        return AwaitListing(servers=waiting)
    require_lists(entries)
    chosen = _chosen(view, category, wanted)
    described: list[Described] = []
    for key, member in chosen.items():
        known = (view.catalog.servers[member.server].tools or {}).get(member.tool)
        if known is not None:
            described.append((name_of(key, member), known, view.offer.rules.describe(known, member)))
    absent = [
        name_of(key, member)
        for key, member in chosen.items()
        if not member.listed or not view.catalog.servers[member.server].usable
    ]
    absent += [cut(name, MAX_QUOTED) for name in wanted if member_key(category, name) not in chosen]
    meta = {
        "category": category.name,
        "sourceServer": _sources(category),
        "epoch": sum(entry.epoch for entry in entries),
        **unavailable(view, entries, absent),
        **(first_instructions(view, entries) if cursor is None else {}),
        **({"skill": cut(category.skill, room_of(view) // 2)} if category.skill else {}),
    }
    answer = _definitions_of_some if wanted else _definitions_of_all
    return answer(view, described, position(cursor, len(described)), meta, tool)


def _definitions_of_some(
    view: View, tools: Sequence[Described], start: int, meta: dict[str, Any], tool: str
) -> Reply:
    """The definitions of tools that were named; the call for those that do not fit is given."""
    names = [name for name, _tool, _description in tools]
    # The rest is named, so that the model does not have to remember it; a third of the room is some 400 names.
    most = (room_of(view) - _beside(meta)) // 3
    longest = _left(len(names), _call(tool, meta["category"], toolNames=names_within(names, most)))
    page = paged(view, tools, room_of(view) - _beside({**meta, **longest}), start)
    if page.left:
        rest = names_within(names[page.end :], most)
        meta |= _left(page.left, _call(tool, meta["category"], toolNames=rest))
    return _described(page, tools, meta)


def _definitions_of_all(
    view: View, tools: Sequence[Described], start: int, meta: dict[str, Any], tool: str
) -> Reply:
    """The definitions of all tools if they fit into one answer; otherwise a line for each."""
    page = paged(view, tools, room_of(view) - _beside(meta))
    if page.left:
        some = [name for name, _tool, _description in tools[start : start + NAMED_IN_NOTE]]
        call = _call(tool, meta["category"], toolNames=some)
        meta["note"] = (
            f"These are no definitions: those of all {len(tools)} tools do not fit one answer. Ask for the ones"
            f" that you need: {tool}({msgspec.json.encode(call['arguments']).decode()})"
        )
        longest = _left(len(tools), _call(tool, meta["category"], cursor=str(len(tools))))
        page = outlined(view, tools, room_of(view) - _beside({**meta, **longest}), start)
        if page.left:
            meta |= _left(page.left, _call(tool, meta["category"], cursor=str(page.end)))
    elif start:
        page = paged(view, tools, room_of(view), start)
    return _described(page, tools, meta)


def _described(page: Page, tools: Sequence[Described], meta: dict[str, Any]) -> Reply:
    seen = ((known.server, known.name) for name, known, _text in tools if name in page.tools)
    return Reply(result({"tools": page.tools, "meta": meta}), shown=tuple(seen) if page.whole else ())


def _beside(meta: Mapping[str, Any]) -> int:
    """Bytes of an answer without its tools."""
    return size_of({"tools": {}, "meta": meta})


def _call(tool: str, category: str, **arguments: object) -> dict[str, Any]:
    return {"name": tool, "arguments": {"category": category, **arguments}}


def _left(count: int, following: Mapping[str, object]) -> dict[str, object]:
    """The members of `meta` that lead to the rest: how many tools are left, and the exact call."""
    return {"toolsLeft": count, "next": following}


def _sources(category: ToolCategory) -> str:
    servers = category.servers
    more = f" and {len(servers) - MAX_NAMED} more" if len(servers) > MAX_NAMED else ""
    return ", ".join(servers[:MAX_NAMED]) + more


def entries_of(view: View, category: ToolCategory) -> list[ServerEntry]:
    """The servers that a category draws from."""
    return [view.catalog.servers[server] for server in category.servers]


def shown(view: View, category: ToolCategory) -> dict[str, Member]:
    """A category's tools that the profile shows, listed or not."""
    return {key: member for key, member in category.members.items() if view.offer.rules.shows(member)}


def member_key(category: ToolCategory, name: str) -> str | None:
    """The key under which a category holds a tool that a client named, with or without a prefix."""
    if name in category.members:
        return name
    for server in category.servers:
        own = own_name(name, server).removeprefix(f"{server}__")
        for key in (own, f"{server}/{own}"):
            member = category.members.get(key)
            if member is not None and member.server == server:
                return key
    return None


def _chosen(view: View, category: ToolCategory, wanted: Sequence[str]) -> Mapping[str, Member]:
    """The shown members that were asked for, by the category's key."""
    members = shown(view, category)
    if not wanted:
        return members
    keys = [key for key in (member_key(category, name) for name in wanted) if key is not None]
    if not keys:
        raise UnknownTool(
            f"category {category.name} has none of: {cut(', '.join(wanted), MAX_QUOTED)}."
            f" {choices(members, wanted[0], room=share_of(view))}",
            category=category.name,
            closest=closest(wanted[0], members),
        )
    return {key: members[key] for key in dict.fromkeys(keys) if key in members}
