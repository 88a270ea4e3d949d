"""A client on the `mcp` SDK 2.x that answers what servers ask.

argv: its name, how often, `socket PATH` or `http URL TOKEN`.

It calls the tools of server-everything that ask for something, and answers with its own name each time. Prints
one JSON object: what the tools answered, and how often it was asked.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from typing import Any

import trio
from mcp.client import Client
from mcp_types import CreateMessageResult, ElicitResult, ListRootsResult, Root, TextContent
from wire import over_http, socket_transport

CALLS: list[tuple[str, dict[str, Any]]] = [
    ("trigger-elicitation-request", {}),
    ("trigger-sampling-request", {"prompt": "hello", "maxTokens": 10}),
    ("get-roots-list", {}),
]


async def main(name: str, times: str, how: str, *where: str) -> None:
    """Call each tool so often."""
    asked: Counter[str] = Counter()

    async def elicit(_context: Any, _params: Any) -> ElicitResult:
        asked["elicitation"] += 1
        return ElicitResult(action="accept", content={"name": name})

    async def sample(_context: Any, _params: Any) -> CreateMessageResult:
        asked["sampling"] += 1
        return CreateMessageResult(role="assistant", content=TextContent(text=f"I am {name}"), model="none")

    async def roots(_context: Any) -> ListRootsResult:
        asked["roots"] += 1
        return ListRootsResult(roots=[Root(uri=f"file:///{name}", name=name)])

    if how == "socket":
        transport: Any = socket_transport(where[0])
    else:
        transport = over_http(where[0], {"Authorization": f"Bearer {where[1]}"})
    answers: list[tuple[str, str]] = []
    async with Client(
        transport,
        mode="legacy",
        elicitation_callback=elicit,
        sampling_callback=sample,
        list_roots_callback=roots,
    ) as client:
        tools = [tool.name for tool in (await client.list_tools()).tools]
        for _ in range(int(times)):
            for tool, arguments in CALLS:
                result = await client.call_tool(tool, arguments)
                answers.append((tool, result.content[0].text + " ".join(c.text for c in result.content[1:])))
    print(json.dumps({"tools": tools, "answers": answers, "asked": asked}))


if __name__ == "__main__":
    trio.run(main, *sys.argv[1:])
