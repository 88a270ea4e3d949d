"""Commands for servers: enable, disable, approve, restart, refresh, reload and logout."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon.cli.command import UsageError, ask_each, asking, has_terminal
from daemon.cli.control import EX_FAULT, RemoteFault, ask_with
from daemon.cli.table import EX_CONFIG
from daemon.cli.taking_effect import MEANWHILE, approve_rows, show_approval
from daemon.operators.change_reports import logged_out, refreshed, reloaded, restarted, switched
from daemon.safety.escape import document

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence


def switch(options: argparse.Namespace, names: Sequence[str], *, off: bool) -> int:
    """Have the daemon switch servers or definitions on or off."""
    return ask_each(options, names, "switch", lambda name: {"name": name, "off": off}, switched)


def disable(options: argparse.Namespace) -> int:
    """Switch servers or definitions off."""
    return switch(options, options.names, off=True)


def approve(options: argparse.Namespace) -> int:
    """Show definitions that wait for approval, or approve them."""
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


def restart(options: argparse.Namespace) -> int:
    """Restart servers or instances."""
    if bool(options.servers) == options.all:
        raise UsageError("name the servers to restart, or write --all")
    names = options.servers
    if options.all:
        servers = ask_with(options, "status", {})["servers"]
        names = [name for name, server in servers.items() if server["state"] != "disabled"]
    return ask_each(options, names, "restart", lambda name: {"server": name}, restarted)


refresh = asking(
    "refresh", "server", refreshed, lambda answer: any(each["problem"] for each in answer["servers"].values())
)
logout = asking("logout", "server", logged_out, lambda answer: answer["problem"])
_ask_to_reload = asking("reload", "", reloaded)


def reload(options: argparse.Namespace) -> int:
    """Have the daemon read its configuration again."""
    try:
        return _ask_to_reload(options)
    except RemoteFault as fault:
        if not (fault.is_of_the_file and options.json):
            raise
        print(document(fault.data))
        return EX_CONFIG
