"""The proxy that a developer would write with the SDK, as a yardstick: a `Server` that asks a `Client`.

Run as `python naive.py SOCKET COMMAND...`: it serves clients on a unix socket from one server process. This is
better than the usual proxy, which each client starts together with its servers. With a port in place of a path
it serves streamable HTTP with the SDK's defaults, under uvicorn on asyncio, but answers with JSON, which is
faster than the default event streams.
"""

from __future__ import annotations

import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
import mcp_types as types
import trio
import uvicorn
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.server import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.message import SessionMessage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

READ_BYTES = 64 * 1024
"""As many as the SDK's stdio transports read."""

KEPT_SECONDS = 3600
"""Seconds for which uvicorn keeps idle connections: its default of 5 s is less than a round."""

BACKLOG = 128
"""Length of the accept queue."""

_parse = types.jsonrpc_message_adapter.validate_json


async def main(path: str, command: list[str]) -> None:
    """Serve until killed."""
    parameters = StdioServerParameters(command=command[0], args=command[1:])
    async with Client(parameters, mode="legacy") as upstream:
        server = proxy(upstream)

        async def serve(stream: trio.SocketStream) -> None:
            async with lines_over(stream) as (reader, writer):
                await server.run(reader, writer, server.create_initialization_options())

        with trio.socket.socket(trio.socket.AF_UNIX) as listener:
            await listener.bind(path)
            listener.listen(BACKLOG)
            await trio.serve_listeners(serve, [trio.SocketListener(listener)])


async def over_http(port: int, command: list[str]) -> None:
    """Serve until killed."""
    parameters = StdioServerParameters(command=command[0], args=command[1:])
    async with Client(parameters, mode="legacy") as upstream:
        manager = StreamableHTTPSessionManager(proxy(upstream), json_response=True)
        config = uvicorn.Config(manager.asgi_app, port=port, lifespan="off", log_level="error")
        config.interface, config.timeout_keep_alive = "asgi3", KEPT_SECONDS
        async with manager.run():
            await uvicorn.Server(config).serve()


def proxy(upstream: Client) -> Server[Any]:
    """A server that forwards tool lists and calls to another server."""

    async def list_tools(_context: object, _params: object) -> types.ListToolsResult:
        return await upstream.list_tools()

    async def call_tool(_context: object, params: types.CallToolRequestParams) -> types.CallToolResult:
        return await upstream.call_tool(params.name, params.arguments)

    return Server("naive", on_list_tools=list_tools, on_call_tool=call_tool)


@asynccontextmanager
async def lines_over(stream: trio.SocketStream) -> AsyncIterator[tuple[Any, Any]]:
    """A transport in the form of the SDK's: two tasks, two memory streams."""
    come, received = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    sent, go = anyio.create_memory_object_stream[SessionMessage](0)

    async def read() -> None:
        async with come:
            held: list[bytes] = []
            while data := await stream.receive_some(READ_BYTES):
                first, *rest = bytes(data).split(b"\n")
                held.append(first)
                for each in rest:
                    await come.send(SessionMessage(_parse(b"".join(held), by_name=False)))
                    held = [each]

    async def write() -> None:
        async with go:
            async for each in go:
                text = each.message.model_dump_json(by_alias=True, exclude_unset=True)
                await stream.send_all(text.encode() + b"\n")

    async with anyio.create_task_group() as group, stream:
        group.start_soon(read)
        group.start_soon(write)
        yield received, sent
        group.cancel_scope.cancel()


if __name__ == "__main__":
    if sys.argv[1].isdecimal():
        anyio.run(over_http, int(sys.argv[1]), sys.argv[2:], backend="asyncio")
    else:
        trio.run(main, sys.argv[1], sys.argv[2:])
