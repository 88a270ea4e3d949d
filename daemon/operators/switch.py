"""`mcpd enable` and `mcpd disable`: switch a server or a tool on or off.

The registry keeps what is switched off, and the supervisor follows it (`servers`); a command tells the registry
and waits for the effect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import trio
from loguru import logger

from daemon.catalog.snapshot import WHOLE
from daemon.config.names import read_reference, tool_name_is_sound
from daemon.errors import InvalidArguments, UnknownTool
from daemon.facts import Switched
from daemon.kit.wording import hint
from daemon.operators.base import OUTCOME_SECONDS, PASSED_THROUGH, Command, Refused
from daemon.states import ServerState

if TYPE_CHECKING:
    from daemon.catalog.snapshot import Catalog, ServerEntry
    from daemon.operators.base import OperatorContext


class SwitchParams(msgspec.Struct):
    """The server or tool to switch, and whether on or off."""

    name: str
    """`server`, `server/tool` or `mcp__server__tool`."""
    off: bool


async def switch(context: OperatorContext, params: SwitchParams) -> dict[str, object]:
    """Switch a server or a tool, and report the server's state a few seconds later.

    Raises:
        UnknownServer: no server has that name.
        UnknownTool: the server lists no tool of that name.
        InvalidArguments: the name is malformed.
        Refused: the configuration itself switches it off.
    """
    off, registry = params.off, context.registry
    server, tool = key = _key_of(context.catalog, params.name)
    async with context.switching:
        # Once settled, the catalog has what other operators have switched, so that it is not undone.
        await registry.settle()
        known = context.catalog.switched
        already = (key in known) == off
        _check(context, key, off=off)
        if not already:
            registry.tell(Switched(off=known | {key} if off else known - {key}))
            await registry.settle()
            what = f"tool {tool}" if tool else "the server"
            logger.bind(server=server).info("an operator has switched {} {}", what, "off" if off else "on")
    child = context.children.get(server)
    if tool == WHOLE and child is not None:
        with trio.move_on_after(OUTCOME_SECONDS):
            await child.status.wait_until(lambda status: _has_followed(status.state, off=off))
        # The child tells the registry of its state, which others look at.
        await registry.settle()
    notes = (unexpected(context.catalog, key, off=off), await _unkept(context))
    return {
        "server": server,
        "tool": tool or None,
        "off": off,
        "already": already,
        "note": "; ".join(filter(None, notes)),
        **context.state_of(server),
    }


SWITCH = Command("switch", SwitchParams, switch)


def unexpected(catalog: Catalog, key: tuple[str, str], *, off: bool) -> str:
    """A note about a surprising effect of the switch; empty if there is none.

    Args:
        catalog: after the switch.
        key: what was switched: a server and its tool, empty for the whole server.
        off: whether off.
    """
    server, tool = key
    entry = catalog.servers.get(server)
    if entry is None:
        return f"server {server} is not in the configuration"
    if not catalog.config.mcp_servers[server].enabled:
        return f"the configuration switches server {server} off, too"
    if tool and entry.tools is None:
        return f"the tools of server {server} are not known yet: it counts once one of that name is listed"
    if tool and not off and (key in catalog.off or entry.disabled):
        why = "its server is switched off" if entry.disabled else "every category that has it switches it off"
        return f"{server}/{tool} stays off: {why}"
    return ""


async def _unkept(context: OperatorContext) -> str:
    if await context.archive.kept():
        return ""
    return f"it is lost if mcpd ends now: {context.archive.persistence.value.reason}"


def _key_of(catalog: Catalog, reference: str) -> tuple[str, str]:
    servers = {*catalog.servers, *(server for server, _tool in catalog.switched)}
    if reference in servers:
        return reference, WHOLE
    read = read_reference(reference, servers)
    if read.server is None:
        return read.tool, WHOLE
    if not tool_name_is_sound(read.tool):
        raise InvalidArguments(f"{reference!r} names no tool: write SERVER or SERVER/TOOL")
    return read.server, read.tool


def _check(context: OperatorContext, key: tuple[str, str], *, off: bool) -> None:
    """Raise the reason to refuse a switch; undoing an earlier switch is always allowed."""
    catalog = context.catalog
    if key in catalog.switched:
        return
    server, tool = key
    entry = catalog.servers.get(server)
    if entry is None:
        raise context.unknown(server)
    if tool and not _may_have(entry, tool):
        raise UnknownTool(f"server {server} has no tool {tool!r}. {hint(tool, entry.tools or {})}")
    if not off:
        _check_config(context, key)


def _check_config(context: OperatorContext, key: tuple[str, str]) -> None:
    catalog, source = context.catalog, context.facts.config
    server, tool = key
    if not catalog.config.mcp_servers[server].enabled:
        raise Refused(
            f"the configuration switches server {server} off, so no command can switch it on: write"
            f' "enabled": true at $.mcpServers.{server} in {source}, then `mcpd reload`'
        )
    if tool and key in catalog.off:
        raise Refused(
            f"the configuration switches {server}/{tool} off in every category that has it, so no command"
            f' can switch it on: change "overrides" there in {source}, then `mcpd reload`'
        )


def _may_have(entry: ServerEntry, tool: str) -> bool:
    """Whether a server lists a tool, offered or not, or has not listed its tools yet."""
    return entry.tools is None or tool in entry.tools or tool in entry.quarantined


def _has_followed(state: ServerState, *, off: bool) -> bool:
    """Whether a server has reached the state that the switch asks for."""
    return state is ServerState.DISABLED if off else state not in {*PASSED_THROUGH, ServerState.DISABLED}
