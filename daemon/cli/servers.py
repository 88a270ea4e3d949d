"""Commands for servers: enable, disable, approve, restart, refresh, reload and logout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from daemon.cli.command import (
    SERVER,
    SERVER_IF_ANY,
    CommandLine,
    UsageError,
    argument,
    ask_each,
    asking,
    either,
    flag,
    has_terminal,
    lines,
)
from daemon.cli.control import EX_FAULT, RemoteFault, ask_with
from daemon.cli.table import EX_CONFIG
from daemon.cli.taking_effect import MEANWHILE, approve_rows, show_approval
from daemon.safety.escape import document, visible

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from daemon.operators import change_reports
    from daemon.operators.reports import StateReport

APPROVE_SECONDS = 30.0  # to wait: the daemon writes `mcpd.lock` where there is one

REFRESH_SECONDS = 60.0
"""Seconds for a refresh: a server has `timeouts.list` to answer, and a dormant one starts first."""

RELOAD_SECONDS = 60.0
"""Seconds for a reload: removed servers stop first, and another reload may be running."""

LOGOUT_SECONDS = 75.0
"""Seconds for a logout: 30 for each of two tokens at the authorization server, then the restart."""

# --- enable, disable --------------------------------------------------------------------------------------

SWITCHED = argument("names", metavar="SERVER[/TOOL]", nargs="+")


def switched(answer: change_reports.SwitchReport) -> str:
    """The outcome of switching, in one line."""
    server, tool = answer["server"], answer["tool"]
    word = "off" if answer["off"] else "on"
    name = f"{server}/{tool}" if tool else server
    said = f"{name}: was switched {word} already" if answer["already"] else f"{name}: switched {word}"
    if not tool and answer["state"]:
        said += f", now {answer['state']}"
        if not answer["off"] and answer["reason"]:
            said += f" ({answer['reason']})"
    return visible(f"{said}; {answer['note']}" if answer["note"] else said)


def switch(options: argparse.Namespace, names: Sequence[str], *, off: bool) -> int:
    """Have the daemon switch servers or definitions on or off."""
    return ask_each(options, names, "switch", lambda name: {"name": name, "off": off}, switched)


DISABLE = CommandLine(
    "disable", arguments=(SWITCHED,), run=lambda options: switch(options, options.names, off=True)
)

# --- approve ----------------------------------------------------------------------------------------------


def _approve(options: argparse.Namespace) -> int:
    if options.all and options.names:
        raise UsageError("name what to approve, or write --all")
    approves = options.all or (bool(options.names) and not options.diff)
    asks = approves and has_terminal() and not options.json
    wish = {"names": options.names, "approve": approves, "shown": asks, "difference": options.diff}
    answer = ask_with(options, "approve", wish)
    if options.json:
        print(document(answer))
    else:
        show_approval(answer, "not shown before: " if asks else MEANWHILE if approves else "")
    if asks and answer["waiting"]:
        answer = approve_rows(options, answer["waiting"]) or answer
    return EX_FAULT if approves and answer["waiting"] else 0


APPROVE = CommandLine(
    "approve",
    arguments=(argument("names", metavar="SERVER[/NAME]", nargs="*"), either(flag("--diff"), flag("--all"))),
    seconds=APPROVE_SECONDS,
    run=_approve,
)

# --- restart ----------------------------------------------------------------------------------------------


def _restart(options: argparse.Namespace) -> int:
    if bool(options.servers) == options.all:
        raise UsageError("name the servers to restart, or write --all")
    names = options.servers
    if options.all:
        servers = ask_with(options, "status", {})["servers"]
        names = [name for name, server in servers.items() if server["state"] != "disabled"]
    return ask_each(options, names, "restart", lambda name: {"server": name}, restarted)


def restarted(answer: change_reports.RestartReport) -> str:
    """The state of the server, or of each instance, after a restart."""
    instances: Mapping[str, StateReport] = answer.get("instances", {answer["server"]: answer})
    if not instances:
        return visible(f"{answer['server']}: no instance of it runs; each is started at its first use")
    return lines(*(f"{name}: {_restarted(now)}" for name, now in instances.items()))


def _restarted(now: StateReport) -> str:
    why = f", {now['reason']}" if now["reason"] else ""
    return f"restarted, now {now['state']}{why}" if now["state"] else "has ended meanwhile"


RESTART = CommandLine(
    "restart",
    arguments=(argument("servers", metavar="SERVER|INSTANCE", nargs="*"), flag("--all")),
    run=_restart,
)

# --- refresh ----------------------------------------------------------------------------------------------


def refreshed(answer: change_reports.RefreshReport) -> str:
    """The changes in each server's lists, one line each."""
    told = (f"{name}: {_news(each)}" for name, each in answer["servers"].items())
    return lines(*told) or "no server is up"


def _news(told: change_reports.RefreshedReport) -> str:
    if told["problem"]:
        return told["problem"]
    renamed = dict(told["renamed"])
    news = {
        "came": [name for name in told["came"] if name not in renamed.values()],
        "went": [name for name in told["went"] if name not in renamed],
        "changed": told["changed"],
        "renamed": [f"{old} to {new}" for old, new in renamed.items()],
    }
    for member, changes in told["lists"].items():
        news |= {f"{member} that {what}": names for what, names in changes.items()}
    parts = [f"{what}: {', '.join(names)}" for what, names in news.items() if names]
    return f"epoch {told['epoch']}, {told['tools']} tools; {'; '.join(parts) or 'as before'}"


REFRESH = CommandLine(
    "refresh",
    arguments=(SERVER_IF_ANY,),
    seconds=REFRESH_SECONDS,
    run=asking(
        "refresh",
        lambda options: {"server": options.server},
        refreshed,
        lambda answer: any(told["problem"] for told in answer["servers"].values()),
    ),
)

# --- reload -----------------------------------------------------------------------------------------------

_DONE = {
    "added": "added",
    "removed": "removed",
    "enabled": "switched on",
    "disabled": "switched off",
    "restarted": "restarted",
    "changed": "changed",
    "sections": "applied",
}


def reloaded(answer: change_reports.ReloadReport) -> str:
    """The changes of a reload in one line, then the state of each started server."""
    plan: Mapping[str, Any] = answer
    done = [f"{word}: {', '.join(plan[key])}" for key, word in _DONE.items() if plan[key]]
    parts = [*(done or ["nothing has changed"]), f"unchanged: {len(answer['kept'])}"]
    if answer["needsRestartOfDaemon"]:
        parts.append(f"needs a new start: {', '.join(answer['needsRestartOfDaemon'])}")
    states = (f"{name}: {_state(state)}" for name, state in answer["states"].items())
    return lines("; ".join(parts), *states, *(f"left out: {fault}" for fault in answer.get("faults", ())))


def _state(state: StateReport) -> str:
    return f"{state['state']}, {state['reason']}" if state["reason"] else state["state"]


_ask_to_reload = asking("reload", lambda _options: {}, reloaded)


def _reload(options: argparse.Namespace) -> int:
    try:
        return _ask_to_reload(options)
    except RemoteFault as fault:
        if not (fault.is_of_the_file and options.json):
            raise
        print(document(fault.data))
        return EX_CONFIG


RELOAD = CommandLine("reload", seconds=RELOAD_SECONDS, run=_reload)

# --- logout -----------------------------------------------------------------------------------------------


def logged_out(answer: change_reports.LogoutReport) -> str:
    """The outcome of a logout, in one line."""
    server, problem = answer["server"], answer["problem"]
    if not answer["existed"]:
        return visible(f"there was no login at {server}")
    if problem:
        return visible(
            f"the login at {server} is forgotten here, but not ended at its authorization server: {problem}."
            " End it there if somebody may have it."
        )
    return visible(
        f"logged out of {server}: the login is forgotten here, and ended at its authorization server"
    )


LOGOUT = CommandLine(
    "logout",
    arguments=(SERVER,),
    seconds=LOGOUT_SECONDS,
    run=asking(
        "logout", lambda options: {"server": options.server}, logged_out, lambda answer: answer["problem"]
    ),
)
