"""The end of what nobody uses: instances are ended, servers that all clients share are put to rest (`idle`)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeVar

import trio

from daemon.states import SERVING
from daemon.upstreams.instances.instanced import InstancedServer
from daemon.upstreams.supervised import SupervisedServer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from daemon.upstreams.server_actors import ServerActors

A = TypeVar("A", bound=SupervisedServer)


async def keep_ending(servers: Mapping[str, A | InstancedServer[A]], actors: ServerActors[A]) -> None:
    """End instances that are due, and put servers to rest that nobody uses, until cancelled.

    Args:
        servers: the servers by name; read again at each look.
        actors: says when something may be due earlier than it was.
    """
    while True:
        actors.sooner = trio.Event()
        now = trio.current_time()
        looks = [
            each.instances.look(now) if isinstance(each, InstancedServer) else rest_if_unused(each, now)
            for each in list(servers.values())
        ]
        with trio.move_on_at(min(looks, default=math.inf)):
            await actors.sooner.wait()


def rest_if_unused(server: SupervisedServer, now: float) -> float:
    """Put a server to rest if it is due, and return when to look again, both on trio's clock."""
    use = server.use
    if use is None:
        return math.inf
    if use.due > now:
        return use.due
    is_up = server.child.status.value.state in SERVING
    # One that was never used counts from the first look.
    if is_up and use.at > -math.inf and not server.is_busy:
        server.log.say("INFO", f"unused for {use.seconds:g} s (idle): it is ended until the next call")
        server.rest()
    use.note()
    return use.due
