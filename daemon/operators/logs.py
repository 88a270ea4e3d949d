"""`mcpd logs`: the last lines of a server's stderr, or how many lines are kept of each server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
import trio

from daemon.counting.measures import STDERR_LINES
from daemon.operators.base import Command

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from daemon.operators.base import OperatorContext


class LogsParams(msgspec.Struct):
    """The server and the range of lines that are asked for."""

    server: str | None = None
    """The server; None asks how many lines each server has."""
    after: Annotated[int, msgspec.Meta(ge=0)] = 0
    """The number of the last line that the caller has."""
    source: str = ""
    """The source that `after` counts in; a number from another one, such as an earlier daemon, is ignored."""
    last: Annotated[int, msgspec.Meta(ge=1)] = STDERR_LINES
    """The maximum number of lines in the answer."""


async def logs(context: OperatorContext, params: LogsParams) -> dict[str, object]:
    """The lines of a server after a number, without secrets; or the number of lines of each server.

    Raises:
        UnknownServer: no running server has that name.
    """
    name = params.server
    if name is None:
        kept = {name: {"lines": len(upstream.stderr)} for name, upstream in context.upstreams.items()}
        return {"servers": kept}
    if name not in context.upstreams:
        raise context.unknown(name)
    tail = context.upstreams[name].stderr
    source = f"{context.facts.pid}.{context.facts.started_at}.{tail.birth}"
    after = params.after if params.source == source else 0
    fresh = tail.after(after)
    configured = context.config.mcp_servers.get(name)
    page = {
        "server": name,
        "type": str(configured.type) if configured else "",
        "next": tail.written,
        "dropped": max(0, tail.written - after - len(fresh)) if after else 0,
        "source": source,
    }
    # Up to 64 KiB, so 20 ms of pattern matching that calls should not wait for.
    lines = await trio.to_thread.run_sync(_redacted, fresh[-params.last :], context.redact.of(name))
    return {**page, "lines": lines}


LOGS = Command("logs", LogsParams, logs)


def _redacted(lines: Sequence[tuple[int, str]], redact: Callable[[str], str]) -> list[dict[str, object]]:
    return [{"n": number, "text": redact(text)} for number, text in lines]
