"""`tools/list` and `tools/call`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec
import trio
from msgspec import Raw, Struct

from daemon import protocol
from daemon.catalog.kinds import LISTS
from daemon.clients.connection import list_page, list_result
from daemon.clients.requests.tasks import call_as_task
from daemon.clients.waits import wait_known
from daemon.model import Kind
from daemon.protocol import CALL_TOOL
from daemon.surfaces.base import AwaitListing
from daemon.surfaces.describing import unlisted
from daemon.wire.envelope import MAX_DEPTH, opens_many

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from daemon.clients.attachment import Request
    from daemon.clients.connection import ClientConnection
    from daemon.surfaces.table import ClientInfo
    from daemon.wire.frames import Line


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


MAX_PLAIN = 64 * 1024
"""Bytes of the longest call that is read in one look: beyond, the saving is nothing compared to the payload."""

SHALLOW_BYTES = 2 * (MAX_DEPTH - 2)
"""Bytes of arguments that are too short to be nested deeply, two levels down, whatever is in them."""


class PlainCall(Struct, frozen=True, gc=False):
    """A `tools/call` without `_meta`."""

    request_id: bytes
    """The request's id, raw JSON."""
    name: str
    """The tool's name."""
    arguments: bytes
    """The tool's arguments: a JSON object, raw."""

    def __repr__(self) -> str:
        """Without arguments: they may hold a secret."""
        return f"<PlainCall {self.name}>"


class _PlainParams(Struct, gc=False):
    name: str
    arguments: Raw


class _PlainRequest(Struct, gc=False):
    jsonrpc: str
    id: int
    method: str
    params: _PlainParams


_decode_call = msgspec.json.Decoder(_PlainRequest).decode
_BRACE = ord("{")
_PLAIN_BYTES = len(b'{"jsonrpc":"2.0","id":,"method":"tools/call","params":{"name":"","arguments":}}')


def plain_call(line: Line) -> PlainCall | None:
    """Read a `tools/call` as nearly all are written; None for every message that needs a closer look.

    Its members, compact and in any order, have a known length: a line of exactly that length has no room for a
    second `id`, an escaped key, a `_meta` or anything else.
    """
    if len(line) > MAX_PLAIN or not line.isascii():
        return None
    try:
        asked = _decode_call(line)
    except (msgspec.MsgspecError, RecursionError):
        return None
    params = asked.params
    name = params.name
    request_id, arguments = b"%d" % asked.id, bytes(params.arguments)
    if (
        len(line) != _PLAIN_BYTES + len(request_id) + len(name) + len(arguments)
        or asked.method != CALL_TOOL
        or asked.jsonrpc != "2.0"
        or arguments[0] != _BRACE
        or (len(arguments) > SHALLOW_BYTES and opens_many(line))
    ):
        return None
    return PlainCall(request_id, name, arguments)


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
