"""The handshake of both eras, `ping`, and what a bridge says for its client."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET

from daemon import protocol
from daemon.clients.capabilities import NOTHING
from daemon.clients.tasks import offers_tasks
from daemon.surfaces.own_words import server_lines

if TYPE_CHECKING:
    from collections.abc import Mapping

    from msgspec import Raw

    from daemon.clients.connection import ClientConnection


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
    instructions = _instructions(connection)
    capabilities: dict[str, object] = dict(declared(connection))
    if offers_tasks(connection.attachments.own.view()):
        capabilities["tasks"] = protocol.TASKS
    result = protocol.initialize_result(fields.protocolVersion, instructions, capabilities)
    connection.protocol = msgspec.json.decode(result)["protocolVersion"]
    connection.subscriptions.handshaken = True
    connection.peer.answer(request_id, result)


def discover(connection: ClientConnection, request_id: bytes, _params: Raw | None) -> None:
    """Answer `server/discover` (MCP 2026-07-28)."""
    result = protocol.discover_result(_instructions(connection), declared(connection))
    connection.peer.answer(request_id, result)


def declared(connection: ClientConnection) -> dict[str, dict[str, bool]]:
    """The capabilities that mcpd declares to this client: its profile may offer no prompts, or no resources."""
    profile = connection.selection.profile
    return protocol.capabilities(prompts=profile.prompts, resources=profile.resources)


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


def _instructions(connection: ClientConnection) -> str:
    selection = connection.selection
    profile = selection.profile
    view = connection.attachments.own.view()
    text = profile.instructions or "\n\n".join(
        filter(None, (selection.surface.instructions(view), server_lines(view)))
    )
    return f"{text}\n{profile.prompt}" if profile.prompt else text
