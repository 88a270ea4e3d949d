"""What came of `mcpd up`: the servers as they come up, and three lines at the end."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from daemon.cli.control import DaemonUnreachable
from daemon.cli.taking_effect import looks
from daemon.kit.wording import counted
from daemon.safety.escape import visible
from daemon.states import COMING, WELL

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from daemon.cli.taking_effect import Servers
    from daemon.setup.clients.found import ClientServers
    from daemon.setup.clients.programs import ClientProgram


def settled(options: argparse.Namespace) -> Servers:
    """Wait until each server is up or has failed, and say so; returns all of them."""
    told = set[str]()
    servers: Servers = {}
    try:
        for servers in looks(options, options.wait):
            coming = {name for name, server in servers.items() if server["state"] in COMING}
            for name in [each for each in servers if each not in coming | told]:
                if servers[name]["state"] != "disabled":
                    print(visible(f"  {name}: {_how(servers[name])}"))
            told |= servers.keys() - coming
            if not coming:
                break
    except DaemonUnreachable as error:
        print(f"mcpd: {visible(str(error), lines=True)}", file=sys.stderr)
        return {}
    return servers


def _how(server: dict[str, Any]) -> str:
    number, state = server["tools"], str(server["state"])
    return f"{state}, {counted(number, 'tool')}" if number or state in WELL else state


def summary(
    servers: Servers,
    programs: Sequence[ClientProgram],
    found: ClientServers,
    options: argparse.Namespace,
    left: Sequence[ClientProgram] = (),
) -> list[str]:
    """What works, what needs attention, how to undo it: a line each.

    Args:
        servers: as they are.
        programs: the clients that mcpd is in.
        found: what clients had.
        options: the command line; `socket` is None unless it was named.
        left: the clients that mcpd is not in: they could not be changed, which was said, or were not to be.
    """
    from daemon.setup.running.systemctl import installed  # noqa: PLC0415 - not for `--help`

    works = [name for name, server in servers.items() if server["state"] in WELL - {"disabled"}]
    clients = f", in {titles(programs)} once started anew" if programs else ""
    troubles = [_trouble(name, server) for name, server in servers.items() if server["state"] not in WELL]
    troubles += [each.in_a_line for each in found.unread]
    unread = {each.program.name for each in found.unread}
    troubles += [f"{each.title} is as it was (see above)" for each in left if each.name not in unread]
    names = " ".join(program.name for program in programs)
    ends = "mcpd stop" if options.socket or installed(os.environ) is None else "mcpd service uninstall"
    undo = [f"`mcpd uninstall {names}`"] if programs else []
    return [
        f"Works: {', '.join(works) or 'nothing yet'}{clients}.",
        f"Needs attention: {'; '.join(troubles) or 'nothing'}.",
        f"Undo: {', then '.join([*undo, f'`{ends}`'])}.",
    ]


def titles(programs: Sequence[ClientProgram]) -> str:
    """The clients as people know them."""
    named = [program.title for program in programs]
    return " and ".join([", ".join(named[:-1]), named[-1]] if len(named) > 1 else named)


def _trouble(name: str, server: dict[str, Any]) -> str:
    state = server["state"]
    if state in COMING:
        return f"{name} is still starting (`mcpd status`)"
    helps = f"mcpd login {name}" if state == "needs_auth" else "mcpd doctor"
    reason = str(server.get("reason") or "").partition("\n")[0]
    return f"{name}: {state}{f', {reason}' if reason else ''} (`{helps}`)"
