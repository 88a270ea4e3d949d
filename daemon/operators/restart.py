"""`mcpd restart`: restart a server, or instances of it, whatever their state."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import trio

from daemon.errors import InvalidArguments
from daemon.operators.base import OUTCOME_SECONDS, Command
from daemon.operators.instances import is_divided, named

if TYPE_CHECKING:
    from daemon.operators.base import OperatorContext


class RestartParams(msgspec.Struct):
    """The server or the instance to restart; a server's name stands for all of its instances."""

    server: str


async def restart(context: OperatorContext, params: RestartParams) -> dict[str, object]:
    """Restart a server, whatever its state, and report its state a few seconds later.

    Of a server whose clients do not share an instance, all that run are restarted, and each is reported.

    Raises:
        UnknownServer: no running server has that name, and no instance of one.
        InvalidArguments: the server is switched off.
    """
    name = params.server
    running = named(context, name)
    for each in running:
        if each.child.off:
            raise InvalidArguments(f"server {name} is {each.child.off}")
    for each in running:
        each.child.restart()
    with trio.move_on_after(OUTCOME_SECONDS):
        for each in running:
            await each.child.status.wait_settled()
    told: dict[str, object] = {"server": name, **context.state_of(name)}
    if is_divided(context, name):
        told["instances"] = {each.name: context.state_of(each.name) for each in running}
    return told


RESTART = Command("restart", RestartParams, restart)
