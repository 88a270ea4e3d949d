"""Commands for servers: enable, disable, approve, restart, refresh, reload and logout."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from daemon.cli.command import CommandLine, UsageError, argument, asking, drawn, either, flag, lines
from daemon.cli.control import EX_FAULT, RemoteFault, ask_with, guarded
from daemon.cli.table import EX_CONFIG
from daemon.safety.escape import document, json_line, visible

if TYPE_CHECKING:
    import argparse

    from daemon.operators.change_reports import (
        LogoutReport,
        RefreshedReport,
        RefreshReport,
        ReloadReport,
        RestartReport,
        SwitchReport,
    )
    from daemon.operators.reports import StateReport

APPROVE_SECONDS = 30.0  # to wait: the daemon writes `mcpd.lock` where there is one

REFRESH_SECONDS = 60.0
"""Seconds to wait: a server has `timeouts.list` to answer, and a dormant one starts first."""

RELOAD_SECONDS = 60.0
"""Seconds to wait: removed servers stop first, and another reload may be running."""

LOGOUT_SECONDS = 75.0
"""Seconds to wait: 30 for each of two tokens at the authorization server, then the restart."""

# --- enable, disable --------------------------------------------------------------------------------------

_SWITCHED = argument(
    "name",
    metavar="SERVER[/TOOL]",
    help="a server's name in mcpServers, or SERVER/TOOL, SERVER/prompt:NAME, SERVER/resource:URI,"
    " SERVER/template:TEMPLATE; write SERVER/tool:NAME for a tool whose name begins like one of these",
)
_NOT_SWITCHED = "no such name, or the configuration disables it"


def switched(answer: SwitchReport) -> str:
    """The outcome in one line."""
    server, tool = answer["server"], answer["tool"]
    word = "off" if answer["off"] else "on"
    name = f"{server}/{tool}" if tool else server
    said = f"{name}: was switched {word} already" if answer["already"] else f"{name}: switched {word}"
    if not tool and answer["state"]:
        said += f", now {answer['state']}"
        if not answer["off"] and answer["reason"]:
            said += f" ({answer['reason']})"
    return visible(f"{said}; {answer['note']}" if answer["note"] else said)


ENABLE = CommandLine(
    "enable",
    "Switch a server, or one of its tools, prompts, resources or templates, on again after `mcpd disable`."
    " Entries that the configuration disables must be enabled there. Waits a few seconds for the outcome.",
    examples=("mcpd enable git", "mcpd enable git/git_push", "mcpd enable git/prompt:review"),
    exits={0: "it is on, perhaps already", 1: _NOT_SWITCHED},
    arguments=(_SWITCHED,),
    run=asking("switch", lambda options: {"name": options.name, "off": False}, switched),
)

DISABLE = CommandLine(
    "disable",
    "Switch a server off: it stops, and nobody gets its tools. Or switch off one of its tools, prompts,"
    " resources or templates, also before the server has listed it. Lasts until `mcpd enable`.",
    examples=(
        "mcpd disable git",
        "mcpd disable git/git_push",
        "mcpd disable mcp__git__git_push",
        "mcpd disable git/prompt:review",
        "mcpd disable docs/resource:file:///etc/motd",
        "mcpd disable docs/template:file:///{path}",
    ),
    exits={0: "it is off, perhaps already", 1: _NOT_SWITCHED},
    arguments=(_SWITCHED,),
    run=asking("switch", lambda options: {"name": options.name, "off": True}, switched),
)

# --- approve ----------------------------------------------------------------------------------------------


def _approve(options: argparse.Namespace) -> int:
    if options.all and options.names:
        raise UsageError("name what to approve, or write --all")
    approves = options.all or (bool(options.names) and not options.diff)
    wish = {"names": options.names, "approve": approves, "difference": options.diff}
    answer = ask_with(options, "approve", wish)
    view = "daemon.cli.definition_views:render_approval"
    print(document(answer) if options.json else drawn(view, approves=approves)(answer))
    return EX_FAULT if approves and answer["waiting"] else 0


APPROVE = CommandLine(
    "approve",
    "Approve what servers with `trust` added or changed, in the form that was shown last, and show what it is."
    " Without SERVER, or with --diff, show what waits, and approve nothing.",
    examples=("mcpd approve", "mcpd approve --diff git", "mcpd approve git/git_log git/prompt:review"),
    exits={0: "shown or approved, perhaps before", 1: "no such name, or it changed meanwhile and still waits"},
    arguments=(
        argument(
            "names",
            metavar="SERVER[/NAME]",
            nargs="*",
            help="a server, or SERVER/TOOL, SERVER/prompt:NAME, SERVER/template:TEMPLATE",
        ),
        either(flag("--diff", "show differences in full"), flag("--all", "approve everything that waits")),
    ),
    seconds=APPROVE_SECONDS,
    run=_approve,
)

# --- restart ----------------------------------------------------------------------------------------------


def _restart(options: argparse.Namespace) -> int:
    """Restart servers one after another, past those that fail."""
    if bool(options.servers) == options.all:
        raise UsageError("name the servers to restart, or write --all")
    names = options.servers
    if options.all:
        servers = ask_with(options, "status", {})["servers"]
        names = [name for name, server in servers.items() if server["state"] != "disabled"]
    told = json_line if len(names) > 1 else document

    def one(name: str) -> int:
        answer = ask_with(options, "restart", {"server": name})
        print(told(answer) if options.json else restarted(answer), flush=True)
        return 0

    return max((guarded(partial(one, name)) for name in names), default=0)


def restarted(answer: RestartReport) -> str:
    """The state after the restart, of the server or of each instance."""
    instances: Mapping[str, StateReport] = answer.get("instances", {answer["server"]: answer})
    if not instances:
        return visible(f"{answer['server']}: no instance of it runs; each is started at its first use")
    return lines(*(f"{name}: {_restarted(now)}" for name, now in instances.items()))


def _restarted(now: StateReport) -> str:
    why = f", {now['reason']}" if now["reason"] else ""
    return f"restarted, now {now['state']}{why}" if now["state"] else "has ended meanwhile"


RESTART = CommandLine(
    "restart",
    "Restart servers now, one after another, also those that wait for a retry or were given up (failed,"
    " needs_auth). Waits a few seconds for each outcome. If clients do not share a server, restart all its"
    " running instances, or INSTANCE.",
    examples=(
        "mcpd restart git",
        "mcpd restart git time",
        "mcpd restart --all",
        "mcpd restart 'playwright#12'",
    ),
    exits={0: "the servers restart", 1: "no such server"},
    arguments=(
        argument("servers", metavar="SERVER|INSTANCE", nargs="*", help="names, as in `mcpd status`"),
        flag("--all", "restart every enabled server"),
    ),
    run=_restart,
)

# --- refresh ----------------------------------------------------------------------------------------------


def refreshed(answer: RefreshReport) -> str:
    """The changes of each server's lists, a line each."""
    told = (f"{name}: {_news(each)}" for name, each in answer["servers"].items())
    return lines(*told) or "no server is up"


def _news(told: RefreshedReport) -> str:
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
    "Have a server list its tools, prompts and resources now, instead of after its next notification or"
    " interval (timeouts.refresh). Shows its epoch, and changes. Wakes a dormant server. Without SERVER:"
    " every running server. If clients do not share a server: all its running instances, or INSTANCE.",
    examples=("mcpd refresh git", "mcpd refresh"),
    exits={0: "listed", 1: "no such server, or one could not be listed"},
    arguments=(
        argument("server", metavar="SERVER|INSTANCE", nargs="?", help="the server's name, as in `mcpd status`"),
    ),
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


def reloaded(answer: ReloadReport) -> str:
    """The changes in one line, then the state of each started server."""
    plan: Mapping[str, Any] = answer
    done = [f"{word}: {', '.join(plan[key])}" for key, word in _DONE.items() if plan[key]]
    parts = [*(done or ["nothing has changed"]), f"unchanged: {len(answer['kept'])}"]
    if answer["needsRestartOfDaemon"]:
        parts.append(f"needs a new start: {', '.join(answer['needsRestartOfDaemon'])}")
    return lines("; ".join(parts), *(f"{name}: {_state(state)}" for name, state in answer["states"].items()))


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


RELOAD = CommandLine(
    "reload",
    "Reload the configuration. Only servers whose entries have changed are started, stopped or restarted. A"
    " server with a faulty entry is `failed`; any other fault changes nothing. SIGHUP does the same, and so"
    ' does a change of the file under "watch": true. `mcpd check` finds faults without a daemon.',
    examples=("mcpd reload", "mcpd reload --json | jq .needsRestartOfDaemon"),
    exits={
        0: "the configuration is in effect",
        1: "the daemon refused: it is stopping",
        EX_CONFIG: "the configuration is faulty: nothing was changed",
    },
    seconds=RELOAD_SECONDS,
    run=_reload,
)

# --- logout -----------------------------------------------------------------------------------------------


def logged_out(answer: LogoutReport) -> str:
    """The outcome in one line."""
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
    "End the login at a server: mcpd forgets it, revokes it at the authorization server, and restarts the"
    " server without it.",
    examples=("mcpd logout github",),
    exits={0: "logged out", 1: "no such server, or its authorization server could not be reached"},
    arguments=(argument("server", metavar="SERVER", help="the server's name, as in `mcpd status`"),),
    seconds=LOGOUT_SECONDS,
    run=asking(
        "logout", lambda options: {"server": options.server}, logged_out, lambda answer: answer["problem"]
    ),
)
