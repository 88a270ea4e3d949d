"""A client on the `mcp` SDK 1.x that follows scripts: as surfaces.py, which describes jobs and outcomes.

It speaks the handshake only: "mode" and "listen" are not for it.
"""

from __future__ import annotations

import json
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
from mcp import ClientSession, McpError, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.shared.message import SessionMessage
from wire import parse, socket_transport

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from mcp.types import CallToolResult

Json = dict[str, Any]


class Changes:
    """Counts the announcements that the tools have changed."""

    def __init__(self) -> None:
        """Count from nothing."""
        self.count = 0
        self._waited_for = 0
        self._more = anyio.Event()

    async def note(self, message: Any) -> None:
        """One more, if it is one."""
        if getattr(getattr(message, "root", None), "method", None) == "notifications/tools/list_changed":
            self.count += 1
            self._more.set()
            self._more = anyio.Event()

    async def wait(self) -> None:
        """Until there was one since the last wait."""
        while self.count == self._waited_for:
            await self._more.wait()
        self._waited_for = self.count


@asynccontextmanager
async def over_socket(path: str, hello: Json | None) -> AsyncIterator[tuple[Any, Any]]:
    """The daemon's socket, with the bridge's hello before all else if there is one."""
    async with socket_transport(path) as (read, write):
        if hello:
            line = json.dumps({"jsonrpc": "2.0", "method": "mcpd/hello", "params": hello})
            await write.send(SessionMessage(parse(line.encode())))
        yield read, write


def transport(job: Json) -> Any:
    """How the job reaches the daemon."""
    if "command" in job:
        program, *arguments = job["command"]
        return stdio_client(StdioServerParameters(command=program, args=arguments, env=job.get("env")))
    return over_socket(job["socket"], job.get("hello"))


async def perform(job: Json) -> Json:
    """One session."""
    changes = Changes()
    async with (
        transport(job) as (read, write),
        ClientSession(read, write, message_handler=changes.note) as session,
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
