"""The handshake of both eras, `ping`, and what a bridge says for its client."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import trio
from msgspec import UNSET

from daemon import protocol
from daemon.clients.capabilities import NOTHING
from daemon.clients.introducing import (
    declared_to,
    discover_result,
    in_handshake,
    info_for,
    initialize_result,
    instructions_for,
    not_introduced,
)
from daemon.clients.requests.lists import MAX_WAITING_LISTS, patience_of
from daemon.clients.waits import wait_known
from daemon.surfaces.base import AwaitListing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from msgspec import Raw

    from daemon.catalog.entry import ServerEntry
    from daemon.clients.client import Selection
    from daemon.clients.connection import ClientConnection
    from daemon.surfaces.base import View


_NOBODY = msgspec.Raw(b"{}")
"""The `clientInfo` of a request without one, where the request before may be another client's."""


def initialize(connection: ClientConnection, request_id: bytes, params: Raw | None) -> None:
    """Answer `initialize` (MCP 2024-11-05 to 2025-11-25).

    Raises:
        msgspec.MsgspecError: its params are no object.
    """
    fields = protocol.decode_initialize(params or b"{}")
    connection.name_client(fields.clientInfo)
    if fields.capabilities is not UNSET:
        connection.client.capabilities = fields.capabilities.copy()
        connection.calls.server_requests.capabilities = connection.client.capabilities

    def answer() -> None:
        selection, view, servers = _known(connection)
        result = initialize_result(
            fields.protocolVersion,
            instructions_for(selection, view),
            in_handshake(selection, view, servers),
            info_for(selection, servers),
        )
        connection.protocol = msgspec.json.decode(result)["protocolVersion"]
        connection.subscriptions.handshaken = True
        connection.peer.answer(request_id, result)

    _when_introduced(connection, request_id, answer)


def discover(connection: ClientConnection, request_id: bytes, _params: Raw | None) -> None:
    """Answer `server/discover` (MCP 2026-07-28)."""

    def answer() -> None:
        selection, view, servers = _known(connection)
        declared, info = declared_to(selection, servers), info_for(selection, servers)
        result = discover_result(instructions_for(selection, view), declared, info)
        connection.peer.answer(request_id, result)

    _when_introduced(connection, request_id, answer)


def declared(connection: ClientConnection) -> dict[str, object]:
    """The capabilities that this client is told of (`introducing.declared_to`)."""
    return declared_to(connection.selection, connection.context.catalog.value.servers)


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
    if connection.client.capabilities is NOTHING:
        connection.client.capabilities = meta.get(protocol.CAPABILITIES_KEY, NOTHING).copy()
    info = meta.get(protocol.CLIENT_INFO_KEY)
    # Behind a balancer, clients may share a connection.
    if info is None and connection.info and not connection.client.visitor.keeps:
        info = _NOBODY
    if info is not None and bytes(info) != connection.info:
        connection.info = bytes(info)
        connection.name_client(msgspec.json.decode(info))
    return True


def hello(connection: ClientConnection, said: dict[str, object]) -> None:
    """Take over what a bridge says for its client in the first message of a connection (`protocol.HELLO`)."""
    connection.client.wish(said)
    connection.client.workspace.take_hello(said)
    if fault := connection.attachments.take_hello(said):
        connection.client_log.warning("what this client loads is not remembered: {}", fault)
    if moved := connection.context.moved(connection.attachments.key):
        connection.move(moved)
    if denied := connection.selection.denied:
        connection.client_log.warning("{}", denied)


def _known(connection: ClientConnection) -> tuple[Selection, View, Mapping[str, ServerEntry]]:
    """What a client gets, what it sees, and all servers, as of now."""
    servers = connection.context.catalog.value.servers
    return connection.selection, connection.attachments.own.view(), servers


def _when_introduced(connection: ClientConnection, request_id: bytes, answer: Callable[[], None]) -> None:
    """Answer a handshake now, or once the servers that the client has chosen have introduced themselves."""
    servers = not_introduced(connection.selection, connection.context.catalog.value.servers)
    if servers and connection.waiting_lists < MAX_WAITING_LISTS:
        connection.waiting_lists += 1
        connection.tasks.later(_answer_later, connection, request_id, servers, answer)
    else:
        answer()


async def _answer_later(
    connection: ClientConnection, request_id: bytes, servers: tuple[str, ...], answer: Callable[[], None]
) -> None:
    context, attachments = connection.context, connection.attachments
    # A session that must be recalled is waited for by its first request.
    session = attachments.present(attachments.key_of({})) or attachments.own
    try:
        with trio.move_on_after(patience_of(connection.client.info)):
            await wait_known(context, AwaitListing(servers=servers, chosen=True), session, request_id)
            await context.settled()
        answer()
    except Exception as error:  # noqa: BLE001 - the boundary of a request that has waited
        connection.fail(request_id, "a handshake", error)
    finally:
        connection.waiting_lists -= 1
    context.outbox.flush()
