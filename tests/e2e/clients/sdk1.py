"""A client on the `mcp` SDK 1.x, in its own environment. argv: `socket PATH` or `stdio COMMAND…`.

Prints one JSON object: what it listed, described and got.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import anyio
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from wire import socket_transport


async def main(how: str, *where: str) -> None:
    """Walk through the category surface."""
    if how == "socket":
        transport: Any = socket_transport(where[0])
    else:
        transport = stdio_client(StdioServerParameters(command=where[0], args=list(where[1:])))
    async with transport as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        await session.send_ping()
        tools = await session.list_tools()
        described = await session.call_tool("get-category-tools", {"category": "clock"})
        arguments = {"category": "clock", "name": "get_current_time", "args": {"timezone": "UTC"}}
        result = await session.call_tool("call-category-tool", arguments)
        refused = await session.call_tool("call-category-tool", {**arguments, "category": "nonsense"})
    print(
        json.dumps(
            {
                "tools": [tool.name for tool in tools.tools],
                "described": sorted(described.structuredContent["tools"]),
                "zone": result.structuredContent["timezone"],
                "refused": refused.structuredContent["error"]["code"],
            }
        )
    )


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:])
