"""A client on the `mcp` SDK 2.x that follows scripts: a job is a line on stdin, its outcome a line on stdout.

    job      {"socket": PATH, "hello": {…}} (sent before all else, as the bridge does; may be left out)
             or {"command": [WORD, …], "env": {…}}; with "steps": [STEP, …],
             "mode": "legacy" (default), "auto" or a protocol version, "listen": subscribe (2026-07-28)
    STEP     {"list": true} | {"call": NAME, "arguments": {…}} | {"wait": "list_changed"}: until the tools were
             announced as changed, since the last such step | {"link": PATH, "to": PATH}: make a symbolic link
    outcome  {"instructions": TEXT, "changes": how often they were announced, "results": [RESULT, …]}
    RESULT   list: {"tools": [definitions as they came, all pages]} · wait, link: {} ·
             call: {"text", "structured", "isError"}, or {"fault": {"code", "message"}} for a JSON-RPC error

Every job is a session of its own; the process serves many, because it is the SDK's import that costs the time.
"""

from __future__ import annotations

import json
import sys
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
import trio
from mcp import MCPError, StdioServerParameters
from mcp.client import Client
from mcp.client.stdio import stdio_client
from mcp.shared.message import SessionMessage
from wire import parse, socket_transport

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from mcp_types import CallToolResult

Json = dict[str, Any]


class Changes:
    """Counts the announcements that the tools have changed."""

    def __init__(self) -> None:
        """Count from nothing."""
        self.count = 0
        self._waited_for = 0
        self._more = trio.Event()

    def note(self) -> None:
        """One more."""
        self.count += 1
        self._more.set()
        self._more = trio.Event()

    async def wait(self) -> None:
        """Until there was one since the last wait."""
        while self.count == self._waited_for:
            await self._more.wait()
        self._waited_for = self.count


@asynccontextmanager
async def over_socket(path: str, hello: Json | None) -> AsyncIterator[tuple[Any, Any]]:
    """The daemon's socket, with the bridge's hello before all else if there is one."""
    try:
        async with socket_transport(path) as (read, write):
            if hello:
                line = json.dumps({"jsonrpc": "2.0", "method": "mcpd/hello", "params": hello})
                await write.send(SessionMessage(parse(line.encode())))
            yield read, write
    except* anyio.BrokenResourceError:
        # The daemon announced something while the client was leaving.
        pass


def transport(job: Json) -> Any:
    """How the job reaches the daemon."""
    if "command" in job:
        program, *arguments = job["command"]
        return stdio_client(StdioServerParameters(command=program, args=arguments, env=job.get("env")))
    return over_socket(job["socket"], job.get("hello"))


async def perform(job: Json) -> Json:
    """One session."""
    changes = Changes()

    async def on_message(message: Any) -> None:
        # A subscription tells the same: `follow` counts it.
        if not job.get("listen") and getattr(message, "method", None) == "notifications/tools/list_changed":
            changes.note()

    client = Client(transport(job), mode=job.get("mode", "legacy"), message_handler=on_message)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(client)
        if job.get("listen"):
            tasks = await stack.enter_async_context(trio.open_nursery())
            await tasks.start(follow, client, changes)
            stack.callback(tasks.cancel_scope.cancel)
        results = [await take(client, step, changes) for step in job["steps"]]
        return {"instructions": client.instructions, "changes": changes.count, "results": results}


async def follow(client: Client, changes: Changes, task_status: Any) -> None:
    """Subscribe to changes, as the 2026-07-28 protocol has it."""
    async with client.listen(tools_list_changed=True) as subscription:
        task_status.started()
        async for _event in subscription:
            changes.note()


async def take(client: Client, step: Json, changes: Changes) -> Json:
    """One step."""
    if "list" in step:
        return {"tools": await listed(client)}
    if "wait" in step:
        await changes.wait()
        return {}
    if "link" in step:
        await trio.Path(step["link"]).symlink_to(step["to"])
        return {}
    try:
        return seen(await client.call_tool(step["call"], step.get("arguments", {})))
    except MCPError as error:
        return {"fault": {"code": error.code, "message": str(error)}}


async def listed(client: Client) -> list[Json]:
    """All pages."""
    page = await client.list_tools()
    tools = page.tools
    while page.next_cursor:
        page = await client.list_tools(cursor=page.next_cursor)
        tools = [*tools, *page.tools]
    return [tool.model_dump(mode="json", by_alias=True, exclude_unset=True) for tool in tools]


def seen(result: CallToolResult) -> Json:
    """What matters of a result."""
    text = "\n".join(item.text for item in result.content)
    return {"text": text, "structured": result.structured_content, "isError": bool(result.is_error)}


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(trio.run(perform, json.loads(line))), flush=True)
