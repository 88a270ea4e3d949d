"""`tools/list` and `tools/call`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon import protocol
from daemon.clients.requests.tasks import call_as_task
from daemon.clients.waits import wait_known
from daemon.surfaces.base import AwaitListing

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from msgspec import Raw

    from daemon.clients.attachment import Request
    from daemon.clients.connection import ClientConnection

MAX_WAITING_LISTS = 16
"""`tools/list` requests of one client that may wait for what they depend on; others get what is known."""

PAGE_SHARE = 2
"""A page of `tools/list` takes at most half of a client's queue limit. By default that is 4 MiB, which holds
all 1,519 tools of 46 real servers: many clients never ask for a second page."""


def call_tool(connection: ClientConnection, params: Raw | None, request: Request) -> None:
    """Hand a `tools/call` to the call path.

    Raises:
        msgspec.MsgspecError: its params are not those of a call.
    """
    wanted = protocol.decode_call(params or b"{}")
    if "task" in wanted.others:
        call_as_task(connection, wanted, request)
        return
    connection.dispatch.begin(request, wanted.name, bytes(wanted.arguments), wanted.meta, wanted.others)


def list_tools(connection: ClientConnection, params: Raw | None, request: Request) -> None:
    """Answer `tools/list`, now or once what it depends on is known.

    That is what the servers worth waiting for list, and what a session with a key has loaded at other daemons.

    Raises:
        msgspec.MsgspecError: its params are not those of a list.
        UnknownCursor: its cursor was never given out.
    """
    cursor = protocol.decode_list(params or b"{}").cursor
    connection.announcements.asked(request.key)
    awaited = request.session.selection.surface.awaits(request.session.view())
    look = None if request.key is None else connection.context.look
    if (awaited or look) and cursor is None and connection.waiting_lists < MAX_WAITING_LISTS:
        connection.waiting_lists += 1
        connection.tasks.later(_answer_when_known, connection, request, AwaitListing(servers=awaited), look)
    else:
        _answer(connection, request, cursor)


async def _answer_when_known(
    connection: ClientConnection,
    request: Request,
    awaited: AwaitListing,
    look: Callable[[], Awaitable[None]] | None,
) -> None:
    try:
        if look is not None:
            await look()
        await wait_known(connection.context, awaited)
        _answer(connection, request, None)
    except Exception as error:  # noqa: BLE001 - the boundary of a request that has waited
        connection.fail(request.id, "tools/list", error)
    finally:
        connection.waiting_lists -= 1
    connection.context.outbox.flush()


def _answer(connection: ClientConnection, request: Request, cursor: str | None) -> None:
    context, session = connection.context, request.session
    context.settle_names()
    view, surface = session.view(), session.selection.surface
    tools = surface.list_tools(view)
    page = protocol.list_page(tools, cursor, view.catalog.config.limits.client_queue_bytes // PAGE_SHARE)
    connection.announcements.given(
        request.key,
        tools,
        lambda: session.selection.surface.list_tools(session.view()),
        first=cursor is None,
        last=page.stop == len(tools),
    )
    servers_own = surface.listed(view)
    first = len(tools) - len(servers_own)
    part = servers_own[max(0, page.start - first) : max(0, page.stop - first)]
    session.was_listed(part, view, whole=len(part) == len(view.offer.all))
    if cursor is None:
        sent, full = sum(map(len, tools)), view.offer.listing_bytes
        context.tally.listed(surface.name, sent, full)
        connection.savings.listed(surface.name, request.key, sent=sent, full=full)
    connection.peer.answer(request.id, protocol.list_result(tools, page, modern=request.modern))
