"""A server whose clients have instances of their own, as it stands among the servers that clients share.

Such a server is listed once before any client, since an agent may read its list only once: an instance in an
empty directory lists, and ends at once. With `"start": "lazy"` nothing runs before a client. What nobody uses
ends: instances are ended, and servers that all clients share are put to rest (`idle`).
"""

from __future__ import annotations

import math
import tempfile
from functools import partial
from typing import TYPE_CHECKING

import trio
from loguru import logger

from daemon.catalog.definitions import fingerprint
from daemon.config.config_model import StartMode
from daemon.counting.measures import CallStats, Noise, StderrTail
from daemon.errors import CallError, UpstreamUnavailable
from daemon.ports import Holder
from daemon.states import COMING, SERVING, ServerState
from daemon.supervision.starts import Rank
from daemon.upstreams.attribution import Apart
from daemon.upstreams.instances.server_instances import FIRST_LIST, ServerInstances
from daemon.upstreams.server_lists import ListingStatus

if TYPE_CHECKING:
    from collections.abc import Mapping

    from daemon.catalog.snapshot import Catalog
    from daemon.config.config_model import Server
    from daemon.kit.mailbox import Watch
    from daemon.ports import CallToSend, Upstream
    from daemon.upstreams.handshake import Greeting
    from daemon.upstreams.keepalive import Keepalive
    from daemon.upstreams.server_actors import ServerActors
    from daemon.upstreams.upstream_access import UpstreamAccess
    from daemon.wire.requests import Exchange


class InstancedServer:
    """A server that is no process by itself: `ports.Upstream`, and what operators see of all its instances.

    Calls go to one of its instances, which `instances` finds. What cannot be said of all is said of the newest.
    """

    def __init__(self, server: Server, actors: ServerActors, run: int = 0) -> None:
        """Begin without any instance.

        Args:
            server: the configuration of the server.
            actors: runs the actors of instances.
            run: the number of the last run that the catalog knows of the server.
        """
        self.server = server
        self.name = self.of = server.name
        self.stats = CallStats()
        self.instances = ServerInstances(server, actors, run, self.stats)
        self.standing = ListingStatus()
        self.is_gone = self.is_modern = self.has_resources = self.is_stale = self.can_wake = False
        self.roots: bytes | None = None
        self.second: Upstream | None = None
        self.record = self.stats.record
        self.pings: Keepalive | None = None
        self.pid: int | None = None
        self.children: dict[int, int] = {}
        self._none = Noise(), StderrTail(), Apart(server.name)

    def __repr__(self) -> str:
        return f"<InstancedServer {self.name}: {len(self.instances.running)} instances>"

    @property
    def in_flight(self) -> int:
        """Calls that wait for an instance's answer, or are in line for one."""
        return sum(each.actor.in_flight for each in self.instances.running.values())

    @property
    def queued(self) -> int:
        """Calls in line for an instance."""
        return sum(each.actor.queued for each in self.instances.running.values())

    @property
    def noise(self) -> Noise:
        """What the newest instance prints that is not MCP."""
        return self._none[0] if (newest := self._newest()) is None else newest.noise

    @property
    def stderr(self) -> StderrTail:
        """The last lines of the newest instance's stderr."""
        return self._none[1] if (newest := self._newest()) is None else newest.stderr

    @property
    def apart(self) -> Apart:
        """Whether calls of the newest instance are made one client at a time."""
        return self._none[2] if (newest := self._newest()) is None else newest.apart

    @property
    def greeting(self) -> Greeting | None:
        """What the newest instance said in the handshake."""
        return None if (newest := self._newest()) is None else newest.greeting

    async def refresh(self) -> str:
        """Have all instances list everything again now; return what went wrong with the tools, by instance."""
        problems: dict[str, str] = {}

        async def refresh(actor: UpstreamAccess) -> None:
            try:
                problems[actor.name] = await actor.refresh()
            except UpstreamUnavailable as error:
                problems[actor.name] = error.message

        async with trio.open_nursery() as nursery:
            for each in list(self.instances.running.values()):
                nursery.start_soon(refresh, each.actor)
        return "; ".join(f"{name}: {problem}" for name, problem in problems.items() if problem)

    def _newest(self) -> UpstreamAccess | None:
        return next((each.actor for each in reversed(self.instances.running.values())), None)

    @property
    def outlook(self) -> str:
        """The state of the server in words (`ports.Upstream.outlook`)."""
        status = self.instances.status
        return f"server {self.name} is {status.state}" + (f": {status.reason}" if status.reason else "")

    def own_catalog(self, catalog: Catalog) -> Catalog:
        """The catalog as it is: only an instance may list something else."""
        return catalog

    def send(self, call: CallToSend, exchange: Exchange, client: int = 0) -> int:
        """Refuse: a call goes to an instance.

        Raises:
            UpstreamUnavailable: always.
        """
        del call, exchange, client
        text = f"server {self.name} has an instance for each of its clients, and none was chosen for this call."
        raise UpstreamUnavailable(f"{text} The call was not sent.", server=self.name)

    def cancel(self, key: int, reason: str) -> None:
        """Do nothing: no call was sent."""

    def notify(self, method: str) -> None:
        """Tell all instances."""
        for each in list(self.instances.running.values()):
            each.actor.notify(method)

    async def wake(self) -> bool:
        """Return whether an instance is up: without a client none is started."""
        await trio.lowlevel.checkpoint()
        return self.instances.status.state in SERVING

    async def wake_to_list(self, *, wholly: bool = False) -> bool:
        """As `wake`."""
        del wholly
        return await self.wake()

    async def wait_current(self) -> None:
        """Return at once: only an instance has a list."""
        await trio.lowlevel.checkpoint()


LIST_SECONDS = 600.0
"""Seconds after which such an instance is ended: enough for its turn among many starts, and for a package that
is downloaded. The start has the deadlines of every start, too."""

LEAVE_SECONDS = 30.0
"""Seconds that the directory stays for an instance that does not stop: a kill ends nearly all sooner."""

PREFIX = "mcpd-list-"
"""What the names of the directories begin with, among those of TMPDIR."""

_DIRECTORY = partial(tempfile.TemporaryDirectory[str], prefix=PREFIX, ignore_cleanup_errors=True)


async def keep_listing(servers: Mapping[str, UpstreamAccess | InstancedServer], newest: Watch[Catalog]) -> None:
    """List servers once that have instances and no known tools, as they appear, until cancelled.

    Args:
        servers: the servers by name; read again with each catalog.
        newest: the newest catalog, with what the store knows.
    """
    # Never more than there were configurations of servers in this life of the daemon.
    tried: set[tuple[str, str]] = set()
    async with trio.open_nursery() as nursery:
        while True:
            seen = newest.value
            for name, server in servers.items():
                entry = seen.servers.get(name)
                if entry is None or entry.tools is not None or (name, entry.fingerprint) in tried:
                    continue
                if isinstance(server, InstancedServer) and _may_list(server, entry.fingerprint):
                    tried.add((name, entry.fingerprint))
                    nursery.start_soon(_list_once, server)
            await newest.wait_changed(seen)


def _may_list(server: InstancedServer, known: str) -> bool:
    """Whether a server may be started, and is the one whose fingerprint the catalog knows (faulty: none)."""
    configured = server.server
    is_wanted = configured.start is not StartMode.LAZY and not server.instances.off
    return is_wanted and bool(known) and known == fingerprint(configured)


async def _list_once(server: InstancedServer) -> None:
    made = None
    try:
        made = await trio.to_thread.run_sync(_DIRECTORY)
        # A client's instance lists as well.
        if not server.instances.running:
            await _list_in(made.name, server)
    except (OSError, CallError) as error:
        logger.bind(server=server.name).info("is not listed before its first client: {}", error)
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
        # One attempt: the first client makes the next.
        status = await child.status.wait_until(
            lambda now: now.attempt > 0 or now.state not in COMING | {ServerState.DORMANT}
        )
        # The end of the daemon shows as a status before it cancels this task: then the supervisor ends all.
        await trio.lowlevel.checkpoint()
        is_listed = status.state in SERVING
        why = "it has listed" if is_listed else f"it did not come up to list ({status.reason or status.state})"
        actor.log.say("INFO", f"{why}, and no client waits for this instance")
        for each in [each for each in server.instances.running.values() if each.actor is actor]:
            server.instances.end(each, why)
    finally:
        with trio.move_on_after(LEAVE_SECONDS, shield=True):
            await child.left.wait()


async def keep_ending(servers: Mapping[str, UpstreamAccess | InstancedServer], actors: ServerActors) -> None:
    """End instances that are due, and put servers to rest that nobody uses, until cancelled.

    Args:
        servers: the servers by name; read again at each look.
        actors: says when something may be due earlier than it was.
    """
    while True:
        actors.sooner = trio.Event()
        now = trio.current_time()
        looks = [
            each.instances.look(now) if isinstance(each, InstancedServer) else rest_if_unused(each, now)
            for each in list(servers.values())
        ]
        with trio.move_on_at(min(looks, default=math.inf)):
            await actors.sooner.wait()


def rest_if_unused(server: UpstreamAccess, now: float) -> float:
    """Put a server to rest if it is due, and return when to look again, both on trio's clock."""
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
        server.child.rest()
    use.note()
    return use.due
