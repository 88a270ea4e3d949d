"""`logging/setLevel` (MCP to 2025-11-25)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import trio
from msgspec import Raw, Struct

from daemon.clients.subscribers import rank_of
from daemon.wire import envelope

if TYPE_CHECKING:
    from daemon.clients.attachment import Request
    from daemon.clients.connection import ClientConnection


class _SetLevel(Struct):
    level: Raw


_decode = msgspec.json.Decoder(_SetLevel).decode


def set_level(connection: ClientConnection, params: Raw | None, request: Request) -> None:
    """Note from which level on the client gets the logs of its servers.

    Raises:
        msgspec.MsgspecError: its params name no level.
    """
    if request.modern:
        text = "Method not found: logging/setLevel. Since 2026-07-28 each request names its level in _meta"
        connection.peer.refuse(request.id, envelope.METHOD_NOT_FOUND, text)
        return
    connection.calls.log_level = rank_of(_decode(params or b"{}").level)
    connection.context.audience.levels.join(connection.told)
    connection.tasks.later(_answer, connection, request)


async def _answer(connection: ClientConnection, request: Request) -> None:
    """Answer once servers that are up were asked for the level: the client's next call comes after that."""
    # Whoever asks them waits for a change of the level, and is scheduled by now.
    await trio.lowlevel.checkpoint()
    connection.peer.answer(request.id, b"{}")
    connection.context.outbox.flush()
