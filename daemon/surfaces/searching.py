"""Finding tools: what `search_tools` and `mcpd search` share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from daemon.errors import CallError, UnknownTool
from daemon.kit.wording import closest
from daemon.surfaces import calling
from daemon.surfaces.answers import MAX_QUOTED, choices, cut, one_line, quoted, share_of
from daemon.surfaces.base import renamed
from daemon.surfaces.by_category import find_category, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from daemon.catalog.offer import Offered
    from daemon.model import ToolKey
    from daemon.surfaces.base import View


@attrs.frozen(kw_only=True)
class Findings:
    """What a search found."""

    tools: Sequence[tuple[Offered, float]]
    """Best first, with scores; 0.0 where everything was asked for."""
    total: int
    """How many fit, shown or not."""
    end: int
    """Where in the result these end."""
    suggestions: Sequence[str] = ()
    """What may have been meant when nothing fits."""

    @property
    def left(self) -> int:
        """How many come after these."""
        return max(0, self.total - self.end)

    def first(self, count: int) -> Findings:
        """Only so many of them: the others come after these."""
        return attrs.evolve(
            self, tools=self.tools[:count], end=min(self.end, self.total) - len(self.tools) + count
        )


def find_tools(
    view: View, phrasings: Sequence[str], category: str | None, limit: int, start: int = 0
) -> Findings:
    """The offered tools that fit, best first.

    Args:
        view: the moment.
        phrasings: a need, keywords or a name, or several phrasings of it; empty is everything, in its order.
        category: only this one's tools; None or empty is all.
        limit: most tools to return.
        start: how many of the best to leave out.

    Raises:
        UnknownCategory: the profile has none of that name.
    """
    end = start + limit
    offer = view.offer
    among = _keys_in(view, category) if category else offer.tools
    asked = [text for text in phrasings if text.strip()]
    if not asked:
        known = [(offer.tools[key], 0.0) for key in among if key in offer.tools]
        return Findings(tools=known[start:end], total=len(known), end=end)
    index = view.means.index()
    # To look each tool up that fits takes as long as to find it: not where all of them are among those.
    all_of_it = among is offer.tools and offer.is_everything and index.covers(view.catalog.servers)
    ranking = index.search(asked, within=None if all_of_it else among, limit=end)
    tools = [(offer.tools[hit.key], hit.score) for hit in ranking.hits if hit.key in offer.tools]
    return Findings(tools=tools[start:], total=ranking.total, end=end, suggestions=ranking.suggestions)


def scored(view: View, phrasings: Sequence[str], category: str | None, limit: int) -> dict[str, object]:
    """What an operator sees of a search.

    Returns:
        `{tools: [{name, server, category, score, description}], total, suggestions}`.

    Raises:
        UnknownCategory: the profile has none of that name.
    """
    findings = find_tools(view, phrasings, category, limit)
    return {
        "tools": [
            {
                "name": offered.name,
                "server": offered.tool.server,
                "category": category or offered.category,
                "score": round(score, 3),
                "description": one_line(offered.description),
            }
            for offered, score in findings.tools
        ],
        "total": findings.total,
        "suggestions": list(findings.suggestions),
    }


def _keys_in(view: View, category: str) -> dict[ToolKey, None]:
    members = shown(view, find_category(view, category)).values()
    return {(member.server, member.tool): None for member in members}


MAX_FOUND = 3
"""Servers or tools that one need brings: a need that fits more is not precise enough."""

WORTH = 0.6
"""How good a further find must be, against the best, to be shown beside it."""


@attrs.define
class Wanted:
    """What names and needs come to."""

    tools: dict[str, Offered] = attrs.field(factory=dict)
    """By the name that each is called by."""
    failures: dict[str, CallError] = attrs.field(factory=dict)
    """Why there is no tool, by what was asked for."""
    alternatives: dict[str, list[str]] = attrs.field(factory=dict)
    """Tools nearly as good, by need."""


def resolve(view: View, names: Iterable[str], servers: set[str], reserved: tuple[str, ...]) -> Wanted:
    """Find the tools that are meant. Names first: what is no name is a need.

    Args:
        view: the moment.
        names: names and needs.
        servers: only tools of these.
        reserved: the surface's own tools.
    """
    wanted = Wanted()
    for name in names:
        try:
            calling.refuse_meta_tool(view, name, reserved)
            offered = _by_name(view, name, servers)
            if offered is None:
                offered = _by_need(view, name, servers, wanted, reserved)
            wanted.tools[calling.public_name(view, offered.key, reserved)] = offered
        except CallError as error:
            wanted.failures[cut(name, MAX_QUOTED)] = error
    return wanted


def _by_name(view: View, name: str, servers: set[str]) -> Offered | None:
    """The tool of that name, on one of these servers; None if it is no tool's name."""
    key = view.catalog.names.key_of(name, view.catalog.servers)
    if key is not None and key[0] in servers:
        if key in view.offer.tools:
            return view.offer.tools[key]
        if not view.offer.allows(key):
            # For what it raises: why a tool that exists is not to be had.
            calling.find(view, name, patient=False)
        if (moved := renamed(view, name)) is not None:
            return moved[1]
    # The bare name of a tool that another server's has taken, where only one server is meant.
    return view.offer.tools.get((next(iter(servers)), name)) if len(servers) == 1 else None


def _by_need(view: View, need: str, servers: set[str], wanted: Wanted, reserved: tuple[str, ...]) -> Offered:
    """The tool that fits a need best; others nearly as good are named beside it.

    Raises:
        UnknownTool: none fits.
    """
    offer = view.offer
    within = {key for key in offer.tools if key[0] in servers}
    ranking = view.means.index().search([need], within=within, limit=MAX_FOUND)
    hits = [hit for hit in ranking.hits if hit.score >= WORTH * ranking.hits[0].score]
    if not hits:
        names = [
            calling.public_name(view, each.key, reserved) for key, each in offer.tools.items() if key in within
        ]
        near = closest(need, names)
        hint = (
            f"Did you mean: {', '.join(ranking.suggestions)}?"
            if ranking.suggestions
            else choices(names, need, near, room=share_of(view))
        )
        raise UnknownTool(f"no tool fits {quoted(need)}. {hint}", tool=cut(need, MAX_QUOTED), closest=near)
    best, *others = (offer.tools[hit.key] for hit in hits)
    if others:
        wanted.alternatives[cut(need, MAX_QUOTED)] = [
            calling.public_name(view, each.key, reserved) for each in others
        ]
    return best
