"""Renders tools, search results, sessions, calls and findings for people; servers' words are escaped."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from daemon.cli.terminal import (
    Screen,
    ago,
    columns_of,
    draw,
    first_sentence,
    listing,
    paragraph,
    safe,
)
from daemon.kit.wording import called, counted, span
from daemon.operators.report_words import (
    CALLS_IN_FLIGHT,
    ENDED_CALLS,
    LOADED_TOOLS,
    SESSIONS,
    ReportColumn,
    advice,
    change_in_words,
    session_name,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

    from daemon.operators import reports


_ALL_OF_SESSIONS = 72
"""Columns from which all of a session's columns fit; rich would drop some silently."""


def render_tools(categories: Mapping[str, reports.CategoryReport], screen: Screen) -> str:
    """Render categories and their tools, each as a heading and a table."""
    parts: list[RenderableType] = []
    for name, category in categories.items():
        parts += [*_category(name, category), listing(_TOOLS, category["tools"].values(), screen, head=False)]
        parts.append(Text(""))
    if not categories:
        parts.append(Text("There are no categories: no server is configured."))
    return draw(parts, screen)


def render_server_tools(answer: reports.ServerToolsReport, screen: Screen) -> str:
    """Render a server's tools, each with its first sentence and availability."""
    from daemon.history.event_words import of_held  # noqa: PLC0415 - not for `mcpd status`

    server, tools = answer["server"], answer["tools"]
    state = f", {answer['state']}" if answer["state"] else ""
    parts: list[RenderableType] = [safe(f"{server}{state}, {counted(len(tools), 'tool')}", "bold")]
    if answer["reason"]:
        parts.append(paragraph(answer["reason"], indent=2, style="yellow"))
    if not answer["known"]:
        parts.append(paragraph(f"It has not listed any yet: `mcpd status {server}` says why.", indent=2))
    rows: list[reports.MemberReport] = [
        {
            **tool,
            "server": server,
            "tool": name,
            "listed": True,
            "held": None,
            "description": first_sentence(tool["description"]),
        }
        for name, tool in tools.items()
    ]
    parts.append(listing(_TOOLS, rows, screen, head=False))
    for name, held in answer.get("held", {}).items():
        why = of_held(held["because"], held["change"])
        parts.append(paragraph(f"{server}/{name} waits for approval: {why}", indent=2, style="yellow"))
    for name, why in answer["quarantined"].items():
        parts.append(paragraph(f"{server}/{name} is not offered: {why}", indent=2, style="yellow"))
    if tools:
        example = shlex.quote(f"{server}/{next(iter(tools))}")
        parts += [Text(""), safe(f"The arguments of one: mcpd tools {example}", "dim")]
    return draw(parts, screen)


def _category(name: str, category: reports.CategoryReport) -> Iterator[RenderableType]:
    servers = ", ".join(category["servers"])
    origin = "" if servers == name else f" (from {servers})"
    yield safe(f"{name}{origin}, {counted(len(category['tools']), 'tool')}", "bold")
    if not any(tool["listed"] or tool.get("held") for tool in category["tools"].values()):
        yield paragraph("none listed yet: `mcpd status` says why", indent=2, style="yellow")
    if category["description"]:
        yield paragraph(category["description"], indent=2)


def _described(tool: reports.MemberReport) -> Text:
    """A tool's mark and description; the mark comes first, because the screen's edge cuts descriptions."""
    mark, described = "", " ".join(tool["description"].split())
    if not tool["enabled"]:
        mark = "disabled"
    elif tool.get("held"):
        mark = "waits for approval"
    elif not tool["listed"]:
        mark = f"not offered by {tool['server']}"
    elif not tool["available"]:
        mark = f"unavailable: {tool['server']} is down"
    return safe(f"[{mark}] {described}" if mark else described, "yellow" if mark else "")


_TOOLS = (
    ReportColumn("", lambda _tool: " ", whole=True),
    ReportColumn("", lambda tool: f"{tool['server']}/{tool['tool']}"),
    ReportColumn("", _described, cut=True),
)


def render_search(answer: reports.SearchReport, screen: Screen) -> str:
    """Render search results as a table, and the number of further matches."""
    parts: list[RenderableType] = [listing(_FOUND, answer["tools"], screen)]
    more = answer["total"] - len(answer["tools"])
    if more > 0:
        parts.append(Text(f"{more} more match: see them with --limit {answer['total']}"))
    return draw(parts, screen)


def _of_category(tool: reports.FoundReport) -> Text:
    category = "" if tool["category"] in {None, tool["server"]} else f"[{tool['category']}] "
    return safe(category, "dim").append_text(safe(tool["description"]))


_FOUND = (
    ReportColumn("score", lambda tool: f"{tool['score']:.1f}", number=True),
    # Never cut, since users type it in again.
    ReportColumn("tool", lambda tool: safe(f"{tool['server']}/{tool.get('tool', tool['name'])}", "bold")),
    ReportColumn("", _of_category, cut=True),
)


def render_sessions(answer: reports.SessionsReport, *, now: float, screen: Screen) -> str:
    """Render all sessions, with ages at the time `now` (epoch seconds)."""
    sessions = answer["sessions"]
    parts: list[RenderableType] = []
    if why := answer.get("incomplete"):
        parts += [safe(why, "yellow"), Text("")]
    parts.append(_all_sessions(sessions, now, screen) if sessions else Text("There are no sessions."))
    if sessions and screen.width < _ALL_OF_SESSIONS:
        parts += [Text(""), paragraph("client, connected, begun: in a wider terminal, or --json", indent=0)]
    if any(session["invalid"] for session in sessions):
        parts += [Text(""), Text("Which tools are invalid, and why: `mcpd sessions KEY`")]
    if answer.get("more"):
        parts += [
            Text(""),
            Text("There are older sessions; `mcpd sessions KEY` shows one of them.", style="dim"),
        ]
    return draw(parts, screen)


def render_session(answer: reports.SessionReport, *, now: float, screen: Screen) -> str:
    """Render one session and its loaded tools."""
    loaded: list[reports.LoadedToolReport] = answer["loaded"]
    parts: list[RenderableType] = [*_heading(answer, now), Text("")]
    parts.append(_loaded_tools(loaded, screen) if loaded else Text("It has not loaded any tools."))
    lost = [tool for tool in loaded if tool["status"] != "valid"]
    for tool in lost:
        parts += [Text(""), *_loss(tool)]
    return draw(parts, screen)


def _all_sessions(sessions: list[reports.SessionReport], now: float, screen: Screen) -> Table:
    columns = columns_of(
        SESSIONS,
        "client connected begun used loaded invalid"
        if screen.width >= _ALL_OF_SESSIONS
        else "used loaded invalid",
        begun=lambda each: ago(now, each["createdAt"]),
        used=lambda each: ago(now, each["seenAt"]),
        invalid=lambda each: "-" if each["invalid"] is None else str(each["invalid"]),
    )
    # Never cut, since users type it in again.
    key = ReportColumn("session", lambda each: safe(_named(each), "" if each["key"] else "dim"), least=8)
    return listing([key, *columns], sessions, screen)


def _named(session: Mapping[str, Any]) -> str:
    return f"#{session['number']}, no key" if session["key"] is None else str(session["key"])


def _heading(session: reports.SessionReport, now: float) -> Iterator[RenderableType]:
    yield safe(f"session {_named(session)}", "bold")
    begun = f"begun {ago(now, session['createdAt'])} ago"
    if session["seenAt"] is not None:
        begun += f", used {ago(now, session['seenAt'])} ago"
    connections = session["connections"]
    if connections:
        state = "connected" if connections == 1 else f"{connections} connections"
    else:
        state = f"nobody is connected; forgotten in {span(session['forgottenInSeconds'] or 0, parts=1)}"
    client = f" by {session['client']}" if session["client"] else ""
    profile = f"; profile {session['profile']}" if session["profile"] else ""
    yield paragraph(f"{begun}{client}; {state}{profile}", indent=2)
    if session["surfaceWhy"]:
        yield paragraph(f"surface {session['surface']}: {session['surfaceWhy']}", indent=2)


def _loaded_tools(loaded: list[reports.LoadedToolReport], screen: Screen) -> Table:
    columns = columns_of(
        LOADED_TOOLS, "tool status loadedBy age", least=8, age=lambda tool: span(tool["age"], parts=1)
    )
    return listing(columns, loaded, screen)


def _loss(tool: reports.LoadedToolReport) -> Iterator[RenderableType]:
    yield safe(f"{tool['server']}/{tool['name']}", "yellow")
    yield paragraph(tool["reason"], indent=2)
    if change := tool.get("changed"):
        yield paragraph(change_in_words(change), indent=2)
    if helps := advice(tool):
        yield paragraph(helps, indent=2)


LEVEL_STYLES = {"ok": "green", "note": "cyan", "warning": "yellow", "fault": "bold red"}


def render_findings(findings: Sequence[Mapping[str, str]], counts: Mapping[str, int], screen: Screen) -> str:
    """Render findings in their order, each with its check, and `counts` of each level."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False)
    table.add_column(no_wrap=True, min_width=7)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for each in findings:
        level = Text(each["level"], style=LEVEL_STYLES[each["level"]])
        table.add_row(level, safe(each["check"], "dim"), safe(each["what"]))
        if each["why"]:
            table.add_row("", "", safe(each["why"], "dim"))
        if each["do"]:
            table.add_row("", "", safe(f"-> {each['do']}"))
    return draw([table, Text(""), Text(_counts(counts))], screen)


def _counts(counts: Mapping[str, int]) -> str:
    levels = [counted(count, level) for level, count in counts.items() if level != "ok"]
    return f"{', '.join(reversed(levels))}."


CALLERS_FROM = 60
"""Columns of a screen from which callers are shown."""


def render_calls(answer: reports.CallsReport, *, errors_only: bool, since: bool, screen: Screen) -> str:
    """Render calls in flight and ended calls, perhaps `since` a time; `errors_only` leaves out the former."""
    waiting, ended = answer["inFlight"], answer["recent"]
    parts: list[RenderableType] = []
    if not errors_only:
        parts += [in_flight(waiting, screen) if waiting else Text("No call is in flight.")]
        if more := answer["inFlightMore"]:
            parts.append(Text(f"and {more} more", style="dim"))
        parts.append(Text(""))
    nothing = "No call has ended with an error" if errors_only else "No call has ended"
    when = "since then" if since else "since the daemon began"
    parts.append(_call_table(_ENDED, ended, screen) if ended else Text(f"{nothing} {when}."))
    return draw(parts, screen)


def _caller(call: reports.CallInFlight | reports.EndedCall) -> str:
    return f"{call['client']} {session_name(call)}".strip()


_IN_FLIGHT = columns_of(
    CALLS_IN_FLIGHT,
    "call age waitsFor tool client",
    whole="waitsFor",
    cut="tool client",
    age=lambda call: span(call["ageSeconds"], parts=1),
    tool=lambda call: called({**call, "server": call["instance"] or call["server"]}),
    client=lambda call: ": ".join(filter(None, (_caller(call), call.get("script")))),
)
_ENDED = columns_of(
    ENDED_CALLS,
    "time took outcome tool why client",
    whole="time outcome",
    cut="tool why client",
    time=lambda call: time.strftime("%H:%M:%S", time.localtime(call["at"])),
    tool=called,
    client=_caller,
)


def in_flight(calls: Iterable[reports.CallInFlight], screen: Screen) -> Table:
    """Render calls in flight: number for `mcpd cancel`, age, what they wait for, and caller."""
    return _call_table(_IN_FLIGHT, calls, screen)


def _call_table(
    columns: Sequence[ReportColumn], calls: Iterable[reports.CallInFlight | reports.EndedCall], screen: Screen
) -> Table:
    return listing(columns if screen.width >= CALLERS_FROM else columns[:-1], calls, screen)
