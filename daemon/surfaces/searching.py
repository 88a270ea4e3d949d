"""Finding tools: what `search_tools` and `mcpd search` share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from daemon.surfaces.answers import one_line
from daemon.surfaces.by_category import find_category, shown

if TYPE_CHECKING:
    from collections.abc import Sequence

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
