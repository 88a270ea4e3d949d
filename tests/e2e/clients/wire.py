"""A unix socket as a transport of the `mcp` SDK, for its 1.x and its 2.x: newline-delimited JSON."""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import anyio
from mcp.shared.message import SessionMessage

try:
    from mcp_types import jsonrpc_message_adapter

    def parse(line: bytes) -> Any:
        """One message, as SDK 2.x models it."""
        return jsonrpc_message_adapter.validate_json(line)

except ImportError:  # SDK 1.x
    from mcp import types

    def parse(line: bytes) -> Any:
        """One message, as SDK 1.x models it."""
        return types.JSONRPCMessage.model_validate_json(line)


if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@asynccontextmanager
async def socket_transport(path: str) -> AsyncIterator[tuple[Any, Any]]:
    """Yields (read stream, write stream) over the daemon's socket."""
    incoming, read = anyio.create_memory_object_stream[Any](0)
    write, outgoing = anyio.create_memory_object_stream[Any](0)
    async with await anyio.connect_unix(path) as socket, anyio.create_task_group() as tasks:

        async def receive() -> None:
            rest = b""
            # A notification may come while the client is closing: nobody waits for it any more.
            with suppress(anyio.BrokenResourceError):
                async with incoming:
                    async for chunk in socket:
                        *lines, rest = (rest + chunk).split(b"\n")
                        for line in lines:
                            await incoming.send(SessionMessage(parse(line)))

        async def send() -> None:
            async for message in outgoing:
                body = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                await socket.send(body.encode() + b"\n")

        tasks.start_soon(receive)
        tasks.start_soon(send)
        yield read, write
        tasks.cancel_scope.cancel()
        for stream in (incoming, read, write, outgoing):
            stream.close()
