"""`mcpd search`: the tools that match a query, as a model would find them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from daemon.config.model import DEFAULT_PROFILE
from daemon.operators.base import Command
from daemon.operators.tools import view_of
from daemon.surfaces.searching import scored

if TYPE_CHECKING:
    from daemon.operators.base import OperatorContext

MAX_FOUND = 1000
"""The most tools in an answer."""


class SearchParams(msgspec.Struct):
    """What to search for, and where."""

    queries: list[str]
    """Different phrasings of the same query."""
    category: str | None = None
    """The category to search; None means all."""
    limit: int = 20
    """The maximum number of tools in the answer, up to `MAX_FOUND`."""
    profile: str = DEFAULT_PROFILE
    """The profile whose tools are searched."""


async def search(context: OperatorContext, params: SearchParams) -> dict[str, object]:
    """The matching tools with their scores, best first.

    Raises:
        InvalidArguments: there is no such profile.
        UnknownCategory: there is no such category.
    """
    _surface, view = view_of(context, params.profile)
    return scored(view, params.queries, params.category, max(1, min(params.limit, MAX_FOUND)))


SEARCH = Command("search", SearchParams, search)
