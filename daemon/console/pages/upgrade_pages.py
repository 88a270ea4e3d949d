"""Finds newer versions of servers' packages on request, by mcpd's own command line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from daemon.config.config_model import Server
from daemon.console.page import ConsoleAction, Fragment, Notice, Viewer, part
from daemon.kit.wording import counted
from daemon.operators.base import OperatorContext
from daemon.operators.own_lines import run_line

_found = dict[str, tuple[float, Mapping[str, Any]]]()
"""When each configuration's packages were last looked up, and the outcome."""


def upgrades(context: OperatorContext) -> dict[str, Any]:
    """The upgrades found last, by server, without those made since then."""
    servers = context.config.mcp_servers
    _at, found = _found.get(context.facts.config, (0.0, {}))
    return {name: each for name, each in found.items() if name in servers and _is_open(servers[name], each)}


def _is_open(server: Server, upgrade: Mapping[str, Any]) -> bool:
    origin = server.origin and f"{server.origin.name} {server.origin.version}"
    return any(was in {*server.written.args, origin} for was, _now in upgrade["becomes"])


def upgrades_part(viewer: Viewer) -> list[Fragment]:
    """The fragment of the upgrades found last; none if nothing was looked up."""
    if (known := _found.get(viewer.context.facts.config)) is None:
        return []
    return [part("upgrades-found", at=known[0], servers=upgrades(viewer.context))]


async def _look(viewer: Viewer, _fields: Mapping[str, str]) -> Notice:
    context = viewer.context
    printed = await run_line(context, ("upgrade",), options=("--all", "--dry-run", "--json"))
    if (found := printed.data.get("servers")) is None:
        return Notice(printed.text, is_error=True)
    _found[context.facts.config] = round(context.wall()), found
    return Notice(f"{counted(len(found), 'server has', 'servers have')} a newer version.", leads_to="/servers")


LOOK = ConsoleAction(path="/upgrades", act=_look)
