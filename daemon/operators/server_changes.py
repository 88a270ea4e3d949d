"""`mcpd restart`, `refresh` and `reload`, and the server or instances that a name given to them means."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import attrs
import msgspec
import trio

from daemon.clients.workspace import OwnWorkspace
from daemon.config.labels import server_of
from daemon.errors import CallError, InvalidArguments
from daemon.kit.wording import camel
from daemon.operators.base import OUTCOME_SECONDS, PASSED_THROUGH, Command, NoParams
from daemon.operators.news import difference
from daemon.ports import Holder
from daemon.states import WAITING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from daemon.catalog.snapshot import ServerEntry
    from daemon.facts import ServerStatus
    from daemon.operators.base import ObservedActor, OperatorContext
    from daemon.ports import Instances, Upstream


NUMBER = 0
"""Stands for operators in the names of instances, `playwright#0`: connections of clients count from 1."""


class Whereabouts(msgspec.Struct, kw_only=True):
    """Where an operator works, for servers whose clients do not share an instance."""

    workspace: str | None = None
    """The directory that the operator names; None if none is named."""
    directory: str | None = None
    """The directory where the command was given."""
    command: str = ""
    """Identifies the command, if it makes several requests: they go to the same instance."""


class Held(msgspec.Struct):
    """An instance that one request of an operator's goes to."""

    upstream: Upstream
    goes_on: bool = False
    """Whether the command has not ended with this request."""


@asynccontextmanager
async def own_instance(instances: Instances, place: Whereabouts) -> AsyncIterator[Held]:
    """The instance for an operator: that of its directory, or one of its own, which ends with the command.

    Raises:
        CallError: there is none for it, as `ports.Instances.of` says.
    """
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
    """Whether a name is that of a server whose clients do not share an instance."""
    upstream = context.upstreams.get(name)
    return upstream is not None and upstream.instances is not None


def named(context: OperatorContext, name: str) -> list[ObservedActor]:
    """What runs under a name: a server, one instance, or all instances of a server, which may be none.

    Raises:
        UnknownServer: no running server has that name, and no instance of one.
    """
    if is_divided(context, name):
        return context.instances_of(name)
    actor = context.actors.get(name)
    if actor is None:
        raise context.unknown(name)
    return [actor]


class RestartParams(msgspec.Struct):
    """The server or the instance to restart; a server's name stands for all of its instances."""

    server: str


async def restart(context: OperatorContext, params: RestartParams) -> dict[str, object]:
    """Restart a server, whatever its state, and report its state a few seconds later.

    Of a server whose clients do not share an instance, all that run are restarted, and each is reported.

    Raises:
        UnknownServer: no running server has that name, and no instance of one.
        InvalidArguments: the server is switched off.
    """
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
    told: dict[str, object] = {"server": name, **context.state_of(name)}
    if is_divided(context, name):
        told["instances"] = {each.name: context.state_of(each.name) for each in running}
    return told


RESTART = Command("restart", RestartParams, restart)


class RefreshParams(msgspec.Struct):
    """The server or the instance to refresh; None means all that are up."""

    server: str | None = None


async def refresh(context: OperatorContext, params: RefreshParams) -> dict[str, object]:
    """Have servers list their tools, all at the same time; each failure is reported as that server's `problem`.

    Of a server whose clients do not share an instance, all that run list theirs, and each is reported.

    Raises:
        UnknownServer: no server has that name, and no instance of one.
    """
    name, entries = params.server, context.catalog.servers
    if name is None:
        names = [each for name, entry in entries.items() if entry.available for each in _running(context, name)]
    elif name in entries:
        names = _running(context, name) or [name]
    elif server_of(name) in entries:
        names = [each.name for each in named(context, name)]
    else:
        raise context.unknown(name)
    told: dict[str, object] = dict.fromkeys(names)
    async with trio.open_nursery() as nursery:
        for name in told:
            # The entry as of now: a reload may remove the server before its task starts.
            nursery.start_soon(_refresh, context, name, entries[server_of(name)], told)
    return {"servers": told}


REFRESH = Command("refresh", RefreshParams, refresh)


def _running(context: OperatorContext, server: str) -> list[str]:
    """What runs of a server, by its own name: the server, or its instances."""
    return [each.name for each in context.actors.values() if each.of == server]


async def _refresh(context: OperatorContext, name: str, before: ServerEntry, told: dict[str, object]) -> None:
    actor, server = context.actors.get(name), before.name
    if actor is not None:
        try:
            problem = await actor.refresh()
        except CallError as error:
            problem = error.message
    elif is_divided(context, server):
        problem = "no instance of it runs; each lists what it offers when it starts"
    else:
        problem = f"server {server} is switched off in the configuration"
    await context.registry.settle()
    after = context.catalog.servers.get(server)
    if after is None:
        told[name] = {"problem": f"server {server} was removed from the configuration meanwhile"}
    else:
        problem = context.redact.of(server)(problem or after.tool_list.problem)
        told[name] = {**difference(before, after), "problem": problem}


async def reload(context: OperatorContext, _params: NoParams) -> dict[str, object]:
    """Apply the configuration; returns the plan, and the states of started servers a few seconds later.

    Raises:
        ConfigError: the configuration is faulty, and nothing was changed.
        Refused: the daemon is shutting down.
    """
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
    carried_out = {camel(field): list(names) for field, names in attrs.asdict(plan, recurse=False).items()}
    states = {name: context.state_of(name) for name in started}
    return {"config": context.facts.config, **carried_out, "states": states}


RELOAD = Command("reload", NoParams, reload)


def _is_known(status: ServerStatus) -> bool:
    """Whether the outcome of a start is known; a waiting server without a next try is being restarted."""
    waits = status.state in WAITING and status.next_retry_at is None
    return not waits and status.state not in PASSED_THROUGH
