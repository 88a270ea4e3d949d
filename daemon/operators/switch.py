"""`mcpd enable` and `mcpd disable`: switch a server, or one of its definitions, on or off.

The registry stores the switches and the supervisor obeys them; a command tells the registry and waits.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec
import trio
from loguru import logger

from daemon.catalog.kinds import switch_of, switched_by
from daemon.catalog.snapshot import WHOLE, Catalog, ServerEntry
from daemon.config.labels import server_of
from daemon.config.names import read_reference, tool_name_is_sound
from daemon.errors import InvalidArguments, UnknownTool
from daemon.facts import Switched
from daemon.history.event import Event, EventKind
from daemon.kit.wording import closest, hint, quoted
from daemon.model import Kind
from daemon.operators.base import OUTCOME_SECONDS, Command, OperatorContext, Refused
from daemon.state.server_notes import NAME_BYTES
from daemon.states import PASSED_THROUGH, ServerState

MAX_LISTED = 50
"""Most prompts or URIs that an error names: a server may list ten thousand."""


class SwitchParams(msgspec.Struct):
    """The server or definition: `server`, `server/tool`, `mcp__server__tool`, `server/prompt:NAME`, ..."""

    name: str
    off: bool


async def switch(context: OperatorContext, params: SwitchParams) -> dict[str, object]:
    """Switch a server or a definition, and report; raises an `McpdError`: unknown, or off by configuration."""
    off, registry = params.off, context.registry
    server, word = key = key_of(context.catalog, params.name)
    kind, name = (None, "") if word == WHOLE else switched_by(word)
    async with context.switching:
        # Once settled, the catalog has what other operators have switched, so that it is not undone.
        await registry.settle()
        known = context.catalog.switched
        already = (key in known) == off
        _check(context, key, off=off)
        # Those of a server whose clients do not share one, which end with the switch.
        instances = [each.child for each in context.instances_of(server)] if word == WHOLE and off else []
        if not already:
            registry.tell(Switched(off=known | {key} if off else known - {key}))
            await registry.settle()
            what = f"{kind} {name}" if kind else "the server"
            event = Event(kind=EventKind.SWITCHED, server=server, details={"what": what, "on": not off})
            context.history.note(event)
            text = f"an operator has switched {what} {'off' if off else 'on'}"
            logger.bind(server=server, event=True).info("{}", text)
    child = context.children.get(server) if word == WHOLE else None
    with trio.move_on_after(OUTCOME_SECONDS):
        for instance in instances:
            await instance.left.wait()
        if child is not None:
            await child.status.wait_until(lambda status: _has_followed(status.state, off=off))
    if child is not None or instances:
        # The child tells the registry of its state, which others look at.
        await registry.settle()
    notes = (unexpected(context.catalog, key, off=off), await unkept(context))
    return {
        "server": server,
        "tool": word or None,
        "kind": kind,
        "name": name or None,
        "off": off,
        "already": already,
        "note": "; ".join(filter(None, notes)),
        **context.state_of(server),
    }


SWITCH = Command("switch", SwitchParams, switch)


def unexpected(catalog: Catalog, key: tuple[str, str], *, off: bool) -> str:
    """A note on a surprising effect of a switch (`facts.Switched`), found in the new catalog; else empty."""
    server, word = key
    entry = catalog.servers.get(server)
    if entry is None:
        return f"server {server} is not in the configuration"
    if not catalog.config.mcp_servers[server].enabled:
        return f"the configuration switches server {server} off, too"
    if word == WHOLE:
        return ""
    kind, name = switched_by(word)
    if _listed(entry, kind) is None:
        return f"server {server} has not listed its {kind}s yet: the switch counts once it lists that name"
    in_no_category = kind is Kind.TOOL and (server, name) in catalog.off
    if not off and (in_no_category or entry.disabled):
        why = "its server is switched off" if entry.disabled else "every category that has it switches it off"
        return f"{server}/{word} stays off: {why}"
    return ""


async def unkept(context: OperatorContext) -> str:
    """The warning that a switch or an approval is lost if mcpd ends now; empty once it is stored."""
    if await context.archive.kept():
        return ""
    return f"this is lost if mcpd ends now: {context.archive.persistence.value.reason}"


def key_of(catalog: Catalog, reference: str) -> tuple[str, str]:
    """The server and the operator's word for its definition, or `WHOLE`; raises `InvalidArguments`."""
    servers = {*catalog.servers, *(server for server, _word in catalog.switched)}
    if reference in servers:
        return reference, WHOLE
    read = read_reference(reference, servers)
    if read.server is None:
        # A tool's name alone, where one server has it; everything else is taken for a server's.
        owners = [entry.name for entry in catalog.servers.values() if read.tool in entry.tool_list.all]
        return (owners[0], read.tool) if len(owners) == 1 else (read.tool, WHOLE)
    kind, name = switched_by(read.tool)
    if not (tool_name_is_sound(name) if kind is Kind.TOOL else name.isprintable() and name):
        raise InvalidArguments(f"{quoted(reference)} names no {kind}: write {_WAYS}")
    if len(name.encode()) > NAME_BYTES:
        text = f"{quoted(name)} has more than {NAME_BYTES} bytes and cannot be switched alone; its server can"
        raise InvalidArguments(text)
    return read.server, switch_of(kind, name)


_WAYS = "SERVER, SERVER/TOOL, SERVER/prompt:NAME, SERVER/resource:URI or SERVER/template:TEMPLATE"


def _check(context: OperatorContext, key: tuple[str, str], *, off: bool) -> None:
    """Raise the reason to refuse a switch; an earlier switch can always be undone."""
    catalog = context.catalog
    if key in catalog.switched:
        return
    check_listed(context, key, "are switched")
    if not off:
        _check_config(context, key)


def check_listed(context: OperatorContext, key: tuple[str, str], done: str) -> None:
    """Raise the error for an unknown server, a single instance, or a definition that is not listed."""
    servers = context.catalog.servers
    server, word = key
    whole = server_of(server)
    if whole != server and whole in servers:
        # What follows the first slash may still belong to the name of an instance, and is said as it came.
        named = f"{server}/{word}" if word else server
        raise Refused(f"{named} is one instance, but only all of them {done}: write {whole}, or {whole}/TOOL")
    if server not in servers:
        raise context.unknown(server)
    kind, name = switched_by(word)
    listed = _listed(servers[server], kind)
    if word != WHOLE and listed is not None and name not in listed:
        text = _unlisted(server, kind, name, listed)
        raise UnknownTool(text) if kind is Kind.TOOL else Refused(text)


def _check_config(context: OperatorContext, key: tuple[str, str]) -> None:
    catalog, source = context.catalog, context.facts.config
    server, word = key
    if not catalog.config.mcp_servers[server].enabled:
        raise Refused(
            f"the configuration {source} switches server {server} off:"
            f" `mcpd enable {server} --config {source}` switches it on"
        )
    kind, name = switched_by(word)
    if word != WHOLE and kind is Kind.TOOL and (server, name) in catalog.off:
        raise Refused(
            f"the configuration switches {server}/{word} off in every category that has it, so no command"
            f' can switch it on: change "overrides" there in {source}, then `mcpd reload`'
        )


def _listed(entry: ServerEntry, kind: Kind) -> Collection[str] | None:
    """The names of a kind that a server lists, offered or not; None before its first list."""
    known = entry.list_of(kind)
    is_known = known.listed if kind is Kind.TOOL else kind in entry.lists
    return [*known.all, *known.quarantined] if is_known else None


def _unlisted(server: str, kind: Kind, name: str, listed: Collection[str]) -> str:
    """The reason to refuse an unlisted name, with the closest listed ones."""
    why = f"server {server} has no {kind} {quoted(name)}."
    if kind is Kind.TOOL or len(listed) <= MAX_LISTED or closest(name, listed):
        return f"{why} {hint(name, listed)}"
    return f"{why} It has {len(listed)}; `mcpd {'prompts' if kind is Kind.PROMPT else 'resources'}` lists them."


def _has_followed(state: ServerState, *, off: bool) -> bool:
    return state is ServerState.DISABLED if off else state not in {*PASSED_THROUGH, ServerState.DISABLED}
