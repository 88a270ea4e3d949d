"""`tools/list` and `tools/call`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from daemon import protocol
from daemon.catalog.kinds import LISTS
from daemon.clients.requests.lists import answer_list, answer_page
from daemon.clients.requests.tasks import call_as_task
from daemon.model import Kind
from daemon.surfaces.base import AwaitListing

if TYPE_CHECKING:
    from msgspec import Raw

    from daemon.clients.attachment import Request
    from daemon.clients.connection import ClientConnection


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
    session = request.session
    chosen = bool(session.selection.servers)
    awaited = AwaitListing(servers=request.surface.awaits(session.view()), chosen=chosen)
    look = None if request.key is None else connection.context.look
    answer_list(connection, request, cursor, awaited, partial(_answer, connection, request), look)


def _answer(connection: ClientConnection, request: Request, cursor: str | None) -> None:
    context, session = connection.context, request.session
    context.settle_names()
    view, surface = session.view(), request.present_surface
    tools = surface.list_tools(view)
    page = answer_page(connection, request, tools, cursor, LISTS[Kind.TOOL].member)
    connection.announcements.given(
        request.key,
        tools,
        lambda: request.present_surface.list_tools(session.view()),
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
