"""`mcpd refresh`: have servers list their tools now, and report what has changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import trio

from daemon.config.labels import server_of
from daemon.errors import CallError
from daemon.operators.base import Command
from daemon.operators.instances import is_divided, named
from daemon.operators.news import difference

if TYPE_CHECKING:
    from daemon.catalog.snapshot import ServerEntry
    from daemon.operators.base import OperatorContext


class RefreshParams(msgspec.Struct):
    """The server or the instance to refresh; None means all that are up."""

    server: str | None = None


async def refresh(context: OperatorContext, params: RefreshParams) -> dict[str, object]:
    """Have servers list their tools, all at the same time; each failure is reported as that server's `problem`.

    Of a server whose clients do not share an instance, all that run list theirs, and each is reported.

    Raises:
        UnknownServer: no server has that name, and no instance of one.
    """
    name, entries = params.server, context.catalog.servers
    if name is None:
        names = [each for name, entry in entries.items() if entry.available for each in _running(context, name)]
    elif name in entries:
        names = _running(context, name) or [name]
    elif server_of(name) in entries:
        names = [each.name for each in named(context, name)]
    else:
        raise context.unknown(name)
    told: dict[str, object] = dict.fromkeys(names)
    async with trio.open_nursery() as nursery:
        for name in told:
            # The entry as of now: a reload may remove the server before its task starts.
            nursery.start_soon(_refresh, context, name, entries[server_of(name)], told)
    return {"servers": told}


REFRESH = Command("refresh", RefreshParams, refresh)


def _running(context: OperatorContext, server: str) -> list[str]:
    """What runs of a server, by its own name: the server, or its instances."""
    return [each.name for each in context.actors.values() if each.of == server]


async def _refresh(context: OperatorContext, name: str, before: ServerEntry, told: dict[str, object]) -> None:
    actor, server = context.actors.get(name), before.name
    if actor is not None:
        try:
            problem = await actor.refresh()
        except CallError as error:
            problem = error.message
    elif is_divided(context, server):
        problem = "no instance of it runs; each lists what it offers when it starts"
    else:
        problem = f"server {server} is switched off in the configuration"
    await context.registry.settle()
    after = context.catalog.servers.get(server)
    if after is None:
        told[name] = {"problem": f"server {server} was removed from the configuration meanwhile"}
    else:
        problem = context.redact.of(server)(problem or after.listing_error)
        told[name] = {**difference(before, after), "problem": problem}
