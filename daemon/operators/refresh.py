"""`mcpd refresh`: servers list their tools now, and what that has changed is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import trio

from daemon.errors import CallError
from daemon.operators.base import Command
from daemon.operators.news import difference

if TYPE_CHECKING:
    from daemon.catalog.snapshot import ServerEntry
    from daemon.operators.base import OperatorContext


class RefreshParams(msgspec.Struct):
    """Which server; None is all that are up."""

    server: str | None = None


async def refresh(context: OperatorContext, params: RefreshParams) -> dict[str, object]:
    """Have servers list their tools, all at the same time; a server's failure is its own `problem`.

    Raises:
        UnknownServer: there is none of that name.
    """
    server, entries = params.server, context.catalog.servers
    if server is not None and server not in entries:
        raise context.unknown(server)
    names = [name for name, entry in entries.items() if entry.available]
    told: dict[str, object] = dict.fromkeys(names if server is None else [server])
    async with trio.open_nursery() as nursery:
        for name in told:
            # The entry as it is now: a reload may take the server away before its task begins.
            nursery.start_soon(_refresh, context, entries[name], told)
    return {"servers": told}


REFRESH = Command("refresh", RefreshParams, refresh)


async def _refresh(context: OperatorContext, before: ServerEntry, told: dict[str, object]) -> None:
    name = before.name
    upstream = context.upstreams.get(name)
    problem = f"server {name} is switched off in the configuration"
    if upstream is not None:
        try:
            problem = await upstream.refresh()
        except CallError as error:
            problem = error.message
    await context.registry.settle()
    after = context.catalog.servers.get(name)
    if after is None:
        told[name] = {"problem": f"server {name} was removed from the configuration meanwhile"}
    else:
        problem = context.redact.of(name)(problem or after.listing_error)
        told[name] = {**difference(before, after), "problem": problem}
