"""`subscriptions/listen` (MCP 2026-07-28), and the cancellation that ends it or any other request."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from daemon import protocol
from daemon.clients.announcements import MAX_SUBSCRIPTIONS
from daemon.wire import envelope

if TYPE_CHECKING:
    from msgspec import Raw

    from daemon.clients.attachment import Attachment, Request
    from daemon.clients.connection import ClientConnection


def listen(connection: ClientConnection, params: Raw | None, request: Request) -> None:
    """Acknowledge a subscription, which then stays open until the client cancels it.

    It is told of all changes since then, also if its client asks for its list over another connection.

    Raises:
        msgspec.MsgspecError: its params are no object.
    """
    announcements, peer = connection.announcements, connection.peer
    if request.id in connection.calls.open or request.id in announcements.subscriptions:
        peer.refuse(request.id, envelope.INVALID_REQUEST, protocol.already_in_flight(request.id))
        return
    if announcements.is_full:
        text = f"{MAX_SUBSCRIPTIONS} subscriptions are open; cancel one first"
        peer.refuse(request.id, envelope.INVALID_REQUEST, text)
        return
    honoured = protocol.honoured(params)
    if honoured:
        announcements.follow(request.key, partial(_list, request.session))
        announcements.subscribe(request.id)
    told = protocol.of_subscription(request.id, notifications=honoured)
    peer.notify("notifications/subscriptions/acknowledged", told, request.id)


def _list(session: Attachment) -> tuple[bytes, ...]:
    return session.selection.surface.list_tools(session.view())


def cancel(connection: ClientConnection, params: Raw) -> None:
    """Cancel a request of any kind (MCP, cancellation).

    Raises:
        msgspec.MsgspecError: the params are no object.
    """
    request_id = protocol.cancelled_id(params)
    connection.calls.cancel(request_id)
    connection.attachments.forget(request_id)
    connection.announcements.unsubscribe(request_id)
