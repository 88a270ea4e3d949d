"""Bounded waits for servers, their lists and the search index."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec
import trio
from msgspec import Raw

from daemon.catalog.snapshot import Catalog
from daemon.clients.attachment import Attachment
from daemon.clients.calls import ClientCall
from daemon.clients.context import SessionContext
from daemon.errors import UpstreamUnavailable
from daemon.kit.waiting import Watch
from daemon.model import Kind
from daemon.ports import CallRoute, Upstream
from daemon.search.index import Index
from daemon.surfaces.describing import has_listed
from daemon.surfaces.surface import AwaitListing

Report = Callable[[str], None]


LISTING_PATIENCE = 2.0
"""Seconds from a server's start to its first list in the catalog; `Upstream.wake` limits the start."""

INDEX_PATIENCE = 2.0
"""Seconds that a search waits for the index to catch up; 10,000 new tools take less."""

REPORT_SECONDS = 3.0
"""Seconds between progress reports of a waiting call: without reports, clients give up after 10 to 60 s."""

WAITING_STEP = 1e-6
"""Progress per report of mcpd's: it must rise (MCP), and stay below the values that servers report later."""


def reporting(call: ClientCall, flush: Callable[[], None]) -> Report | None:
    """Make a function that reports a waiting call's progress; None if the client gave no progress token."""

    def report(text: str) -> None:
        if call.token is not None:
            call.reported += WAITING_STEP
            progress, message = (Raw(msgspec.json.encode(value)) for value in (call.reported, text))
            params = {"progressToken": call.token, "progress": progress, "message": message}
            call.calls.send_progress(call, params)
        flush()

    return report if call.wants_progress else None


async def wait_known(
    context: SessionContext,
    awaited: AwaitListing,
    session: Attachment,
    request_id: bytes | None,
    report: Report | None = None,
) -> None:
    """Wait for servers' first lists and, if needed, the search index. Raises CallError without an instance."""
    # An unavailable server must not cost the others.
    only = awaited.calling and len(awaited.servers) == 1
    upstreams = await session.instances.find_all(awaited.servers, request_id, strictly=only)
    await wait_listed(awaited, upstreams, context.catalog, report)
    if only and upstreams and upstreams[0].name != upstreams[0].of:
        entry = context.catalog.value.servers.get(upstreams[0].of)
        if entry is not None and Kind.TOOL not in entry.lists:
            # The server's status as a whole may be that of another client's instance.
            raise UpstreamUnavailable(f"{upstreams[0].outlook}. Nothing was sent.", server=upstreams[0].of)
    if awaited.indexed:
        await wait_indexed(context.index, context.catalog)


async def wait_awake(
    context: SessionContext, upstream: Upstream, route: CallRoute, report: Report | None
) -> None:
    """Wake a server that did not accept a call, by the call's route, and wait for its tool list."""
    woken = await wait_up(upstream, report, route)
    await context.settled()
    if woken:
        await upstream.wait_current()


async def wait_up(upstream: Upstream, report: Report | None = None, route: CallRoute | None = None) -> bool:
    """Wake a server, by a call's route if one is given. Returns whether the server is up."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keep_reporting, report, lambda: upstream.outlook)
        is_up = await (route or upstream).wake()
        nursery.cancel_scope.cancel()
    return is_up


async def wait_listed(
    awaited: AwaitListing, upstreams: Iterable[Upstream], catalog: Watch[Catalog], report: Report | None = None
) -> None:
    """Wake servers and wait, concurrently, until each has listed, failed or timed out."""

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
    """Report what a call waits for, until cancelled; without `report`, return at once."""
    began = trio.current_time()
    while report is not None:
        await trio.sleep(REPORT_SECONDS)
        report(f"{what()} (waiting for {trio.current_time() - began:.0f} s)")
