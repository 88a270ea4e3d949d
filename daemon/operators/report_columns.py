"""Columns of the tables that command line, watch screen and console draw; imports the standard library only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from daemon.kit.wording import TWO_DIGITS, short_size, span
from daemon.operators.report_words import AWAITED, SOURCES, STATUSES, outcome_of, session_name

Cell = Callable[[Mapping[str, Any]], str]

MINUTES = 5
"""Minutes that a server's `recent` calls cover."""


class ReportColumn(NamedTuple):
    """A column of a table of reports; its text may come from servers or clients."""

    heading: str
    words: Callable[[Any], Any]  # makes a text, or where only the command line draws it a text of rich
    number: bool = False
    severity: Cell = lambda _report: ""
    """`good`, `warning`, `fault`, `helps`, `quiet`, or empty."""
    short: str = ""  # the heading on a narrow screen, if it differs
    worth: int = 0
    """The column's importance: on a narrow screen, the least important columns are dropped first."""
    if_any: bool = False  # dropped if all its cells are empty, or if there is little room
    whole: bool = False  # never wrapped, as numbers are
    least: int | None = None  # the least width: words cut into many lines are hard to read
    cut: bool = False  # cells have one line, cut at the screen's edge


SURFACES = {
    "auto": "the surface that fits the client",
    "category": "a tool for each category of tools, called through one tool",
    "browse": "tools to list categories, to describe tools and to call them",
    "search": "a tool that finds tools, and one that calls them",
    "load": "tools to load servers' tools, which are then listed",
    "full": "every tool, with its whole description",
    "code": "a tool that finds tools, one that describes them, and one that runs scripts calling them",
}
"""The tools that each surface lists."""


def chosen(columns: Mapping[str, ReportColumn], names: str) -> dict[str, ReportColumn]:
    """Some columns of a table, in the order of `names`."""
    return {name: columns[name] for name in names.split()}


def milliseconds(value: float | None) -> str:
    """Milliseconds as `0.4` or `12`, or `-`."""
    if value is None:
        return "-"
    return f"{value:.1f}" if round(value, 1) < TWO_DIGITS else f"{value:.0f}"


def _text(heading: str, member: str, **more: Any) -> ReportColumn:
    return ReportColumn(heading, lambda report: str(report.get(member) or "-"), **more)


def _number(heading: str, member: str, *, zero: str = "0", severity: str = "", **more: Any) -> ReportColumn:
    """A column of counts; `severity` applies unless the count is 0."""
    *path, last = member.split(".")

    def value(report: Mapping[str, Any]) -> Any:
        for name in path:
            report = report[name]
        return report.get(last)

    def words(report: Mapping[str, Any]) -> str:
        count = value(report)
        return "" if count is None else str(count) if count else zero

    return ReportColumn(heading, words, True, lambda report: severity if value(report) else "", **more)


def _latency(server: Mapping[str, Any]) -> str:
    recent = server["recent"]
    if recent["p50Ms"] is None:
        return "-"
    return f"{milliseconds(recent['p50Ms'])}/{milliseconds(recent['p95Ms'])}"


def _idle(server: Mapping[str, Any]) -> str:
    idle = server.get("idleMs")
    return "" if idle is None else span(idle / 1000, parts=1)


def _outcome(call: Mapping[str, Any]) -> str:
    return "good" if call["outcome"] == "ok" else "fault"


def _validity(tool: Mapping[str, Any]) -> str:
    return "good" if tool["status"] == "valid" else "warning"


_CLIENT = ReportColumn("client", lambda report: report["client"] or "unnamed")
_SESSION = ReportColumn("session", session_name)
_CALLER = {
    "tool": _text("tool", "tool"),
    "server": _text("server", "server"),
    "client": _CLIENT,
    "session": _SESSION,
}

CALLS_IN_FLIGHT = {
    "call": ReportColumn("call", lambda call: str(call["id"]), number=True),
    **_CALLER,
    "age": _text("age", "since", number=True),
    "waitsFor": ReportColumn("waits for", lambda call: AWAITED[call["waitsFor"]]),
}
ENDED_CALLS = {
    **_CALLER,
    "time": _text("time", "at"),
    "took": ReportColumn("took", lambda call: f"{milliseconds(call['ms'])} ms", number=True),
    "outcome": ReportColumn("outcome", outcome_of, severity=_outcome),
    "why": _text("why", "text"),
}
CONNECTIONS = {
    "session": _SESSION,
    "client": _CLIENT,
    "protocol": _text("protocol", "protocol"),
    "profile": _text("profile", "profile"),
    "surface": _text("surface", "surface"),
    "token": _text("token", "token"),
    "key": _text("key", "key"),
    "worksIn": _text("works in", "workspace"),
    "since": _text("since", "since", number=True),
    "calls": _number("calls", "calls"),
    "inFlight": _number("in flight", "inFlight"),
    "loaded": _number("loaded", "loadedTools"),
    "repaired": _number("repaired", "repairedCalls"),
    "saved": ReportColumn("saved", lambda session: _saved(session["estimatedTokensNotSent"]), number=True),
}
SESSIONS = {
    "session": _SESSION,
    "client": _CLIENT,
    "connected": _number("connected", "connections", zero="-"),
    "begun": _text("begun", "createdAt", number=True),
    "used": _text("used", "seenAt", number=True),
    "loaded": _number("loaded", "loaded"),
    "invalid": _number("invalid", "invalid", severity="warning"),
}
LOADED_TOOLS = {
    "tool": ReportColumn("tool", lambda tool: f"{tool['server']}/{tool['name']}"),
    "status": ReportColumn("status", lambda tool: STATUSES[tool["status"]], severity=_validity),
    "why": _text("why", "reason"),
    "loadedBy": ReportColumn("loaded by", lambda tool: SOURCES[tool["source"]]),
    "age": _text("age", "loadedAt", number=True),
}
SERVERS = {
    "server": _text("server", "name"),
    "state": _text("state", "state", worth=99),
    "since": _text("since", "since", number=True, short="for", worth=12),
    "tools": _number("tools", "tools", worth=7),
    "prompts": _number("prompts", "prompts", worth=4, if_any=True),
    "resources": _number("resources", "resources", worth=5, if_any=True),
    "templates": _number("templates", "templates", worth=6, if_any=True),
    "skills": _number("skills", "skills", worth=6, if_any=True),
    "inFlight": _number("in flight", "inFlight", zero="-", short="open", worth=11),
    "calls": _number(f"calls {MINUTES}m", "recent.calls", short="calls", worth=10),
    "errors": _number(f"errors {MINUTES}m", "recent.errors", zero="-", severity="fault", short="err", worth=9),
    "latency": ReportColumn("p50/p95 ms", _latency, number=True, short="p50/p95", worth=8),
    "restarts": _number("restarts", "restarts", zero="-", worth=2),
    "memory": ReportColumn("memory", lambda server: short_size(server["rssBytes"]), worth=3),
    "pid": _text("pid", "pid"),
    "idle": ReportColumn("idle", _idle, worth=1, if_any=True),
}


def _saved(tokens: int | None) -> str:
    return "n/a" if tokens is None else f"{tokens:,}"
