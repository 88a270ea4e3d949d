"""`mcpd logs`: the last lines of a server's stderr, or how many lines are kept of each server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
import trio

from daemon.config.labels import server_of
from daemon.counting.measures import STDERR_LINES
from daemon.operators.base import Command
from daemon.operators.instances import is_divided, named

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from daemon.operators.base import ObservedActor, OperatorContext


class Seen(msgspec.Struct):
    """What a caller has of one record of lines."""

    after: Annotated[int, msgspec.Meta(ge=0)] = 0
    """The number of the last line that the caller has."""
    source: str = ""
    """The source that `after` counts in; a number from another one, such as an earlier daemon, is ignored."""


class LogsParams(Seen):
    """The server or the instance and the range of lines that are asked for."""

    server: str | None = None
    """Its name; None asks how many lines each has."""
    instances: dict[str, Seen] = {}
    """In place of `after` and `source`, by instance, where the server has instances."""
    last: Annotated[int, msgspec.Meta(ge=1)] = STDERR_LINES
    """The maximum number of lines in the answer, of each instance."""


async def logs(context: OperatorContext, params: LogsParams) -> dict[str, object]:
    """The lines of a server after a number, without secrets; or the number of lines of each server.

    Of a server whose clients do not share an instance: the lines of each that runs, under `instances`.

    Raises:
        UnknownServer: no running server has that name, and no instance of one.
    """
    name = params.server
    if name is None:
        return {"servers": {each.name: {"lines": len(each.stderr)} for each in context.actors.values()}}
    running = named(context, name)
    configured = context.config.mcp_servers.get(server_of(name))
    told: dict[str, object] = {"server": name, "type": str(configured.type) if configured else ""}
    if not is_divided(context, name):
        return {**told, **await _page(context, running[0], params, params.last)}
    seen = params.instances
    pages = {
        each.name: await _page(context, each, seen.get(each.name, Seen()), params.last) for each in running
    }
    return {**told, "instances": pages}


LOGS = Command("logs", LogsParams, logs)


async def _page(context: OperatorContext, of: ObservedActor, seen: Seen, last: int) -> dict[str, object]:
    tail = of.stderr
    source = f"{context.facts.pid}.{context.facts.started_at}.{tail.birth}"
    after = seen.after if seen.source == source else 0
    fresh = tail.after(after)
    page = {
        "next": tail.written,
        "dropped": max(0, tail.written - after - len(fresh)) if after else 0,
        "source": source,
    }
    # Up to 64 KiB, so 20 ms of pattern matching that calls should not wait for.
    lines = await trio.to_thread.run_sync(_redacted, fresh[-last:], context.redact.of(of.of))
    return {**page, "lines": lines}


def _redacted(lines: Sequence[tuple[int, str]], redact: Callable[[str], str]) -> list[dict[str, object]]:
    return [{"n": number, "text": redact(text)} for number, text in lines]
