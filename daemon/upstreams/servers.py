"""The servers' actors under one supervisor, following the configuration and what operators switch off.

Both can change while the daemon runs. A change reaches the catalog first, so that nothing is offered that is
gone, and then the children. Servers that a change does not name are not touched. Where clients have instances
of a server, those are children of the same supervisor, and what a change takes away ends with its calls.
"""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING

import trio

from daemon.catalog.snapshot import WHOLE
from daemon.config.config_model import Share
from daemon.config.parse import in_force, plan, same
from daemon.facts import Configured, StatusChanged
from daemon.processes.marks import efforts
from daemon.safety.redact import REASON
from daemon.supervision.supervisor import Supervisor
from daemon.upstreams.instances.instanced import InstancedServer, keep_ending, keep_listing
from daemon.upstreams.server_actors import ServerActors, Surrounding

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping

    from daemon.catalog.snapshot import Catalog
    from daemon.config.config_model import Config, Server
    from daemon.config.parse import Plan
    from daemon.facts import Fact, ServerStatus
    from daemon.kit.mailbox import Watch
    from daemon.processes.marks import Effort
    from daemon.upstreams.upstream_access import UpstreamAccess

SWITCHED_OFF = "switched off by an operator: `mcpd enable {}` switches it on again"
"""Why a server is disabled that the configuration enables."""

UNCONFIGURED = "no longer in the configuration"
"""Why a server stops that was removed from the configuration or switched off in it."""

CHANGED = "its configuration has changed"
"""Why an actor ends in whose place others take calls."""


class Servers:
    """The configured servers, each an actor that the supervisor runs, or the instances that clients have."""

    def __init__(
        self,
        config: Config,
        around: Surrounding,
        *,
        catalog: Watch[Catalog],
        settle: Callable[[], Awaitable[None]],
    ) -> None:
        """Make an actor for each server that the configuration enables; nothing is started.

        Args:
            config: the configuration.
            around: what actors are made with, and where they tell what.
            catalog: the newest catalog.
            settle: returns once the registry has processed the facts it was told.
        """
        self._config = config
        self._newest = catalog
        self._around = around
        self._settle = settle
        self._tells: dict[str, _RevocableTell] = {}
        self.supervisor = Supervisor(
            [],
            starts=config.limits.starts,
            on_status=self._on_status,
            rng=random.random,
            wall=around.wall,
            look=_look,
            note=around.note,
            redact=lambda name: partial(around.redact.of(name), most=REASON),
        )
        self._actors = ServerActors(around, self.supervisor)
        self.restart = self._actors.restart
        self.upstreams: dict[str, UpstreamAccess | InstancedServer] = {}
        """The servers by name, in the configuration's order; always the same dictionary."""
        self.actors: Mapping[str, UpstreamAccess] = self._actors.running
        """All actors that run, instances included, by their own names."""
        self.named = self._actors.named
        """Servers and instances that take calls, by their own names."""
        for server in config.mcp_servers.values():
            if server.enabled:
                self._add(server)

    async def run(self) -> None:
        """Supervise, and follow what operators switch, until cancelled; on return every server has stopped."""
        async with trio.open_nursery() as nursery:
            # Before anything is started: a server that is switched off must not run even for a moment.
            self._follow(self._catalog)
            nursery.start_soon(self._keep_following, self._catalog)
            nursery.start_soon(self._actors.run)
            nursery.start_soon(keep_ending, self.upstreams, self._actors)
            nursery.start_soon(keep_listing, self.upstreams, self._newest)
            await self.supervisor.run()

    async def apply(self, config: Config) -> Plan:
        """Apply a configuration, as far as a running daemon can; return what that took.

        One change at a time. Returns once removed servers have stopped; added or restarted ones may still be
        starting, and instances may be finishing their calls. If it is cancelled midway, servers remain that
        only a stop of the daemon ends.
        """
        old = self._config
        made = plan(old, config)
        config = in_force(old, config)
        if same(old, config):
            # A new catalog, and all that is derived from it, would take time proportional to its tools.
            return made
        self._config = config
        gone = (*made.removed, *made.disabled)
        for name in (*gone, *made.restarted):
            # From here on these names mean other servers in the catalog.
            self._revoke(name)
        self._around.tell(Configured(config=config, now=self._around.wall()))
        for name in (*made.added, *made.enabled):
            if config.mcp_servers[name].enabled:
                self._add(config.mcp_servers[name])
        for name in made.restarted:
            # Before anything is awaited: a call that finds nothing listed must not find the old connection up.
            self._replace(config.mcp_servers[name])
        self._follow(self._catalog)
        await self._settle()
        left = [upstream for name in gone if (upstream := self.upstreams.get(name)) is not None]
        self._sort()
        await self._stop(left)
        return made

    def session_ended(self, session: Hashable) -> None:
        """Note that the last connection of a session has left: its instances end soon, unless it comes back."""
        for each in self.upstreams.values():
            if isinstance(each, InstancedServer):
                each.instances.session_ended(session)

    def session_returned(self, session: Hashable) -> None:
        """Note that a session has a connection again."""
        for each in self.upstreams.values():
            if isinstance(each, InstancedServer):
                each.instances.session_returned(session)

    @property
    def _catalog(self) -> Catalog:
        return self._newest.value

    def _add(self, server: Server) -> None:
        known = self._catalog.servers.get(server.name)
        # What the catalog knows of runs of that name is older than all that is told from now on.
        run = 0 if known is None else known.status.incarnation
        if server.shared_by is Share.ALL:
            upstream = self._actors.add(server, self._revocable(server))
            upstream.child.status.runs = run
            self.upstreams[server.name] = upstream
        else:
            self.upstreams[server.name] = self.named[server.name] = InstancedServer(server, self._actors, run)
        self._actors.sooner.set()

    def _replace(self, server: Server) -> None:
        old = self.upstreams[server.name]
        if not isinstance(old, InstancedServer) and server.shared_by is Share.ALL:
            upstream = self.upstreams[server.name] = self._actors.replace(server, self._revocable(server))
            # The catalog took it for new; a dormant or disabled one has nothing else to tell.
            self._on_status(server.name, upstream.child.status.value)
            self._actors.sooner.set()
            return
        # The name is given back first. No call can come in between.
        if isinstance(old, InstancedServer):
            old.instances.end_all(CHANGED)
        else:
            self._actors.retire(old, CHANGED, patient=True)
        self._add(server)
        self._follow(self._catalog)

    def _revocable(self, server: Server) -> Callable[[Fact], None]:
        tell = self._tells[server.name] = _RevocableTell(self._around.tell)
        return tell

    def _revoke(self, name: str) -> None:
        tell, upstream = self._tells.pop(name, None), self.upstreams.get(name)
        if tell is not None:
            tell.revoked = True
        if isinstance(upstream, InstancedServer):
            upstream.instances.speaks = False

    def _sort(self) -> None:
        """Put the servers in the configuration's order, without those that are gone from it."""
        enabled = [server.name for server in self._config.mcp_servers.values() if server.enabled]
        ordered = {name: self.upstreams[name] for name in enabled}
        for name in self.upstreams.keys() - ordered.keys():
            self.named.pop(name, None)
        self.upstreams.clear()
        self.upstreams.update(ordered)

    async def _stop(self, upstreams: Iterable[UpstreamAccess | InstancedServer]) -> None:
        async with trio.open_nursery() as nursery:
            for upstream in upstreams:
                if isinstance(upstream, InstancedServer):
                    upstream.instances.end_all(UNCONFIGURED)
                else:
                    nursery.start_soon(self._actors.remove, upstream.name, UNCONFIGURED)

    async def _keep_following(self, seen: Catalog) -> None:
        while True:
            seen = await self._newest.wait_changed(seen)
            self._follow(seen)

    def _follow(self, catalog: Catalog) -> None:
        """Apply what operators switched off, here or through another daemon; the only place that does."""
        for name, upstream in self.upstreams.items():
            off = SWITCHED_OFF.format(name) if (name, WHOLE) in catalog.switched else ""
            if isinstance(upstream, InstancedServer):
                upstream.instances.switch(off)
            elif off:
                upstream.child.switch_off(off)
            else:
                upstream.child.switch_on()

    def _on_status(self, name: str, status: ServerStatus) -> None:
        server = self._config.mcp_servers.get(name)
        child = self.supervisor.children.get(name)
        # A server that the configuration disables is shown so at once, not as stopping. One whose name has
        # another by now shows nothing.
        if server is not None and server.enabled and child is not None and child.status.value is status:
            self._around.tell(StatusChanged(server=name, status=status))


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
