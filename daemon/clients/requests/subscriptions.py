"""`subscriptions/listen` (MCP 2026-07-28), and the cancellation that ends it or any other request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon import protocol
from daemon.clients.announcements import MAX_SUBSCRIPTIONS
from daemon.wire import envelope

if TYPE_CHECKING:
    from msgspec import Raw

    from daemon.clients.connection import ClientConnection


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
    peer.notify("notifications/subscriptions/acknowledged", told, request_id)


def cancel(connection: ClientConnection, params: Raw) -> None:
    """Cancel a request of any kind (MCP, cancellation).

    Raises:
        msgspec.MsgspecError: the params are no object.
    """
    request_id = protocol.cancelled_id(params)
    connection.calls.cancel(request_id)
    connection.attachments.forget(request_id)
    connection.announcements.unsubscribe(request_id)
