"""`mcpd status SERVER`: everything that is known of one server, or of one instance of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon.config.labels import server_of
from daemon.history.wording import phrase
from daemon.operators.calls import in_flight, told
from daemon.operators.events import recent
from daemon.operators.retries import LOOKED_AT, for_people
from daemon.operators.status_servers import instance_status, server_status

if TYPE_CHECKING:
    from collections.abc import Mapping

    from daemon.history.event import Event
    from daemon.operators.base import OperatorContext

EVENTS = 20
"""The newest events that are shown: a screen of them; `mcpd events SERVER` has all."""

CALLS = 50
"""The oldest calls in flight that are shown: the one that hangs is among them."""


async def status_of_one(context: OperatorContext, name: str, memory: Mapping[int, int]) -> dict[str, object]:
    """All of one: its status, its newest events (newest last), its calls in flight (oldest first).

    Args:
        context: the daemon.
        name: a server's, or an instance's (`server#12`, `server@~/app`).
        memory: resident bytes of each child's tree, by its mark.

    Raises:
        UnknownServer: there is none of that name.
    """
    calls = in_flight(context, name)
    events = await recent(context, server=name, limit=EVENTS * LOOKED_AT)
    return {
        "name": name,
        "server": _status(context, name, memory),
        "lastErrors": _failures(context, server_of(name)),
        "events": [_event(each) for each in await for_people(events, EVENTS)],
        "calls": [told(each) for each in calls[:CALLS]],
        "moreCalls": max(0, len(calls) - CALLS),
    }


def _status(context: OperatorContext, name: str, memory: Mapping[int, int]) -> dict[str, object]:
    entry = context.catalog.servers.get(name)
    if entry is not None:
        return server_status(context, entry, memory)
    actor = context.actors.get(name)
    if actor is None or actor.of not in context.catalog.servers:
        raise context.unknown(name)
    return instance_status(actor, context, memory)


def _failures(context: OperatorContext, server: str) -> list[dict[str, object]]:
    """The last errors of its calls, oldest first; of a server with instances those of all of them."""
    redact = context.redact.of(server)
    return [
        {"at": round(each.at, 3), "tool": redact(each.tool), "code": each.code, "text": redact(each.text)}
        for each in context.counters.recent.failures(server)
    ]


def _event(event: Event) -> dict[str, object]:
    return {
        "at": round(event.at, 3),
        "kind": str(event.kind),
        "instance": event.instance,
        "run": event.run,
        "cause": event.cause,
        "text": phrase(event),
    }
