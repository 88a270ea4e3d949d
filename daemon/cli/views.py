"""Tools, search results, sessions, calls and findings as text for people; servers' words are escaped."""

from __future__ import annotations

import time
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from daemon.cli.terminal import (
    Column,
    Screen,
    ago,
    draw,
    first_sentence,
    grid,
    listing,
    milliseconds,
    numbers,
    paragraph,
    safe,
)
from daemon.kit.wording import called, counted, span
from daemon.operators.report_words import AWAITED, SOURCES, STATUSES, advice, change_in_words, session_name
from daemon.safety.escape import visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from rich.console import RenderableType

    from daemon.operators.reports import CallInFlight, CallsReport, EndedCall, LoadedToolReport


Json = dict[str, Any]

_TOOLS_MARGIN = 6
"""Most columns that the indent and the gaps of a table of tools take."""

_SEARCH_MARGIN = 20
"""Most columns that the score and the gaps of a table of search results take."""


_ALL_OF_SESSIONS = 72
"""Columns of a screen from which all of a session is shown; rich would drop columns without a word."""


def render_tools(categories: Json, screen: Screen) -> str:
    """Categories with their tools as text, with a heading and a table for each."""
    parts: list[RenderableType] = []
    for name, category in categories.items():
        parts += [*_category(name, category), _tools_of(category["tools"], screen), Text("")]
    if not categories:
        parts.append(Text("There are no categories: no server is configured."))
    return draw(parts, screen)


def render_server_tools(answer: Json, screen: Screen) -> str:
    """The tools of a server as text: each with its first sentence, and whether it can be called now.

    Args:
        answer: of the control method `tools`, asked for a server.
        screen: where it is shown.
    """
    server, tools = answer["server"], answer["tools"]
    state = f", {answer['state']}" if answer["state"] else ""
    parts: list[RenderableType] = [safe(f"{server}{state}, {counted(len(tools), 'tool')}", "bold")]
    if answer["reason"]:
        parts.append(paragraph(answer["reason"], indent=2, style="yellow"))
    if not answer["known"]:
        parts.append(paragraph(f"It has not listed any yet: `mcpd status {server}` says why.", indent=2))
    rows = {
        name: {**tool, "server": server, "listed": True, "description": first_sentence(tool["description"])}
        for name, tool in tools.items()
    }
    parts.append(_tools_of(rows, screen))
    for name, why in answer["quarantined"].items():
        parts.append(paragraph(f"{server}/{name} is not offered: {why}", indent=2, style="yellow"))
    if tools:
        example = next(iter(tools))
        parts += [Text(""), safe(f"What one takes: mcpd tools {server}/{example}", "dim")]
    return draw(parts, screen)


def _category(name: str, category: Json) -> Iterator[RenderableType]:
    servers = ", ".join(category["servers"])
    origin = "" if servers == name else f" (from {servers})"
    yield safe(f"{name}{origin}, {counted(len(category['tools']), 'tool')}", "bold")
    if not any(tool["listed"] for tool in category["tools"].values()):
        yield paragraph("none listed yet: `mcpd status` says how its server is", indent=2, style="yellow")
    if category["description"]:
        yield paragraph(category["description"], indent=2)


def _tools_of(tools: Json, screen: Screen) -> Table:
    table = grid(screen, head=False)
    named = [f"{tool['server']}/{tool.get('tool', name)}" for name, tool in tools.items()]
    names = min(max(map(cell_len, map(visible, named)), default=0), screen.width // 2)
    table.add_column(width=1)
    # Names are never cut, descriptions are: unless each is given its width, rich takes it from the names.
    table.add_column(overflow="fold", width=names)
    table.add_column(no_wrap=True, overflow="ellipsis", max_width=screen.width - names - _TOOLS_MARGIN)
    for name, tool in zip(named, tools.values(), strict=True):
        mark = _mark(tool)
        described = " ".join(tool["description"].split())
        # The mark comes first: a description is cut where the screen ends.
        words = safe(f"[{mark}] {described}" if mark else described, "yellow" if mark else "")
        table.add_row("", safe(name), words)
    return table


def _mark(tool: Json) -> str:
    """Why a tool cannot be called now; empty if it can."""
    if not tool["enabled"]:
        return "disabled"
    if not tool["listed"]:
        return f"not offered by {tool['server']}"
    return "" if tool["available"] else f"unavailable: {tool['server']} is down"


def render_search(answer: Json, screen: Screen) -> str:
    """Search results as text: a table of tools, and how many more fit."""
    tools: list[Json] = answer["tools"]
    table = grid(screen)
    named = [f"{tool['server']}/{tool.get('tool', tool['name'])}" for tool in tools]
    names = max(min(max(cell_len(visible(name)) for name in named), screen.width // 2), len("tool"))
    table.add_column("score", justify="right", no_wrap=True)
    # Never cut: it is typed in again.
    table.add_column("tool", overflow="fold", width=names)
    table.add_column("", no_wrap=True, overflow="ellipsis", max_width=screen.width - names - _SEARCH_MARGIN)
    for name, tool in zip(named, tools, strict=True):
        words = safe(_category_of(tool), "dim").append_text(safe(tool["description"]))
        table.add_row(f"{tool['score']:.1f}", safe(name, "bold"), words)
    parts: list[RenderableType] = [table]
    more = answer["total"] - len(tools)
    if more > 0:
        parts.append(Text(f"{more} more fit: see them with --limit {answer['total']}"))
    return draw(parts, screen)


def _category_of(tool: Json) -> str:
    """The category, if that has another name than the server."""
    category = tool["category"]
    return "" if category in {None, tool["server"]} else f"[{category}] "


def render_sessions(answer: Json, *, now: float, screen: Screen) -> str:
    """All sessions as text.

    Args:
        answer: of the control method `sessions`, without a key.
        now: seconds since the epoch, for ages.
        screen: where it is shown.
    """
    sessions: list[Json] = answer["sessions"]
    parts: list[RenderableType] = []
    if answer.get("incomplete"):
        parts += [safe(answer["incomplete"], "yellow"), Text("")]
    parts.append(_all_sessions(sessions, now, screen) if sessions else Text("There are no sessions."))
    if sessions and screen.width < _ALL_OF_SESSIONS:
        parts += [Text(""), paragraph("client, connected, begun: in a wider terminal, or --json", indent=0)]
    if any(session["invalid"] for session in sessions):
        parts += [Text(""), Text("Which tools are invalid, and why: `mcpd sessions KEY`")]
    if answer.get("more"):
        parts += [Text(""), Text("There are older ones; `mcpd sessions KEY` shows any.", style="dim")]
    return draw(parts, screen)


def render_session(answer: Json, *, now: float, screen: Screen) -> str:
    """One session and its tools as text; arguments as for `render_sessions`, with the answer for a key."""
    loaded: list[LoadedToolReport] = answer["loaded"]
    parts: list[RenderableType] = [*_heading(answer, now), Text("")]
    parts.append(_loaded_tools(loaded, screen) if loaded else Text("It has not loaded any tools."))
    lost = [tool for tool in loaded if tool["status"] != "valid"]
    for tool in lost:
        parts += [Text(""), *_loss(tool)]
    return draw(parts, screen)


def render_moved(answer: Json, *, screen: Screen) -> str:
    """The outcome of giving a session another profile, as text.

    Args:
        answer: of the control method `move`.
        screen: where it is shown.
    """
    count = answer["moved"]
    who = "nobody is connected; who comes next has" if not count else "its connection has"
    if count > 1:
        who = f"its {count} connections have"
    return draw([safe(f"session {_named(answer)}: {who} profile {answer['profile']} now")], screen)


def _all_sessions(sessions: list[Json], now: float, screen: Screen) -> Table:
    about = (
        Column("client", lambda each: each["client"] or "-"),
        numbers("connected", lambda each: each["connections"] or "-"),
        numbers("begun", lambda each: ago(now, each["createdAt"])),
    )
    columns = (
        # A key is never cut: it could not be typed in again.
        Column("session", lambda each: safe(_named(each), "" if each["key"] else "dim"), least=8),
        *(about if screen.width >= _ALL_OF_SESSIONS else ()),
        numbers("used", lambda each: ago(now, each["seenAt"])),
        numbers("loaded", lambda each: each["loaded"]),
        numbers("invalid", lambda each: _invalid(each["invalid"])),
    )
    return listing(columns, sessions, screen)


def _named(session: Json) -> str:
    return f"#{session['number']}, no key" if session["key"] is None else str(session["key"])


def _invalid(count: int | None) -> Text:
    return Text("-" if count is None else str(count), style="yellow" if count else "")


def _heading(session: Json, now: float) -> Iterator[RenderableType]:
    yield safe(f"session {_named(session)}", "bold")
    begun = f"begun {ago(now, session['createdAt'])} ago"
    if session["seenAt"] is not None:
        begun += f", used {ago(now, session['seenAt'])} ago"
    connections = session["connections"]
    if connections:
        state = "connected" if connections == 1 else f"{connections} connections"
    else:
        state = f"nobody is connected; forgotten in {span(session['forgottenInSeconds'], parts=1)}"
    client = f" by {session['client']}" if session["client"] else ""
    profile = f"; profile {session['profile']}" if session["profile"] else ""
    yield paragraph(f"{begun}{client}; {state}{profile}", indent=2)
    if session["surfaceWhy"]:
        yield paragraph(f"surface {session['surface']}: {session['surfaceWhy']}", indent=2)


def _loaded_tools(loaded: list[LoadedToolReport], screen: Screen) -> Table:
    columns = (
        Column("tool", lambda tool: f"{tool['server']}/{tool['name']}", least=8),
        Column(
            "status",
            lambda tool: safe(STATUSES[tool["status"]], "green" if tool["status"] == "valid" else "yellow"),
        ),
        Column("loaded by", lambda tool: SOURCES[tool["source"]]),
        numbers("age", lambda tool: span(tool["age"], parts=1)),
    )
    return listing(columns, loaded, screen)


def _loss(tool: LoadedToolReport) -> Iterator[RenderableType]:
    """Why a loaded tool is no longer listed."""
    yield safe(f"{tool['server']}/{tool['name']}", "yellow")
    yield paragraph(tool["reason"], indent=2)
    if change := tool.get("changed"):
        yield paragraph(change_in_words(change), indent=2)
    if helps := advice(tool):
        yield paragraph(helps, indent=2)


LEVEL_STYLES = {"ok": "green", "note": "cyan", "warning": "yellow", "fault": "bold red"}
"""Colour by level; the level's name is shown as well."""


def render_findings(told: Sequence[Mapping[str, str]], counts: Mapping[str, int], screen: Screen) -> str:
    """All findings as text, grouped by check, each followed by its reason and what to do.

    Args:
        told: each with its `check`, `level`, `what`, `why` and `do`; those of one check are adjacent.
        counts: how many there are of each level.
        screen: where it is shown.
    """
    parts: list[RenderableType] = []
    for title, findings in groupby(told, itemgetter("check")):
        parts += [Text(title, style="bold"), _findings(findings), Text("")]
    return draw([*parts, Text(_counts(counts))], screen)


def _findings(findings: Iterable[Mapping[str, str]]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False)
    table.add_column(width=2, no_wrap=True)
    table.add_column(no_wrap=True, min_width=7)
    table.add_column(overflow="fold")
    for each in findings:
        table.add_row("", Text(each["level"], style=LEVEL_STYLES[each["level"]]), safe(each["what"]))
        if each["why"]:
            table.add_row("", "", safe(each["why"], "dim"))
        if each["do"]:
            table.add_row("", "", safe(f"-> {each['do']}"))
    return table


def _counts(counts: Mapping[str, int]) -> str:
    told = [counted(count, level) for level, count in counts.items() if level != "ok"]
    return f"{', '.join(reversed(told))}."


LEAST = 10
"""Columns that are left of a name at least."""

GAP = 2
"""Columns between two columns, at most (`cli.terminal.grid`)."""


def render_calls(answer: CallsReport, *, errors_only: bool, screen: Screen) -> str:
    """Calls in flight, and those that have ended, as text.

    Args:
        answer: of the control method `calls`.
        errors_only: whether only errors were asked for.
        screen: where it is shown.
    """
    waiting, ended = answer["inFlight"], answer["recent"]
    parts: list[RenderableType] = []
    if not errors_only:
        parts += [in_flight(waiting, screen) if waiting else Text("No call is in flight.")]
        if more := answer["inFlightMore"]:
            parts.append(Text(f"and {more} more", style="dim"))
        parts.append(Text(""))
    nothing = "No call has ended with an error" if errors_only else "No call has ended"
    parts.append(_call_table(_ENDED, ended, screen) if ended else Text(f"{nothing} since the daemon began."))
    return draw(parts, screen)


def _caller(call: CallInFlight | EndedCall) -> str:
    """Who has called: the client, and its session."""
    return f"{call['client']} {session_name(call)}".strip()


_IN_FLIGHT = (
    numbers("CALL", lambda call: call["id"]),
    numbers("AGE", lambda call: span(call["ageSeconds"], parts=1)),
    Column("WAITS FOR", lambda call: AWAITED[call["waitsFor"]]),
    Column("TOOL", lambda call: called({**call, "server": call["instance"] or call["server"]})),
    Column("CLIENT", _caller),
)

_ENDED = (
    Column("TIME", lambda call: time.strftime("%H:%M:%S", time.localtime(call["at"]))),
    numbers("MS", lambda call: milliseconds(call["ms"])),
    Column("OUTCOME", lambda call: safe(call["outcome"], "" if call["outcome"] == "ok" else "red")),
    Column("TOOL", called),
    Column("CLIENT", _caller),
)


def in_flight(calls: list[CallInFlight], screen: Screen) -> Table:
    """Calls without an answer: the number that `mcpd cancel` takes, what each waits for, and whose it is."""
    return _call_table(_IN_FLIGHT, calls, screen)


def _call_table(
    columns: tuple[Column, ...], calls: Sequence[CallInFlight | EndedCall], screen: Screen
) -> Table:
    """A table whose last two columns get what room the others leave, and are cut to it.

    Columns before them are never cut: a number is typed in again, and an outcome is searched for. Where
    there is no room for both, the last one is left out.
    """
    rows = [[_cell(each.cell(call)) for each in columns] for call in calls]
    taken = sum(
        max(len(each.heading), *(row[place].cell_len for row in rows))
        for place, each in enumerate(columns[:-2])
    )
    room = screen.width - taken - GAP * len(columns)
    caller = max(LEAST, min(room // 3, max(row[-1].cell_len for row in rows)))
    widths = [room - caller, caller]
    if room < 2 * LEAST:
        columns, rows, widths = columns[:-1], [row[:-1] for row in rows], [max(LEAST, room)]
    table, fixed = grid(screen), len(columns) - len(widths)
    for each in columns:
        table.add_column(each.heading, justify="right" if each.right else "left", no_wrap=True)
    for row in rows:
        for cell, width in zip(row[fixed:], widths, strict=True):
            cell.truncate(width, overflow="ellipsis")
        table.add_row(*row)
    return table


def _cell(shown: object) -> Text:
    return shown if isinstance(shown, Text) else safe(shown)
