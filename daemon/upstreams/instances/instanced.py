"""A server whose clients have instances of their own, as it stands among the servers that clients share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

import trio

from daemon.counting.measures import CallStats, Noise, StderrTail
from daemon.errors import UpstreamUnavailable
from daemon.states import SERVING
from daemon.upstreams.attribution import Apart
from daemon.upstreams.instances.server_instances import ServerInstances
from daemon.upstreams.listing import ListingStatus
from daemon.upstreams.supervised import SupervisedServer

if TYPE_CHECKING:
    from daemon.catalog.snapshot import Catalog
    from daemon.config.model import Server
    from daemon.ports import CallToSend, Upstream
    from daemon.upstreams.handshake import Greeting
    from daemon.upstreams.keepalive import Keepalive
    from daemon.upstreams.server_actors import ServerActors
    from daemon.wire.requests import Exchange

A = TypeVar("A", bound=SupervisedServer)


class InstancesTogether(Generic[A]):
    """All instances of one server, as operators see it: what cannot be said of all is said of the newest."""

    def __init__(self, server: Server, actors: ServerActors[A], run: int = 0) -> None:
        """Begin without any instance.

        Args:
            server: the configuration of the server.
            actors: runs the actors of instances.
            run: the number of the last run that the catalog knows of the server.
        """
        self.server = server
        self.stats = CallStats()
        self.instances = ServerInstances(server, actors, run, self.stats)
        self.standing = ListingStatus()
        self._none = Noise(), StderrTail(), Apart(server.name)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.server.name}: {len(self.instances.running)} instances>"

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

        async def refresh(actor: A) -> None:
            try:
                problems[actor.name] = await actor.refresh()
            except UpstreamUnavailable as error:
                problems[actor.name] = error.message

        async with trio.open_nursery() as nursery:
            for each in list(self.instances.running.values()):
                nursery.start_soon(refresh, each.actor)
        return "; ".join(f"{name}: {problem}" for name, problem in problems.items() if problem)

    def _newest(self) -> A | None:
        return next((each.actor for each in reversed(self.instances.running.values())), None)


class InstancedServer(InstancesTogether[A]):
    """A server that is no process by itself: `ports.Upstream`, and what operators see of all its instances.

    Calls go to one of its instances, which `instances` finds.
    """

    def __init__(self, server: Server, actors: ServerActors[A], run: int = 0) -> None:
        """Begin without any instance.

        Args:
            server: the configuration of the server.
            actors: runs the actors of instances.
            run: the number of the last run that the catalog knows of the server.
        """
        super().__init__(server, actors, run)
        self.name = self.of = server.name
        self.is_gone = self.is_modern = self.has_resources = self.is_stale = self.can_wake = False
        self.roots: bytes | None = None
        self.second: Upstream | None = None
        self.record = self.stats.record
        self.pings: Keepalive | None = None
        self.pid: int | None = None
        self.children: dict[int, int] = {}

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
