"""Answers `tools/list` and `tools/call`, and pages all lists."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import islice

import trio
from msgspec import Raw, ValidationError

from daemon import protocol
from daemon.catalog.kinds import LISTS
from daemon.clients.attachment import Request
from daemon.clients.connection import ClientConnection
from daemon.clients.requests.tasks import call_as_task
from daemon.clients.waits import wait_known
from daemon.model import Kind
from daemon.protocol import UNCACHED
from daemon.surfaces.describing import unlisted
from daemon.surfaces.surface import AwaitListing
from daemon.surfaces.table import ClientInfo
from daemon.wire.envelope import METHOD_NOT_FOUND, made_error

NOT_FOUND = "Method not found"
"""The error of a client's only server, if the server lacks a method; in the SDKs' words."""

CURSOR_DIGITS = 9
"""Digits of the longest cursor, which is a position in a list."""


PATIENCE = {
    # Gives a server 10 s (`startup_timeout_sec`), asks once, and ignores changes.
    "codex": 8.0,
    # Gives up after 5 s.
    "opencode": 4.0,
}
"""Seconds that impatient clients wait, by the part of their name before a hyphen."""

OTHERS = 25.0
"""Seconds that other clients may wait: Claude Code waits 30 s (`MCP_TIMEOUT`), SDKs 60 s by default."""


def patience_of(client: ClientInfo) -> float:
    """Seconds that one request of a client may wait for servers to start."""
    return PATIENCE.get(client.name.partition("-")[0], OTHERS)


MAX_WAITING_LISTS = 16
"""Waiting requests for lists of one client; further requests get the lists known so far."""

PAGE_SHARE = 2
"""A page takes at most half of a client's queue limit: 4 MiB by default, enough for 1,519 tools."""


def list_definitions(kind: Kind, connection: ClientConnection, params: Raw | None, request: Request) -> None:
    """Answer a request for a list, once the servers have listed and the loads at other daemons are known.

    Raises MsgspecError if the params are malformed or the cursor is unknown.
    """
    cursor, session = protocol.decode_list(params or b"{}").cursor, request.session
    view, look = session.view(), None
    if kind is Kind.TOOL:
        connection.lists.asked(request.key)
        servers = request.surface.awaits(view)
        look = None if request.key is None else connection.context.look
    else:
        servers = unlisted(view.servers.values(), (kind,))
    awaited = AwaitListing(servers=servers, kinds=(kind,), chosen=bool(session.selection.servers))
    answer = partial(_answer_page, connection, request, kind, cursor)

    async def known() -> None:
        if look is not None:
            await look()
        with trio.move_on_after(patience_of(connection.client.info)):
            await wait_known(connection.context, awaited, session, request.id)

    if (servers or look) and cursor is None:
        answer_after(connection, request.id, "a request for a list", known, answer)
    else:
        answer()


def answer_after(
    connection: ClientConnection,
    request_id: bytes,
    what: str,
    known: Callable[[], Awaitable[None]],
    answer: Callable[[], None],
) -> None:
    """Answer a request after `known` returns, or at once if too many wait; `what` names it in the log."""
    if connection.waiting_lists >= MAX_WAITING_LISTS:
        answer()
        return
    connection.waiting_lists += 1

    async def serve() -> None:
        try:
            await known()
        finally:
            connection.waiting_lists -= 1
        answer()

    connection.serve_later(request_id, what, serve)


def list_page(items: Sequence[bytes], cursor: str | None, page_bytes: int) -> range:
    """The items from the cursor on that fit in a page, at least one. Raises MsgspecError for a wrong cursor."""
    start = _position(cursor, len(items))
    end, size = start, 0
    while end < len(items) and (end == start or size + len(items[end]) <= page_bytes):
        size += len(items[end])
        end += 1
    return range(start, end)


def list_result(items: Sequence[bytes], page: range, *, modern: bool, member: str = "tools") -> bytes:
    """Encode a page of a list as a result."""
    rest = b"" if page.stop == len(items) else b',"nextCursor":"%d"' % page.stop
    shown = b'"%b":[%b]%b' % (member.encode(), b",".join(items[page.start : page.stop]), rest)
    if not modern:
        return b"{%b}" % shown
    return b'{"resultType":"complete",%b,%b}' % (shown, UNCACHED)


def _position(cursor: str | None, count: int) -> int:
    if cursor is None:
        return 0
    if cursor.isascii() and cursor.isdigit() and len(cursor) <= CURSOR_DIGITS and int(cursor) <= count:
        return int(cursor)
    raise ValidationError("unknown cursor: begin again without one")  # MCP, pagination: invalid params


def _answer_page(connection: ClientConnection, request: Request, kind: Kind, cursor: str | None) -> None:
    context = connection.context
    context.settle_names()
    place, look = connection.list_of(kind, request)
    items, limits = look(), context.catalog.value.config.limits
    if not items and (refusal := _refusal(request, kind)):
        connection.peer.refuse_as(request.id, refusal)
        return
    page = list_page(items, cursor, limits.client_queue_bytes // PAGE_SHARE)
    result = list_result(items, page, modern=request.modern, member=LISTS[kind].member)
    connection.peer.answer(request.id, result)
    connection.lists.given(place, items, look, first=cursor is None, last=page.stop == len(items))
    if kind is Kind.TOOL:
        _note_listed(connection, request, items, page)


def _refusal(request: Request, kind: Kind) -> bytes:
    """The error with which a client's only server has refused a list."""
    selection = request.session.selection
    entry = request.session.view().catalog.servers.get(selection.only)
    if entry is None or entry.disabled:
        return b""
    known = entry.list_of(kind)
    return known.refusal if kind is Kind.TOOL or known.declared else made_error(METHOD_NOT_FOUND, NOT_FOUND)


def call_tool(connection: ClientConnection, params: Raw | None, request: Request) -> None:
    """Send a `tools/call` to its server. Raises MsgspecError for malformed params."""
    wanted = protocol.decode_call(params or b"{}")
    others = wanted.others
    if "task" in others and not request.modern:
        call_as_task(connection, wanted, request)
        return
    if "task" in others:
        # 2026-07-28 has none, and a server of 2025-11-25 would make a task that the client could not fetch.
        others = {key: value for key, value in others.items() if key != "task"}
    connection.dispatch.begin(request, wanted.name, bytes(wanted.arguments), wanted.meta, others)


def _note_listed(connection: ClientConnection, request: Request, tools: tuple[bytes, ...], page: range) -> None:
    session, surface = request.session, request.present_surface
    view = session.view()
    servers_own = surface.listed(view)
    first = len(tools) - len(servers_own)
    start, stop = max(0, page.start - first), max(0, page.stop - first)
    part = islice(servers_own, start, stop)
    session.was_listed(part, view, whole=stop - start == len(view.offer.all))
    if page.start == 0:
        sent, full = sum(map(len, tools)), view.offer.listing_bytes
        connection.context.tally.listed(surface.name, sent, full)
        connection.savings.listed(surface.name, request.key, sent=sent, full=full)
