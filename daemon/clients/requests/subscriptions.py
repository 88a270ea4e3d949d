"""`subscriptions/listen` (MCP 2026-07-28), and the cancellation that ends it or any other request."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from daemon import protocol
from daemon.clients.announcements import MAX_SUBSCRIPTIONS
from daemon.wire import envelope

if TYPE_CHECKING:
    from msgspec import Raw

    from daemon.clients.attachment import Attachment
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
        _follow(connection, request_id, params)
        announcements.subscribe(request_id)
    told = protocol.of_subscription(request_id, notifications=honoured)
    peer.notify("notifications/subscriptions/acknowledged", told, request_id)


def _follow(connection: ClientConnection, request_id: bytes, params: Raw | None) -> None:
    """Have changes announced since now, also to a client that was given its list over another connection."""

    def follow(session: Attachment) -> None:
        connection.announcements.follow(session.state.key, partial(_list, session))

    attachments = connection.attachments
    key = attachments.key_of(protocol.meta_of(params))
    session = attachments.present(key)
    if session is not None:
        follow(session)
    else:
        attachments.hold(key or "", request_id, follow)


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
