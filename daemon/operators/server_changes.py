"""`mcpd restart`, `refresh` and `reload`, and the actors that a name stands for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import trio

from daemon.catalog.snapshot import ServerEntry
from daemon.clients.workspace import OwnWorkspace
from daemon.config.labels import server_of
from daemon.errors import CallError, InvalidArguments
from daemon.facts import ServerStatus
from daemon.operators.base import (
    OUTCOME_SECONDS,
    Command,
    OneServer,
    OperatorContext,
    ServerOrAll,
)
from daemon.operators.news import difference
from daemon.ports import Holder, Instances, Upstream
from daemon.states import PASSED_THROUGH, WAITING
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
async def own_instance(instances: Instances, place: Whereabouts) -> AsyncIterator[Held]:
    """The instance for the operator's directory, or one that ends with the command; raises `CallError`."""
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


async def restart(context: OperatorContext, params: OneServer) -> dict[str, object]:
    """Restart a server or its instances, in any state; raises `UnknownServer` or `InvalidArguments`."""
    name = params.server
    running = named(context, name)
    for each in running:
        if each.child.off:
            raise InvalidArguments(f"server {name} is {each.child.off}")
    for each in running:
        each.child.restart()
    with trio.move_on_after(OUTCOME_SECONDS):
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
            problem = error.message
    elif is_divided(context, server):
        problem = "none of its instances runs; each lists its tools when it starts"
    else:
        problem = f"server {server} is switched off in the configuration"
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
    """Whether the outcome of a start is known; not if a server waits without a planned retry: it restarts."""
    waits = status.state in WAITING and status.next_retry_at is None
    return not waits and status.state not in PASSED_THROUGH
