"""Texts of reports for command line, watch screen and console, with severities; standard library only."""

from __future__ import annotations

import shlex
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from daemon.kit.wording import counted, span
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

_FITTING = {"auto": "what fits each client (auto)"}
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
    """Whether the server is starting without a failure, so that no reason has to be shown."""
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


_OTHERS = ("prompt:", "template:")  # words for what waits besides tools begin so (`catalog.kinds.switch_of`)


def oddities(server: ServerReport) -> Iterator[tuple[str, str]]:
    """Unusual facts about a server in any state, each line with its severity."""
    if server["state"] == "ready" and server["tools"] == 0 and server["others"] and not server.get("held"):
        yield f"it has no tools, only {' and '.join(server['others'])}", "quiet"
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
        yield f'{lacking} "type": "object" in the inputSchema, which MCP requires: added for clients', "quiet"
    for tool, found in (server.get("hidden") or {}).items():
        yield f"tool {tool} has {found}: spelt out for models", "warning"
    yield from _faults(server)
    if server.get("differs"):
        yield "its lists differ from those of the other instances, and decide about calls to it", "warning"
    noise = server["noise"]
    if noise["count"]:
        yield f"{noise['count']} lines on its stdout were not MCP; the first: {noise['first']}", "warning"
    if server["oneClientAtATime"]:
        yield "it serves one client at a time: mcpd cannot tell which client its questions are for", "quiet"


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
        yield "mcpd is learning its sandbox: until the lesson ends, it runs unconfined and watched", "warning"
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
