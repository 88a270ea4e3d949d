"""Commands for servers: enable, disable, approve, restart, refresh, reload and logout."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
)
from daemon.cli.control import EX_FAULT, RemoteFault, ask_with
from daemon.cli.table import EX_CONFIG
from daemon.cli.taking_effect import MEANWHILE, approve_rows, show_approval
from daemon.operators.change_reports import logged_out, refreshed, reloaded, restarted, switched
from daemon.safety.escape import document

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

APPROVE_SECONDS = 30.0  # to wait: the daemon writes `mcpd.lock` where there is one

REFRESH_SECONDS = 60.0
"""Seconds for a refresh: a server has `timeouts.list` to answer, and a dormant one starts first."""

RELOAD_SECONDS = 60.0
"""Seconds for a reload: removed servers stop first, and another reload may be running."""

LOGOUT_SECONDS = 75.0
"""Seconds for a logout: 30 for each of two tokens at the authorization server, then the restart."""

# --- enable, disable --------------------------------------------------------------------------------------

SWITCHED = argument("names", metavar="SERVER[/TOOL]", nargs="+")


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


RESTART = CommandLine(
    "restart",
    arguments=(argument("servers", metavar="SERVER|INSTANCE", nargs="*"), flag("--all")),
    run=_restart,
)

# --- refresh ----------------------------------------------------------------------------------------------


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


LOGOUT = CommandLine(
    "logout",
    arguments=(SERVER,),
    seconds=LOGOUT_SECONDS,
    run=asking(
        "logout", lambda options: {"server": options.server}, logged_out, lambda answer: answer["problem"]
    ),
)
