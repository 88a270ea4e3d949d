"""`tools/list` and `tools/call`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import UNSET

from daemon import protocol
from daemon.clients.waits import wait_known
from daemon.surfaces.base import AwaitListing

if TYPE_CHECKING:
    from msgspec import Raw

    from daemon.clients.attachment import Request
    from daemon.clients.connection import ClientConnection

MAX_WAITING_LISTS = 16
"""`tools/list` requests of one client that may wait for servers to list their tools; others get what is
known."""

PAGE_SHARE = 2
"""A page of `tools/list` takes at most half of a client's queue limit. By default that is 4 MiB, which holds
all 1,519 tools of 46 real servers: many clients never ask for a second page."""


def call_tool(connection: ClientConnection, params: Raw | None, request: Request) -> None:
    """Hand a `tools/call` to the call path.

    Raises:
        msgspec.MsgspecError: its params are not those of a call.
    """
    wanted = protocol.decode_call(params or b"{}")
    arguments = b"{}" if wanted.arguments is UNSET else bytes(wanted.arguments)
    connection.dispatch.begin(request, wanted.name, arguments, wanted.meta)


def list_tools(connection: ClientConnection, params: Raw | None, request: Request) -> None:
    """Answer `tools/list`, now or once the servers worth waiting for have listed their tools.

    Raises:
        msgspec.MsgspecError: its params are not those of a list.
        UnknownCursor: its cursor was never given out.
    """
    cursor = protocol.decode_list(params or b"{}").cursor
    connection.announcements.asked(request.key)
    awaited = request.session.selection.surface.awaits(request.session.view())
    if awaited and cursor is None and connection.waiting_lists < MAX_WAITING_LISTS:
        connection.waiting_lists += 1
        connection.tasks.later(_answer_when_listed, connection, request, AwaitListing(servers=awaited))
    else:
        _answer(connection, request, cursor)


async def _answer_when_listed(connection: ClientConnection, request: Request, awaited: AwaitListing) -> None:
    try:
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
