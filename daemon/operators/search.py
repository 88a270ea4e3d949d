"""`mcpd search`: what a tool search finds, with scores."""

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
"""Most tools in an answer."""


class SearchParams(msgspec.Struct):
    """What to look for."""

    queries: list[str]
    """Phrasings of one wish."""
    category: str | None = None
    """Where; None is everywhere."""
    limit: int = 20
    """Most tools in the answer, at most `MAX_FOUND`."""
    profile: str = DEFAULT_PROFILE
    """Whose tools."""


async def search(context: OperatorContext, params: SearchParams) -> dict[str, object]:
    """The tools that fit, best first.

    Raises:
        InvalidArguments: there is no such profile.
        UnknownCategory: there is no such category.
    """
    _surface, view = view_of(context, params.profile)
    return scored(view, params.queries, params.category, max(1, min(params.limit, MAX_FOUND)))


SEARCH = Command("search", SearchParams, search)
