"""The `browse` surface, which is the smallest: `list_categories`, `get_tools`, `call_tool`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from daemon.catalog.categories import Member, ToolCategory
from daemon.errors import UnknownTool
from daemon.surfaces import answers, calling, describing
from daemon.surfaces.answers import decode_arguments, one_line, quoted, result, room_of, size_of, written
from daemon.surfaces.summing import category_line, topics
from daemon.surfaces.surface import Action, AwaitListing, MetaTool, Reply, Surface, View

LIST = "list_categories"
GET = "get_tools"
CALL = calling.CALL_TOOL

META_TOOLS = (LIST, GET, CALL, calling.CALL_READ_ONLY)

MAX_NAMES = 300
"""Tool names in one list of categories, some 1,500 tokens; if there are more, each category shows a few."""

NEXT_BYTES = 200
"""Bytes reserved for the note on categories that did not fit."""

LIST_EXAMPLE = "{}"


class _ListArguments(msgspec.Struct):
    cursor: str | None = None


def _list_categories(view: View, arguments: bytes, *, patient: bool) -> Action:
    cursor = decode_arguments(arguments, _ListArguments, LIST_EXAMPLE).cursor
    waiting = describing.starting(view.catalog.servers[name] for name in _servers(view.categories))
    if patient and waiting:
        return AwaitListing(servers=waiting)
    start = describing.position(cursor, len(view.categories))
    categories = list(view.categories.values())[start:]
    found = [(category, _names(view, category)) for category in categories]
    total = sum(len(names) for _category, names in found)
    most = total if total <= MAX_NAMES else max(1, MAX_NAMES // len(found))
    end = len(view.categories)
    reply, size = _listing(view, found, most, end)
    # Drop names first, because a description says more; then leave whole categories to another answer.
    while size > room_of(view) and (most > 1 or len(found) > 1):
        if most > 1:
            most = min(most, max(len(names) for _category, names in found)) // 2
        else:
            end -= len(found) - max(1, len(found) * room_of(view) // (size + NEXT_BYTES))
            found = found[: end - start]
        reply, size = _listing(view, found, max(1, most), end)
    return reply


def _listing(
    view: View, found: Sequence[tuple[ToolCategory, list[str]]], most: int, end: int
) -> tuple[Reply, int]:
    categories = [_summary(view, category, names, most) for category, names in found]
    servers = _servers({category.name: category for category, _names in found})
    entries = [view.catalog.servers[name] for name in servers]
    down = describing.absent_lines((each for each in entries if not each.usable), answers.share_of(view))
    meta = describing.unavailable(view, entries, ())
    if end < len(view.categories):
        meta["categoriesLeft"] = len(view.categories) - end
        meta["next"] = {"name": LIST, "arguments": {"cursor": str(end)}}
    structured = {"categories": categories, **({"meta": meta} if meta else {})}
    text = _text(categories, meta) + (f"\nNot available:\n{down}" if down else "")
    return Reply(result(structured, text=text)), max(size_of(structured), len(text.encode()))


def _servers(categories: Mapping[str, ToolCategory]) -> list[str]:
    return list(dict.fromkeys(server for category in categories.values() for server in category.servers))


def _names(view: View, category: ToolCategory) -> list[str]:
    return [
        calling.public_name(view, (member.server, member.tool), META_TOOLS)
        for member in describing.shown(view, category).values()
        if member.listed
    ]


def _summary(view: View, category: ToolCategory, names: list[str], most: int) -> dict[str, Any]:
    return {
        "name": category.name,
        **({"description": one_line(line)} if (line := category_line(view, category)) else {}),
        **({"tools": names[:most]} if names else {}),
        **({"toolsLeft": len(names) - most} if len(names) > most else {}),
    }


def _text(categories: list[dict[str, Any]], meta: Mapping[str, Any]) -> str:
    if not categories:
        return describing.NO_CATEGORIES
    lines = ["Available categories:", *(_line(category) for category in categories)]
    if "next" in meta:
        lines.append(f"{meta['categoriesLeft']} more: {LIST}({written(meta['next'])})")
    return "\n".join(lines)


def _line(category: dict[str, Any]) -> str:
    names = ", ".join(category.get("tools", ())) or "none known yet"
    more = f" and {category['toolsLeft']} more" if "toolsLeft" in category else ""
    described = f": {category['description']}" if "description" in category else ""
    return f"- **{category['name']}**{described}\n  Tools: {names}{more}"


def _get(view: View, arguments: bytes, *, patient: bool) -> Action:
    def name_of(_key: str, member: Member) -> str:
        return calling.public_name(view, (member.server, member.tool), META_TOOLS)

    return describing.describe_category(view, arguments, name_of, tool=GET, patient=patient)


class BrowseSurface(Surface):
    """The tools of the `browse` surface."""

    name = "browse"
    tools = (
        MetaTool(
            name=LIST,
            describe=lambda view: f"List tool categories{f': {said}' if (said := topics(view)) else ''}.",
            does=_list_categories,
        ),
        MetaTool(
            name=GET,
            describe="Get a category's tools and their arguments.",
            properties=describing.DESCRIBING_PROPERTIES,
            required=("category",),
            does=_get,
        ),
        *calling.call_tools(partial(calling.call_tool, META_TOOLS), f"{GET} tells its arguments."),
    )

    def instructions(self, view: View) -> str:
        """Explain how to use the three tools."""
        return (
            f"Tools are loaded on demand. 1. {LIST} shows what there is. 2. {GET} gives the definitions of one"
            f" category's tools. 3. {CALL} runs a tool by name."
        )

    def call_other(self, view: View, name: str, arguments: bytes, *, patient: bool) -> Action:
        """Refuse: all tools of servers are called through `call_tool`."""
        raise UnknownTool(
            f"there is no tool {quoted(name)} here. Tools of servers are run by {CALL}: {calling.CALL_EXAMPLE}",
            available=[LIST, GET, CALL],
        )
