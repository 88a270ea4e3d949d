"""A client on the `mcp` SDK 2.x that follows scripts: a job is a line on stdin, its outcome a line on stdout.

    job      {"socket": PATH, "hello": {…}} (sent before all else, as the bridge does; may be left out)
             or {"command": [WORD, …], "env": {…}} or {"url": URL, "headers": {…}}; with "steps": [STEP, …],
             "mode": "legacy" (default), "auto" or a protocol version, "listen": subscribe (2026-07-28)
    STEP     {"list": true} | {"call": NAME, "arguments": {…}, "progress": true: and ask for it}
             | {"abort": NAME, "arguments": {…}}: call, and take it back at the first progress
             | {"wait": "list_changed"}: until the tools were announced as changed, since the last such step
             | {"link": PATH, "to": PATH}: make a symbolic link
             | {"pause": true}: print {"paused": true}, and go on with the next line of stdin
    outcome  {"instructions": TEXT, "changes": how often they were announced, "results": [RESULT, …]}
    RESULT   list: {"tools": [definitions as they came, all pages]} · abort, wait, link, pause: {} ·
             call: {"text", "structured", "isError", "progress": how far it was each time};
             or {"fault": {"code", "message"}} for an error of the protocol or of the transport

Every job is a session of its own; the process serves many, because it is the SDK's import that costs the time.
"""

from __future__ import annotations

import json
import sys
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
import trio
from mcp import MCPError
from mcp.client import Client
from wire import Changes, pause, transport

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from mcp_types import CallToolResult

Json = dict[str, Any]


@asynccontextmanager
async def leaving(job: Json) -> AsyncIterator[tuple[Any, Any]]:
    """The job's transport; an announcement while the client leaves is no fault."""
    try:
        async with transport(job) as streams:
            yield streams
    except* anyio.BrokenResourceError:
        pass


async def perform(job: Json) -> Json:
    """Run one session."""
    changes = Changes()

    async def on_message(message: Any) -> None:
        # A subscription tells the same: `follow` counts it.
        if not job.get("listen") and getattr(message, "method", None) == "notifications/tools/list_changed":
            changes.note()

    client = Client(leaving(job), mode=job.get("mode", "legacy"), message_handler=on_message)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(client)
        if job.get("listen"):
            tasks = await stack.enter_async_context(trio.open_nursery())
            await tasks.start(follow, client, changes)
            stack.callback(tasks.cancel_scope.cancel)
        results = [await take(client, step, changes) for step in job["steps"]]
        return {"instructions": client.instructions, "changes": changes.count, "results": results}


async def follow(client: Client, changes: Changes, task_status: Any) -> None:
    """Subscribe to changes, with the 2026-07-28 protocol."""
    async with client.listen(tools_list_changed=True) as subscription:
        task_status.started()
        async for _event in subscription:
            changes.note()


async def take(client: Client, step: Json, changes: Changes) -> Json:
    """Execute one step."""
    if "wait" in step:
        await changes.wait()
    elif "pause" in step:
        await pause()
    elif "link" in step:
        await trio.Path(step["link"]).symlink_to(step["to"])
    else:
        try:
            return await ask(client, step)
        except MCPError as error:
            return {"fault": {"code": error.code, "message": str(error)}}
    return {}


async def ask(client: Client, step: Json) -> Json:
    """Execute one step that is a request."""
    if "list" in step:
        return {"tools": await listed(client)}
    progress: list[float] = []
    arguments = step.get("arguments", {})
    with anyio.CancelScope() as scope:

        async def on_progress(done: float, total: float | None, message: str | None) -> None:
            progress.append(done)
            if "abort" in step:
                scope.cancel()

        if "abort" in step:
            await client.call_tool(step["abort"], arguments, progress_callback=on_progress)
        told = on_progress if "progress" in step else None
        return {
            **seen(await client.call_tool(step["call"], arguments, progress_callback=told)),
            "progress": progress,
        }
    return {}


async def listed(client: Client) -> list[Json]:
    """All pages."""
    page = await client.list_tools()
    tools = page.tools
    while page.next_cursor:
        page = await client.list_tools(cursor=page.next_cursor)
        tools = [*tools, *page.tools]
    return [tool.model_dump(mode="json", by_alias=True, exclude_unset=True) for tool in tools]


def seen(result: CallToolResult) -> Json:
    """The parts of a result that tests check."""
    text = "\n".join(item.text for item in result.content)
    return {"text": text, "structured": result.structured_content, "isError": bool(result.is_error)}


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(trio.run(perform, json.loads(line))), flush=True)
