"""`mcpd logs`: the last lines of a server's stderr, or the number of kept lines for each server."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import msgspec
import trio

from daemon.config.labels import server_of
from daemon.counting.measures import STDERR_LINES, StderrLine
from daemon.history.event import TOLD
from daemon.kit.waiting import Watch, any_changed
from daemon.operators.base import Command, OperatorContext
from daemon.operators.event_commands import MAX_WAIT, Cursor, EventsParams, Seen, events
from daemon.operators.server_changes import is_divided, named
from daemon.upstreams.upstream_access import UpstreamAccess

EVENTS_SHOWN = 200
"""Most events in one answer: they accompany the lines; `mcpd events` has the rest."""


class LogsParams(Seen):
    """Selects a server or an instance, and a range of its lines."""

    server: str | None = None
    """None asks for the number of lines of each server."""
    instances: dict[str, Seen] = msgspec.field(default_factory=dict)
    """Replaces `after` and `source` for a divided server, by instance."""
    events: bool = False
    events_after: Cursor | None = msgspec.field(default=None, name="eventsAfter")
    """The last answer's `eventsNext`; None for the first request."""
    wait: Annotated[float, msgspec.Meta(ge=0, le=MAX_WAIT)] = 0.0
    last: Annotated[int, msgspec.Meta(ge=1)] = STDERR_LINES


async def logs(context: OperatorContext, params: LogsParams) -> dict[str, object]:
    """The redacted lines of a server or its instances, or the number of lines; raises `UnknownServer`."""
    name = params.server
    if name is None:
        return {"servers": {each.name: {"lines": len(each.stderr)} for each in context.actors.values()}}
    noted = _noted(context, name)
    answer = await _answer(context, name, params)
    with trio.move_on_after(params.wait):
        while params.wait and not _has_news(answer):
            await any_changed(noted)
            noted = _noted(context, name)
            answer = await _answer(context, name, params)
    return answer


LOGS = Command("logs", LogsParams, logs, reads=True)


async def _answer(context: OperatorContext, name: str, params: LogsParams) -> dict[str, object]:
    running = named(context, name)
    configured = context.config.mcp_servers.get(server_of(name))
    answer: dict[str, object] = {
        "server": name,
        "type": str(configured.type) if configured else "",
        "startedAt": context.facts.started_at,
    }
    if params.events:
        answer |= await _events(context, params, running)
    if not is_divided(context, name):
        return {**answer, **await _page(context, running[0], params, params.last)}
    seen = params.instances
    pages = {
        each.name: await _page(context, each, seen.get(each.name, Seen()), params.last) for each in running
    }
    return {**answer, "instances": pages}


def _has_news(answer: Mapping[str, Any]) -> bool:
    pages = answer.get("instances", {"": answer}).values()
    return bool(answer.get("events")) or any(page["lines"] or page["dropped"] for page in pages)


def _noted(context: OperatorContext, name: str) -> list[tuple[Watch[Any], object]]:
    """The watches of lines and events, with their values now. An instance that begins is an event, too."""
    watches: list[Watch[Any]] = [context.history.news, *(each.stderr.newest for each in named(context, name))]
    return [(watch, watch.value) for watch in watches]


async def _events(
    context: OperatorContext, params: LogsParams, running: Sequence[UpstreamAccess]
) -> dict[str, object]:
    """The events since the first kept line; all events if no line was dropped."""
    tails = [each.stderr for each in running]
    dropped = [tail.after(0)[0].at for tail in tails if tail.newest.value > len(tail)]
    asked = EventsParams(
        server=params.server,
        kinds=tuple(map(str, TOLD)),
        since=min(dropped, default=0.0),
        limit=min(params.last, EVENTS_SHOWN),
        after=params.events_after,
    )
    answer = await events(context, asked)
    return {"events": answer["events"], "eventsNext": answer["next"]}


async def _page(context: OperatorContext, upstream: UpstreamAccess, seen: Seen, last: int) -> dict[str, object]:
    tail = upstream.stderr
    source = f"{context.facts.pid}.{context.facts.started_at}.{tail.birth}"
    after = seen.after if seen.source == source else 0
    fresh = tail.after(after)
    page = {
        "next": tail.newest.value,
        "dropped": max(0, tail.newest.value - after - len(fresh)) if after else 0,
        "source": source,
    }
    # Up to 64 KiB, so 20 ms of pattern matching that calls should not wait for.
    lines = await trio.to_thread.run_sync(_redacted, fresh[-last:], context.redact.of(upstream.of))
    return {**page, "lines": lines}


def _redacted(lines: Sequence[StderrLine], redact: Callable[[str], str]) -> list[dict[str, object]]:
    return [{"n": each.number, "at": each.at, "run": each.run, "text": redact(each.text)} for each in lines]
