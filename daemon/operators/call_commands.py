"""`mcpd calls` and `mcpd cancel`: calls in flight, and the last thousand that were answered."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from itertools import count
from typing import TYPE_CHECKING, Annotated, cast

import msgspec
import trio

from daemon.config.labels import server_of
from daemon.counting.recent_calls import KEPT, RecentCall, named_key
from daemon.counting.tally import OK, OPERATOR
from daemon.errors import CallCancelled, InvalidArguments
from daemon.kit.wording import MINUTE
from daemon.operators.base import Command, OperatorCall, OperatorContext
from daemon.operators.event_commands import MAX_WAIT, Seen, refuse_unknown_session
from daemon.operators.session_commands import name_in_events

if TYPE_CHECKING:
    from daemon.clients.calls import ClientCall
    from daemon.operators.reports import CallInFlight, CallsReport, EndedCall, LastHourReport


MAX_SHOWN = 1000
"""Most calls in flight in one answer, oldest first: more than anybody reads, encoded in a few milliseconds."""

MINUTES = 60
"""Minutes of a server's measurements that are drawn, the newest."""

LISTED = 50
"""Ended calls in one answer by default: they fit on two screens."""

_numbers = count(1)
"""Numbers are never repeated while the daemon runs, so that a late cancel cannot hit another call."""


class WaitsFor(StrEnum):
    """The reason why a call has no answer yet."""

    SERVER = "server"
    """The server has to start, or to list its tools again."""
    TURN = "turn"
    """The call is queued at its server."""
    ANSWER = "answer"
    CLIENT = "client"
    """The client or its user has to answer a question of the server or of mcpd."""
    STORE = "store"
    """The store has to save the loaded tools, and the client has to ask for the new list."""


class CallsParams(Seen):
    """Selects calls, and tells which ended calls the caller already has."""

    server: str | None = None
    """A server or an instance; None for all. An ended call is known only by its server, not by the instance."""
    session: str | None = None
    """The session's key, or its connection's number, with or without `#`; None for all."""
    since: float = 0.0
    """Seconds since the epoch: the oldest ended call."""
    errorsOnly: bool = False  # noqa: N815 - the wire's name
    limit: Annotated[int, msgspec.Meta(ge=1, le=KEPT)] = LISTED
    """Most ended calls to return, newest first."""
    wait: Annotated[float, msgspec.Meta(ge=0, le=MAX_WAIT)] = 0.0


async def calls(context: OperatorContext, params: CallsParams) -> CallsReport:
    """The unanswered calls and new ended ones; raises `UnknownServer`, `InvalidArguments` (wrong session)."""
    name = params.server
    if name is not None and name not in context.actors and server_of(name) not in context.catalog.servers:
        raise context.unknown(name)
    if params.session is not None:
        params.session = name_in_events(context, params.session)
    source, recent = f"{context.facts.pid}.{context.facts.started_at}", context.counters.recent
    after = params.after if params.source == source else 0
    if not (
        params.after or _ended(context, params, 0) or _in_session(in_flight(context, name), params.session)
    ):
        await refuse_unknown_session(context, params.session or "")
    with trio.move_on_after(params.wait):
        found = _ended(context, params, after)
        while not found:
            await recent.newest.wait_changed(recent.newest.value)
            found = _ended(context, params, after)
    found = [each for each in found if each[1].at >= params.since]
    waiting = [] if params.errorsOnly else _in_session(in_flight(context, name), params.session)
    return {
        "inFlight": waiting[:MAX_SHOWN],
        "inFlightMore": max(0, len(waiting) - MAX_SHOWN),
        "recent": [_ended_call(context, number, call) for number, call in found[-params.limit :]],
        "next": recent.newest.value,
        "source": source,
    }


CALLS = Command("calls", CallsParams, calls, reads=True)


def in_flight(context: OperatorContext, server: str | None = None) -> list[CallInFlight]:
    """The unanswered calls of clients and operators, oldest first; of one server or instance, or of all."""
    found = [under_way(each, context) for each in _every(context)]
    return sorted(
        (each for each in found if server is None or server in {each["server"], each["instance"]}),
        key=lambda each: (each["since"], each["id"]),
    )


def last_hour(context: OperatorContext, name: str) -> LastHourReport:
    """Calls, errors, latency and memory of a server for each of the last 60 minutes."""
    seen = {each.at: each for each in context.counters.series.server(name)[-MINUTES:]}
    newest = max(seen, default=0)
    oldest = max(min(seen, default=0), newest - (MINUTES - 1) * MINUTE)
    minutes = [seen.get(at) for at in range(oldest, newest + 1, MINUTE)]
    return {
        "calls": [each and each.calls for each in minutes],
        "errors": [each and each.errors for each in minutes],
        "latency": [each and each.p95_ms for each in minutes],
        "memory": [each and each.rss_bytes for each in minutes],
    }


def is_any_under_way(context: OperatorContext) -> bool:
    """Whether any call of a client or an operator has no answer yet."""
    return any(True for _ in _every(context))


def find(context: OperatorContext, number: int) -> ClientCall | OperatorCall | None:
    """The call in flight with the number that operators see; None without one."""
    every = (each for each in _every(context) if each.shown_as is not None and each.shown_as[0] == number)
    return next(every, None)


def under_way(call: ClientCall | OperatorCall, context: OperatorContext) -> CallInFlight:
    """The report of a call in flight; its first report gives the call a number."""
    age = trio.current_time() - call.started
    if call.shown_as is None:
        # Once: it would differ by a little each time, and a comparison would show a change.
        call.shown_as = next(_numbers), context.wall() - age
    number: int | None = None
    key: str | None = None
    client, token, script, runs = OPERATOR, "", "", False
    if isinstance(call, OperatorCall):
        method, tool, in_line = call.sent.method, call.tool, call.sent.in_line
        on_the_way = WaitsFor.TURN if in_line else WaitsFor.ANSWER
        waits_for = WaitsFor.SERVER if call.key is None else on_the_way
    else:
        who = call.calls.client
        number, key = who.number, named_key(call.request.key)
        client, token, runs = who.name, who.token, call.makes is not None
        if call.made_by is not None:
            script = f"{call.made_by.label} (call {under_way(call.made_by, context)['id']})"
        method, tool, in_line = call.method, call.tool or call.label, call.in_line
        waits_for = _awaited(call)
    upstream = call.upstream
    server = "" if upstream is None else upstream.of
    return {
        "id": call.shown_as[0],
        "session": number,
        "key": key,
        "client": client,
        "token": token,
        "server": server,
        "instance": "" if upstream is None or upstream.name == server else upstream.name,
        "method": method,
        "tool": _redacted(context, server, tool),
        "script": script,
        "since": round(call.shown_as[1], 3),
        "ageSeconds": round(age, 3),
        "waitsFor": str(waits_for),
        # What a script has called may have run.
        "sent": runs or (call.key is not None and not in_line),
    }


def _every(context: OperatorContext) -> Iterator[ClientCall | OperatorCall]:
    for session in context.clients.live():
        yield from _with_inner(session.calls.open.values())
    yield from _with_inner(context.clients.parked())
    yield from context.own_calls


def _with_inner(calls: Iterable[ClientCall]) -> Iterator[ClientCall]:
    for call in calls:
        yield call
        if call.makes is not None:
            yield from _with_inner(call.makes.open.values())


def _in_session(found: list[CallInFlight], session: str | None) -> list[CallInFlight]:
    return [each for each in found if session is None or session in {each["key"], f"#{each['session']}"}]


def _ended(context: OperatorContext, params: CallsParams, after: int) -> list[tuple[int, RecentCall]]:
    server = None if params.server is None else server_of(params.server)
    return [
        (number, call)
        for number, call in context.counters.recent.after(after)
        if (server is None or call.server == server)
        and (params.session is None or params.session in {call.key, f"#{call.session}"})
        and (call.outcome != OK or not params.errorsOnly)
    ]


def _ended_call(context: OperatorContext, number: int, call: RecentCall) -> EndedCall:
    row = call._asdict()
    times = {"at": round(call.at, 3), "ms": round(row.pop("seconds") * 1000, 3)}
    texts = {name: _redacted(context, call.server, row[name]) for name in ("tool", "text")}
    return cast("EndedCall", {"number": number, **row, **times, **texts})


def _awaited(call: ClientCall) -> WaitsFor:
    calls, upstream = call.calls, call.upstream
    if not calls.is_open(call) or calls.server_requests.is_asked_about(call.request.id):
        return WaitsFor.CLIENT
    if call.finished is not None:
        return WaitsFor.STORE
    if call.makes is not None:
        return WaitsFor.ANSWER
    if upstream is None or call.key is None:
        return WaitsFor.SERVER
    return WaitsFor.TURN if call.in_line else WaitsFor.ANSWER


def _redacted(context: OperatorContext, server: str, tool: str) -> str:
    """A tool's name or other text without the server's secrets; without every server's if none is named."""
    return context.redact.of(server)(tool) if server else context.redact(tool)


class CancelParams(msgspec.Struct):
    """The call to cancel."""

    id: int


async def cancel(context: OperatorContext, params: CancelParams) -> dict[str, CallInFlight]:
    """End a call: notify its server, fail it at its client, never send it again; raises `InvalidArguments`."""
    await trio.lowlevel.checkpoint()
    call = find(context, params.id)
    if call is None:
        text = (
            f"no call {params.id} is in flight: the call has ended, or never existed. `mcpd calls` shows them."
        )
        raise InvalidArguments(text)
    now = under_way(call, context)
    error = CallCancelled(_words(now), server=now["server"], sent=now["sent"])
    if isinstance(call, OperatorCall):
        call.lose(error)
        call.waiting.cancel()
    else:
        call.calls.lose(call, error)
    context.outbox.flush()
    return {"call": now}


CANCEL = Command("cancel", CancelParams, cancel)


def _words(call: CallInFlight) -> str:
    text = f"an operator has cancelled this call after {call['ageSeconds']:.0f} s (mcpd cancel)."
    if not call["sent"]:
        return f"{text} It was not sent. Ask the user before you call it again."
    where = f"server {call['server']}" if call["server"] else "its server"
    return f"{text} It was sent to {where}, and may have run. Ask the user before you call it again."
