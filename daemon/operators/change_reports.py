"""Outcomes of operators' commands that change something: as JSON, and as lines that the caller must escape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NotRequired, TypedDict

from daemon.kit.wording import called, span
from daemon.operators.reports import CallInFlight, StateReport


class SwitchReport(StateReport):
    """The outcome of `mcpd enable` and `mcpd disable`."""

    server: str
    tool: str | None
    off: bool
    already: bool
    note: str


class RestartReport(StateReport):
    """The outcome of a restart; `instances` only for a divided server."""

    server: str
    instances: NotRequired[dict[str, StateReport]]


class RefreshedReport(TypedDict):
    """The changes of one server's lists; only `problem` if it could not list."""

    problem: str
    epoch: int
    tools: int
    came: list[str]
    went: list[str]
    changed: list[str]
    renamed: list[tuple[str, str]]
    lists: dict[str, dict[str, list[str]]]


class RefreshReport(TypedDict):
    """The outcome of `mcpd refresh`."""

    servers: dict[str, RefreshedReport]


class ReloadReport(TypedDict):
    """The outcome of `mcpd reload`: the states of started servers, and the plan (`config.parse.Plan`)."""

    # `_DONE` names the plan's other members.
    kept: list[str]
    needsRestartOfDaemon: list[str]
    faults: list[str]
    states: dict[str, StateReport]


class LogoutReport(StateReport):
    """The outcome of `mcpd logout`; `problem` says why the login could not be revoked."""

    server: str
    existed: bool
    problem: str


class LoginReport(StateReport):
    """The outcome of `mcpd login`."""

    server: str
    tools: list[str]


class PlaceReport(TypedDict):
    """A place in a configuration file, such as `$.lazy`."""

    file: str
    place: str


class WrittenReport(PlaceReport):
    """A changed key; `already` if it had this value before."""

    already: bool


class DescribeReport(TypedDict):
    """The outcome of `mcpd describe`; `description` is None if the server's own is used."""

    tool: str
    description: str | None
    places: list[PlaceReport]
    already: bool


class ProfileSwitchReport(TypedDict):
    """A profile's switch for loading on demand, and the surface that results."""

    on: bool
    surface: str
    sessions: int


class LazyReport(TypedDict):
    """All switches for loading on demand."""

    lazy: bool
    profiles: dict[str, ProfileSwitchReport]
    changed: WrittenReport | None
    note: str


class ModelReport(TypedDict, total=False):
    """The progress of the model that shortens descriptions."""

    model: str
    endpoint: str
    off: str
    asked: int
    answered: int
    sentences: int
    refused: int
    waiting: int
    given_up: int
    last_error: str


class ModelTestReport(TypedDict):
    """A model's answer to a test question; `fault` says why the answer is unusable."""

    answer: str
    seconds: float
    tokensRead: int | None
    tokensWritten: int | None
    fault: str


class SummariesReport(TypedDict):
    """The model that shortens descriptions, and the result of the action that the operator asked for."""

    state: ModelReport | None
    config: str
    prompt: str
    sends: str
    models: NotRequired[list[str]]
    changed: NotRequired[WrittenReport]
    test: NotRequired[ModelTestReport]


class GrantReport(TypedDict):
    """A tool that a session may call without asking; `seconds` None: until the session ends."""

    tool: str
    by: str
    seconds: float | None


class AllowReport(TypedDict):
    """The permissions of a session."""

    session: str
    allowed: list[GrantReport]


class UnloadReport(TypedDict):
    """The tools that were unloaded from a session."""

    session: str
    unloaded: list[str]
    note: str


class TokenReport(TypedDict):
    """An HTTP client's token without its value; `profiles` is None for all."""

    name: str | None
    profiles: list[str] | None
    console: NotRequired[str | None]
    workspaces: NotRequired[list[str] | None]
    since: float | None
    counts: bool
    lastUsed: float | None


class TokensReport(TypedDict):
    """The tokens, with the `value` of a new or requested one."""

    value: str | None
    tokens: list[TokenReport]
    problem: str


class MoveReport(TypedDict):
    """The outcome of giving a session another profile; `moved`: its connections."""

    key: str | None
    number: int | None
    profile: str
    moved: int


def switched(answer: SwitchReport) -> list[str]:
    """The outcome of switching, in one line."""
    server, tool, word = answer["server"], answer["tool"], "off" if answer["off"] else "on"
    name = f"{server}/{tool}" if tool else server
    outcome = f"{name}: was switched {word} already" if answer["already"] else f"{name}: switched {word}"
    if not tool and answer["state"]:
        outcome += f", now {answer['state']}"
        if not answer["off"] and answer["reason"]:
            outcome += f" ({answer['reason']})"
    return [f"{outcome}; {answer['note']}" if answer["note"] else outcome]


def restarted(answer: RestartReport) -> list[str]:
    """The state of the server, or of each instance, after a restart."""
    instances: Mapping[str, StateReport] = answer.get("instances", {answer["server"]: answer})
    if not instances:
        why = answer["reason"] and f" ({answer['reason']})"
        return [f"{answer['server']}: no instance runs{why}; each starts at its first use"]
    return [
        f"{name}: restarted, now {_state(now)}" if now["state"] else f"{name}: has ended meanwhile"
        for name, now in instances.items()
    ]


def _state(state: StateReport) -> str:
    return f"{state['state']}, {state['reason']}" if state["reason"] else state["state"]


def refreshed(answer: RefreshReport) -> list[str]:
    """The changes in each server's lists, one line each."""
    return [f"{name}: {_news(each)}" for name, each in answer["servers"].items()] or ["no server is up"]


def _news(report: RefreshedReport) -> str:
    if report["problem"]:
        return report["problem"]
    renamed = dict(report["renamed"])
    news = {
        "came": [name for name in report["came"] if name not in renamed.values()],
        "went": [name for name in report["went"] if name not in renamed],
        "changed": report["changed"],
        "renamed": [f"{old} to {new}" for old, new in renamed.items()],
    }
    for member, changes in report["lists"].items():
        news |= {f"{member} that {what}": names for what, names in changes.items()}
    parts = [f"{what}: {', '.join(names)}" for what, names in news.items() if names]
    return f"epoch {report['epoch']}, {report['tools']} tools; {'; '.join(parts) or 'as before'}"


_DONE = {
    "added": "added",
    "removed": "removed",
    "enabled": "switched on",
    "disabled": "switched off",
    "restarted": "restarted",
    "changed": "changed",
    "sections": "applied",
}


def reloaded(answer: ReloadReport) -> list[str]:
    """The changes of a reload in one line, then the state of each started server."""
    plan: Mapping[str, Any] = answer
    done = [f"{word}: {', '.join(plan[key])}" for key, word in _DONE.items() if plan[key]]
    waits = answer["needsRestartOfDaemon"]
    parts = [*(done or ([] if waits else ["nothing has changed"])), f"unchanged: {len(answer['kept'])}"]
    if waits:
        parts.append(f"needs a new start: {', '.join(waits)} (`mcpd start --restart`)")
    states = (f"{name}: {_state(state)}" for name, state in answer["states"].items())
    return ["; ".join(parts), *states, *(f"left out: {fault}" for fault in answer.get("faults", ()))]


def logged_out(answer: LogoutReport) -> list[str]:
    """The outcome of a logout, in one line."""
    server, problem, at = answer["server"], answer["problem"], "at its authorization server"
    if not answer["existed"]:
        return [f"there was no login at {server}"]
    if problem:
        end = "End it there if somebody else may have the login."
        return [f"the login at {server} is forgotten here, but not ended {at}: {problem}. {end}"]
    return [f"logged out of {server}: the login is forgotten here, and ended {at}"]


def written(changed: WrittenReport) -> str:
    """The key that the daemon has changed, and the file."""
    word = "was already at" if changed["already"] else "written at"
    return f"{word} {changed['place']} in {changed['file']}"


def newly_described(answer: DescribeReport) -> list[str]:
    """A tool's new description, and where it changes."""
    what = "its server's own description" if answer["description"] is None else "that description"
    outcome = f"{answer['tool']} has {what} {'already' if answer['already'] else 'now'}"
    return [outcome, *(f"  {each['place']} in {each['file']}" for each in answer["places"])]


def moved(answer: MoveReport) -> list[str]:
    """The outcome of moving a session to another profile."""
    count, key = answer["moved"], answer["key"]
    clients = "no client is connected; the next one gets" if not count else "its connection has"
    if count > 1:
        clients = f"its {count} connections have"
    name = f"#{answer['number']}, no key" if key is None else key
    return [f"session {name}: {clients} profile {answer['profile']} now"]


def allowed(answer: AllowReport) -> list[str]:
    """A session's permissions, one line each."""
    if not answer["allowed"]:
        return [f"session {answer['session']}: nothing is allowed beyond its profile"]
    lines = [f"session {answer['session']} may call without asking:"]
    for each in answer["allowed"]:
        until = "as long as it is in use" if each["seconds"] is None else f"for {span(each['seconds'])}"
        lines.append(f"  {each['tool']}  {until}, says {each['by']}")
    return lines


def unloaded(answer: UnloadReport) -> list[str]:
    """The tools that were unloaded from a session."""
    session = f"session {answer['session']}"
    lines = [f"{session}: {name} is not loaded any more" for name in answer["unloaded"]]
    return [*(lines or [f"{session} has loaded no tools"]), *filter(None, [answer["note"]])]


def cancelled(answer: Mapping[str, CallInFlight]) -> list[str]:
    """The outcome of a cancellation, in one line."""
    call = answer["call"]
    what = f"{called(call)} of {call['client'] or 'a client without a name'}"
    sent = "it was sent, and may have run" if call["sent"] else "it was not sent"
    return [f"cancelled after {span(call['ageSeconds'])}: {what}; {sent}"]
