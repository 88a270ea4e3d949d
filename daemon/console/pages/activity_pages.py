"""The pages of calls in flight and ended, of events, and of the audit; the newest come first."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterable, Mapping
from datetime import datetime
from itertools import islice

import trio

from daemon.audit.audit_files import AuditQuery, Entry, query, read
from daemon.audit.inspection import words
from daemon.audit.record import Decision
from daemon.console.page import (
    ConsolePage,
    Fragment,
    Holders,
    Viewer,
    command_action,
    element_id,
    page_number,
    part,
    steady,
    with_query,
)
from daemon.counting.recent_calls import KEPT
from daemon.errors import InvalidArguments
from daemon.history.event import MAY_BE_BAD, Event, EventKind
from daemon.history.event_words import NAMED
from daemon.kit.wording import DAY
from daemon.operators.base import OperatorContext
from daemon.operators.call_commands import CANCEL, CallsParams, calls
from daemon.operators.change_reports import cancelled
from daemon.operators.event_commands import condensed, recent
from daemon.operators.status_commands import audit_problem

_HASH = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{52}\b")
"""Matches a hash, of which a page shows only the beginning: it would not fit on a phone."""

SHOWN = 100
"""Ended calls on a page, and calls in flight."""


LAST_PAGE = -(-KEPT // SHOWN)


async def _calls_shown(viewer: Viewer) -> Holders:
    wanted = {name: viewer.query.get(name, "") for name in ("server", "session", "errors")}
    number = page_number(viewer.query.get("page", ""), LAST_PAGE)
    params = CallsParams(
        server=wanted["server"] or None,
        session=wanted["session"] or None,
        errorsOnly=bool(wanted["errors"]),
        limit=KEPT,
    )
    report = await calls(viewer.context, params)
    ended = report["recent"][::-1]
    shown = ended[(number - 1) * SHOWN : number * SHOWN]
    pages = min(LAST_PAGE, max(1, -(-len(ended) // SHOWN)))
    summary = part(
        "calls-summary",
        waiting=len(report["inFlight"]) + report["inFlightMore"],
        ended=len(ended),
        failed=sum(each["outcome"] != "ok" for each in ended),
        filtered=any(wanted.values()),
        kept=KEPT,
    )
    pager = part("calls-pager", "calls_pages", number=number, pages=pages, wanted=wanted)
    servers = [*viewer.context.catalog.servers]
    return {
        "calls-filter": [part("calls-wanted", "calls_filter", servers=servers, **wanted)],
        "calls-notes": [summary],
        "in-flight": [
            part(f"waiting-{each['id']}", "calls_waiting", call=steady(each, "ageSeconds"))
            for each in report["inFlight"][:SHOWN]
        ],
        "ended": [part(f"call-{each['number']}", "calls_row", call=each) for each in shown],
        "calls-pages": [pager],
    }


CALLS_PAGE = ConsolePage(
    path="/calls",
    title="Calls",
    template="calls.html",
    fragments=_calls_shown,
    calls_every=2.0,  # Viewers of calls look for hanging ones.
)


CANCEL_CALL = command_action("/calls/{id}/cancel", CANCEL, cancelled)


EVENTS_SHOWN = 50


LOOKED_AT = 2000
"""Events that are searched for failures and for rows of retries, in some 20 ms."""


CHANGES = 10


CHANGED_DAYS = 7
"""Days since the oldest change that is shown."""


_KINDS: Mapping[str, frozenset[EventKind]] = {
    "": frozenset(),
    "wrong": MAY_BE_BAD,
    "tools": frozenset({EventKind.LISTS_CHANGED}),
}


async def _events_shown(viewer: Viewer) -> Holders:
    wanted = {name: viewer.query.get(name, "") for name in ("server", "session", "what", "since", "until")}
    if wanted["what"] not in _KINDS:
        raise InvalidArguments(f"choose one of {', '.join(filter(None, _KINDS))}, or nothing")
    only_bad = wanted["what"] == "wrong"
    found = await recent(
        viewer.context,
        server=wanted["server"] or None,
        session=wanted["session"] or None,
        since=_moment(wanted["since"], 0.0),
        until=_moment(wanted["until"], math.inf),
        kinds=_KINDS[wanted["what"]],
        limit=LOOKED_AT,
    )
    fitting = [event for event in reversed(condensed(found)) if event.is_bad or not only_bad]
    rest = fitting[EVENTS_SHOWN:] or (found[:1] if len(found) == LOOKED_AT else [])
    return {
        "events-filter": [_filter(viewer, "events", wanted, (event.server for event in found))],
        "events": [
            part(
                element_id("event", event.life, str(event.number)),
                "events_row",
                **event_values(viewer.context, event),
            )
            for event in fitting[:EVENTS_SHOWN]
        ],
        "events-pages": [
            part(
                "events-pager",
                "events_pages",
                empty=not fitting,
                zone=time.strftime("%Z"),
                newest=with_query("/events", **{**wanted, "until": ""}) if wanted["until"] else "",
                older=with_query("/events", **{**wanted, "until": repr(rest[0].at)}) if rest else "",
            )
        ],
    }


EVENTS_PAGE = ConsolePage(
    path="/events", title="Events", template="events.html", fragments=_events_shown, calls_every=None
)


AUDITED = 5000
"""Audit records from which a page is chosen, in some 40 ms of a thread."""


async def _audit_shown(viewer: Viewer) -> Holders:
    names = ("server", "tool", "session", "decision", "since", "until")
    wanted = {name: viewer.query.get(name, "") for name in names}
    before = AuditQuery({}, _moment(wanted["since"], 0.0), _moment(wanted["until"], math.inf))
    found = read(viewer.context.audit.root, before, newest_first=True)
    looked = await trio.to_thread.run_sync(lambda: [*islice(found, AUDITED)])
    asked = query(wanted["server"], wanted["tool"], wanted["session"], [wanted["decision"]])
    shown = [each for each in looked if asked.fits(each)]
    rest = shown[EVENTS_SHOWN:] or looked[AUDITED - 1 :]
    older = with_query("/audit", **{**wanted, "until": repr(rest[0].at + 1e-6)}) if rest else ""
    problem = audit_problem(viewer.context)
    pager = part(
        "audit-pager", "audit_pages", problem=problem, older=older, looked=len(looked), shown=len(shown)
    )
    heard = (each.record.server for each in looked if each.record)
    return {
        "audit-filter": [_filter(viewer, "audit", wanted, heard, decisions=Decision)],
        "audit": [_audit_row(each) for each in shown[:EVENTS_SHOWN]],
        "audit-pages": [pager],
    }


def _audit_row(entry: Entry) -> Fragment:
    said = entry.record and [_HASH.sub(r"\1…", word) for word in words(entry.record)]
    return part(element_id("audit", entry.place), "audit_row", entry=entry, words=said)


AUDIT_PAGE = ConsolePage(path="/audit", title="Audit", template="audit.html", fragments=_audit_shown)


async def changes(context: OperatorContext) -> Fragment:
    """Recent changes of servers' lists, for the page of tools."""
    found = await recent(
        context, since=context.history.now() - CHANGED_DAYS * DAY, kinds=_KINDS["tools"], limit=CHANGES + 1
    )
    return part(
        "tools-changes",
        days=CHANGED_DAYS,
        changes=[event_values(context, event) for event in found[::-1][:CHANGES]],
        more=with_query("/events", what="tools") if len(found) > CHANGES else "",
    )


def event_values(context: OperatorContext, event: Event) -> dict[str, object]:
    """Values for an event's line: the event, whether its server exists, and the tools that it names."""
    entry = context.catalog.servers.get(event.server)
    tools = () if entry is None else (entry.tools or {})
    return {
        "event": event,
        "known": entry is not None,
        "tools": [name for name in _tools_of(event) if name in tools],
    }


def _tools_of(event: Event) -> list[str]:
    found = event.details.get("tools") if event.kind is EventKind.LISTS_CHANGED else None
    if not isinstance(found, dict):
        return []
    lists = [names for how in ("came", "changed") if isinstance(names := found.get(how), (list, tuple))]
    return [str(name) for names in lists for name in names[:NAMED]]


def _moment(text: str, otherwise: float) -> float:
    """Parse a time in a query: epoch seconds from links, or a local time from form fields."""
    if not text:
        return otherwise
    try:
        at = float(text)
    except ValueError:
        try:
            at = datetime.fromisoformat(text).timestamp()
        except ValueError:
            at = math.nan
    if not math.isfinite(at):
        raise InvalidArguments(f"{text[:40]!r} is not a time: write 2026-11-22T22:00")
    return at


def _filter(
    viewer: Viewer, page: str, wanted: Mapping[str, str], heard: Iterable[str], **more: object
) -> Fragment:
    # Removed servers have a history, too; a name that nobody can read is no choice.
    known = sorted({each for each in heard if each.isprintable()} | {wanted["server"]})
    servers = [*dict.fromkeys([*viewer.context.catalog.servers, *filter(None, known)])]
    times = {name: _field(wanted[name]) for name in ("since", "until")}
    return part(f"{page}-wanted", f"{page}_filter", servers=servers, **{**wanted, **times, **more})


def _field(text: str) -> str:
    at = _moment(text, math.nan)
    try:
        return "" if math.isnan(at) else time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(at))
    except (ValueError, OverflowError, OSError):
        return ""
