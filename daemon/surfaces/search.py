"""The `search` surface: `search_tools`, core tools and `call_tool` (Serena's deferred loading).

Found tools are listed within the room of `LISTED_ANSWERS`. Called tools stay; the oldest others leave first.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from itertools import accumulate
from typing import Any

import attrs
import msgspec

from daemon.catalog.loaded import Source
from daemon.catalog.offer import Offered
from daemon.catalog.snapshot import ServerEntry
from daemon.kit.wording import some
from daemon.model import ToolKey
from daemon.surfaces import answers, calling, describing, finding
from daemon.surfaces.finding import Findings
from daemon.surfaces.summing import category_line, first_instructions, topics
from daemon.surfaces.surface import Action, AwaitListing, Forward, Loading, MetaTool, Reply, Surface, View

SEARCH = "search_tools"
META_TOOLS = (SEARCH, calling.CALL_TOOL, calling.CALL_READ_ONLY)

DEFAULT_LISTED = 5
"""Found tools that are listed with schemas by default: with 20, a model would read most in vain."""

LISTED_ANSWERS = 2
"""Room for found tools in the list, in answers of the largest size: the newest two stay whole."""

CATEGORY_CHARACTERS = 1000
"""Characters of the categories named in the parameter's description."""

MAX_CATEGORIES = 60
"""Categories in one answer; surfaces with an initial list have as many."""

NEXT_BYTES = 400
"""Bytes reserved for the note on tools that did not fit."""

NOTHING_FITS = (
    "No tool here fits that. Say it in other words, or see what a category has:"
    f' {SEARCH}({{"category": "NAME"}})'
)
"""The note of an answer in which every tool fits only by chance."""

UNLISTED = "The last ones are not listed: search for one of them by its name to have its schema."
"""The note of an answer with more tools than the list has room for."""


class _SearchArguments(finding.SearchArguments):
    include_descriptions: bool = True


def _staying(view: View, action: Action) -> Action:
    """Let a found tool stay listed when it is called; other actions stay as they are."""
    if isinstance(action, Forward):
        key = action.server, action.name
        if key in view.loaded and view.loaded.tools[key].source is Source.MANUAL:
            return attrs.evolve(action, loading=Loading(tools=(key,), source=Source.AUTO))
    return action


def _call(view: View, arguments: bytes, *, patient: bool) -> Action:
    return _staying(view, calling.call_tool(META_TOOLS, view, arguments, patient=patient))


def _search(view: View, arguments: bytes, *, patient: bool) -> Action:
    asked = answers.decode_arguments(arguments, _SearchArguments, finding.EXAMPLE)
    found = finding.search(view, asked, patient=patient)
    return found if isinstance(found, AwaitListing) else _answer(view, *found, asked)


def _answer(view: View, findings: Findings, entries: Sequence[ServerEntry], asked: _SearchArguments) -> Reply:
    room = answers.room_of(view)
    best = findings.tools[: DEFAULT_LISTED if asked.max_results == finding.DEFAULT_RESULTS else None]
    # Measured as a list of tools shows them.
    shown = ((str(at), msgspec.Raw(each.listed(_name(view, each)))) for at, (each, _) in enumerate(best))
    listed = answers.fitting(shown, room)
    down = describing.absent_lines((each for each in entries if not each.usable), answers.share_of(view))
    while True:
        structured = _structured(view, findings, entries, asked, len(listed))
        text = _text(findings, structured, len(view.offer.categories), down)
        size = max(answers.size_of(structured), len(text.encode()))
        if size <= room or len(findings.tools) <= 1:
            break
        findings = findings.first(max(1, len(findings.tools) * room // (size + NEXT_BYTES)))
    loading = tuple(offered.key for offered, _score in findings.tools[: len(listed)])
    return Reply(answers.result(structured, text), Loading(tools=loading, leaving=_leaving(view, loading)))


def _leaving(view: View, loading: Sequence[ToolKey]) -> tuple[ToolKey, ...]:
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
    meta = describing.unavailable(view, entries, (tool["name"] for tool in tools if not tool["active"]))
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


def _text(findings: Findings, structured: dict[str, Any], categories: int, down: str) -> str:
    lines = [f"Found {len(findings.tools)} tool(s):", ""] if findings.tools else ["Found 0 tool(s)."]
    for tool in structured["tools"]:
        state = "active" if tool["active"] else "unavailable"
        place = f" [{tool['category']}]" if "category" in tool else ""
        lines.append(f"- **{tool['name']}** [{state}]{place}")
        if "description" in tool:
            lines += [f"  {tool['description']}", ""]
    lines += [""] * bool(lines[-1])
    lines += [UNLISTED, ""] * any("listed" in tool for tool in structured["tools"])
    meta = structured.get("meta", {})
    if findings.left:
        following = meta.get("next")
        see = f", or see them with {SEARCH}({answers.written(following)})" if following else ""
        lines += [f"{findings.left} more fit: say more precisely what you need{see}", ""]
    for server, words in meta.get("instructions", {}).items():
        lines += [f"Server {server} says: {words}", ""]
    lines += [meta["note"], ""] if "note" in meta else []
    lines += ["Not available:", down, ""] if down else []
    lines += [f"Did you mean: {', '.join(findings.suggestions)}?", ""] * bool(findings.suggestions)
    lines.append(f"Available categories: {', '.join(structured['categories']) or 'none'}")
    if len(structured["categories"]) < categories:
        lines.append("There are more: an unknown name is answered with the closest ones.")
    return "\n".join(lines)


def _next(findings: Findings, asked: _SearchArguments) -> dict[str, Any] | None:
    if not findings.left:
        return None
    arguments = msgspec.structs.asdict(asked)
    plain = {key: value for key, value in arguments.items() if value != _DEFAULTS[key]}
    return {"name": SEARCH, "arguments": {**plain, "cursor": str(findings.end)}}


_DEFAULTS = msgspec.structs.asdict(_SearchArguments())


def _name(view: View, offered: Offered) -> str:
    return calling.public_name(view, offered.key, META_TOOLS)


def _only(categories: tuple[str, ...]) -> str:
    if not categories:
        return "Only this category."
    lengths = accumulate(len(name) + 2 for name in categories)
    return f"Only this category: {some(categories, bisect_right(list(lengths), CATEGORY_CHARACTERS))}."


def _describe_search(view: View) -> str:
    examples = topics(view)
    return (
        "Find tools by need, keyword, name or category. What is found can be called by its name, with"
        f" its schema in the list of tools.{f' For example: {examples}.' if examples else ''}"
    )


def _properties(view: View) -> dict[str, object]:
    return {
        "query": {
            "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}],
            "default": "",
            "description": "What you need, or several phrasings of it.",
        },
        "category": {"type": ["string", "null"], "default": None, "description": _only(view.offer.categories)},
        "include_descriptions": {"type": "boolean", "default": True},
        "max_results": {"type": "integer", "default": finding.DEFAULT_RESULTS, "minimum": 1},
    }


class SearchSurface(Surface):
    """The tools of the `search` surface."""

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
        """Serena's text about finding tools, with the real categories and core tools."""
        entries = [
            (f'`{SEARCH}(category="{category.name}")`', category_line(view, category) or "List its tools")
            for category in view.categories.values()
        ]
        rest = f"every answer of {SEARCH} names all categories"
        core = ", ".join(dict.fromkeys([SEARCH, calling.CALL_TOOL, *calling.core_names(view, META_TOOLS)]))
        return (
            "**Tool Discovery (Deferred Loading)**\n"
            f"Only core tools are loaded initially to reduce overhead. Use `{SEARCH}` to discover additional"
            " tools:\n"
            f'- `{SEARCH}(query="read a file")`: Search by name or need; a list of phrasings finds more\n'
            f"{answers.index_lines(entries, view.services.index_characters, rest)}\n\n"
            f"Core tools available: {core}"
        )

    def awaits(self, view: View) -> tuple[str, ...]:
        """The servers of core tools, which are listed from the start."""
        return describing.unlisted_of(
            view, [name for name in calling.core_references(view) if name not in META_TOOLS]
        )

    def listed(self, view: View) -> Collection[Offered]:
        """The core tools and the found ones, without repetitions."""
        found = {offered.key: offered for offered in calling.loaded_tools(view)}
        # Finding a tool again makes it the newest, which must not reorder the list.
        ordered = sorted(found, key=lambda key: (view.loaded.tools[key].at, key))
        return list(dict.fromkeys([*calling.core_tools(view), *(found[key] for key in ordered)]))

    def list_listed(self, view: View) -> tuple[bytes, ...]:
        """The entries of `listed`, under names other than the meta-tools'."""
        return tuple(calling.as_listed(view, each, META_TOOLS) for each in self.listed(view))

    def call_other(self, view: View, name: str, arguments: bytes, *, patient: bool) -> Action:
        """Forward to the tool of that name."""
        found = calling.find(view, name, patient=patient)
        return found if isinstance(found, AwaitListing) else _staying(view, calling.direct(found, arguments))
