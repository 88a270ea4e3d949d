"""Waiting, within bounds, for what an answer depends on: first lists of servers, and the search index."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from collections.abc import Mapping

    from daemon.catalog.snapshot import Catalog
    from daemon.ports import Upstream
    from daemon.search.index import Index
    from daemon.watch import Watch

LISTING_PATIENCE = 2.0
"""Seconds between a server that is up and its first list in the catalog; how long it may take to come up is
`Upstream.wake`'s to bound."""

INDEX_PATIENCE = 2.0
"""Seconds that a search waits for the index to follow the catalog; 10,000 new tools take less."""


async def wait_listed(
    servers: tuple[str, ...], upstreams: Mapping[str, Upstream], catalog: Watch[Catalog]
) -> None:
    """Wake servers and wait, all at once, until each has listed its tools, failed to, or used its time up."""
    async with trio.open_nursery() as nursery:
        for server in servers:
            nursery.start_soon(_wait_one, server, upstreams.get(server), catalog)


async def wait_indexed(index: Watch[Index], catalog: Watch[Catalog]) -> None:
    """Wait until the search index knows every tool of the catalog, or the time is used up."""
    with trio.move_on_after(INDEX_PATIENCE):
        await index.wait_until(lambda newest: newest.covers(catalog.value.servers))


async def _wait_one(server: str, upstream: Upstream | None, catalog: Watch[Catalog]) -> None:
    if upstream is None or not await upstream.wake():
        return

    def listed(newest: Catalog) -> bool:
        entry = newest.servers.get(server)
        return entry is None or entry.tools is not None or bool(entry.listing_error)

    with trio.move_on_after(LISTING_PATIENCE):
        await catalog.wait_until(listed)
