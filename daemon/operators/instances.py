"""Which server, or which of its instances, an operator means by a name, or gets."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import msgspec

from daemon.clients.workspace import OwnWorkspace
from daemon.ports import Holder

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

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
