"""A client on the `mcp` SDK 2.x that gives what servers ask for.

argv: era (legacy, 2026-07-28), what to do as JSON, then `socket PATH` or `http URL TOKEN`.

To do: `[TOOL, ARGUMENTS]`, or `["prompts/get", {"name": NAME}]`. Prints one JSON object: what each gave, and
how often the client was asked what.
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

GIVEN = {"name": "Ada", "color": "teal", "ok": True, "context": "tea", "response": "yes"}


async def main(era: str, todo: str, how: str, *where: str) -> None:
    """Do it all, one after the other."""
    asked: Counter[str] = Counter()

    async def elicit(_context: Any, params: Any) -> ElicitResult:
        asked["elicitation"] += 1
        wanted = params.requested_schema["properties"]
        return ElicitResult(action="accept", content={key: GIVEN[key] for key in wanted if key in GIVEN})

    async def sample(_context: Any, _params: Any) -> CreateMessageResult:
        asked["sampling"] += 1
        return CreateMessageResult(role="assistant", content=TextContent(text="Paris"), model="none")

    async def roots(_context: Any) -> ListRootsResult:
        asked["roots"] += 1
        return ListRootsResult(roots=[Root(uri="file:///work", name="work")])

    if how == "socket":
        transport: Any = socket_transport(where[0])
    else:
        transport = over_http(where[0], {"Authorization": f"Bearer {where[1]}"})
    gave: list[str] = []
    async with Client(
        transport,
        mode=era,
        elicitation_callback=elicit,
        sampling_callback=sample,
        list_roots_callback=roots,
    ) as client:
        for name, arguments in json.loads(todo):
            if name == "prompts/get":
                found = await client.get_prompt(arguments["name"])
                gave.append(found.messages[0].content.text)
            else:
                result = await client.call_tool(name, arguments)
                gave.append(" ".join(each.text for each in result.content))
    print(json.dumps({"gave": gave, "asked": asked}))


if __name__ == "__main__":
    trio.run(main, *sys.argv[1:])
