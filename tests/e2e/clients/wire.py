"""Shared code of clients on the `mcp` SDK 1.x and 2.x: transports, counts of announcements, pauses."""

from __future__ import annotations

import json
import sys
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import anyio
from mcp import StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client
from mcp.shared.message import SessionMessage

try:
    from mcp_types import jsonrpc_message_adapter

    def parse(line: bytes) -> Any:
        """One message, in SDK 2.x's model."""
        return jsonrpc_message_adapter.validate_json(line)

except ImportError:  # SDK 1.x
    from mcp import types

    def parse(line: bytes) -> Any:
        """One message, in SDK 1.x's model."""
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


class Changes:
    """Counts the announcements that the tools have changed."""

    def __init__(self) -> None:
        """Count from nothing."""
        self.count = 0
        self._waited_for = 0
        self._more = anyio.Event()

    def note(self) -> None:
        """Count one."""
        self.count += 1
        self._more.set()
        self._more = anyio.Event()

    async def wait(self) -> None:
        """Wait until one has come since the last wait."""
        while self.count == self._waited_for:
            await self._more.wait()
        self._waited_for = self.count


@asynccontextmanager
async def over_socket(path: str, hello: dict[str, Any] | None) -> AsyncIterator[tuple[Any, Any]]:
    """The daemon's socket, with the bridge's hello first if given."""
    async with socket_transport(path) as (read, write):
        if hello:
            line = json.dumps({"jsonrpc": "2.0", "method": "mcpd/hello", "params": hello})
            await write.send(SessionMessage(parse(line.encode())))
        yield read, write


@asynccontextmanager
async def over_http(url: str, headers: dict[str, str]) -> AsyncIterator[tuple[Any, Any]]:
    """The daemon's URL; each request has the headers, and the session is deleted in the end."""
    async with (
        create_mcp_http_client(headers=headers) as http,
        streamable_http_client(url, http_client=http) as (read, write, *_),
    ):
        yield read, write


async def pause() -> None:
    """Pause until the test says on stdin that it has finished its work."""
    print(json.dumps({"paused": True}), flush=True)
    await anyio.to_thread.run_sync(sys.stdin.readline)


def transport(job: dict[str, Any]) -> Any:
    """The transport of a job to the daemon."""
    if "url" in job:
        return over_http(job["url"], job.get("headers", {}))
    if "command" in job:
        program, *arguments = job["command"]
        return stdio_client(StdioServerParameters(command=program, args=arguments, env=job.get("env")))
    return over_socket(job["socket"], job.get("hello"))
