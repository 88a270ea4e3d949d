"""`subscriptions/listen` (MCP 2026-07-28), and the cancellation that ends it or any other request."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from daemon import protocol
from daemon.catalog.kinds import LISTS
from daemon.clients.list_changes import MAX_SUBSCRIPTIONS
from daemon.clients.requests.following import follow, unfollow
from daemon.clients.requests.initialize import declared
from daemon.model import Kind
from daemon.wire import envelope

if TYPE_CHECKING:
    from msgspec import Raw

    from daemon.clients.attachment import Request
    from daemon.clients.connection import ClientConnection


def listen(connection: ClientConnection, params: Raw | None, request: Request) -> None:
    """Acknowledge a subscription, which then stays open until the client cancels it.

    It is told of all changes since then, also if its client asks for its list over another connection.

    Raises:
        msgspec.MsgspecError: its params are no object.
    """
    subscriptions, peer = connection.subscriptions, connection.peer
    pending = connection.told.listens
    if request.id in connection.calls.open or request.id in subscriptions.open or request.id in pending:
        peer.refuse(request.id, envelope.INVALID_REQUEST, protocol.already_in_flight(request.id))
        return
    if subscriptions.is_full or len(pending) >= MAX_SUBSCRIPTIONS:
        text = f"{MAX_SUBSCRIPTIONS} subscriptions are open; cancel one first"
        peer.refuse(request.id, envelope.INVALID_REQUEST, text)
        return
    wanted, offered = protocol.wanted_notifications(params), declared(connection)
    honoured: dict[str, object] = {
        each.wish: True
        for each in LISTS.values()
        if wanted.get(each.wish) is True and each.capability in offered
    }
    acknowledge = partial(_acknowledge, connection, request, honoured)
    uris = protocol.texts_in(wanted.get("resourceSubscriptions")) if "resources" in offered else []
    if uris:
        follow(connection, request, uris, acknowledge)
    else:
        acknowledge([])


def _acknowledge(
    connection: ClientConnection, request: Request, honoured: dict[str, object], uris: list[str]
) -> None:
    """Tell what a subscription will be sent, and begin to send it."""
    if uris:
        honoured["resourceSubscriptions"] = uris
    if honoured:
        if LISTS[Kind.TOOL].wish in honoured:
            connection.announcements.follow(request.key, partial(_list, request))
        connection.list_changes.follow(honoured)
        connection.subscriptions.add(request.id, honoured)
    told = protocol.of_subscription(request.id, notifications=honoured)
    connection.peer.notify(protocol.ACKNOWLEDGED, told, request.id)


def _list(request: Request) -> tuple[bytes, ...]:
    return request.present_surface.list_tools(request.session.view())


def cancel(connection: ClientConnection, params: Raw) -> None:
    """Cancel a request of any kind (MCP, cancellation).

    Raises:
        msgspec.MsgspecError: the params are no object.
    """
    request_id = protocol.cancelled_id(params)
    connection.calls.cancel(request_id)
    connection.attachments.forget(request_id)
    unfollow(connection, request_id)
    if request_id in connection.subscriptions.open:
        connection.subscriptions.end(request_id)
        connection.announcements.unfollow()
        connection.list_changes.unfollow()
