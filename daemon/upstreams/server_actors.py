"""The actors of all servers and instances, each a child of one supervisor: made, named, and taken out."""

from __future__ import annotations

import os
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

import attrs
import trio

from daemon.config.config_model import StartMode, TransportType
from daemon.host import paths
from daemon.states import ServerState
from daemon.supervision.lifecycle import LINES, ChildSpec

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from daemon.config.config_model import Server
    from daemon.config.redaction import Redactors
    from daemon.facts import Fact, ServerStatus
    from daemon.history.event import Event
    from daemon.ports import Upstream
    from daemon.safety.redact import Redactor
    from daemon.supervision.supervisor import Supervisor
    from daemon.upstreams.upstream_access import UpstreamAccess


LINES_OF_END = 10
"""Lines of stderr that the event of a run's end has: what a program says last is why it ends."""


def spec_of(upstream: UpstreamAccess, on_status: Callable[[ServerStatus], None] | None = None) -> ChildSpec:
    """The specification of a server's actor for its supervisor.

    Args:
        upstream: the actor.
        on_status: called with each new status of an instance; None for a server that all clients share.
    """
    server = upstream.server
    return ChildSpec(
        name=server.label,
        of=server.name,
        run=upstream.run,
        policy=server.restart,
        lazy=server.start is StartMode.LAZY or server.instance is not None,
        spawns=server.type is TransportType.STDIO,
        on_ended=upstream.log.ended,
        told=lambda: {} if upstream.pid is None else {"pid": upstream.pid},
        last_lines=lambda run: upstream.stderr.last(LINES_OF_END, run),
        words=partial(_words, upstream),
        on_status=on_status,
    )


def _words(upstream: UpstreamAccess, run: int) -> list[str]:
    """What a run has said: a program that prints how it wants to be called may do so on its stdout."""
    first = upstream.noise.first
    return [*([first] if first else []), *upstream.stderr.last(LINES, run)]


CALLS_SECONDS = 0.1
"""Seconds between looks at whether the calls of an actor have ended that takes no more: few are, and seldom."""

DRAIN_SECONDS = 10.0
"""Seconds for calls in flight to end when a reload replaces their server. New calls wait meanwhile, and clients
give up after 60 s."""


_leaving = count(1)


@attrs.frozen(kw_only=True)
class Surrounding:
    """What actors are made with, and where they tell what."""

    make: Callable[[Server, Callable[[Fact], None], Redactor], UpstreamAccess]
    """Makes the actor of a server, given where it tells its facts and its redactor."""
    tell: Callable[[Fact], None]
    """Leaves a fact with the registry."""
    redact: Redactors
    """Takes secrets out of what servers say about themselves."""
    wall: Callable[[], float]
    """Seconds since the epoch."""
    note: Callable[[Event], None] = lambda _event: None
    """Takes what happens."""
    home: str = attrs.field(factory=lambda: str(paths.home(os.environ)))
    """The home directory, which names of instances abbreviate."""


class ServerActors:
    """The actors that run."""

    def __init__(self, around: Surrounding, supervisor: Supervisor) -> None:
        """Begin without any.

        Args:
            around: what they are made with.
            supervisor: runs them.
        """
        self.around = around
        self.supervisor = supervisor
        self.running: dict[str, UpstreamAccess] = {}
        """All of them by their own names, instances and those included that only finish their calls; always the
        same dictionary."""
        self.named: dict[str, Upstream] = {}
        """Servers and instances that take calls, by their own names; always the same dictionary."""
        self.sooner = trio.Event()
        """Set when something may be due earlier than it was."""
        self._nursery: trio.Nursery | None = None

    def add(
        self,
        server: Server,
        tell: Callable[[Fact], None],
        on_status: Callable[[ServerStatus], None] | None = None,
    ) -> UpstreamAccess:
        """Make an actor and have it supervised; that of an instance is dormant until it is woken.

        Args:
            server: the configuration of the server, or of the instance.
            tell: where it tells its facts.
            on_status: called with each new status of an instance; None for a server that all clients share.
        """
        actor = self.around.make(server, tell, self.around.redact.of(server.name))
        actor.child = self.supervisor.add(spec_of(actor, on_status))
        if server.instance is not None:
            # At once: whoever has it made is about to wake it.
            actor.child.status.become(ServerState.DORMANT)
        self.running[server.label] = self.named[server.label] = actor
        return actor

    def replace(self, server: Server, tell: Callable[[Fact], None]) -> UpstreamAccess:
        """Put another actor in the place of the one that all clients share, with the same child.

        New calls wait for the next run, which begins once the calls in flight have ended, or after
        `DRAIN_SECONDS`.
        """
        old = self.running[server.name]
        actor = self.around.make(server, tell, self.around.redact.of(server.name))
        actor.child = self.supervisor.children[server.name]
        self.running[server.name] = self.named[server.name] = actor
        old.leave(forgotten=False)
        actor.child.replace(spec_of(actor), DRAIN_SECONDS if old.has_calls else 0.0)
        if old.has_calls:
            self._later(self._drain, old)
        return actor

    async def _drain(self, actor: UpstreamAccess) -> None:
        with trio.move_on_after(DRAIN_SECONDS):
            await _calls_ended(actor)
            # The run that a restart leaves to its calls.
            if actor.lifecycle is not None:
                actor.lifecycle.restart_now()

    def retire(self, actor: UpstreamAccess, reason: str, *, patient: bool) -> None:
        """Have an actor take no new calls, give its name back, and stop it.

        Args:
            actor: the actor.
            reason: why, for operators.
            patient: whether it stops once its calls have ended (`timeouts.callMax` at most), not at once.
        """
        name = actor.name
        actor.leave(forgotten=True)
        del self.running[name]
        if self.named.get(name) is actor:
            del self.named[name]
        self.supervisor.retire(name)
        actor.log.say("INFO", f"takes no more calls: {reason}")
        if patient and actor.has_calls:
            name = f"{name} (ending {next(_leaving)})"
            self.running[name] = actor
            self._later(self._end_after_calls, name, actor, reason)
        else:
            self._later(self._end, actor, reason)

    def restart(self, server: str) -> None:
        """Restart a server that has another login, or its instances that run, unless it is switched off."""
        for each in self.running.values():
            if each.of == server and not each.child.off:
                each.child.restart(by="login")

    async def remove(self, name: str, reason: str) -> None:
        """Stop the actor of a server that all clients share; return once it has cleaned up."""
        self.running.pop(name, None)
        if name in self.supervisor.children:
            await self.supervisor.remove(name, reason)

    async def run(self) -> None:
        """Stop those that are retired, until cancelled."""
        try:
            async with trio.open_nursery() as self._nursery:
                await trio.sleep_forever()
        finally:
            self._nursery = None

    async def _end_after_calls(self, name: str, actor: UpstreamAccess, reason: str) -> None:
        with trio.move_on_after(actor.server.timeouts.call_max):
            await _calls_ended(actor)
        del self.running[name]
        await self._end(actor, reason)

    async def _end(self, actor: UpstreamAccess, reason: str) -> None:
        await self.supervisor.end(actor.child, reason)
        if actor.name not in self.named:
            actor.subscribers.gone(actor.name)

    def _later(self, end: Callable[..., Awaitable[None]], *args: object) -> None:
        # Where nothing runs yet, or any more, there is nothing to stop.
        if self._nursery is not None:
            self._nursery.start_soon(end, *args)


async def _calls_ended(actor: UpstreamAccess) -> None:
    while actor.has_calls:  # noqa: ASYNC110 - nothing else tells when the last call has ended
        await trio.sleep(CALLS_SECONDS)
