"""Finds tools by searches, names or needs, on all surfaces with a search."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from daemon.catalog.offer import Offered
from daemon.catalog.snapshot import ServerEntry
from daemon.errors import CallError, InvalidArguments, UnknownTool
from daemon.kit.wording import closest
from daemon.model import Kind, ToolKey
from daemon.surfaces import answers
from daemon.surfaces.additions import refuse_held
from daemon.surfaces.calling import find, never_listed, public_name, refuse_meta_tool
from daemon.surfaces.describing import entries_of, find_category, position, shown, starting, unlisted
from daemon.surfaces.surface import AwaitListing, View, renamed

DEFAULT_RESULTS = 20
"""Tools found by default, as in Serena; each has a line."""

MAX_RESULTS = 100
"""Tools in one answer."""

MAX_POSITION = 10**6
"""The largest cursor: no catalog has so many tools."""


EXAMPLE = '{"query": "read a file"} or {"category": "NAME"}'


class SearchArguments(msgspec.Struct, forbid_unknown_fields=True):
    """The arguments of a search for tools."""

    query: str | list[str] = ""
    category: str | None = None
    max_results: int = DEFAULT_RESULTS
    cursor: str | None = None


class Findings(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a search."""

    tools: Sequence[tuple[Offered, float]]
    total: int
    end: int
    suggestions: Sequence[str] = ()

    @property
    def left(self) -> int:
        """The number of tools after these results."""
        return max(0, self.total - self.end)

    def first(self, count: int) -> Findings:
        """The first `count` tools; the other tools count as left."""
        return msgspec.structs.replace(
            self, tools=self.tools[:count], end=min(self.end, self.total) - len(self.tools) + count
        )


def search(
    view: View, asked: SearchArguments, *, patient: bool
) -> AwaitListing | tuple[Findings, list[ServerEntry]]:
    """Find tools, and the servers that may have them. Raises `UnknownCategory`, `InvalidArguments`."""
    if asked.max_results < 1:
        raise InvalidArguments(
            f"max_results is {asked.max_results}; it must be 1 or more. Leave it out for {DEFAULT_RESULTS}."
        )
    category = find_category(view, asked.category) if asked.category else None
    entries = list(view.servers.values()) if category is None else entries_of(view, category)
    waiting = unlisted(entries) if asked.category else starting(entries)
    if patient and (waiting or not view.services.index().covers(view.catalog.servers)):
        return AwaitListing(servers=waiting, indexed=True)
    phrasings = [asked.query] if isinstance(asked.query, str) else asked.query
    start, most = position(asked.cursor, MAX_POSITION), min(asked.max_results, MAX_RESULTS)
    return find_tools(view, phrasings, asked.category, most, start), entries


def find_tools(
    view: View, phrasings: Sequence[str], category: str | None, limit: int, start: int = 0
) -> Findings:
    """Search the offered tools, the best first; all of them without phrasings. Raises `UnknownCategory`."""
    end = start + limit
    offer = view.offer
    among: Collection[ToolKey] = offer.tools
    if category:
        members = shown(view, find_category(view, category)).values()
        among = dict.fromkeys((each.server, each.tool) for each in members)
    asked = [text for text in phrasings if text.strip()]
    if not asked:
        known = [(offer.tools[key], 0.0) for key in among if key in offer.tools]
        return Findings(tools=known[start:end], total=len(known), end=end)
    index = view.services.index()
    # Filtering hits takes as long as finding them; skip it if all tools are allowed.
    all_of_it = among is offer.tools and offer.is_everything and index.covers(view.catalog.servers)
    ranking = index.search(asked, within=None if all_of_it else among, limit=end)
    tools = [(offer.tools[hit.key], hit.score) for hit in ranking.hits if hit.key in offer.tools]
    return Findings(tools=tools[start:], total=ranking.total, end=end, suggestions=ranking.suggestions)


def scored(view: View, phrasings: Sequence[str], category: str | None, limit: int) -> dict[str, object]:
    """A search's report: {tools: [{name, server, tool, category, score, description}], total, suggestions}."""
    findings = find_tools(view, phrasings, category, limit)
    return {
        "tools": [
            {
                "name": offered.name,
                "server": offered.key[0],
                "tool": offered.key[1],
                "category": category or offered.category,
                "score": round(score, 3),
                "description": answers.one_line(offered.description),
            }
            for offered, score in findings.tools
        ],
        "total": findings.total,
        "suggestions": list(findings.suggestions),
    }


MAX_NAMES = 50
"""Names in one call: each unknown name costs a search."""

MAX_FOUND = 3
"""Servers or tools found for one need: if more fit, the need is imprecise."""

WORTH = 0.6
"""The share of the best score that a hit needs to be returned."""


class Wanted(msgspec.Struct):
    """The tools found by names and needs."""

    tools: dict[str, Offered] = msgspec.field(default_factory=dict)
    failures: dict[str, CallError] = msgspec.field(default_factory=dict)
    alternatives: dict[str, list[str]] = msgspec.field(default_factory=dict)


def resolve(
    view: View, names: Sequence[str], servers: set[str], reserved: tuple[str, ...], example: str
) -> Wanted:
    """Find tools of `servers` by names and needs; an unknown name is searched for as a need.

    Raises InvalidArguments for too few or too many names, and a CallError if no name finds a tool.
    """
    each_once = dict.fromkeys(names)
    if not 0 < len(each_once) <= MAX_NAMES:
        raise InvalidArguments(f'"names" must hold 1 to {MAX_NAMES} names or needs: {example}')
    wanted = Wanted()
    for name in each_once:
        try:
            refuse_meta_tool(view, name, reserved)
            offered = _by_name(view, name, servers)
            if offered is None:
                offered = _by_need(view, name, servers, wanted, reserved)
            wanted.tools[public_name(view, offered.key, reserved)] = offered
        except CallError as error:
            wanted.failures[answers.cut(name, answers.MAX_QUOTED)] = error
    if not wanted.tools:
        raise next(iter(wanted.failures.values()))
    return wanted


def _by_name(view: View, name: str, servers: set[str]) -> Offered | None:
    key = view.catalog.names.key_of(name, view.catalog.servers)
    if key is not None and key[0] in servers:
        if key in view.offer.tools:
            return view.offer.tools[key]
        refuse_held(view, Kind.TOOL, key, name)
        if view.catalog.servers[key[0]].tools is None or not view.offer.rules.allows(key):
            # Raises the reason why the tool is not offered; the need would find another server's tool.
            find(view, name, patient=False)
        if (moved := renamed(view, name)) is not None:
            return moved[1]
    # With one server given, a bare name means its tool, even if the name means another server's elsewhere.
    own = next(iter(servers)) if len(servers) == 1 else "", name
    refuse_held(view, Kind.TOOL, own, name)
    if own[0] and view.catalog.servers[own[0]].tools is None:
        raise never_listed(view, view.catalog.servers[own[0]])
    return view.offer.tools.get(own)


def _by_need(view: View, need: str, servers: set[str], wanted: Wanted, reserved: tuple[str, ...]) -> Offered:
    offer = view.offer
    within = {key for key in offer.tools if key[0] in servers}
    ranking = view.services.index().search([need], within=within, limit=MAX_FOUND)
    hits = [hit for hit in ranking.hits if hit.score >= WORTH * ranking.hits[0].score]
    if not hits:
        names = [public_name(view, each.key, reserved) for key, each in offer.tools.items() if key in within]
        near = closest(need, names)
        hint = (
            f"Did you mean: {', '.join(ranking.suggestions)}?"
            if ranking.suggestions
            else answers.instead(view, names, need, near)
        )
        raise UnknownTool(
            f"no tool fits {answers.quoted(need)}. {hint}",
            tool=answers.cut(need, answers.MAX_QUOTED),
            closest=near,
        )
    best, *others = (offer.tools[hit.key] for hit in hits)
    if others:
        wanted.alternatives[answers.cut(need, answers.MAX_QUOTED)] = [
            public_name(view, each.key, reserved) for each in others
        ]
    return best
