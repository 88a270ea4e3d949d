"""Keeps the servers' actors in line with the configuration and operators' switches.

A change reaches the catalog before the children, so that clients are offered nothing that is gone; other
servers stay unchanged. An instance in an empty directory lists a divided server before a client connects, as an
agent may read the list once only.
"""

from __future__ import annotations

import math
import os
import random
import tempfile
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from functools import partial

import trio
from loguru import logger

from daemon.catalog.definitions import fingerprint
from daemon.catalog.snapshot import WHOLE, Catalog
from daemon.config.config_model import Config, Server, Share, StartMode
from daemon.config.labels import LISTING
from daemon.config.parse import Plan, in_force, plan, same
from daemon.counting.measures import Noise, StderrTail
from daemon.counting.tally import CallStats
from daemon.errors import CallError, UpstreamUnavailable
from daemon.facts import Configured, Fact, ServerStatus, StatusChanged
from daemon.kit.waiting import Watch
from daemon.ports import CallRoute, CallToSend, Holder
from daemon.processes.marks import Effort, efforts
from daemon.safety.redact import REASON
from daemon.sandbox.egress import SeenHosts
from daemon.states import COMING, SERVING, WAITING, ServerState
from daemon.supervision.starts import Rank
from daemon.supervision.supervisor import Supervisor
from daemon.upstreams.call_admission import Apart
from daemon.upstreams.handshake import Greeting, Keepalive
from daemon.upstreams.server_actors import ActorContext, ServerActors
from daemon.upstreams.server_instances import FIRST_LIST, ServerInstances
from daemon.upstreams.server_lists import ListingStatus
from daemon.upstreams.upstream_access import UpstreamAccess, outlook, succeed
from daemon.wire.requests import Exchange


class InstancedServer:
    """A divided server, whose instances run its calls: `ports.Upstream`. Operators see all or the newest."""

    def __init__(self, server: Server, actors: ServerActors, run: int = 0) -> None:
        self.server = server
        self.name = self.of = server.name
        self.stats = CallStats()
        self.instances = ServerInstances(server, actors, run, self.stats)
        self.list_status = ListingStatus()
        self.is_gone = self.is_modern = self.has_resources = self.is_stale = self.can_wake = self.is_own = False
        self.roots: bytes | None = None
        self.second: CallRoute | None = None
        self.record = self.stats.record
        self.pings: Keepalive | None = None
        self.pid: int | None = None
        self.children: dict[int, int] = {}
        self._none = Noise(), StderrTail(), Apart(server.name)
        self._later = actors.later

    def __repr__(self) -> str:
        return f"<InstancedServer {self.name}: {len(self.instances.running)} instances>"

    @property
    def in_flight(self) -> int:
        """The calls that wait for an instance's answer or are queued."""
        return sum(each.actor.in_flight for each in self.instances.running.values())

    @property
    def queued(self) -> int:
        """The calls that are queued for an instance."""
        return sum(each.actor.queued for each in self.instances.running.values())

    @property
    def noise(self) -> Noise:
        """Output of the newest instance that is not MCP."""
        return self._none[0] if (newest := self._newest()) is None else newest.noise

    @property
    def stderr(self) -> StderrTail:
        """The last lines of the newest instance's stderr."""
        if (newest := self._newest()) is not None:
            return newest.stderr
        return self._none[1] if self.instances.failed is None else self.instances.failed[1]

    @property
    def apart(self) -> Apart:
        """Whether the newest instance gets one client's calls at a time."""
        return self._none[2] if (newest := self._newest()) is None else newest.apart

    @property
    def greeting(self) -> Greeting | None:
        """The newest instance's greeting."""
        return None if (newest := self._newest()) is None else newest.greeting

    @property
    def refused_hosts(self) -> SeenHosts | None:
        """The hosts that the sandboxes of its instances refused."""
        return self.instances.refused_hosts

    async def list_again(self) -> None:
        """List with an instance that serves no client; the listing goes on if the caller is cancelled."""
        listed = trio.Event()

        async def run() -> None:
            await _list_once(self)
            listed.set()

        self._later(run)
        await listed.wait()

    def _newest(self) -> UpstreamAccess | None:
        return next((each.actor for each in reversed(self.instances.running.values())), None)

    @property
    def outlook(self) -> str:
        """The state of the server in words (`ports.Upstream.outlook`)."""
        return outlook(self.name, self.instances.status)

    def own_catalog(self, catalog: Catalog) -> Catalog:
        """The catalog unchanged: only an instance can have lists that differ."""
        return catalog

    def send(self, call: CallToSend, exchange: Exchange, client: int = 0) -> int:
        """Raise UpstreamUnavailable: a call must go to an instance."""
        del call, exchange, client
        text = f"server {self.name} has an instance for each client, and no instance was chosen for this call."
        raise UpstreamUnavailable(f"{text} The call was not sent.", server=self.name)

    def cancel(self, key: int, reason: str) -> None:
        """Do nothing: no call was sent."""

    def notify(self, method: str) -> None:
        """Notify all instances."""
        for each in list(self.instances.running.values()):
            each.actor.notify(method)

    async def wake(self) -> bool:
        """Return whether an instance is up; starts none, because an instance needs a client."""
        await trio.lowlevel.checkpoint()
        return self.instances.status.state in SERVING

    async def wake_to_list(self, *, wholly: bool = False) -> bool:
        """Return whether an instance is up, as `wake` does."""
        del wholly
        return await self.wake()

    async def wait_current(self) -> None:
        """Return at once: only instances have lists."""
        await trio.lowlevel.checkpoint()


LIST_SECONDS = 600.0
"""Most seconds for an instance that only lists: enough for the queue of starts and a download."""

LEAVE_SECONDS = 30.0
"""Seconds that the directory stays while the instance does not stop: a kill ends nearly all sooner."""

_DIRECTORY = partial(tempfile.TemporaryDirectory[str], prefix=LISTING, ignore_cleanup_errors=True)


async def keep_listing(servers: Mapping[str, UpstreamAccess | InstancedServer], newest: Watch[Catalog]) -> None:
    """List once each divided server without known tools, whenever one appears, until cancelled."""
    # By name, so that a server that goes back to an earlier configuration is listed again.
    tried: dict[str, str] = {}
    async with trio.open_nursery() as nursery:
        while True:
            seen = newest.value
            tried = {name: known for name, known in tried.items() if name in seen.servers}
            for name, server in servers.items():
                entry = seen.servers.get(name)
                if not isinstance(server, InstancedServer) or entry is None or entry.tools is not None:
                    continue
                if tried.get(name) != entry.fingerprint and _may_list(server, entry.fingerprint):
                    tried[name] = entry.fingerprint
                    nursery.start_soon(_list_once, server)
            await newest.wait_changed(seen)


def _may_list(server: InstancedServer, known: str) -> bool:
    """Whether a server may start, and has the fingerprint that the catalog knows (empty if faulty)."""
    configured = server.server
    is_wanted = configured.start is not StartMode.LAZY and not server.instances.off
    return is_wanted and bool(known) and known == fingerprint(configured)


async def _list_once(server: InstancedServer) -> None:
    made = None
    try:
        made = await trio.to_thread.run_sync(_DIRECTORY)
        # A client's instance lists as well.
        if not server.instances.running:
            await _list_in(await trio.to_thread.run_sync(os.path.realpath, made.name), server)
    except (OSError, CallError) as error:
        logger.bind(server=server.name).info("could not be listed before its first client: {}", error)
    finally:
        if made is not None:
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(made.cleanup)


async def _list_in(directory: str, server: InstancedServer) -> None:
    holder = Holder(session=object(), number=0, owner=FIRST_LIST, workspace=directory)
    child = (actor := server.instances.of(holder)).child
    if actor.use is not None:
        actor.use.seconds = LIST_SECONDS
    child.wake(Rank.OTHER)
    try:
        # One attempt: the first client makes the next. It counts as one once its last words are read.
        status = await child.status.wait_until(
            lambda now: now.attempt > 0 or now.state not in COMING | {ServerState.DORMANT, ServerState.BACKOFF}
        )
        # The end of the daemon shows as a status before it cancels this task: then the supervisor ends all.
        await trio.lowlevel.checkpoint()
        is_listed = status.state in SERVING
        why = "it has listed" if is_listed else f"it did not come up to list ({status.reason or status.state})"
        if status.state in WAITING - {ServerState.NEEDS_AUTH}:
            server.instances.failed = status, actor.stderr
        actor.log.say("INFO", f"{why}, and no client waits for this instance")
        for each in [each for each in server.instances.running.values() if each.actor is actor]:
            server.instances.end(each, why)
    finally:
        with trio.move_on_after(LEAVE_SECONDS, shield=True):
            await child.left.wait()


async def keep_ending(servers: Mapping[str, UpstreamAccess | InstancedServer], actors: ServerActors) -> None:
    """End instances that are due, and make unused servers dormant, until cancelled."""
    while True:
        actors.sooner = trio.Event()
        now = trio.current_time()
        looks = [
            each.instances.end_due(now) if isinstance(each, InstancedServer) else idle_if_unused(each, now)
            for each in list(servers.values())
        ]
        with trio.move_on_at(min(looks, default=math.inf)):
            await actors.sooner.wait()


def idle_if_unused(server: UpstreamAccess, now: float) -> float:
    """Make a server dormant if it is due; return when to check again, on trio's clock."""
    use = server.use
    if use is None:
        return math.inf
    if use.due > now:
        return use.due
    is_up = server.child.status.value.state in SERVING
    # One that was never used counts from the first look.
    if is_up and use.at > -math.inf and not server.is_busy:
        server.log.say("INFO", f"unused for {use.seconds:g} s (idle): it is ended until the next call")
        server.shut()
        server.child.go_idle()
    use.note()
    return use.due


SWITCHED_OFF = "switched off by an operator: `mcpd enable {}` switches it on again"
"""The reason for a server that the configuration enables and an operator has switched off."""

UNCONFIGURED = "removed from the configuration, or switched off there"
"""The reason for a server that a reload ends."""

CHANGED = "its configuration has changed"


class Servers:
    """The configured servers: each has an actor under the supervisor, or an instance for each client."""

    def __init__(
        self,
        config: Config,
        around: ActorContext,
        *,
        catalog: Watch[Catalog],
        settle: Callable[[], Awaitable[None]],
    ) -> None:
        self._config = config
        self._newest = catalog
        self._around = around
        self._settle = settle
        self._speaking: dict[str, object] = {}
        """By server, a token of the actor whose facts count: the list of a replaced server must not count."""
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
        """All running actors by name, instances included."""
        self.named = self._actors.named
        self._off: dict[str, UpstreamAccess] = {}
        """The last actors of servers that the configuration switches off."""
        for server in config.mcp_servers.values():
            if server.enabled:
                self._add(server)

    async def run(self) -> None:
        """Supervise, and apply operators' switches, until cancelled; on return every server has stopped."""
        async with trio.open_nursery() as nursery:
            # Before anything is started: a server that is switched off must not run even for a moment.
            self._follow(self._catalog)
            nursery.start_soon(self._keep_following, self._catalog)
            self._actors.nursery = nursery
            nursery.start_soon(keep_ending, self.upstreams, self._actors)
            nursery.start_soon(keep_listing, self.upstreams, self._newest)
            try:
                await self.supervisor.run()
            finally:
                self._actors.nursery = None

    async def apply(self, config: Config) -> Plan:
        """Apply a configuration as far as a running daemon can, one at a time; return the changes made.

        Returns once idle removed servers have stopped; others may be starting, or finishing their calls.
        If cancelled midway, it leaves servers that only the daemon's stop ends.
        """
        old = self._config
        made = plan(old, config)
        config = in_force(old, config)
        if same(old, config):
            # A new catalog, and everything derived from it, takes time proportional to its tools.
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
        was = {each.name: each for each in left if isinstance(each, UpstreamAccess)} | self._off
        self._off = {name: was[name] for name in was if name in config.mcp_servers}
        self._sort()
        await self._stop(left)
        return made

    def session_ended(self, session: Hashable) -> None:
        """Note that a session's last connection has closed: its instances end soon unless it returns."""
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
        # The catalog's runs of that name are older than any fact from now on.
        run = 0 if known is None else known.status.incarnation
        if server.shared_by is Share.ALL:
            upstream = self._actors.add(server, self._tell_of(server))
            upstream.child.status.runs = run
            if (old := self._off.pop(server.name, None)) is not None:
                succeed(upstream, old)
            self.upstreams[server.name] = upstream
        else:
            self.upstreams[server.name] = self.named[server.name] = InstancedServer(server, self._actors, run)
        self._actors.sooner.set()

    def _replace(self, server: Server) -> None:
        old = self.upstreams[server.name]
        if not isinstance(old, InstancedServer) and server.shared_by is Share.ALL:
            upstream = self.upstreams[server.name] = self._actors.replace(server, self._tell_of(server))
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

    def _tell_of(self, server: Server) -> Callable[[Fact], None]:
        token = self._speaking[server.name] = object()

        def tell(fact: Fact) -> None:
            if self._speaking.get(server.name) is token:
                self._around.tell(fact)

        return tell

    def _revoke(self, name: str) -> None:
        self._speaking.pop(name, None)
        if isinstance(upstream := self.upstreams.get(name), InstancedServer):
            upstream.instances.speaks = False

    def _sort(self) -> None:
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
                elif upstream.in_flight:
                    self._actors.retire(upstream, UNCONFIGURED, patient=True)
                else:
                    nursery.start_soon(self._actors.remove, upstream.name, UNCONFIGURED)

    async def _keep_following(self, seen: Catalog) -> None:
        while True:
            seen = await self._newest.wait_changed(seen)
            self._follow(seen)

    def _follow(self, catalog: Catalog) -> None:
        """Apply operators' switches, made here or at another daemon; nothing else applies them."""
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


async def _look(marks: frozenset[int]) -> Mapping[int, Effort]:
    return await trio.to_thread.run_sync(efforts, marks)
