"""The lists that clients ask for, in pages: what all have in common, and all but that of tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from daemon import protocol
from daemon.catalog.kinds import LISTS
from daemon.clients.connection import list_page, list_result
from daemon.clients.waits import wait_known
from daemon.surfaces.base import AwaitListing
from daemon.surfaces.describing import unlisted

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from msgspec import Raw

    from daemon.clients.attachment import Request
    from daemon.clients.connection import ClientConnection
    from daemon.model import Kind
    from daemon.surfaces.table import ClientInfo


PATIENCE = {
    # It gives a server 10 s (`startup_timeout_sec`), asks once, and does not listen to changes.
    "codex": 8.0,
    # It gives up after 5 s.
    "opencode": 4.0,
}
"""Seconds that clients wait who wait less long than others, by their name or how it begins, up to a hyphen."""

OTHERS = 25.0
"""Seconds that others wait: Claude Code gives a server 30 s (`MCP_TIMEOUT`), who uses an SDK as it is 60 s."""


def patience_of(client: ClientInfo) -> float:
    """Seconds that one request of a client may wait for the starts of servers."""
    return PATIENCE.get(client.name.partition("-")[0], OTHERS)


MAX_WAITING_LISTS = 16
"""Requests for lists of one client that may wait for what they depend on; others get what is known."""

PAGE_SHARE = 2
"""A page of a list takes at most half of a client's queue limit. By default that is 4 MiB, which holds all
1,519 tools of 46 real servers: many clients never ask for a second page."""


def list_beside_tools(kind: Kind, connection: ClientConnection, params: Raw | None, request: Request) -> None:
    """Answer a request for prompts, resources or templates, now or once the servers have listed them.

    Raises:
        msgspec.MsgspecError: its params are not those of a list.
        UnknownCursor: its cursor was never given out.
    """
    cursor = protocol.decode_list(params or b"{}").cursor
    view = request.session.view()
    servers, chosen = unlisted(view.servers.values(), (kind,)), bool(request.session.selection.servers)
    awaited = AwaitListing(servers=servers, kinds=(kind,), chosen=chosen)

    def answer(cursor: str | None) -> None:
        connection.context.settle_names()
        items = connection.listing_of(kind)
        answer_page(connection, request, items, cursor, LISTS[kind].member)
        connection.list_changes.given(kind, items, first=cursor is None)

    answer_list(connection, request, cursor, awaited, answer)


def answer_list(
    connection: ClientConnection,
    request: Request,
    cursor: str | None,
    awaited: AwaitListing,
    answer: Callable[[str | None], None],
    look: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Answer a request for a list, now or once what it depends on is known.

    Args:
        connection: the client's.
        request: the request.
        cursor: where the page begins; only a request for the first one waits.
        awaited: the servers worth waiting for.
        answer: answers, given the cursor.
        look: returns once what other daemons wrote is known here; None if that does not matter.
    """
    waits = (awaited.servers or look) and cursor is None
    if waits and connection.waiting_lists < MAX_WAITING_LISTS:
        connection.waiting_lists += 1
        connection.tasks.later(_answer_when_known, connection, request, awaited, answer, look)
    else:
        answer(cursor)


def answer_page(
    connection: ClientConnection, request: Request, items: Sequence[bytes], cursor: str | None, member: str
) -> range:
    """Answer with a page of a list. Returns which items are in it.

    Args:
        connection: the client's.
        request: the request.
        items: the whole list, raw JSON objects.
        cursor: where the page begins.
        member: the member of the result that holds them.

    Raises:
        UnknownCursor: the cursor was never given out.
    """
    limits = connection.context.catalog.value.config.limits
    page = list_page(items, cursor, limits.client_queue_bytes // PAGE_SHARE)
    result = list_result(items, page, modern=request.modern, member=member)
    connection.peer.answer(request.id, result)
    return page


async def _answer_when_known(
    connection: ClientConnection,
    request: Request,
    awaited: AwaitListing,
    answer: Callable[[str | None], None],
    look: Callable[[], Awaitable[None]] | None,
) -> None:
    try:
        if look is not None:
            await look()
        with trio.move_on_after(patience_of(connection.client.info)):
            await wait_known(connection.context, awaited, request.session, request.id)
        answer(None)
    except Exception as error:  # noqa: BLE001 - the boundary of a request that has waited
        connection.fail(request.id, "a request for a list", error)
    finally:
        connection.waiting_lists -= 1
    connection.context.outbox.flush()
