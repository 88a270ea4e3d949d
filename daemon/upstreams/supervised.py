"""What a supervisor, and what keeps the instances of a server, need of the actor of a server."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol

from daemon.config.model import StartMode, TransportType
from daemon.ports import Upstream
from daemon.supervision.diagnosis import LINES
from daemon.supervision.lifecycle import ChildSpec

if TYPE_CHECKING:
    from collections.abc import Callable

    from daemon.config.model import Server
    from daemon.counting.measures import CallStats, Noise, StderrTail
    from daemon.facts import ServerStatus
    from daemon.supervision.child import Child
    from daemon.supervision.lifecycle import Lifecycle
    from daemon.upstreams.attribution import Apart
    from daemon.upstreams.handshake import Greeting
    from daemon.upstreams.instances.own_lists import OwnLists
    from daemon.upstreams.keepalive import Keepalive
    from daemon.upstreams.last_use import LastUse
    from daemon.upstreams.listing import ListingStatus
    from daemon.upstreams.runlog import RunLog


LINES_OF_END = 10
"""Lines of stderr that the event of a run's end has: what a program says last is why it ends."""


class SupervisedServer(Upstream, Protocol):
    """The actor of one server, or of one instance of it."""

    server: Server
    """The configuration of the server."""
    child: Child
    """The supervisor's view of it; set once it is added there."""
    log: RunLog
    """What the daemon's log says about its runs."""
    use: LastUse | None
    """When it was last used; None if nothing depends on it."""
    stats: CallStats
    noise: Noise
    stderr: StderrTail
    apart: Apart
    greeting: Greeting | None
    pings: Keepalive | None

    @property
    def pid(self) -> int | None:
        """The process of its first connection."""

    record: Callable[..., None]
    own: OwnLists | None

    async def run(self, lifecycle: Lifecycle) -> None:
        """Run one incarnation; the exception that ends it is the reason."""

    @property
    def in_flight(self) -> int:
        """Calls that wait for the server's answer or are in line for the server."""

    @property
    def queued(self) -> int:
        """Calls in line for the server."""

    @property
    def standing(self) -> ListingStatus:
        """The state of its list of tools."""

    @property
    def has_calls(self) -> bool:
        """Whether calls are in flight, over whichever connection."""

    @property
    def is_busy(self) -> bool:
        """Whether somebody waits for it, follows a resource of it, or has a task there."""

    async def refresh(self) -> str:
        """List everything again now; return what went wrong with the tools, empty if nothing did."""

    def rest(self) -> None:
        """End this run until the next call."""

    def be_gone(self) -> None:
        """Take no new calls any more; those under way go on."""

    def be_replaced(self) -> None:
        """Take no new calls any more: another actor has its name and its child."""

    def restart_drained(self) -> None:
        """End the run that a restart leaves to its calls."""

    def be_forgotten(self) -> None:
        """Note that nobody has its name any more."""


def spec_of(upstream: SupervisedServer, on_status: Callable[[ServerStatus], None] | None = None) -> ChildSpec:
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


def _words(upstream: SupervisedServer, run: int) -> list[str]:
    """What a run has said: a program that prints how it wants to be called may do so on its stdout."""
    first = upstream.noise.first
    return [*([first] if first else []), *upstream.stderr.last(LINES, run)]
