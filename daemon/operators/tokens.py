"""`mcpd token`: have the daemon read again which tokens there are, and report what it knows of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon.config.listen import without_values
from daemon.operators.base import Command, NoParams

if TYPE_CHECKING:
    from daemon.operators.base import OperatorContext


async def tokens(context: OperatorContext, _params: NoParams) -> dict[str, object]:
    """Read the file of tokens again; returns where it is, and names, profiles and times, never a value."""
    access = context.access
    if access is not None:
        await access.learn()
    http = context.config.listen.http
    return {
        "state": context.facts.state,
        "http": None if http is None else http.address,
        "configured": without_values(http),
        "profiles": list(context.config.profiles),
        "used": {} if access is None else dict(access.used),
        "problem": "" if access is None else access.problem,
    }


TOKENS = Command("tokens", NoParams, tokens)
