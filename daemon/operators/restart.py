"""`mcpd restart`: restart a server, whatever its state."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import trio

from daemon.errors import InvalidArguments
from daemon.operators.base import OUTCOME_SECONDS, Command

if TYPE_CHECKING:
    from daemon.operators.base import OperatorContext


class RestartParams(msgspec.Struct):
    """The server to restart."""

    server: str


async def restart(context: OperatorContext, params: RestartParams) -> dict[str, str]:
    """Restart a server, whatever its state, and report its state a few seconds later.

    Raises:
        UnknownServer: no running server has that name.
        InvalidArguments: the server is switched off.
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
