"""The `search` surface: `search_tools`, a few core tools, `call_tool` (seed 000, Serena's deferred loading).

What a search finds is listed for the session from then on, within `LISTED_ANSWERS`: what was called stays, the
rest leaves in the order in which it was found. Every tool can be called by its name, listed or not, and through
`call_tool` by clients that only call what they have listed.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import attrs
import msgspec

from daemon.catalog.loaded import Source
from daemon.errors import InvalidArguments
from daemon.surfaces import answers, calling
from daemon.surfaces.describing import (
    entries_of,
    find_category,
    position,
    starting,
    unavailable,
    unlisted,
    unlisted_of,
)
from daemon.surfaces.summing import category_line, first_instructions, topics
from daemon.surfaces.surface import Action, AwaitListing, Forward, Loading, MetaTool, Reply, Surface, View

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from daemon.catalog.offer import Offered
    from daemon.catalog.snapshot import ServerEntry
    from daemon.model import ToolKey
    from daemon.surfaces.calling import Findings

SEARCH = "search_tools"
META_TOOLS = (SEARCH, calling.CALL_TOOL, calling.CALL_READ_ONLY)

DEFAULT_RESULTS = 20
"""Tools found by default, as in seed 000, each with a line."""

DEFAULT_LISTED = 5
"""Tools listed with their schemas, unless another number is asked for: most of 20 would be read for nothing."""

MAX_RESULTS = 100
"""Most tools in one answer, whatever was asked for: what is found is listed with its schema from then on."""

LISTED_ANSWERS = 2
"""How many of the largest answers the listed tools that were found may take: the newest two stay whole."""

MAX_POSITION = 10**6
"""Largest position at which a search may continue; no catalog has so many tools."""

CATEGORY_CHARACTERS = 1000
"""Characters of the categories that the parameter names; the rest are counted."""

MAX_CATEGORIES = 60
"""Categories named in one answer, as many as are named from the start elsewhere."""

NEXT_BYTES = 400
"""Bytes of what an answer says of tools that did not fit."""

NOTHING_FITS = (
    "Nothing here fits that. Say it in other words, or see what a category has:"
    f' {SEARCH}({{"category": "NAME"}})'
)
"""The note of an answer in which no tool fits better than by chance."""

UNLISTED = "The last ones are not listed: search for one of them by its name to have its schema."
"""The note of an answer that found more than is listed at once."""

EXAMPLE = '{"query": "read a file"} or {"category": "NAME"}'


class _SearchArguments(msgspec.Struct, forbid_unknown_fields=True):
    query: str | list[str] = ""
    category: str | None = None
    include_descriptions: bool = True
    max_results: int = DEFAULT_RESULTS
    cursor: str | None = None


def _staying(view: View, action: Action) -> Action:
    """The first call of a tool that was found, which keeps that listed; any other action as it is."""
    if isinstance(action, Forward):
        key = action.server, action.name
        if key in view.loaded and view.loaded.tools[key].source is Source.MANUAL:
            return attrs.evolve(action, loading=Loading(tools=(key,), source=Source.AUTO))
    return action


def _call(view: View, arguments: bytes, *, patient: bool) -> Action:
    return _staying(view, calling.call_tool(META_TOOLS, view, arguments, patient=patient))


def _search(view: View, arguments: bytes, *, patient: bool) -> Action:
    asked = answers.decode_arguments(arguments, _SearchArguments, EXAMPLE)
    if asked.max_results < 1:
        raise InvalidArguments(
            f"max_results is {asked.max_results}; it must be 1 or more. Leave it out for {DEFAULT_RESULTS}."
        )
    category = find_category(view, asked.category) if asked.category else None
    entries = list(view.servers.values()) if category is None else entries_of(view, category)
    waiting = unlisted(entries) if asked.category else starting(entries)
    indexed = view.means.index().covers(view.catalog.servers)
    if patient and (waiting or not indexed):
        return AwaitListing(servers=waiting, indexed=True)
    phrasings = [asked.query] if isinstance(asked.query, str) else asked.query
    start = position(asked.cursor, MAX_POSITION)
    findings = calling.find_tools(view, phrasings, asked.category, min(asked.max_results, MAX_RESULTS), start)
    return _answer(view, findings, entries, asked)


def _answer(view: View, findings: Findings, entries: Sequence[ServerEntry], asked: _SearchArguments) -> Reply:
    """As much of what was found as fits; the tools whose schemas fit are listed from now on."""
    room = answers.room_of(view)
    best = findings.tools[: DEFAULT_LISTED if asked.max_results == DEFAULT_RESULTS else None]
    # As a list of tools would show them.
    shown = ((str(at), msgspec.Raw(each.listed(_name(view, each)))) for at, (each, _) in enumerate(best))
    listed = answers.fitting(shown, room)
    while True:
        structured = _structured(view, findings, entries, asked, len(listed))
        text = _text(findings, structured, len(view.offer.categories))
        size = max(answers.size_of(structured), len(text.encode()))
        if size <= room or len(findings.tools) <= 1:
            break
        findings = findings.first(max(1, len(findings.tools) * room // (size + NEXT_BYTES)))
    loading = tuple(offered.key for offered, _score in findings.tools[: len(listed)])
    return Reply(answers.result(structured, text), Loading(tools=loading, leaving=_leaving(view, loading)))


def _leaving(view: View, loading: Sequence[ToolKey]) -> tuple[ToolKey, ...]:
    """The tools that were found and never called that have no room beside those that are listed from now on."""
    core = set(calling.core_tools(view))
    found = {key: view.offer.tools[key] for key in (*view.loaded.tools, *loading) if key in view.offer.tools}
    sizes = {
        key: len(calling.as_listed(view, each, META_TOOLS)) for key, each in found.items() if each not in core
    }
    over, leaving = sum(sizes.values()) - LISTED_ANSWERS * answers.room_of(view), []
    for key, each in view.loaded.tools.items():
        if over > 0 and key in sizes and each.source is Source.MANUAL and key not in loading:
            over -= sizes[key]
            leaving.append(key)
    return tuple(leaving)


def _structured(
    view: View, findings: Findings, entries: Iterable[ServerEntry], asked: _SearchArguments, listed: int
) -> dict[str, Any]:
    tools = [
        {**_entry(view, offered, asked), **({} if number < listed else {"listed": False})}
        for number, (offered, _score) in enumerate(findings.tools)
    ]
    meta = unavailable(view, entries, (tool["name"] for tool in tools if not tool["active"]))
    servers = dict.fromkeys(offered.tool.server for offered, _score in findings.tools)
    meta |= first_instructions(view, [view.catalog.servers[name] for name in servers])
    following = _next(findings, asked)
    if following is not None and answers.size_of(following) <= answers.share_of(view):
        meta["next"] = following
    if not findings.total and "".join(asked.query).strip():
        meta["note"] = NOTHING_FITS
    return {
        "tools": tools,
        **({"total": findings.total} if findings.total > len(tools) else {}),
        **({"suggestions": list(findings.suggestions)} if findings.suggestions else {}),
        "categories": answers.names_within(view.offer.categories[:MAX_CATEGORIES], answers.share_of(view)),
        **({"meta": meta} if meta else {}),
    }


def _entry(view: View, offered: Offered, asked: _SearchArguments) -> dict[str, Any]:
    category = asked.category or offered.category
    described = answers.one_line(offered.description) if asked.include_descriptions else ""
    return {
        "name": _name(view, offered),
        "server": offered.tool.server,
        **({"category": category} if category else {}),
        "active": view.catalog.servers[offered.tool.server].usable,
        **({"description": described} if described else {}),
    }


def _text(findings: Findings, structured: dict[str, Any], categories: int) -> str:
    """The answer as text, as seed 000 shows it; `categories` is how many there are."""
    lines = [f"Found {len(findings.tools)} tool(s):", ""] if findings.tools else ["Found 0 tool(s)."]
    for tool in structured["tools"]:
        state = "active" if tool["active"] else "unavailable"
        place = f" [{tool['category']}]" if "category" in tool else ""
        lines.append(f"- **{tool['name']}** [{state}]{place}")
        if "description" in tool:
            lines += [f"  {tool['description']}", ""]
    if lines[-1]:
        lines.append("")
    if any("listed" in tool for tool in structured["tools"]):
        lines += [UNLISTED, ""]
    meta = structured.get("meta", {})
    if findings.left:
        following = meta.get("next")
        see = f", or see them with {SEARCH}({answers.written(following)})" if following else ""
        lines += [f"{findings.left} more fit: say more precisely what you need{see}", ""]
    for server, said in meta.get("instructions", {}).items():
        lines += [f"Server {server} says: {said}", ""]
    lines += [meta["note"], ""] if "note" in meta else []
    if findings.suggestions:
        lines += [f"Did you mean: {', '.join(findings.suggestions)}?", ""]
    lines.append(f"Available categories: {', '.join(structured['categories']) or 'none'}")
    if len(structured["categories"]) < categories:
        lines.append("There are more: an unknown one is answered with the closest names.")
    return "\n".join(lines)


def _next(findings: Findings, asked: _SearchArguments) -> dict[str, Any] | None:
    """The call that shows what is left."""
    if not findings.left:
        return None
    said = msgspec.structs.asdict(asked)
    plain = {key: value for key, value in said.items() if key != "cursor" and value != _DEFAULTS[key]}
    return {"name": SEARCH, "arguments": {**plain, "cursor": str(findings.end)}}


_DEFAULTS = msgspec.structs.asdict(_SearchArguments())


def _name(view: View, offered: Offered) -> str:
    return calling.public_name(view, offered.key, META_TOOLS)


def _only(categories: tuple[str, ...]) -> str:
    """The description of the parameter `category`."""
    if not categories:
        return "Only this category."
    lengths = accumulate(len(name) + 2 for name in categories)
    shown = categories[: bisect_right(list(lengths), CATEGORY_CHARACTERS)]
    rest = f" and {len(categories) - len(shown)} more" if len(shown) < len(categories) else ""
    return f"Only this category: {', '.join(shown)}{rest}."


def _describe_search(view: View) -> str:
    said = topics(view)
    return (
        "Find tools by need, keyword, name or category. What is found can be called by its name, with"
        f" its schema in the list of tools.{f' For example: {said}.' if said else ''}"
    )


def _properties(view: View) -> dict[str, object]:
    return {
        "query": {
            "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}],
            "default": "",
            "description": "What you need, or several phrasings of it.",
        },
        "category": {
            "type": ["string", "null"],
            "default": None,
            "description": _only(view.offer.categories),
        },
        "include_descriptions": {"type": "boolean", "default": True},
        "max_results": {"type": "integer", "default": DEFAULT_RESULTS, "minimum": 1},
    }


class SearchSurface(Surface):
    """Seed 000's tool search."""

    name = "search"
    tools = (
        MetaTool(name=SEARCH, describe=_describe_search, properties=_properties, does=_search),
        *calling.call_tools(
            _call,
            f"For tools that {SEARCH} found and that are not in your list. An answer about wrong arguments"
            " shows the schema.",
        ),
    )

    def instructions(self, view: View) -> str:
        """The seed's tool-discovery text, with the real categories and core tools."""
        entries = [
            (
                f'`{SEARCH}(category="{category.name}")`',
                category_line(view, category) or "List its tools",
            )
            for category in view.categories.values()
        ]
        rest = f"every answer of {SEARCH} names all categories"
        core = ", ".join(dict.fromkeys([SEARCH, calling.CALL_TOOL, *calling.core_names(view, META_TOOLS)]))
        return (
            "**Tool Discovery (Deferred Loading)**\n"
            f"Only core tools are loaded initially to reduce overhead. Use `{SEARCH}` to discover additional"
            " tools:\n"
            f'- `{SEARCH}(query="read a file")`: Search by name or need; a list of phrasings finds more\n'
            f"{answers.index_lines(entries, view.means.index_characters, rest)}\n\n"
            f"Core tools available: {core}"
        )

    def awaits(self, view: View) -> tuple[str, ...]:
        """The servers of core tools, which are listed from the start."""
        return unlisted_of(view, [name for name in calling.core_references(view) if name not in META_TOOLS])

    def listed(self, view: View) -> Sequence[Offered]:
        """The core tools and what was found, each once."""
        found = {offered.key: offered for offered in calling.loaded_tools(view)}
        # Finding a tool again makes it the latest one, and must not change the list.
        ordered = sorted(found, key=lambda key: (view.loaded.tools[key].at, key))
        return list(dict.fromkeys([*calling.core_tools(view), *(found[key] for key in ordered)]))

    def list_listed(self, view: View) -> tuple[bytes, ...]:
        """The same, each under the name that it has beside the meta-tools."""
        return tuple(calling.as_listed(view, each, META_TOOLS) for each in self.listed(view))

    def call_other(self, view: View, name: str, arguments: bytes, *, patient: bool) -> Action:
        """Forward to the tool that is meant."""
        found = calling.find(view, name, patient=patient)
        return found if isinstance(found, AwaitListing) else _staying(view, calling.direct(found, arguments))
