"""`mcpd status SERVER` as text for people: one server, or one instance, with all that helps to judge it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from rich.text import Text

from daemon.cli.status_servers import STYLES, remark_lines, table
from daemon.cli.terminal import draw, grid, milliseconds, paragraph, safe
from daemon.cli.views import in_flight
from daemon.kit.wording import bytes_in_words, counted, span
from daemon.safety.escape import visible
from daemon.states import WELL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType
    from rich.table import Table

    from daemon.cli.terminal import Screen

Json = dict[str, Any]

_DAY = 86_400
"""Seconds after which the time of an event needs its day, too."""


def render_one(answer: Json, *, now: float, screen: Screen) -> str:
    """An answer to `status` with a server as text.

    Args:
        answer: of the control method `status`, asked for one server.
        now: seconds since the epoch, for ages.
        screen: where it is shown.
    """
    return draw(parts_of_one(answer, now, screen), screen)


def parts_of_one(answer: Json, now: float, screen: Screen) -> list[RenderableType]:
    """The same as parts to be drawn one below another."""
    server: Json = answer["server"]
    parts: list[RenderableType] = [*_heading(answer["name"], server, now)]
    parts += [paragraph(text, indent=2, style=style) for text, style in remark_lines(server)]
    if instances := server.get("instances"):
        parts += [Text(""), table({each["name"]: each for each in instances}, now, screen)]
        for each in instances:
            if each["state"] not in WELL:
                parts += [Text(""), safe(f"{each['name']}: {each['state']}", STYLES.get(each["state"], ""))]
                parts += [paragraph(text, indent=2, style=style) for text, style in remark_lines(each)]
    return [*parts, *_calls(answer, screen), *_errors(answer, now, screen), *_events(answer, now, screen)]


def _heading(name: str, server: Json, now: float) -> Iterator[RenderableType]:
    title = f" ({server['title']})" if server.get("title") and server["title"] != name else ""
    state = server["state"]
    yield safe(f"{name}{title}: {state} for {span(now - server['since'])}", STYLES.get(state, "bold"))
    for facts in (_program(server), _numbers(server), _pings(server, now)):
        if facts:
            yield paragraph(", ".join(facts), indent=2)


def _program(server: Json) -> list[str]:
    """What it is, and what runs of it."""
    restarts = server["restarts"]
    return [
        *filter(None, (server.get("type"), server.get("serverInfo"))),
        *([f"MCP {server['protocol']}"] if server.get("protocol") else []),
        *_processes(server),
        *([bytes_in_words(server["rssBytes"])] if server["rssBytes"] is not None else []),
        counted(server["tools"], "tool"),
        *([f"started again {counted(restarts, 'time')}"] if restarts else []),
    ]


def _processes(server: Json) -> list[str]:
    """Its pid; with that of its second process, where clients of both eras call it."""
    if server["pid"] is None:
        return []
    pids = server.get("pids") or [server["pid"]]
    return [f"{'pids' if len(pids) > 1 else 'pid'} {' and '.join(map(str, pids))}"]


def _numbers(server: Json) -> list[str]:
    """Its calls: now, lately and in all."""
    recent: Json = server.get("recent") or {}
    told = [f"{counted(server['inFlight'], 'call')} in flight"]
    if recent:
        latency = ""
        if recent["p50Ms"] is not None:
            latency = f", p50 {milliseconds(recent['p50Ms'])} ms, p95 {milliseconds(recent['p95Ms'])} ms"
        errors = f", {counted(recent['errors'], 'error')}" if recent["errors"] else ""
        told.append(f"{recent['calls']:,} in the last {recent['minutes']} minutes{errors}{latency}")
    return [*told, f"{server['calls']:,} since it was configured, {server.get('errors', 0):,} of them errors"]


def _pings(server: Json, now: float) -> list[str]:
    pings: Json = server.get("pings") or {}
    if not pings:
        return []
    told = [f"last heard {span(now - pings['lastHeardAt'], parts=1)} ago"]
    if pings["lastMs"] is not None:
        told.append(f"its last answer to a ping took {milliseconds(pings['lastMs'])} ms")
    if pings["unanswered"]:
        told.append(f"{counted(pings['unanswered'], 'ping')} without an answer since")
    return told


def _calls(answer: Json, screen: Screen) -> Iterator[RenderableType]:
    calls: list[Json] = answer.get("calls") or []
    if not calls:
        return
    yield Text("")
    yield Text("Calls in flight", style="bold")
    yield in_flight(calls, screen)
    if more := answer.get("moreCalls"):
        yield Text(f"and {more} more: `mcpd calls {visible(answer['name'])}`")


def _errors(answer: Json, now: float, screen: Screen) -> Iterator[RenderableType]:
    errors: list[Json] = answer.get("lastErrors") or []
    if not errors:
        return
    drawn = _table(screen, "ago", "tool", "error")
    for each in errors:
        drawn.add_row(
            span(now - each["at"], parts=1), safe(each["tool"] or "-"), safe(f"{each['code']}: {each['text']}")
        )
    yield Text("")
    yield Text("Last errors of its calls", style="bold")
    yield drawn


def _events(answer: Json, now: float, screen: Screen) -> Iterator[RenderableType]:
    events: list[Json] = answer.get("events") or []
    if not events:
        return
    drawn = _table(screen, "when", "what")
    for each in events:
        far = "%Y-%m-%d " if now - each["at"] >= _DAY else ""
        when = time.strftime(f"{far}%H:%M:%S", time.localtime(each["at"]))
        whom = f"{each['instance']}: " if each["instance"] not in {"", answer["name"]} else ""
        drawn.add_row(when, safe(f"{whom}{each['text']}"))
    yield Text("")
    yield safe(f"Last events (`mcpd events {answer['name']}` has more)", "bold")
    yield drawn


def _table(screen: Screen, first: str, *others: str) -> Table:
    drawn = grid(screen)
    drawn.add_column(first, justify="right", no_wrap=True)
    for heading in others:
        drawn.add_column(heading, overflow="fold")
    return drawn
