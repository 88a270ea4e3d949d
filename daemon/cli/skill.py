"""`mcpd skill`: writes a skill that teaches a client's agent to use mcpd from a shell."""

from __future__ import annotations

import argparse
import os

from daemon.cli.command import UsageError
from daemon.cli.control import EX_FAULT, DaemonUnreachable, ask_with, say
from daemon.cli.install import change_skill, clients_of
from daemon.config.parse import load
from daemon.host.paths import config_file
from daemon.setup.clients import skills


def skill(options: argparse.Namespace) -> int:
    """Write, delete or show the skill."""
    text = "" if options.action == "uninstall" else skills.page(_servers(options))
    if options.action == "show":
        print(text, end="")
        return 0
    programs = clients_of(options.client) if options.client else []
    if not programs or not all(program.skills for program in programs):
        raise UsageError("name clients that have skills, as `mcpd skill --help` says")
    outcomes = {program.title: change_skill(program, text) for program in programs}
    say(*(outcome or f"{title}: nothing to do" for title, outcome in outcomes.items() if outcome is not None))
    return EX_FAULT if None in outcomes.values() else 0


def _servers(options: argparse.Namespace) -> dict[str, str]:
    """The default profile's servers with their tools; without a daemon, the configured servers."""
    try:
        categories = ask_with(options, "tools", {})["categories"]
    except DaemonUnreachable:
        servers = load(config_file(os.environ), os.environ).mcp_servers
        return {name: server.description for name, server in servers.items() if server.enabled}
    return {
        name: ", ".join(key for key, tool in each["tools"].items() if tool["listed"] and tool["enabled"])
        for name, each in categories.items()
    }
