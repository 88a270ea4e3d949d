"""The servers' actors under one supervisor, following the configuration and what operators switch off.

Both can change while the daemon runs. A change reaches the catalog first, so that nothing is offered that is
gone, and then the children. Servers that a change does not name are not touched.
"""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import trio

from daemon.catalog.snapshot import WHOLE
from daemon.config.diff import in_force, plan, same
from daemon.config.model import StartMode, TransportType
from daemon.facts import Configured, StatusChanged
from daemon.processes.marks import efforts
from daemon.safety.redact import REASON
from daemon.supervision.lifecycle import ChildSpec
from daemon.supervision.supervisor import Supervisor

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from daemon.catalog.snapshot import Catalog
    from daemon.config.diff import Plan
    from daemon.config.model import Config, Server
    from daemon.config.redaction import Redactors
    from daemon.facts import Fact, ServerStatus
    from daemon.kit.mailbox import Watch
    from daemon.processes.marks import Effort
    from daemon.safety.redact import Redactor
    from daemon.supervision.child import Child
    from daemon.supervision.lifecycle import Lifecycle
    from daemon.upstreams.runlog import RunLog

SWITCHED_OFF = "switched off by an operator: `mcpd enable {}` switches it on again"
"""Why a server is disabled that the configuration enables."""

UNCONFIGURED = "no longer in the configuration"
"""Why a server stops that was removed from the configuration or switched off in it."""


class SupervisedServer(Protocol):
    """The actor of one server, as its supervisor needs it."""

    server: Server
    """The configuration of the server."""
    child: Child
    """The supervisor's view of it; set once it is added there."""
    log: RunLog
    """What the daemon's log says about its runs."""

    async def run(self, lifecycle: Lifecycle) -> None:
        """Run one incarnation; the exception that ends it is the reason."""


A = TypeVar("A", bound=SupervisedServer)


class Servers(Generic[A]):
    """The configured servers, each an actor that the supervisor runs."""

    def __init__(
        self,
        config: Config,
        *,
        make: Callable[[Server, Callable[[Fact], None], Redactor], A],
        catalog: Watch[Catalog],
        tell: Callable[[Fact], None],
        settle: Callable[[], Awaitable[None]],
        redact: Redactors,
        wall: Callable[[], float],
    ) -> None:
        """Make an actor for each server that the configuration enables; nothing is started.

        Args:
            config: the configuration.
            make: makes the actor of a server, given where it tells its facts and its redactor.
            catalog: the newest catalog.
            tell: leaves a fact with the registry.
            settle: returns once the registry has processed the facts it was told.
            redact: takes secrets out of what servers say about themselves.
            wall: seconds since the epoch.
        """
        self._config = config
        self._make = make
        self._newest = catalog
        self._tell = tell
        self._settle = settle
        self._redact = redact
        self._wall = wall
        self._tells: dict[str, _RevocableTell] = {}
        self.upstreams: dict[str, A] = {}
        """The actors by name, in the configuration's order; always the same dictionary."""
        self.supervisor = Supervisor(
            [],
            starts=config.limits.starts,
            on_status=self._on_status,
            rng=random.random,
            wall=wall,
            look=_look,
            redact=lambda name: partial(redact.of(name), most=REASON),
        )
        for server in config.mcp_servers.values():
            if server.enabled:
                self._add(server)

    async def run(self) -> None:
        """Supervise, and follow what operators switch, until cancelled; on return every server has stopped."""
        async with trio.open_nursery() as nursery:
            # Before anything is started: a server that is switched off must not run even for a moment.
            self._follow(self._catalog)
            nursery.start_soon(self._keep_following, self._catalog)
            await self.supervisor.run()

    async def apply(self, config: Config) -> Plan:
        """Apply a configuration, as far as a running daemon can; return what that took.

        One change at a time. Returns once removed servers have stopped; added or restarted ones may still be
        starting. If it is cancelled midway, servers remain that only a stop of the daemon ends.
        """
        old = self._config
        made = plan(old, config)
        config = in_force(old, config)
        if same(old, config):
            # A new catalog, and all that is derived from it, would take time proportional to its tools.
            return made
        self._config = config
        for name in (*made.removed, *made.disabled, *made.restarted):
            # From here on these names mean other servers in the catalog.
            self._revoke(name)
        self._tell(Configured(config=config, now=self._wall()))
        for name in (*made.added, *made.enabled):
            if config.mcp_servers[name].enabled:
                self._add(config.mcp_servers[name])
        self._follow(self._catalog)
        await self._settle()
        for name in made.restarted:
            self._replace(config.mcp_servers[name])
        self._sort()
        await self._stop((*made.removed, *made.disabled))
        return made

    @property
    def _catalog(self) -> Catalog:
        return self._newest.value

    def _add(self, server: Server) -> None:
        upstream = self._upstream(server)
        upstream.child = self.supervisor.add(_spec(upstream))
        self.upstreams[server.name] = upstream

    def _replace(self, server: Server) -> None:
        upstream = self._upstream(server)
        upstream.child = self.supervisor.children[server.name]
        self.upstreams[server.name] = upstream
        upstream.child.replace(_spec(upstream))
        # The catalog took it for new; a dormant or disabled one has nothing else to tell.
        self._on_status(server.name, upstream.child.status.value)

    def _upstream(self, server: Server) -> A:
        tell = self._tells[server.name] = _RevocableTell(self._tell)
        return self._make(server, tell, self._redact.of(server.name))

    def _revoke(self, name: str) -> None:
        tell = self._tells.pop(name, None)
        if tell is not None:
            tell.revoked = True

    def _sort(self) -> None:
        """Put the actors in the configuration's order, without those that are gone from it."""
        enabled = [server.name for server in self._config.mcp_servers.values() if server.enabled]
        ordered = {name: self.upstreams[name] for name in enabled}
        self.upstreams.clear()
        self.upstreams.update(ordered)

    async def _stop(self, names: Iterable[str]) -> None:
        async with trio.open_nursery() as nursery:
            for name in names:
                if name in self.supervisor.children:
                    nursery.start_soon(self.supervisor.remove, name, UNCONFIGURED)

    async def _keep_following(self, seen: Catalog) -> None:
        while True:
            seen = await self._newest.wait_changed(seen)
            self._follow(seen)

    def _follow(self, catalog: Catalog) -> None:
        """Apply what operators switched off, here or through another daemon; the only place that does."""
        for name, child in self.supervisor.children.items():
            if (name, WHOLE) in catalog.switched:
                child.switch_off(SWITCHED_OFF.format(name))
            else:
                child.switch_on()

    def _on_status(self, name: str, status: ServerStatus) -> None:
        server = self._config.mcp_servers.get(name)
        # A server that the configuration disables is shown so at once, not as stopping.
        if server is not None and server.enabled:
            self._tell(StatusChanged(server=name, status=status))


class _RevocableTell:
    """Tells the facts of one actor until another takes its name: its last list is not that of the new one."""

    def __init__(self, tell: Callable[[Fact], None]) -> None:
        self.revoked = False
        self._tell = tell

    def __call__(self, fact: Fact) -> None:
        if not self.revoked:
            self._tell(fact)


async def _look(marks: frozenset[int]) -> Mapping[int, Effort]:
    return await trio.to_thread.run_sync(efforts, marks)


def _spec(upstream: SupervisedServer) -> ChildSpec:
    server = upstream.server
    return ChildSpec(
        name=server.name,
        run=upstream.run,
        policy=server.restart,
        lazy=server.start is StartMode.LAZY,
        spawns=server.type is TransportType.STDIO,
        on_ended=upstream.log.ended,
    )
