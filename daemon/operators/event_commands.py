"""`mcpd events`, with repeated retries condensed for people; `mcpd logs`: the last lines of servers' stderr."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, cast

import attrs
import msgspec
import trio

from daemon.config.labels import server_of
from daemon.counting.measures import STDERR_LINES, StderrLine
from daemon.errors import InvalidArguments
from daemon.history.event import TOLD, Event, EventKind
from daemon.history.journal import EventQuery, as_json
from daemon.kit.waiting import Watch, any_changed
from daemon.kit.wording import hint
from daemon.operators.base import Command, OperatorContext
from daemon.operators.server_changes import is_divided, named
from daemon.operators.session_commands import loaded_by, name_in_events, session_named

if TYPE_CHECKING:
    from daemon.operators.reports import EventReport, EventsReport
    from daemon.upstreams.upstream_access import UpstreamAccess


MAX_EVENTS = 10_000
"""Most events in one answer: as many as mcpd keeps for a server, in 5 MB."""


MAX_WAIT = 25.0
"""Most seconds that an answer waits for news: a control connection is closed after 30 s without a request."""


LATE_SECONDS = 60.0
"""Seconds of delay with which another daemon's event may reach a shared store, because clocks differ."""


MAX_LIVES = 100
"""Most runs of daemons in a cursor, the most recent: fewer daemons than this share a store."""


class Seen(msgspec.Struct):
    """Tells which lines or calls of one source the caller already has."""

    after: Annotated[int, msgspec.Meta(ge=0)] = 0
    """The number of the last line or call received."""
    source: str = ""
    """The source of `after`; a number of another source, such as an earlier daemon, is ignored."""


class Cursor(msgspec.Struct):
    """Tells which events a caller has: up to a time, and in each run of a daemon up to a number."""

    at: float = 0.0
    lives: dict[str, int] = {}
    since: float = 0.0
    """The time of the first answer: older events are not news."""


class EventsParams(msgspec.Struct):
    """Selects events."""

    server: str | None = None
    """A server with its instances, or one instance by its own name."""
    session: str | None = None
    """A session's key, or its connection's number (`12`, `#12`)."""
    since: float = 0.0
    kinds: tuple[str, ...] = ()
    people: bool = False
    """Whether people read the answer: only kinds in `TOLD`, unless `kinds` names others."""
    limit: Annotated[int, msgspec.Meta(ge=1, le=MAX_EVENTS)] = 50
    """Most events to return: the newest, or with `after` the next ones."""
    after: Cursor | None = None
    """The last answer's `next`; None for the first request."""
    wait: Annotated[float, msgspec.Meta(ge=0, le=MAX_WAIT)] = 0.0


async def events(context: OperatorContext, params: EventsParams) -> EventsReport:
    """The matching events, oldest first, and a cursor; raises `InvalidArguments` or `UnknownServer`."""
    if params.server == "":
        raise context.unknown("")
    if params.session is not None:
        params.session = name_in_events(context, params.session)
    history, query = context.history, await _with_loaded(context, _query(params))
    now = history.now()
    news, begun = history.news.value, Cursor(now, {history.life: history.number})
    found = await history.recent(query)
    if not found and params.after is None:
        await _refuse_unknown(context, params)
    with trio.move_on_after(params.wait):
        while not found and params.wait:
            news = await history.news.wait_changed(news)
            found = await history.recent(query)
    shown = for_people(found, params.limit) if params.people else found
    if params.after is None:
        # Others may have written less than what has happened to them; what the limit left out is no news later.
        begun.since = max(now - LATE_SECONDS, shown[0].at if len(shown) == params.limit else 0.0)
    return {
        "events": [cast("EventReport", as_json(event)) for event in shown],
        "next": _after(params.after or begun, found, history.now()),
        "more": params.after is not None and len(found) == params.limit,
    }


EVENTS = Command("events", EventsParams, events, reads=True)


async def _refuse_unknown(context: OperatorContext, params: EventsParams) -> None:
    """Refuse an unknown name without events: an empty answer would hide a misspelt name."""
    server, session = params.server or "", params.session or ""
    unknown = server and server not in context.actors and server_of(server) not in context.catalog.servers
    if unknown and not await recent(context, server=server, limit=1):
        raise context.unknown(server)
    await refuse_unknown_session(context, session)


async def refuse_unknown_session(context: OperatorContext, session: str) -> None:
    """Raise `InvalidArguments` for an unknown session that has no events."""
    if session and not await recent(context, session=session, limit=1):
        await session_named(context, session)


async def recent(
    context: OperatorContext,
    *,
    server: str | None = None,
    session: str | None = None,
    since: float | None = None,
    until: float = math.inf,
    kinds: frozenset[EventKind] = frozenset(),
    limit: int = 50,
) -> list[Event]:
    """The newest events, newest last, by default the kinds for people; the store has the older ones."""
    params = EventsParams(server=server, session=session, since=since or 0.0, limit=limit)
    query = msgspec.structs.replace(_query(params), until=until, kinds=kinds or TOLD)
    return await context.history.recent(await _with_loaded(context, query))


def _query(params: EventsParams) -> EventQuery:
    name, after = params.server or "", params.after
    return EventQuery(
        server=server_of(name),
        instance="" if server_of(name) == name else name,
        session=params.session or "",
        kinds=frozenset(map(_kind, params.kinds)) or (TOLD if params.people else frozenset()),
        since=params.since if after is None else max(params.since, after.since),
        fresh=0.0 if after is None else after.at - LATE_SECONDS,
        seen={} if after is None else after.lives,
        limit=min(params.limit * LOOKED_AT, MAX_EVENTS) if params.people and after is None else params.limit,
        oldest=after is not None,
    )


async def _with_loaded(context: OperatorContext, query: EventQuery) -> EventQuery:
    """Adds the tools that the query's session has loaded: their changes concern the session."""
    if not query.session:
        return query
    return msgspec.structs.replace(query, loaded=await loaded_by(context, query.session))


def _kind(name: str) -> EventKind:
    try:
        return EventKind(name)
    except ValueError:
        raise InvalidArguments(f"there is no kind of events {name!r}. {hint(name, list(EventKind))}") from None


def _after(seen: Cursor, found: Iterable[Event], now: float) -> Cursor:
    """The next cursor; never ahead of this daemon's clock, although another daemon's clock may be."""
    at, lives = seen.at, dict(seen.lives)
    for event in found:
        at = max(at, min(event.at, now))
        lives[event.life] = max(event.number, lives.pop(event.life, 0))
    return Cursor(at, dict(list(lives.items())[-MAX_LIVES:]), seen.since)


LOOKED_AT = 20
"""Events to read for each event shown: a failure has about ten retries."""


_NUMBER = re.compile(r"\d{4,}")
"""Process ids and ports, which differ between similar ends of a run; an exit status has fewer digits."""


def for_people(events: Iterable[Event], most: int) -> list[Event]:
    """At most `most` of the newest events, oldest first, with retries condensed."""
    return condensed(events)[-most:]


SHORT = 60.0
"""Seconds of serving below which a run counts as one more retry."""

_SERVES = frozenset({EventKind.READY, EventKind.DEGRADED})

_ANEW = frozenset({EventKind.ENDED, EventKind.RESTARTED, EventKind.SWITCHED, EventKind.STATE})
"""Kinds besides a failure that end a series of retries."""


def condensed(events: Iterable[Event]) -> list[Event]:
    """Joins similar failures in a row into one event, and leaves out the starts and short runs between them."""
    shown: dict[int, Event] = {}
    failing: dict[str, list[int]] = {}
    begun: dict[str, int] = {}
    for place, event in enumerate(events):
        name = event.instance or event.server
        if event.kind is EventKind.STARTED and name in failing:
            continue
        shown[place] = event
        if event.kind is EventKind.STARTED:
            begun[name] = place
        elif event.kind is EventKind.ENDED and event.cause is not None:
            shown[place] = _joined(event, shown, failing.get(name, []))
            if "seconds" not in event.details:
                shown.pop(begun.get(name, -1), None)
            failing[name] = [place]
        elif event.kind in _SERVES and name in failing:
            failing[name].append(place)
        elif event.kind in _ANEW:
            failing.pop(name, None)
    return list(shown.values())


def _joined(event: Event, shown: dict[int, Event], row: list[int]) -> Event:
    """The failure, counted together with the similar one before; removes the earlier one's row from `shown`."""
    served = event.details.get("seconds", 0.0)
    is_retry = isinstance(served, (int, float)) and served < SHORT
    if not row or not is_retry or _form(shown[row[0]]) != _form(event):
        return event
    before = shown[row[0]]
    for place in row:
        del shown[place]
    known = before.details
    times = known.get("times") or known.get("attempt") or 1
    assert isinstance(times, int)
    first = known.get("firstAt") or (known.get("awaySince") if times > 1 else None) or before.at
    return attrs.evolve(event, details={**event.details, "times": times + 1, "firstAt": first})


def _form(event: Event) -> tuple[object, ...]:
    return event.server, event.cause, _NUMBER.sub("#", event.text)


# --- logs ---------------------------------------------------------------------------------------------------

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
    """The watches of lines and events, with their present values. The start of an instance is an event, too."""
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
