"""The page of one server: why it is as it is, what it has done, and everything else that is known of it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import trio

from daemon.authorization.messages import LoginPage
from daemon.config.labels import server_of
from daemon.console.page import ConsolePage, Fragment
from daemon.console.pages.calls import caller, waiting
from daemon.console.pages.links import session_page
from daemon.console.pages.server_charts import server_charts
from daemon.console.pages.server_facts import MEBIBYTE, memory_now, server_facts
from daemon.history.wording import phrase
from daemon.operators.calls import in_flight, told
from daemon.operators.events import recent
from daemon.operators.logs import LOGS, LogsParams
from daemon.operators.retries import LOOKED_AT, for_people
from daemon.operators.status_servers import server_status

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from daemon.console.page import Viewer
    from daemon.operators.base import OperatorContext

LINES = 200
"""Most lines of stderr that are shown, of each instance; `mcpd logs` has all that are kept."""

EVENTS = 50
"""Most events that are shown; `mcpd events` has all that are kept."""

CALLS = 50
"""Most calls in flight that are shown, the oldest."""

_IDLE_SECONDS = 10
"""When an instance was last used is shown to ten seconds, or it would seem to change all the time."""


async def _fragments(viewer: Viewer) -> Mapping[str, Sequence[Fragment]]:
    context, name = viewer.context, viewer.path["server"]
    if name not in context.catalog.servers:
        raise context.unknown(name)
    memory = await memory_now(context)
    events = await recent(context, server=name, limit=EVENTS * LOOKED_AT)
    history = await for_people(events, EVENTS)
    lines = await _stderr(context, name)
    facts = {
        **server_facts(context, name, memory),
        "may_change": viewer.may_change,
        "has_login": context.config.mcp_servers[name].login is not None,
    }
    seen: dict[str, Any] = server_status(context, context.catalog.servers[name], memory)
    return {
        "server": [
            _fragment("overview", facts),
            _fragment("login", {**facts, "login": _login(viewer, name)}),
            _fragment("charts", {"charts": await server_charts(context, name)}),
            _fragment(
                "history", {"events": [_event(each) for each in reversed(history)], "zone": time.strftime("%Z")}
            ),
            _fragment("numbers", {**facts, "seen": _steady(seen)}),
            _fragment("calls", {"calls": list(_calls(context, name)), "errors": seen.get("lastErrors") or []}),
            _fragment("instances", {**facts, "each": list(_instances(context, seen))}),
            _fragment("stderr", {"sources": lines}),
            _fragment("lists", {**facts, "seen": _steady(seen)}),
        ]
    }


SERVER = ConsolePage(
    path="/servers/{server}", title="Server", template="server.html", fragments=_fragments, in_navigation=False
)


def _fragment(part: str, values: Mapping[str, object]) -> Fragment:
    return Fragment(id=f"server-{part}", template=f"server_{part}.html", values=values)


_PASSING = ("nextRetryInMs", "rssBytes", "instances", "stderr", "lastErrors")
"""What of a status differs all the time, or is shown elsewhere."""


def _steady(seen: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in seen.items() if key not in _PASSING}


def _login(viewer: Viewer, name: str) -> dict[str, object] | None:
    """What a login under way shows its user, and only who may change things: who has the link can log in."""
    run = viewer.context.logins.under_way(name)
    if run is None or run.shown is None or not viewer.may_change:
        return None
    if isinstance(run.shown, LoginPage):
        return {"url": run.shown.url, "code": "", "redirect": run.shown.redirect}
    return {"url": run.shown.complete_url or run.shown.url, "code": run.shown.code, "redirect": ""}


def _calls(context: OperatorContext, name: str) -> Iterator[dict[str, object]]:
    for call in map(told, in_flight(context, name)[:CALLS]):
        yield {**caller(call), **waiting(call)}


def _instances(context: OperatorContext, seen: Mapping[str, Any]) -> Iterator[dict[str, object]]:
    for each in seen["instances"]:
        actor = context.actors.get(each["name"])
        used = None if actor is None or actor.use is None else actor.use.at
        lately = used is not None and used > float("-inf")
        rss = each["rssBytes"]
        yield {
            **_steady(each),
            "session": None if each["session"] is None else session_page(f"#{each['session']}"),
            "number": each["session"],
            "memory": None if rss is None else round(rss / MEBIBYTE) * MEBIBYTE,
            "used_at": _wall_time(context, used) if lately and used is not None else None,
        }


def _wall_time(context: OperatorContext, at: float) -> int:
    ago = trio.current_time() - at
    return round((context.wall() - ago) / _IDLE_SECONDS) * _IDLE_SECONDS


def _event(event: Any) -> dict[str, object]:
    return {
        "at": event.at,
        "kind": str(event.kind),
        "run": event.run,
        "instance": event.instance,
        "is_bad": event.is_bad,
        "sentence": phrase(event),
    }


async def _stderr(context: OperatorContext, name: str) -> list[dict[str, Any]]:
    """The last lines of each that runs of a server, by its own name."""
    if not any(server_of(each) == name for each in context.actors):
        return []
    report: Any = await LOGS.run(context, LogsParams(server=name, last=LINES))
    sources = report.get("instances") or ({name: report} if "lines" in report else {})
    return [
        {
            "name": source,
            "lines": [
                {"at": line.get("at"), "run": line.get("run"), "text": line["text"]} for line in page["lines"]
            ],
        }
        for source, page in sources.items()
    ]
