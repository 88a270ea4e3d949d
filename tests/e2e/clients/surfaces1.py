"""A client on the `mcp` SDK 1.x that follows scripts: as surfaces.py, which describes jobs and outcomes.

It speaks only the handshake era: it ignores "mode" and "listen".
"""

from __future__ import annotations

import json
import sys
from typing import Any

import anyio
from mcp import ClientSession, McpError
from mcp.types import CallToolResult, CancelledNotification, CancelledNotificationParams, ClientNotification
from wire import Changes, pause, transport

Json = dict[str, Any]


async def perform(job: Json) -> Json:
    """Run one session."""
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
    """Execute one step."""
    if "wait" in step:
        await changes.wait()
    elif "pause" in step:
        await pause()
    elif "link" in step:
        await anyio.Path(step["link"]).symlink_to(step["to"])
    else:
        try:
            return await ask(session, step)
        except McpError as error:
            return {"fault": {"code": error.error.code, "message": str(error)}}
    return {}


async def ask(session: ClientSession, step: Json) -> Json:
    """Execute one step that is a request."""
    if "list" in step:
        return {"tools": await listed(session)}
    if "abort" in step:
        await abort(session, step)
        return {}
    progress: list[float] = []

    async def on_progress(done: float, total: float | None, message: str | None) -> None:
        progress.append(done)

    told = on_progress if "progress" in step else None
    result = await session.call_tool(step["call"], step.get("arguments", {}), progress_callback=told)
    return {**seen(result), "progress": progress}


async def abort(session: ClientSession, step: Json) -> None:
    """Call, and cancel at the first progress: this SDK leaves the notification to its user."""
    number = session._request_id
    with anyio.CancelScope() as scope:

        async def on_progress(done: float, total: float | None, message: str | None) -> None:
            scope.cancel()

        await session.call_tool(step["abort"], step.get("arguments", {}), progress_callback=on_progress)
    params = CancelledNotificationParams(requestId=number, reason="the client's user does not wait any more")
    cancelled = CancelledNotification(method="notifications/cancelled", params=params)
    await session.send_notification(ClientNotification(cancelled))


async def listed(session: ClientSession) -> list[Json]:
    """All pages."""
    page = await session.list_tools()
    tools = page.tools
    while page.nextCursor:
        page = await session.list_tools(page.nextCursor)
        tools = [*tools, *page.tools]
    return [tool.model_dump(mode="json", by_alias=True, exclude_unset=True) for tool in tools]


def seen(result: CallToolResult) -> Json:
    """The parts of a result that tests check."""
    text = "\n".join(item.text for item in result.content)
    return {"text": text, "structured": result.structuredContent, "isError": bool(result.isError)}


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(anyio.run(perform, json.loads(line))), flush=True)
