"""What clients ask for, and how each request is answered or handed on.

The handshake of both eras, `tools/list`, `tools/call`, and `subscriptions/listen` with the cancellation that
ends it or any other request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET, Raw

from daemon import protocol
from daemon.clients.announcements import MAX_SUBSCRIPTIONS
from daemon.clients.waits import wait_known
from daemon.surfaces.base import AwaitListing
from daemon.wire import envelope

if TYPE_CHECKING:
    from collections.abc import Mapping

    from daemon.clients.attachment import Request
    from daemon.clients.connection import ClientConnection


def initialize(connection: ClientConnection, request_id: bytes, params: Raw | None) -> None:
    """Answer `initialize` (MCP 2024-11-05 to 2025-11-25).

    Raises:
        msgspec.MsgspecError: its params are no object.
    """
    fields = {} if params is None else msgspec.json.decode(params, type=dict[str, object])
    connection.name_client(fields.get("clientInfo"))
    result = protocol.initialize_result(fields.get("protocolVersion"), _instructions(connection))
    connection.protocol = msgspec.json.decode(result)["protocolVersion"]
    connection.announcements.handshaken = True
    connection.peer.answer(request_id, result)


def discover(connection: ClientConnection, request_id: bytes, _params: Raw | None) -> None:
    """Answer `server/discover` (MCP 2026-07-28)."""
    connection.peer.answer(request_id, protocol.discover_result(_instructions(connection)))


def ping(connection: ClientConnection, request_id: bytes, _params: Raw | None) -> None:
    """Answer `ping`."""
    connection.peer.answer(request_id, b"{}")


def accept_version(connection: ClientConnection, request_id: bytes, meta: Mapping[str, Raw]) -> bool:
    """Read the envelope of a request of the 2026-07-28 era. Returns False if its version was refused.

    Raises:
        msgspec.MsgspecError: a member cannot be read.
    """
    version = msgspec.json.decode(meta[protocol.VERSION_KEY])
    if version != protocol.MODERN_VERSION:
        connection.peer.refuse(request_id, *protocol.unsupported(version))
        return False
    connection.protocol = version
    if not connection.client.name and protocol.CLIENT_INFO_KEY in meta:
        connection.name_client(msgspec.json.decode(meta[protocol.CLIENT_INFO_KEY]))
    return True


def hello(connection: ClientConnection, said: dict[str, object]) -> None:
    """Take over what a bridge says for its client in the first message of a connection (`protocol.HELLO`)."""
    connection.client.wish(said)
    if fault := connection.attachments.take_hello(said):
        connection.client_log.warning("what this client loads is not remembered: {}", fault)
    if moved := connection.context.moved(connection.attachments.key):
        connection.move(moved)
    if denied := connection.selection.denied:
        connection.client_log.warning("{}", denied)


def _instructions(connection: ClientConnection) -> str:
    selection = connection.selection
    profile = selection.profile
    text = profile.instructions or selection.surface.instructions(connection.attachments.own.view())
    return f"{text}\n{profile.prompt}" if profile.prompt else text


def listen(connection: ClientConnection, request_id: bytes, params: Raw | None) -> None:
    """Acknowledge a subscription, which then stays open until the client cancels it.

    Raises:
        msgspec.MsgspecError: its params are no object.
    """
    announcements, peer = connection.announcements, connection.peer
    if request_id in connection.calls.open or request_id in announcements.subscriptions:
        peer.refuse(request_id, envelope.INVALID_REQUEST, protocol.already_in_flight(request_id))
        return
    if announcements.is_full:
        text = f"{MAX_SUBSCRIPTIONS} subscriptions are open; cancel one first"
        peer.refuse(request_id, envelope.INVALID_REQUEST, text)
        return
    honoured = protocol.honoured(params)
    if honoured:
        announcements.subscribe(request_id)
    told = protocol.of_subscription(request_id, notifications=honoured)
    peer.notify("notifications/subscriptions/acknowledged", told)


def cancel(connection: ClientConnection, params: Raw) -> None:
    """Cancel a request of any kind (MCP, cancellation).

    Raises:
        msgspec.MsgspecError: the params are no object.
    """
    request_id = bytes(msgspec.json.decode(params, type=dict[str, Raw]).get("requestId", b""))
    connection.calls.cancel(request_id)
    connection.attachments.forget(request_id)
    connection.announcements.unsubscribe(request_id)


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
