"""The page of all servers, the worst first, and a server's page: state, charts, history and actions."""

from __future__ import annotations

import shlex
import time
from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import trio
from trio.to_thread import run_sync as in_thread

from daemon.audit.record import digest
from daemon.authorization.logins import LoginPage
from daemon.config.command_lines import pinnable
from daemon.config.labels import server_of
from daemon.config.redaction import names_credential
from daemon.console.changes import CHOICES, change, entry_of, give, keys_of, with_keys
from daemon.console.charts import TELLING, Chart, Quantity, band, known, lines, spans_of
from daemon.console.page import (
    ConsoleAction,
    ConsolePage,
    Fragment,
    Holders,
    Notice,
    Viewer,
    command_action,
    element_id,
    part,
    steady,
)
from daemon.console.pages.adding_pages import first_run
from daemon.console.pages.tool_pages import tool_rows
from daemon.console.pages.upgrade_pages import upgrades, upgrades_part
from daemon.errors import InvalidArguments
from daemon.history.event import EventKind
from daemon.operators.base import OperatorContext, Refused
from daemon.operators.call_commands import in_flight, last_hour
from daemon.operators.change_reports import logged_out, refreshed, restarted, switched
from daemon.operators.event_commands import LOOKED_AT, LogsParams, for_people, logs, recent
from daemon.operators.login_commands import LOGIN, LOGIN_ANSWER, LOGOUT
from daemon.operators.news import waiting
from daemon.operators.own_lines import run_line
from daemon.operators.report_words import oddities
from daemon.operators.server_changes import REFRESH, RESTART, SwitchParams, switch
from daemon.operators.status_commands import RECENT_MINUTES, failures, next_try, server_status
from daemon.processes.marks import memory_by_mark
from daemon.setup.drafts import KEYRING
from daemon.states import WELL, WORST_FIRST

if TYPE_CHECKING:
    from markupsafe import Markup

    from daemon.catalog.entry import ServerEntry
    from daemon.config.config_model import Server


MEBIBYTE = 1 << 20
"""Memory is rounded to mebibytes: otherwise each call would change it, and with it the page."""


_PASSING = ("nextRetryInMs", "pings", "stderr", "rssBytes", "idleMs")
"""Members of a server's status that differ at each request, or are shown elsewhere."""


def server_facts(context: OperatorContext, name: str, memory: Mapping[int, int]) -> Any:
    """A server's status without members that keep changing; `memory` has resident bytes by mark."""
    entry = context.catalog.servers[name]
    due = next_try(entry.status, context.upstreams.get(name))[1]
    seen = server_status(context, entry, memory)
    return {
        **steady(seen, *_PASSING),
        "name": name,
        "off": entry.disabled,
        "waiting": len(waiting(entry)),
        "lacks": (lacks := _lacks(entry)),
        "hides": lacks.startswith(KEYRING) or names_credential(lacks),
        "unpinned": _is_unpinned(context.config.mcp_servers[name]),
        "shut_out": [each for each in (seen["sandbox"] or {"refused": ()})["refused"] if each["allow"]],
        "nextRetryAt": None if due is None else round(due),
        "memory": _to_mebibyte(seen["rssBytes"]),
        "instances": [_instance(context, each) for each in seen["instances"]],
    }


def _lacks(entry: ServerEntry) -> str:
    """The variable, or `keyring:NAME`, whose value would mend a server; empty: something else does."""
    return entry.status.why.remedy.lacks if entry.status.why.remedy else ""


def _is_unpinned(server: Server) -> bool:
    return any(pinnable(server.written.command or "", server.written.args))


async def memory_now(context: OperatorContext) -> Mapping[int, int]:
    """Resident bytes of each child's process tree, by mark; read in a thread, since that takes milliseconds."""
    if not any(each.children for each in context.actors.values()):
        return {}
    return await trio.to_thread.run_sync(memory_by_mark)


def _to_mebibyte(used: int | None) -> int | None:
    return None if used is None else round(used / MEBIBYTE) * MEBIBYTE


MOST_CARDS = 24
"""Servers shown as cards; if there are more, they are a table, unless the query says otherwise."""


HOUR = 3600


SPANS = {"The last hour": HOUR, "The last 6 hours": 6 * HOUR, "The last day": 24 * HOUR}
"""Periods of charts in seconds, the shortest first; values by the minute are kept for a day."""


CHARTED_EVENTS = 500
"""Events behind the states of a day."""


STEP = 60
"""Seconds of each value. Charts end with a whole minute, or they would change every second."""


_RANK = {state: rank for rank, state in enumerate(WORST_FIRST)}


async def _of_all(viewer: Viewer) -> Holders:
    context = viewer.context
    names = shown(context, viewer.query)
    memory = await memory_now(context)
    as_table = (viewer.query.get("view") or ("table" if len(names) > MOST_CARDS else "cards")) == "table"
    newer = upgrades(context)
    # A reload may have removed some meanwhile.
    rows = [
        part(
            element_id("server", name),
            "servers_row" if as_table else "servers_card",
            server=server_facts(context, name, memory),
            minutes={} if as_table else last_hour(context, name),
            newer=name in newer,
        )
        for name in names
        if name in context.catalog.servers
    ]
    return {
        "first-run": await first_run(viewer),
        "servers-summary": [_summary(viewer, len(rows))],
        "upgrades": upgrades_part(viewer),
        "servers": [] if as_table else rows,
        "servers-rows": rows if as_table else [],
    }


SERVERS = ConsolePage(path="/servers", title="Servers", template="servers.html", fragments=_of_all)


def in_trouble(servers: Mapping[str, ServerEntry]) -> list[str]:
    """The servers that are neither well nor switched off, the worst first."""
    found = [name for name, entry in servers.items() if entry.status.state not in WELL and not entry.disabled]
    return sorted(found, key=lambda name: _RANK[servers[name].status.state])


def shown(context: OperatorContext, query: Mapping[str, str]) -> list[str]:
    """The servers of a query: `q` (in name or title), `only` (`trouble` or a state), `sort` (`name`)."""
    servers, wanted, only = context.catalog.servers, query.get("q", "").lower(), query.get("only", "")
    found = [
        name
        for name, entry in servers.items()
        if (wanted in name.lower() or wanted in context.config.mcp_servers[name].title.lower())
        and (not only or only == entry.status.state or (only == "trouble" and entry.status.state not in WELL))
    ]
    if query.get("sort") == "name":
        return sorted(found)

    def badness(name: str) -> tuple[int, int, int]:
        state, upstream = servers[name].status.state, context.upstreams.get(name)
        failed = upstream.stats.window(RECENT_MINUTES, trio.current_time()).errors if upstream else 0
        return len(_RANK) if state in WELL else _RANK[state], -failed, _RANK[state]

    return sorted(found, key=badness)


def _summary(viewer: Viewer, count: int) -> Fragment:
    context, query = viewer.context, viewer.query
    loose = [name for name, each in context.config.mcp_servers.items() if _is_unpinned(each)]
    states = Counter(entry.status.state for entry in context.catalog.servers.values())
    return part(
        "summary",
        "servers_summary",
        states={str(state): states[state] for state in WORST_FIRST if states[state]},
        kept={name: query.get(name, "") for name in ("q", "sort", "view")},
        only=query.get("only", ""),
        loose={f"chosen-{name}": "on" for name in loose} if viewer.may_change and loose[1:] else {},
        count=count,
    )


_DAEMON = frozenset({EventKind.DAEMON_STARTED, EventKind.DAEMON_STOPPED})


async def server_charts(context: OperatorContext, name: str) -> Fragment:
    """Charts of a server's last day, or of a shorter time; quantities that were never measured have none."""
    until = (int(context.wall()) // STEP + 1) * STEP
    # Regardless of age: a server that has been ready for a week said so a week ago.
    events = await recent(context, server=name, kinds=TELLING, limit=CHARTED_EVENTS)
    daemon = await recent(context, kinds=_DAEMON, limit=CHARTED_EVENTS)
    spans = spans_of([*events, *daemon], until=until)
    minutes = context.counters.series.server(name)
    oldest = min([*(span.since for span in spans), *(each.at for each in minutes)], default=until)
    # A little older than a period, most of the next one would be empty.
    title = next((title for title, span in SPANS.items() if oldest >= until - 2 * span), [*SPANS][-1])
    since = until - SPANS[title]
    minutes = [each for each in minutes if each.at >= since]
    measured = {
        ("latencies", "Time of calls", "ms"): {
            "half within (p50)": [each.p50_ms for each in minutes],
            "95 % within (p95)": [each.p95_ms for each in minutes],
        },
        ("memory", "Memory", "MiB"): {"resident memory": [_mebibytes(each.rss_bytes) for each in minutes]},
    }

    def drawn() -> list[Markup]:
        made = [band("states", "State", name, spans, since=since, until=until)] if spans else []
        moments = [each.at for each in minutes]
        for (key, title, unit), quantities in measured.items():
            series = [Quantity(name=each, values=values) for each, values in quantities.items()]
            chart = Chart(
                id=key,
                title=title,
                unit=unit,
                moments=moments,
                step=STEP,
                series=series,
                begin=since,
                end=until,
            )
            made += [lines(chart)] if any(map(known, series)) else []
        return made

    return part("server-charts", title=title, charts=await in_thread(drawn))


def _mebibytes(size: int | None) -> float | None:
    return None if size is None else size / MEBIBYTE


async def _switch(viewer: Viewer, _fields: Mapping[str, str], *, off: bool) -> str | Notice:
    name, servers = viewer.path["server"], viewer.context.config.mcp_servers
    if not off and name in servers and not servers[name].enabled:
        return await change(viewer, ("enable", name))
    told: Any = await switch(viewer.context, SwitchParams(name, off))
    return "\n".join(switched(told))


async def _change(word: str, viewer: Viewer, fields: Mapping[str, str]) -> Notice:
    name, given = viewer.path["server"], fields.get("entry", "")
    if word == "set":
        shown = await in_thread(entry_of, viewer.context.facts, name)
        if fields.get("seen") != digest(shown.encode()):
            raise Refused(
                f"{name} has changed since you opened it. Your text is kept: Save overwrites the other change"
            )
        given = given or with_keys(shown, fields)
    more = {"set": ("-",), "rename": (fields.get("to", "").strip(),)}.get(word, ())
    return await change(viewer, (word, name, *more), given)


async def _give(viewer: Viewer, fields: Mapping[str, str]) -> Notice:
    name, lacks, value = viewer.path["server"], fields.get("lacks", ""), fields.get("value", "").strip()
    if not value:
        raise InvalidArguments(f"write the value of {lacks}")
    if name not in (servers := viewer.context.catalog.servers) or lacks != _lacks(servers[name]):
        raise Refused(f"{name} does not lack {lacks} any more: nothing was changed")
    return await give(viewer, name, lacks, value)


async def _allow(viewer: Viewer, fields: Mapping[str, str]) -> Notice:
    name, host = viewer.path["server"], fields.get("host", "")
    return await change(viewer, ("allow-host", name, host))


async def _chosen(word: str, viewer: Viewer, fields: Mapping[str, str]) -> Notice:
    """Run one command line for all servers that are ticked in the table."""
    names = [name for name in viewer.context.catalog.servers if f"chosen-{name}" in fields]
    if not names:
        raise InvalidArguments("tick the servers first, at the left of the table")
    ran = await run_line(viewer.context, (word, *names))
    return Notice(ran.text, is_error=bool(ran.status), server=", ".join(names))


def _login_begun(begun: Mapping[str, Any]) -> list[str]:
    return [f"A login to {begun['server']} is under way: open the page that is shown here."]


def _login_answered(_told: object) -> list[str]:
    return ["The login has the address; this page shows the outcome."]


SERVER_ACTIONS = (
    command_action("/servers/{server}/restart", RESTART, restarted),
    command_action("/servers/{server}/refresh", REFRESH, refreshed),
    ConsoleAction(path="/servers/{server}/enable", act=partial(_switch, off=False)),
    ConsoleAction(path="/servers/{server}/disable", act=partial(_switch, off=True)),
    ConsoleAction(path="/servers/{server}/give", act=_give),
    ConsoleAction(path="/servers/{server}/allow-host", act=_allow),
    command_action("/servers/{server}/login", LOGIN, _login_begun, wait=False),
    command_action("/servers/{server}/login-answer", LOGIN_ANSWER, _login_answered),
    command_action("/servers/{server}/logout", LOGOUT, logged_out),
    *(
        ConsoleAction(path=f"/servers/{{server}}/{word}", act=partial(_change, word), keeps=True)
        for word in ("set", "rename", "pin", "upgrade", "remove")
    ),
    *(
        ConsoleAction(path=f"/chosen/{word}", act=partial(_chosen, word))
        for word in ("restart", "enable", "disable", "pin")
    ),
)


LOG_LINES = 200
"""Stderr lines of each instance on the page; `mcpd logs` has every line that is kept."""


EVENTS = 50
"""Events on the page; `mcpd events` has every event that is kept."""


CALLS = 50
"""Calls in flight on the page, the oldest."""


_IDLE_SECONDS = 10
"""Seconds to which an instance's last use is rounded; otherwise the page would never be at rest."""


TABS = {"": "Overview", "tools": "Tools", "logs": "Logs", "history": "History", "settings": "Settings"}


async def _of_server(viewer: Viewer) -> Holders:
    context, name = viewer.context, viewer.path["server"]
    if name not in context.catalog.servers:
        raise context.unknown(name)
    seen = server_facts(context, name, await memory_now(context))
    facts: dict[str, Any] = {"server": steady(seen, "instances")}
    tab = viewer.query.get("tab", "")
    of_tab = _OF_TABS.get(tab, _overview)
    return {
        "server-top": [part("server-overview", **facts), part("server-tabs", server=name, tabs=TABS, tab=tab)],
        "server": await of_tab(viewer, name, seen, facts),
        "tools": list(tool_rows(viewer, name)) if tab == "tools" else [],
    }


async def _overview(viewer: Viewer, name: str, seen: Any, facts: dict[str, Any]) -> list[Fragment]:
    context = viewer.context
    has_login = context.config.mcp_servers[name].login is not None
    calls = [steady(each, "ageSeconds") for each in in_flight(context, name)[:CALLS]]
    return [
        part("server-login", has_login=has_login, login=_login(viewer, name), **facts),
        part("server-numbers", minutes=last_hour(context, name), **facts),
        await server_charts(context, name),
        part("server-calls", calls=calls, errors=failures(context, name)),
        part("server-instances", instances=seen["instances"], **facts),
    ]


async def _offer(_viewer: Viewer, _name: str, seen: Any, facts: dict[str, Any]) -> list[Fragment]:
    return [part("server-lists", remarks=list(oddities(seen)), **facts)]


async def _logs(viewer: Viewer, name: str, _seen: Any, _facts: dict[str, Any]) -> list[Fragment]:
    wanted, sources = viewer.query.get("find", "").lower(), await _stderr(viewer.context, name)
    for each in sources:
        each["lines"] = [line for line in each["lines"] if wanted in line["text"].lower()]
    return [part("server-stderr", sources=sources, find=wanted)]


async def _history(viewer: Viewer, name: str, _seen: Any, _facts: dict[str, Any]) -> list[Fragment]:
    events = await recent(viewer.context, server=name, limit=EVENTS * LOOKED_AT)
    history = for_people(events, EVENTS)
    return [part("server-history", events=history[::-1], zone=time.strftime("%Z"))]


async def _settings(viewer: Viewer, name: str, _seen: Any, facts: dict[str, Any]) -> list[Fragment]:
    context, redact = viewer.context, viewer.context.redact.of(name)
    server = context.config.mcp_servers[name]
    words = [server.written.command or server.written.url or "", *server.written.args]
    # Quoted, a secret would have another spelling.
    runs = redact(" ".join(shlex.quote(each) if redact(each) == each else redact(each) for each in words))
    return [
        part("server-settings", runs=runs, held=server, trust=server.trust or context.config.trust, **facts)
    ]


async def _entry(viewer: Viewer) -> dict[str, object]:
    """The entry as text, for viewers who may change it."""
    if viewer.query.get("tab") != "settings" or not viewer.may_change:
        return {"entry": None}
    text = await in_thread(entry_of, viewer.context.facts, viewer.path["server"])
    about = {"keys": keys_of(text), "choices": CHOICES, "config": viewer.context.facts.config}
    return {"entry": text, "seen": digest(text.encode()), **about}


_OF_TABS = {"tools": _offer, "logs": _logs, "history": _history, "settings": _settings}


SERVER = ConsolePage(
    path="/servers/{server}",
    title="Server",
    template="server.html",
    fragments=_of_server,
    in_navigation=False,
    own=_entry,
)


def _login(viewer: Viewer, name: str) -> dict[str, object] | None:
    """The login in progress; only for viewers who may change things, since its link is enough to log in."""
    run = viewer.context.logins.under_way(name)
    if run is None or run.shown is None or not viewer.may_change:
        return None
    if isinstance(run.shown, LoginPage):
        return {"url": run.shown.url, "code": "", "redirect": run.shown.redirect}
    return {"url": run.shown.complete_url or run.shown.url, "code": run.shown.code, "redirect": ""}


def _instance(context: OperatorContext, seen: Mapping[str, Any]) -> dict[str, Any]:
    actor = context.actors.get(seen["name"])
    used = None if actor is None or actor.use is None else actor.use.at
    return {
        **steady(seen, *_PASSING),
        "memory": _to_mebibyte(seen["rssBytes"]),
        "used_at": None if used is None or used == float("-inf") else _wall_time(context, used),
    }


def _wall_time(context: OperatorContext, at: float) -> int:
    ago = trio.current_time() - at
    return round((context.wall() - ago) / _IDLE_SECONDS) * _IDLE_SECONDS


async def _stderr(context: OperatorContext, name: str) -> list[dict[str, Any]]:
    if not any(server_of(each) == name for each in context.actors):
        return []
    report: Any = await logs(context, LogsParams(server=name, last=LOG_LINES))
    sources = report.get("instances") or ({name: report} if "lines" in report else {})
    return [{"name": source, "lines": page["lines"]} for source, page in sources.items()]
