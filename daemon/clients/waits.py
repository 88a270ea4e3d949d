"""Bounded waits for what an answer depends on: servers, their lists, the search index; and the drain."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import trio
from msgspec import Raw

from daemon.errors import UpstreamUnavailable
from daemon.model import Kind
from daemon.surfaces.describing import has_listed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from daemon.catalog.snapshot import Catalog
    from daemon.clients.attachment import Attachment
    from daemon.clients.calls import ClientCall
    from daemon.clients.context import SessionContext
    from daemon.kit.waiting import Watch
    from daemon.ports import Upstream
    from daemon.search.index import Index
    from daemon.surfaces.surface import AwaitListing

    Report = Callable[[str], None]


LISTING_PATIENCE = 2.0
"""Seconds from a server's coming up to its first list in the catalog; `Upstream.wake` bounds how long it may
take to come up."""

INDEX_PATIENCE = 2.0
"""Seconds that a search waits for the index to catch up with the catalog; 10,000 new tools take less."""

REPORT_SECONDS = 3.0
"""Seconds between two progress reports of a call that waits for a server: clients give up after 60 s without
one, the strictest after 10 s, and most waits end before the first."""

WAITING_STEP = 1e-6
"""By how much each report of ours raises a call's progress, which must rise with each (MCP, progress): so
little that nearly everything that its server reports later is more."""


class Tasks:
    """Tasks that wait on behalf of one connection, in a nursery that ends with it."""

    def __init__(self) -> None:
        """Begin without any; `run` opens the nursery."""
        self._spawn: Callable[..., None] | None = None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the nursery until cancelled; reports as started once tasks can be added."""
        async with trio.open_nursery() as nursery:
            self._spawn = nursery.start_soon
            task_status.started()
            try:
                await trio.sleep_forever()
            finally:
                self._spawn = None

    def later(self, wait: Callable[..., Awaitable[None]], *args: object) -> None:
        """Start a task, but not once the connection has ended: a queue may return a call that outlived it."""
        if self._spawn is not None:
            self._spawn(wait, *args)


def reporting(call: ClientCall, flush: Callable[[], None]) -> Report | None:
    """A function that tells the client how a server is that its call waits for; None if it has no token.

    Args:
        call: the call.
        flush: writes the frames that this queues.
    """

    def report(text: str) -> None:
        if call.token is not None:
            call.reported += WAITING_STEP
            progress, message = (Raw(msgspec.json.encode(value)) for value in (call.reported, text))
            told = {"progressToken": call.token, "progress": progress, "message": message}
            call.calls.send_progress(call, told)
        flush()

    return report if call.wants_progress else None


async def wait_known(
    context: SessionContext,
    awaited: AwaitListing,
    session: Attachment,
    request_id: bytes | None,
    report: Report | None = None,
) -> None:
    """Wait for what an answer depends on: servers' first lists, and the search index if it matters.

    Args:
        context: what all sessions share.
        awaited: what to wait for.
        session: whose answer it is: where clients do not share a server, its own instance is waited for.
        request_id: the request that is to be answered, if there is one.
        report: told how servers are while they are waited for; None if no reports are wanted.

    Raises:
        CallError: a tool of a single server is to be called, and there is no instance of it for this client.
    """
    # A server that cannot be had must not cost the others.
    only = awaited.calling and len(awaited.servers) == 1
    upstreams = await session.instances.find_all(awaited.servers, request_id, strictly=only)
    await wait_listed(awaited, upstreams, context.catalog, report)
    if only and upstreams and upstreams[0].name != upstreams[0].of:
        entry = context.catalog.value.servers.get(upstreams[0].of)
        if entry is not None and Kind.TOOL not in entry.lists:
            # The status of the server as a whole may be that of somebody else's instance.
            raise UpstreamUnavailable(f"{upstreams[0].outlook}. Nothing was sent.", server=upstreams[0].of)
    if awaited.indexed:
        await wait_indexed(context.index, context.catalog)


async def wait_awake(context: SessionContext, upstream: Upstream, report: Report | None = None) -> None:
    """Wake a server for a call that it did not take, and wait for its list of tools."""
    woken = await wait_up(upstream, report)
    await context.settled()
    if woken:
        await upstream.wait_current()


async def wait_up(upstream: Upstream, report: Report | None = None) -> bool:
    """Wake a server for a call. Returns whether it is up.

    Args:
        upstream: the server.
        report: told how it is while it is waited for; None if no reports are wanted.
    """
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keep_reporting, report, lambda: upstream.outlook)
        is_up = await upstream.wake()
        nursery.cancel_scope.cancel()
    return is_up


async def wait_listed(
    awaited: AwaitListing,
    upstreams: Iterable[Upstream],
    catalog: Watch[Catalog],
    report: Report | None = None,
) -> None:
    """Wake servers and wait, concurrently, until each has listed, failed to, or run out of time."""

    async def wait(upstream: Upstream) -> None:
        woken = wait_up(upstream, report) if awaited.calling else upstream.wake_to_list(wholly=awaited.chosen)
        if not await woken:
            return

        def listed(newest: Catalog) -> bool:
            entry = newest.servers.get(upstream.of)
            return entry is None or all(has_listed(entry, kind) for kind in awaited.kinds)

        with trio.move_on_after(LISTING_PATIENCE):
            await catalog.wait_until(listed)

    async with trio.open_nursery() as nursery:
        for upstream in upstreams:
            nursery.start_soon(wait, upstream)


async def wait_indexed(index: Watch[Index], catalog: Watch[Catalog]) -> None:
    """Wait until the search index knows every tool of the catalog, or time runs out."""
    with trio.move_on_after(INDEX_PATIENCE):
        await index.wait_until(lambda newest: newest.covers(catalog.value.servers))


async def keep_reporting(report: Report | None, what: Callable[[], str]) -> None:
    """Report to a client, if it wants to know, what its call waits for, until cancelled."""
    began = trio.current_time()
    while report is not None:
        await trio.sleep(REPORT_SECONDS)
        report(f"{what()} (waiting for {trio.current_time() - began:.0f} s)")
