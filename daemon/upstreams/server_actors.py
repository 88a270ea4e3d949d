"""Makes, names and removes the actors of all servers and instances; one supervisor runs them."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import count
from typing import Protocol

import msgspec
import trio

from daemon.config.config_model import Server, StartMode, TransportType
from daemon.config.redaction import Redactors
from daemon.facts import Fact, ServerStatus
from daemon.history.event import Event
from daemon.host import paths
from daemon.ports import Upstream
from daemon.safety.redact import Redactor
from daemon.states import ServerState
from daemon.supervision.lifecycle import LINES, ChildSpec
from daemon.supervision.supervisor import Supervisor
from daemon.upstreams.upstream_access import UpstreamAccess, succeed

LINES_OF_END = 10
"""Most lines of stderr in the event of a run's end: the last lines usually say why it ended."""


def spec_of(upstream: UpstreamAccess, on_status: Callable[[ServerStatus], None] | None = None) -> ChildSpec:
    """The supervisor's specification of an actor; only an instance has `on_status`."""
    server = upstream.server
    return ChildSpec(
        name=server.label,
        of=server.name,
        run=upstream.run,
        policy=server.restart,
        lazy=server.start is StartMode.LAZY or server.instance is not None,
        spawns=server.type is TransportType.STDIO,
        on_ended=upstream.log.ended,
        event_details=lambda: {} if upstream.pid is None else {"pid": upstream.pid},
        last_lines=lambda run: upstream.stderr.last(LINES_OF_END, run),
        words=partial(_words, upstream),
        on_status=on_status,
    )


def _words(upstream: UpstreamAccess, run: int) -> list[str]:
    """The output of a run; includes stdout, where a program may print its usage."""
    first = upstream.noise.first
    return [*([first] if first else []), *upstream.stderr.last(LINES, run)]


CALLS_SECONDS = 0.1
"""Seconds between checks whether a retired actor's calls have ended: there are few."""

DRAIN_SECONDS = 10.0
"""Seconds left to calls in flight when a reload replaces their server; clients give up after 60 s."""


_leaving = count(1)


class Actor(Protocol):
    """The actor of a server (`actors.upstream`)."""

    access: UpstreamAccess


class ActorContext(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of the daemon that every actor needs."""

    make: Callable[[Server, Callable[[Fact], None], Redactor], Actor]
    """Makes the actor of a server; the arguments receive its facts and redact its texts."""
    tell: Callable[[Fact], None]
    redact: Redactors
    wall: Callable[[], float]
    note: Callable[[Event], None] = lambda _event: None
    home: str = msgspec.field(default_factory=lambda: str(paths.home(os.environ)))


class ServerActors:
    """The running actors."""

    def __init__(self, around: ActorContext, supervisor: Supervisor) -> None:
        self.around = around
        self.supervisor = supervisor
        self.running: dict[str, UpstreamAccess] = {}
        """All actors by name, with instances and those that are ending; always the same dictionary."""
        self.named: dict[str, Upstream] = {}
        """Servers and instances that take calls, by name; always the same dictionary."""
        self.sooner = trio.Event()
        """Set when work may be due earlier than planned."""
        self.nursery: trio.Nursery | None = None
        """The nursery that stops retired actors; None before the daemon runs."""

    def add(
        self,
        server: Server,
        tell: Callable[[Fact], None],
        on_status: Callable[[ServerStatus], None] | None = None,
    ) -> UpstreamAccess:
        """Make an actor and add it to the supervisor; an instance's actor is dormant until woken."""
        actor = self.around.make(server, tell, self.around.redact.of(server.name)).access
        actor.child = self.supervisor.add(spec_of(actor, on_status))
        if server.instance is not None:
            # At once: its caller is about to wake it.
            actor.child.status.become(ServerState.DORMANT)
        self.running[server.label] = self.named[server.label] = actor
        return actor

    def replace(self, server: Server, tell: Callable[[Fact], None]) -> UpstreamAccess:
        """Replace a shared server's actor; new calls wait for old ones, for `DRAIN_SECONDS` at most."""
        old = self.running[server.name]
        actor = self.around.make(server, tell, self.around.redact.of(server.name)).access
        actor.child = self.supervisor.children[server.name]
        succeed(actor, old)
        self.running[server.name] = self.named[server.name] = actor
        old.leave(server)
        actor.child.replace(spec_of(actor), DRAIN_SECONDS if old.in_flight else 0.0)
        if old.in_flight:
            self.later(self._drain, old)
        return actor

    async def _drain(self, actor: UpstreamAccess) -> None:
        with trio.move_on_after(DRAIN_SECONDS):
            await _calls_ended(actor)
            # The run that a restart leaves to its calls.
            if actor.lifecycle is not None:
                actor.lifecycle.restart_now()

    def retire(self, actor: UpstreamAccess, reason: str, *, patient: bool) -> None:
        """Take no new calls, free the name, stop; if `patient`, after its calls (`_end_after_calls`)."""
        name = actor.name
        actor.leave()
        del self.running[name]
        if self.named.get(name) is actor:
            del self.named[name]
        self.supervisor.retire(name)
        actor.log.say("INFO", f"takes no more calls: {reason}")
        if patient and actor.in_flight:
            name = f"{name} (ending {next(_leaving)})"
            self.running[name] = actor
            self.later(self._end_after_calls, name, actor, reason)
        else:
            self.later(self._end, actor, reason)

    def restart(self, server: str) -> None:
        """Restart a server whose login changed, or its running instances, unless it is switched off."""
        for each in self.running.values():
            if each.of == server and not each.child.off:
                each.child.restart(by="login")

    async def remove(self, name: str, reason: str) -> None:
        """Stop the actor of a shared server; return once it has cleaned up."""
        self.running.pop(name, None)
        if name in self.supervisor.children:
            await self.supervisor.remove(name, reason)

    async def _end_after_calls(self, name: str, actor: UpstreamAccess, reason: str) -> None:
        """Stop after all calls: a shared server in `DRAIN_SECONDS`, an instance in `timeouts.callMax`."""
        is_shared = actor.server.instance is None
        with trio.move_on_after(DRAIN_SECONDS if is_shared else actor.server.timeouts.call_max):
            await _calls_ended(actor)
        del self.running[name]
        await self._end(actor, reason)

    async def _end(self, actor: UpstreamAccess, reason: str) -> None:
        await self.supervisor.end(actor.child, reason)
        if actor.name not in self.named:
            actor.subscribers.gone(actor.name)

    def later(self, end: Callable[..., Awaitable[None]], *args: object) -> None:
        """Run a task that outlives its caller; none while the daemon stops."""
        if self.nursery is not None and not self.nursery.cancel_scope.cancel_called:
            self.nursery.start_soon(end, *args)


async def _calls_ended(actor: UpstreamAccess) -> None:
    while actor.in_flight:  # noqa: ASYNC110 - nothing else tells when the last call has ended
        await trio.sleep(CALLS_SECONDS)
