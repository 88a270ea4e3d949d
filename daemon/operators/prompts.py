"""`mcpd prompts`: the prompts that servers offer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon.model import Kind
from daemon.operators.base import Command
from daemon.operators.definitions import DefinitionsParams, listed, problems, servers_of

if TYPE_CHECKING:
    from daemon.operators.base import OperatorContext


async def prompts(context: OperatorContext, params: DefinitionsParams) -> dict[str, object]:
    """The prompts, and what is wrong with servers that have some.

    Raises:
        UnknownServer: there is no such server.
    """
    servers = servers_of(context, params.server)
    return {
        "prompts": listed(context, servers, Kind.PROMPT),
        "servers": problems(context, servers, (Kind.PROMPT,)),
    }


PROMPTS = Command("prompts", DefinitionsParams, prompts)
