"""Texts of reports and columns of their tables, for command line and console; standard library only."""

from __future__ import annotations

import shlex
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from daemon.kit.wording import TWO_DIGITS, counted, short_size, span
from daemon.states import COMING, WELL

if TYPE_CHECKING:
    from daemon.operators.reports import ServerReport


ADVICE = {
    "invalid_changed": "It can be called again once it is loaded again, with the new schema.",
    "invalid_deleted": "If it comes back unchanged, it can be called again without a new load.",
    "invalid_disabled": "Switch it on: `mcpd enable {word}`, or in the configuration.",
    "invalid_server_disabled": "Switch it on: `mcpd enable {server}`, or in the configuration.",
    "invalid_renamed": "Load it under its new name: {renamedTo}.",
    "invalid_held": "Approve it: `mcpd approve {word}`.",
}
"""The remedy for an invalid loaded tool, by its status."""

STATUSES = {
    "valid": "can be used",
    "invalid_changed": "changed since it was loaded",
    "invalid_deleted": "its server no longer has it",
    "invalid_disabled": "switched off",
    "invalid_server_disabled": "its server is switched off",
    "invalid_renamed": "has another name now",
    "invalid_held": "waits for approval",
}

SOURCES = {"manual": "the model", "auto": "a call of it", "policy_preload": "the profile"}
"""The words for the cause of a tool's loading."""


AWAITED = {
    "server": "its server",
    "turn": "its turn",
    "answer": "the answer",
    "client": "its client",
    "store": "the store",
}
"""The words for what a call waits for (`call_commands.WaitsFor`)."""


RISKS = (
    "Loading on demand has risks: a model overlooks tools that it does not search for, it needs one more step"
    " before its first call, and some clients' permissions see only the meta-tool, not the tool that it calls."
)
"""The warning for an operator who switches loading on demand on."""

NAMED = 10
"""Most profiles in a log line; `mcpd status --json` shows all."""

_FITTING = {"auto": "the surface that fits each client (auto)"}
"""Surfaces that texts name by a longer phrase."""


def switches(*, lazy: bool, surfaces: Mapping[str, str]) -> str:
    """A line that says whether lazy loading is on, and which surface each profile has."""
    if not lazy:
        return "lazy loading is off: every profile lists all tools"
    shown = {name: _FITTING.get(surface, surface) for name, surface in surfaces.items()}
    named = [f"{name} shows {surface}" for name, surface in list(shown.items())[:NAMED]]
    more = [f"{len(surfaces) - NAMED} more"] if len(surfaces) > NAMED else []
    return f"lazy loading is on; by profile: {', '.join([*named, *more])}"


def session_name(report: Mapping[str, Any]) -> str:
    """A session's name in reports: its key, or its connection's number as `#4`."""
    number = report.get("number") if "session" not in report else report["session"]
    return str(report["key"] or ("" if number is None else f"#{number}"))


def outcome_of(call: Mapping[str, Any]) -> str:
    """The outcome of an ended call, with the rule that refused it."""
    return f"{call['outcome']} ({call['rule']})" if call.get("rule") else str(call["outcome"])


def change_in_words(change: Mapping[str, Any], tool: str = "It") -> str:
    """A sentence on the last change of a tool, with its time."""
    return f"{tool} was {change['what']} at {local_time(change['at'])}."


def local_time(at: float) -> str:
    """A time in seconds since the epoch, as a local date and time."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def advice(tool: Mapping[str, Any]) -> str:
    """The remedy for a loaded tool that is not valid, from its row of `mcpd sessions KEY`."""
    word = shlex.quote(f"{tool['server']}/{tool['name']}")
    return ADVICE.get(tool["status"], "").format_map({"renamedTo": "unknown", "word": word, **tool})


def is_coming(server: ServerReport) -> bool:
    """Whether the server is starting without an earlier failure: then no reason is shown."""
    return server["state"] in COMING and not server["cause"]


def remark_lines(server: ServerReport) -> Iterator[tuple[str, str]]:
    """The lines below a server's row, each with its severity."""
    if server["state"] not in WELL and not is_coming(server):
        yield server["reason"] or "no reason is known", ""
        if server["happened"]:
            yield server["happened"], ""
            yield f"What helps: {server['helps']}", "helps"
        if outlook := _outlook(server):
            yield outlook, ""
        for line in server["stderr"]:
            yield f"stderr| {line.expandtabs()}", "quiet"
    yield from oddities(server)


_OTHERS = ("prompt:", "skill:", "template:")  # held words of kinds other than tools begin so


def oddities(server: ServerReport) -> Iterator[tuple[str, str]]:
    """Unusual facts about a server in any state, each line with its severity."""
    if server["state"] == "ready" and server["tools"] == 0 and server["others"] and not server.get("held"):
        yield f"it has no tools, only {' and '.join(server['others'])}", "quiet"
    yield from _unlisted(server)
    if server.get("listingError"):
        yield f"its tools could not be listed: {server['listingError']}", "warning"
    if held := server.get("held"):
        kinds = Counter(word.split(":")[0] if word.startswith(_OTHERS) else "tool" for word in held)
        what = " and ".join(counted(number, kind) for kind, number in kinds.items())
        unread = any(each["because"] == "unknown" for each in held.values())
        yield f"waits for {'the store' if unread else 'approval (`mcpd approve`)'}: {what}", "warning"
    yield from _wanted(server)
    for tool, reason in (server.get("quarantined") or {}).items():
        yield f"tool {tool} is not offered: {reason}", "warning"
    if completed := server.get("completed"):
        lacking = f"{len(completed)} of its tools lack" if len(completed) > 1 else f"tool {completed[0]} lacks"
        yield f'{lacking} the "type": "object" that MCP requires in an inputSchema: mcpd adds it', "quiet"
    for tool, found in (server.get("hidden") or {}).items():
        yield f"tool {tool} has {found}: spelt out for models", "warning"
    yield from _faults(server)
    if server.get("differs"):
        yield "its lists differ from those of other instances: its calls use its own lists", "warning"
    noise = server["noise"]
    if noise["count"]:
        lines = counted(noise["count"], "line")
        yield f"its stdout had {lines} besides MCP; the first: {noise['first']}", "warning"
    if server["oneClientAtATime"]:
        yield "it serves one client at a time: mcpd cannot tell which client its questions are for", "quiet"


def _unlisted(server: ServerReport) -> Iterator[tuple[str, str]]:
    """Why no instance of a divided server has listed its tools yet, and what helps."""
    if server["state"] == "dormant" and server.get("share", "all") != "all" and server.get("cause"):
        yield f"no instance came up to list its tools: {server['happened'] or server['reason']}", "warning"
        yield f"What helps: {server['helps']}", "helps"


WANTED = 3
"""Most refused hosts named for one server, each with the command that allows it."""


def _wanted(server: ServerReport) -> Iterator[tuple[str, str]]:
    """The hosts that a server's sandbox refused and could allow, each line with its severity."""
    if sandbox := server.get("sandbox"):
        wanted = [each for each in sandbox["refused"] if each["allow"]]
        for each in wanted[:WANTED]:
            yield f"wanted {each['host']}: {each['allow']}", "warning"
        if len(wanted) > WANTED:
            yield f"and {len(wanted) - WANTED} more (`{sandbox['show']}`)", "warning"


def _outlook(server: ServerReport) -> str:
    if server["state"] in COMING:
        return f"failed runs before this one: {server['attempt']}"
    due = server["nextRetryInMs"]
    if server["state"] == "degraded":
        # It runs; what is retried is listing its tools, if that is what failed.
        times = "once" if server["attempt"] == 1 else f"{server['attempt']} times"
        again = "" if due is None else span(due / 1000, parts=1)
        return f"asked for its tools {times} so far, again in {again}" if again else ""
    retry = "no retry is scheduled" if due is None else f"next retry in {span(due / 1000, parts=1)}"
    return f"attempt {server['attempt']}, {retry}"


MAX_NAMED = 10
"""Most faulty prompts or URIs named for one server; `mcpd status --json` shows all."""


def _faults(server: ServerReport) -> Iterator[tuple[str, str]]:
    """A suspended sandbox, and problems of lists of prompts and resources; each line with its severity."""
    if server.get("learning"):
        yield "mcpd is learning the server's needs: meanwhile, it runs unconfined and watched", "warning"
    for kind, known in (server.get("lists") or {}).items():
        if known["listingError"]:
            yield f"its {kind} could not be listed: {known['listingError']}", "warning"
        yield from _names_of(kind, "is not offered: {}", "are not offered", known["quarantined"])
        yield from _names_of(kind, "has {}: spelt out for models", "have hidden characters", known["hidden"])


def _names_of(kind: str, one: str, more: str, found: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name, why in list(found.items())[:MAX_NAMED]:
        yield f"{kind[:-1]} {name} {one.format(why)}", "warning"
    if len(found) > MAX_NAMED:
        yield f"{len(found) - MAX_NAMED} more of its {kind} {more}: `mcpd status --json` has them", "warning"


# --- columns ----------------------------------------------------------------------------------------------

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
