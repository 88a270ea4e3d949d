"""A client on the `mcp` SDK 1.x that follows scripts: as surfaces.py, which describes jobs and outcomes.

It speaks the handshake only: "mode" and "listen" are not for it.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import anyio
from mcp import ClientSession, McpError
from wire import Changes, transport

if TYPE_CHECKING:
    from mcp.types import CallToolResult

Json = dict[str, Any]


async def perform(job: Json) -> Json:
    """One session."""
    changes = Changes()

    async def on_message(message: Any) -> None:
        if getattr(getattr(message, "root", None), "method", None) == "notifications/tools/list_changed":
            changes.note()

    async with (
        transport(job) as (read, write),
        ClientSession(read, write, message_handler=on_message) as session,
    ):
        opened = await session.initialize()
        results = [await take(session, step, changes) for step in job["steps"]]
    return {"instructions": opened.instructions, "changes": changes.count, "results": results}


async def take(session: ClientSession, step: Json, changes: Changes) -> Json:
    """One step."""
    if "list" in step:
        return {"tools": await listed(session)}
    if "wait" in step:
        await changes.wait()
        return {}
    try:
        return seen(await session.call_tool(step["call"], step.get("arguments", {})))
    except McpError as error:
        return {"fault": {"code": error.error.code, "message": str(error)}}


async def listed(session: ClientSession) -> list[Json]:
    """All pages."""
    page = await session.list_tools()
    tools = page.tools
    while page.nextCursor:
        page = await session.list_tools(page.nextCursor)
        tools = [*tools, *page.tools]
    return [tool.model_dump(mode="json", by_alias=True, exclude_unset=True) for tool in tools]


def seen(result: CallToolResult) -> Json:
    """What matters of a result."""
    text = "\n".join(item.text for item in result.content)
    return {"text": text, "structured": result.structuredContent, "isError": bool(result.isError)}


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(anyio.run(perform, json.loads(line))), flush=True)
