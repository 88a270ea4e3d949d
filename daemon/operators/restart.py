"""`mcpd restart`: a server is started again, whatever state it is in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import trio

from daemon.errors import InvalidArguments
from daemon.operators.base import OUTCOME_SECONDS, Command

if TYPE_CHECKING:
    from daemon.operators.base import OperatorContext


class RestartParams(msgspec.Struct):
    """Which server."""

    server: str


async def restart(context: OperatorContext, params: RestartParams) -> dict[str, str]:
    """Start a server again, and tell how it is a few seconds later.

    Raises:
        UnknownServer: none of that name runs.
        InvalidArguments: it is switched off.
    """
    child = context.children.get(params.server)
    if child is None:
        raise context.unknown(params.server)
    if child.off:
        raise InvalidArguments(f"server {params.server} is {child.off}")
    child.restart()
    with trio.move_on_after(OUTCOME_SECONDS):
        await child.status.wait_settled()
    return {"server": params.server, **context.state_of(params.server)}


RESTART = Command("restart", RestartParams, restart)
