"""A client on the `mcp` SDK 2.x. argv: era (auto, legacy, 2026-07-28), then `socket PATH` or `stdio COMMAND…`.

Prints one JSON object: what it listed, described and got.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import trio
from mcp import StdioServerParameters
from mcp.client import Client
from mcp.client.stdio import stdio_client
from wire import socket_transport


async def main(era: str, how: str, *where: str) -> None:
    """Walk through the category surface."""
    if how == "socket":
        transport: Any = socket_transport(where[0])
    else:
        transport = stdio_client(StdioServerParameters(command=where[0], args=list(where[1:])))
    progress: list[float] = []

    async def on_progress(done: float, total: float | None, message: str | None) -> None:
        progress.append(done)

    async with Client(transport, mode=era) as client:
        tools = await client.list_tools()
        described = await client.call_tool("get-category-tools", {"category": "clock"})
        arguments = {"category": "clock", "name": "get_current_time", "args": {"timezone": "UTC"}}
        result = await client.call_tool("call-category-tool", arguments, progress_callback=on_progress)
        refused = await client.call_tool("call-category-tool", {**arguments, "category": "nonsense"})
    print(
        json.dumps(
            {
                "tools": [tool.name for tool in tools.tools],
                "described": sorted(described.structured_content["tools"]),
                "zone": result.structured_content["timezone"],
                "refused": refused.structured_content["error"]["code"],
            }
        )
    )


if __name__ == "__main__":
    trio.run(main, *sys.argv[1:])
