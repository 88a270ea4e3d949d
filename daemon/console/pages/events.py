"""The page of events: what happened to servers, sessions and mcpd itself, the newest first."""

from __future__ import annotations

import math
import time
from datetime import datetime
from typing import TYPE_CHECKING

from daemon.console.page import ConsolePage, Fragment, element_id, server_page, tool_page, with_query
from daemon.errors import InvalidArguments
from daemon.history.event import MAY_BE_BAD, Event, EventKind
from daemon.history.wording import NAMED, phrase
from daemon.kit.wording import DAY
from daemon.operators.events import recent
from daemon.operators.retries import condensed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from daemon.console.page import Viewer
    from daemon.operators.base import OperatorContext

SHOWN = 100
"""Events on one page."""

LOOKED_AT = 2000
"""The most events that are looked through, for those that went wrong and for rows of retries: some 20 ms."""

CHANGES = 10
"""Changes of lists that the page of tools shows."""

CHANGED_DAYS = 7
"""How far back it looks for them."""

_KINDS: Mapping[str, frozenset[EventKind]] = {
    "": frozenset(),
    "wrong": MAY_BE_BAD,
    "tools": frozenset({EventKind.LISTS_CHANGED}),
}
"""What can be chosen, and which kinds of events that are."""


async def _fragments(viewer: Viewer) -> Mapping[str, Sequence[Fragment]]:
    wanted = {name: viewer.query.get(name, "") for name in ("server", "session", "what", "since", "until")}
    if wanted["what"] not in _KINDS:
        raise InvalidArguments(f"what is wanted is one of {', '.join(filter(None, _KINDS))}, or nothing")
    only_bad = wanted["what"] == "wrong"
    most = LOOKED_AT
    found = await recent(
        viewer.context,
        server=wanted["server"] or None,
        session=wanted["session"] or None,
        since=_moment(wanted["since"], 0.0),
        until=_moment(wanted["until"], math.inf),
        kinds=_KINDS[wanted["what"]],
        limit=most,
    )
    fitting = [event for event in reversed(condensed(found)) if event.is_bad or not only_bad]
    rest = fitting[SHOWN:] or (found[:1] if len(found) == most else [])
    return {
        "events-filter": [_filter(viewer, wanted)],
        "events": [_row(viewer.context, event) for event in fitting[:SHOWN]],
        "events-pages": [
            Fragment(
                id="events-pager",
                template="events_pages.html",
                values={
                    "none": not fitting,
                    "zone": time.strftime("%Z"),
                    "newest": with_query("/events", **{**wanted, "until": ""}) if wanted["until"] else "",
                    "older": with_query("/events", **{**wanted, "until": repr(rest[0].at)}) if rest else "",
                },
            )
        ],
    }


EVENTS_PAGE = ConsolePage(
    path="/events", title="Events", template="events.html", fragments=_fragments, calls_every=None
)


async def changes(context: OperatorContext) -> Fragment:
    """What servers offer that has changed lately, for the page of tools."""
    found = await recent(
        context,
        since=context.history.now() - CHANGED_DAYS * DAY,
        kinds=_KINDS["tools"],
        limit=CHANGES + 1,
    )
    return Fragment(
        id="tools-changes",
        template="tools_changes.html",
        values={
            "days": CHANGED_DAYS,
            "changes": [told(context, event) for event in found[::-1][:CHANGES]],
            "more": with_query("/events", what="tools") if len(found) > CHANGES else "",
        },
    )


def told(context: OperatorContext, event: Event) -> dict[str, object]:
    """What a line about an event shows: when, of whom, what, and the tools that it names and that are there."""
    servers = context.catalog.servers
    return {
        "at": event.at,
        "kind": str(event.kind),
        "is_bad": event.is_bad,
        "server": event.server,
        "instance": event.instance,
        "server_page": server_page(event.server) if event.server in servers else "",
        "session": event.session,
        "session_events": with_query("/events", session=event.session),
        "sentence": phrase(event),
        "tools": [
            {"name": name, "address": tool_page(event.server, name)}
            for name in _tools_of(event)
            if event.server in servers and name in (servers[event.server].tools or {})
        ],
    }


def _tools_of(event: Event) -> list[str]:
    """The tools that an event says came or changed."""
    found = event.details.get("tools") if event.kind is EventKind.LISTS_CHANGED else None
    if not isinstance(found, dict):
        return []
    lists = [names for how in ("came", "changed") if isinstance(names := found.get(how), (list, tuple))]
    return [str(name) for names in lists for name in names[:NAMED]]


def _moment(text: str, otherwise: float) -> float:
    """A time of the query: seconds since the epoch, as links have it, or what a field for local times sends."""
    if not text:
        return otherwise
    try:
        at = float(text)
    except ValueError:
        try:
            at = datetime.fromisoformat(text).timestamp()
        except (ValueError, OverflowError, OSError):
            at = math.nan
    if not math.isfinite(at):
        raise InvalidArguments(f"{text[:40]!r} is no time: write 2026-11-22T22:00")
    return at


def _filter(viewer: Viewer, wanted: Mapping[str, str]) -> Fragment:
    servers = [*viewer.context.catalog.servers]
    if wanted["server"] and wanted["server"] not in servers:
        servers.append(wanted["server"])  # One that is gone has a history, too.
    fields = {name: _field(wanted[name]) for name in ("since", "until")}
    return Fragment(
        id="events-wanted", template="events_filter.html", values={**wanted, **fields, "servers": servers}
    )


def _field(text: str) -> str:
    """A time of the query as a field for local times takes it."""
    at = _moment(text, math.nan)
    try:
        return "" if math.isnan(at) else time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(at))
    except (ValueError, OverflowError, OSError):
        return ""


def _row(context: OperatorContext, event: Event) -> Fragment:
    element = element_id("event", event.life, str(event.number))
    return Fragment(id=element, template="events_row.html", values={**told(context, event), "element": element})
