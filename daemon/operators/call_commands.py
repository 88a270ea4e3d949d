"""`mcpd calls` and `mcpd cancel`: calls in flight, and the last thousand that were answered."""

from __future__ import annotations

from enum import StrEnum
from itertools import count
from typing import TYPE_CHECKING, Annotated

import msgspec
import trio

from daemon.config.labels import server_of
from daemon.counting.recent_calls import KEPT, named_key
from daemon.counting.tally import OK, OPERATOR
from daemon.errors import CallCancelled, InvalidArguments
from daemon.operators.base import Command, OperatorCall
from daemon.operators.event_commands import refuse_unknown_session
from daemon.operators.session_commands import numbered

if TYPE_CHECKING:
    from collections.abc import Iterator

    from daemon.clients.calls import ClientCall
    from daemon.counting.recent_calls import RecentCall
    from daemon.operators.base import OperatorContext
    from daemon.operators.reports import CallInFlight, CallsReport, EndedCall


MAX_SHOWN = 1000
"""Calls in flight that are shown, the oldest: more than anybody reads, and told in a few milliseconds."""

LISTED = 50
"""Ended calls that are shown unless more are asked for: what fits on two screens."""

MAX_WAIT = 25.0
"""The longest wait for a call to end, in seconds: a control connection on which nothing is asked for 30 s is
closed."""

_numbers = count(1)
"""Never repeated while the daemon runs: a late cancel cannot hit another call."""


class WaitsFor(StrEnum):
    """What a call waits for."""

    SERVER = "server"
    """For its server to come up, or to list its tools again."""
    TURN = "turn"
    """For a place at its server: it was not sent yet."""
    ANSWER = "answer"
    """For the answer: it was sent."""
    CLIENT = "client"
    """For what its server, or mcpd, has asked of its client or of that client's user."""
    STORE = "store"
    """For what it has loaded to be stored, and its client to ask for its new list."""


class CallsParams(msgspec.Struct):
    """Which calls are wanted, and of those that have ended which the caller has."""

    server: str | None = None
    """Of this server or instance; None: of all. Those that have ended are known by their server only."""
    session: str | None = None
    """Of this session, by its key or the number of its connection, perhaps with `#` before it; None: of all."""
    errorsOnly: bool = False  # noqa: N815 - the wire's name
    """Only those that ended with an error, and none in flight."""
    limit: Annotated[int, msgspec.Meta(ge=1, le=KEPT)] = LISTED
    """The most calls that have ended, the newest."""
    after: Annotated[int, msgspec.Meta(ge=0)] = 0
    """The number of the last ended call that the caller has."""
    source: str = ""
    """The source that `after` counts in; a number from another one, such as an earlier daemon, is ignored."""
    wait: Annotated[float, msgspec.Meta(ge=0, le=MAX_WAIT)] = 0.0
    """Seconds to wait for a call after `after` to end, if none has."""


async def calls(context: OperatorContext, params: CallsParams) -> CallsReport:
    """The calls without an answer, and those that have ended after the ones that the caller has.

    Raises:
        UnknownServer: no server has that name, and no instance of one.
        InvalidArguments: there is no such session, and none of its calls is kept.
    """
    name = params.server
    if name is not None and name not in context.actors and server_of(name) not in context.catalog.servers:
        raise context.unknown(name)
    if params.session is not None:
        params.session = numbered(context, params.session)
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
    waiting = [] if params.errorsOnly else _in_session(in_flight(context, name), params.session)
    return {
        "inFlight": waiting[:MAX_SHOWN],
        "inFlightMore": max(0, len(waiting) - MAX_SHOWN),
        "recent": [_ended_call(context, number, call) for number, call in found[-params.limit :]],
        "next": recent.newest.value,
        "source": source,
    }


CALLS = Command("calls", CallsParams, calls)


def in_flight(context: OperatorContext, server: str | None = None) -> list[CallInFlight]:
    """The calls without an answer, oldest first, of all clients and operators; also those that are parked.

    Args:
        context: the daemon.
        server: a server or an instance, whose calls alone are wanted; None: all.
    """
    found = [under_way(each, context) for each in _every(context)]
    return sorted(
        (each for each in found if server is None or server in {each["server"], each["instance"]}),
        key=lambda each: (each["since"], each["id"]),
    )


def is_any_under_way(context: OperatorContext) -> bool:
    """Whether any call has no answer yet, of a client, an operator, or parked."""
    return any(True for _ in _every(context))


def find(context: OperatorContext, number: int) -> ClientCall | OperatorCall | None:
    """The call that operators know by a number; None if it has ended, or there never was one."""
    every = (each for each in _every(context) if each.shown_as is not None and each.shown_as[0] == number)
    return next(every, None)


def under_way(call: ClientCall | OperatorCall, context: OperatorContext) -> CallInFlight:
    """A call as it is now; it gets its number when it is first looked at."""
    age = trio.current_time() - call.started
    if call.shown_as is None:
        # Once: it would differ by a little each time, and whoever compares would see a change.
        call.shown_as = next(_numbers), context.wall() - age
    number: int | None = None
    key: str | None = None
    client, token = OPERATOR, ""
    if isinstance(call, OperatorCall):
        method, tool, in_line = call.sent.method, call.tool, call.sent.in_line
        on_the_way = WaitsFor.TURN if in_line else WaitsFor.ANSWER
        waits_for = WaitsFor.SERVER if call.key is None else on_the_way
    else:
        who = call.calls.client
        number, key = who.number, named_key(call.request.key)
        client, token = who.name, who.principal.token
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
        "since": round(call.shown_as[1], 3),
        "ageSeconds": round(age, 3),
        "waitsFor": str(waits_for),
        "sent": call.key is not None and not in_line,
    }


def _every(context: OperatorContext) -> Iterator[ClientCall | OperatorCall]:
    for session in context.clients.live():
        yield from session.calls.open.values()
    yield from context.clients.parked()
    yield from context.own_calls


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
    return {
        "number": number,
        "at": round(call.at, 3),
        "session": call.session,
        "key": call.key,
        "client": call.client,
        "token": call.token,
        "server": call.server,
        "tool": _redacted(context, call.server, call.tool),
        "ms": round(call.seconds * 1000, 3),
        "outcome": call.outcome,
    }


def _awaited(call: ClientCall) -> WaitsFor:
    calls, upstream = call.calls, call.upstream
    if not calls.is_open(call) or calls.server_requests.is_asked_about(call.request.id):
        return WaitsFor.CLIENT
    if call.finished is not None:
        return WaitsFor.STORE
    if upstream is None or call.key is None or call.waiting is not None:
        return WaitsFor.SERVER
    return WaitsFor.TURN if call.in_line else WaitsFor.ANSWER


def _redacted(context: OperatorContext, server: str, tool: str) -> str:
    """The name of a tool without secrets: where no server is known, without those of any."""
    return context.redact.of(server)(tool) if server else context.redact(tool)


class CancelParams(msgspec.Struct):
    """The call that is to end."""

    id: int
    """The number that `calls` shows it by."""


async def cancel(context: OperatorContext, params: CancelParams) -> dict[str, CallInFlight]:
    """End a call: its server is told (MCP, cancellation), its client gets an error, nothing is sent again.

    Raises:
        InvalidArguments: the call has ended, or there never was one.
    """
    await trio.lowlevel.checkpoint()
    call = find(context, params.id)
    if call is None:
        text = (
            f"no call {params.id} is in flight: it has ended, or there never was one. `mcpd calls` shows them."
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
