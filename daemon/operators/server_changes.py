"""`mcpd restart`, `refresh`, `reload`, `enable` and `disable`, and the actors that a name stands for.

The registry stores the switches and the supervisor obeys them; a command tells the registry and waits.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

import msgspec
import trio
from loguru import logger

from daemon.catalog.kinds import switch_of, switched_by
from daemon.catalog.snapshot import WHOLE, Catalog, ServerEntry
from daemon.clients.workspace import OwnWorkspace
from daemon.config.labels import server_of
from daemon.config.names import read_reference, tool_name_is_sound
from daemon.errors import CallError, InvalidArguments, UnknownTool
from daemon.facts import ServerStatus, Switched
from daemon.history.event import Event, EventKind
from daemon.kit.wording import closest, hint, quoted
from daemon.model import Kind
from daemon.operators.base import (
    OUTCOME_SECONDS,
    Command,
    OneServer,
    OperatorContext,
    Refused,
    ServerOrAll,
)
from daemon.operators.news import difference
from daemon.ports import Holder, Upstream
from daemon.state.server_notes import NAME_BYTES
from daemon.states import PASSED_THROUGH, WAITING, ServerState
from daemon.upstreams.servers import InstancedServer
from daemon.upstreams.upstream_access import UpstreamAccess

NUMBER = 0
"""Stands for operators in names of instances, as in `playwright#0`: clients' connections count from 1."""


class Whereabouts(msgspec.Struct, kw_only=True):
    """The operator's directories, which choose the instance of a divided server."""

    workspace: str | None = None
    """The directory given on the command line, or None."""
    directory: str | None = None
    """The directory where the command was typed."""
    command: str = ""
    """Identifies a command that sends several requests, all of which go to the same instance."""


class Held(msgspec.Struct):
    """A server or an instance that serves one request of an operator."""

    upstream: Upstream
    goes_on: bool = False
    """Whether the command will send another request."""


@asynccontextmanager
async def own_instance(upstream: Upstream, place: Whereabouts) -> AsyncIterator[Held]:
    """The server, or the instance for the operator's directory, or one for the command; raises `CallError`."""
    if (instances := upstream.instances) is None:
        yield Held(upstream)
        return
    workspace = OwnWorkspace()
    workspace.take_hello({key: getattr(place, key) for key in ("workspace", "directory")})
    await workspace.find()
    session = ("operator", place.command or object())
    holder = Holder(session=session, number=NUMBER, workspace=workspace.directory, fault=workspace.fault)
    held = Held(instances.of(holder))
    try:
        yield held
    finally:
        instances.session_ended(session, soon=not held.goes_on)


def is_divided(context: OperatorContext, name: str) -> bool:
    """Whether a name is that of a divided server."""
    upstream = context.upstreams.get(name)
    return upstream is not None and upstream.instances is not None


def named(context: OperatorContext, name: str) -> list[UpstreamAccess]:
    """The actors that a name stands for: a server, one instance, or all instances; raises `UnknownServer`."""
    if is_divided(context, name):
        return context.instances_of(name)
    actor = context.actors.get(name)
    if actor is None:
        raise context.unknown(name)
    return [actor]


async def restart(
    context: OperatorContext, params: OneServer, seconds: float = OUTCOME_SECONDS
) -> dict[str, object]:
    """Restart a server or its instances; wait up to `seconds` until each is up or fails. Raises `McpdError`."""
    name = params.server
    running = named(context, name)
    for each in running:
        if each.child.off:
            raise InvalidArguments(f"server {name} is {each.child.off}")
    for each in running:
        each.child.restart()
    with trio.move_on_after(seconds):
        divided = context.upstreams.get(name)
        if isinstance(divided, InstancedServer) and context.entry_of(name).tools is None:
            await divided.list_again()
            await context.registry.settle()
        for each in running:
            await each.child.status.wait_settled()
    report: dict[str, object] = {"server": name, **context.state_of(name)}
    if is_divided(context, name):
        report["instances"] = {each.name: context.state_of(each.name) for each in running}
    return report


RESTART = Command("restart", OneServer, restart)


async def refresh(context: OperatorContext, params: ServerOrAll) -> dict[str, object]:
    """Make servers list their tools again, all at once; failures are in `problem`. Raises `UnknownServer`."""
    name, entries = params.server, context.catalog.servers
    if name is None:
        names = [each for name, entry in entries.items() if entry.available for each in _running(context, name)]
    elif name in entries:
        names = _running(context, name) or [name]
    elif server_of(name) in entries:
        names = [each.name for each in named(context, name)]
    else:
        raise context.unknown(name)
    report: dict[str, object] = dict.fromkeys(names)
    async with trio.open_nursery() as nursery:
        for name in report:
            # The entry as of now: a reload may remove the server before its task starts.
            nursery.start_soon(_refresh, context, name, entries[server_of(name)], report)
    return {"servers": report}


REFRESH = Command("refresh", ServerOrAll, refresh)


def _running(context: OperatorContext, server: str) -> list[str]:
    return [each.name for each in context.actors.values() if each.of == server]


async def _refresh(context: OperatorContext, name: str, before: ServerEntry, report: dict[str, object]) -> None:
    actor, server = context.actors.get(name), before.name
    if actor is not None:
        try:
            problem = await actor.refresh()
        except CallError as error:
            # The error's own words are for models.
            problem = context.state_of(name)["reason"] or error.message
    elif is_divided(context, server):
        problem = "none of its instances runs; each lists its tools when it starts"
    else:
        problem = context.unknown(server).message
    await context.registry.settle()
    after = context.catalog.servers.get(server)
    if after is None:
        report[name] = {"problem": f"server {server} was removed from the configuration meanwhile"}
    else:
        problem = context.redact.of(server)(problem or after.tool_list.problem)
        report[name] = {**difference(before, after), "problem": problem}


class ReloadParams(msgspec.Struct):
    """The reason for a reload, which the audit records."""

    server: str = ""
    change: str = ""
    """The command that changed the server's entry."""


async def reload(context: OperatorContext, _params: ReloadParams) -> dict[str, object]:
    """Apply the configuration; returns the plan and the states of started servers. Raises `ConfigError`."""
    plan = await context.reload()
    started = {
        name: child
        for name in (*plan.added, *plan.enabled, *plan.restarted)
        if (child := context.children.get(name)) is not None
    }
    with trio.move_on_after(OUTCOME_SECONDS):
        async with trio.open_nursery() as nursery:
            for child in started.values():
                nursery.start_soon(child.status.wait_until, _is_known)
    states = {name: context.state_of(name) for name in started}
    return {"config": context.facts.config, **msgspec.to_builtins(plan), "states": states}


RELOAD = Command("reload", ReloadParams, reload)


def _is_known(status: ServerStatus) -> bool:
    """Whether the outcome of a start is known. A server that waits without a retry is still restarting."""
    waits = status.state in WAITING and status.next_retry_at is None
    return not waits and status.state not in PASSED_THROUGH


# --- switches ---------------------------------------------------------------------------------------------

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
    """A note on a surprising effect of a switch (`facts.Switched`) in the new catalog; empty without one."""
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
        raise Refused(f"{named} is one instance, but all {done} together: write {whole}, or {whole}/TOOL")
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
