"""`mcpd refresh`: have servers list their tools now, and report what has changed."""

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
    """The server to refresh; None means all that are up."""

    server: str | None = None


async def refresh(context: OperatorContext, params: RefreshParams) -> dict[str, object]:
    """Have servers list their tools, all at the same time; each failure is reported as that server's `problem`.

    Raises:
        UnknownServer: no server has that name.
    """
    server, entries = params.server, context.catalog.servers
    if server is not None and server not in entries:
        raise context.unknown(server)
    names = [name for name, entry in entries.items() if entry.available]
    told: dict[str, object] = dict.fromkeys(names if server is None else [server])
    async with trio.open_nursery() as nursery:
        for name in told:
            # The entry as of now: a reload may remove the server before its task starts.
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
