"""The servers: their actors under one supervisor, in line with the configuration and what operators switch off.

Both can change while the daemon runs. A change reaches the catalog first, so that nothing is offered that is
gone; then the children. Whatever a change does not name is not touched.
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
    from daemon.supervision.child import Child
    from daemon.supervision.lifecycle import Lifecycle
    from daemon.upstreams.runlog import RunLog

SWITCHED_OFF = "switched off by an operator: `mcpd enable {}` switches it on again"
"""Why a server is disabled that the configuration has switched on."""

UNCONFIGURED = "no longer in the configuration"
"""Why a server stops that was removed or switched off there."""


class SupervisedServer(Protocol):
    """The actor of one server, as its supervisor needs it."""

    server: Server
    """Its configuration."""
    child: Child
    """Set once the supervisor knows it."""
    log: RunLog
    """What the daemon's log has of its runs."""

    async def run(self, lifecycle: Lifecycle) -> None:
        """Live once; the exception that ends it is why."""


A = TypeVar("A", bound=SupervisedServer)


class Servers(Generic[A]):
    """The configured servers, each an actor that the supervisor runs."""

    def __init__(
        self,
        config: Config,
        *,
        make: Callable[[Server, Callable[[Fact], None]], A],
        catalog: Watch[Catalog],
        tell: Callable[[Fact], None],
        settle: Callable[[], Awaitable[None]],
        redact: Redactors,
        wall: Callable[[], float],
    ) -> None:
        """Make an actor of each server that the configuration has switched on; nothing is started.

        Args:
            config: the configuration.
            make: makes the actor of a server, which leaves its facts with what it is given.
            catalog: the newest catalog.
            tell: leaves a fact with the registry.
            settle: returns once the registry has taken in what it was told.
            redact: takes secrets out of what they say of themselves.
            wall: seconds since the epoch.
        """
        self._config = config
        self._make = make
        self._newest = catalog
        self._tell = tell
        self._settle = settle
        self._wall = wall
        self._tells: dict[str, _RevocableTell] = {}
        self.upstreams: dict[str, A] = {}
        """By name, in the configuration's order; always the same object."""
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
        """Supervise, and follow what operators switch, until cancelled; then every server has stopped."""
        async with trio.open_nursery() as nursery:
            # Before anything is started: what is switched off must not run even for a moment.
            self._follow(self._catalog)
            nursery.start_soon(self._keep_following, self._catalog)
            await self.supervisor.run()

    async def apply(self, config: Config) -> Plan:
        """Put a configuration in force, as far as a running daemon can; returns what that took.

        Only one change at a time. Returns once what was removed has stopped; what was added or restarted may
        still be starting. Cancelled on the way, it leaves servers that only a stop of the daemon ends.
        """
        old = self._config
        made = plan(old, config)
        config = in_force(old, config)
        if same(old, config):
            # A new catalog would be made, and all that is made from it: that takes as long as it has tools.
            return made
        self._config = config
        for name in (*made.removed, *made.disabled, *made.restarted):
            # From here on the catalog means others by these names.
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
        # The catalog took it for new; one that sleeps or is switched off has nothing else to tell.
        self._on_status(server.name, upstream.child.status.value)

    def _upstream(self, server: Server) -> A:
        tell = self._tells[server.name] = _RevocableTell(self._tell)
        return self._make(server, tell)

    def _revoke(self, name: str) -> None:
        tell = self._tells.pop(name, None)
        if tell is not None:
            tell.revoked = True

    def _sort(self) -> None:
        """In the configuration's order, without those that are gone from it: nobody calls them any more."""
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
        """The only place where what operators switch off reaches servers, here or through another daemon."""
        for name, child in self.supervisor.children.items():
            if (name, WHOLE) in catalog.switched:
                child.switch_off(SWITCHED_OFF.format(name))
            else:
                child.switch_on()

    def _on_status(self, name: str, status: ServerStatus) -> None:
        server = self._config.mcp_servers.get(name)
        # One that the configuration has switched off is shown so from the first moment, not as stopping.
        if server is not None and server.enabled:
            self._tell(StatusChanged(server=name, status=status))


class _RevocableTell:
    """Tells facts for one actor until another has its name: an old actor's last list is not the new one's."""

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
