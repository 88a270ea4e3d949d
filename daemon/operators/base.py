"""What an operator's command is, and what commands work with.

A command is its file and a line in `table` (docs/operators.md). It reads the catalog and asks actors; it holds
no state of its own, so that one object serves all operators.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import attrs
import msgspec
import trio

from daemon.errors import McpdError, UnknownServer
from daemon.kit.wording import hint
from daemon.ports import Upstream
from daemon.states import COMING, ServerState

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from daemon.catalog.remembered import SessionRecord
    from daemon.catalog.snapshot import Catalog
    from daemon.clients.client import Moves
    from daemon.clients.context import SessionStatistics
    from daemon.config.diff import Plan
    from daemon.config.model import Config
    from daemon.config.redaction import Redactors
    from daemon.counting.measures import CallStats, Noise, RepairCounts, StderrTail
    from daemon.counting.tally import Tally
    from daemon.facts import Fact
    from daemon.kit.mailbox import Watch
    from daemon.processes.peers import Connections
    from daemon.state.health import Persistence
    from daemon.state.session_notes import Totals
    from daemon.supervision.child import Child
    from daemon.surfaces.base import Means
    from daemon.upstreams.listing import ListingStatus
    from daemon.upstreams.own_requests import Greeting
    from daemon.wire.outbox import Outbox

P = TypeVar("P", bound=msgspec.Struct)

OUTCOME_SECONDS = 5.0
"""How long an answer waits for servers to come up or to stop; they go on without it. A stop takes up to 4 s."""


PASSED_THROUGH = COMING | {ServerState.STOPPED, ServerState.STOPPING}
"""States that are passed through: nobody asked for them."""


class Refused(McpdError):
    """A command that cannot be obeyed; the text says why, and what would be."""


@attrs.frozen
class Command(Generic[P]):
    """One command of operators, as the control socket knows it."""

    name: str
    """The JSON-RPC method."""
    params: type[P]
    """What it is asked with; keys that it does not have are ignored."""
    run: Callable[[OperatorContext, P], Awaitable[object]]
    """Does it, and returns what is answered: anything that msgspec encodes as a JSON object. Raises an
    `McpdError` where it is refused."""


class NoParams(msgspec.Struct):
    """The parameters of a command that needs none."""


@attrs.frozen(kw_only=True)
class DaemonFacts:
    """What does not change while the daemon runs."""

    version: str
    """Of mcpd."""
    pid: int
    """Our process id."""
    started_at: float
    """Seconds since the epoch."""
    socket: str
    """Where clients connect."""
    control_socket: str
    """Where operators connect."""
    config: str
    """The configuration file."""
    directory: str = ""
    """Where it was started: what is relative begins there."""
    state: str = ""
    """The state directory."""
    unrecorded: str = ""
    """Why what it starts is not written down there (`processes.starts`); empty if it is."""
    environ: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    """Its environment, which nobody else can read. Only what every server gets of it is shown, and names."""


class CatalogWriter(Protocol):
    """The registry, as commands need it (`actors.registry`)."""

    catalog: Watch[Catalog]

    def tell(self, fact: Fact) -> None:
        """Leave a fact."""

    async def settle(self) -> None:
        """Return once everything told so far is in the catalog."""


class ObservedUpstream(Upstream, Protocol):
    """A server as operators see it: they call it as clients do, and look at how it does."""

    stats: CallStats
    noise: Noise
    stderr: StderrTail
    greeting: Greeting | None
    pid: int | None
    mark: int | None

    @property
    def in_flight(self) -> int:
        """Calls without an answer yet."""

    @property
    def standing(self) -> ListingStatus:
        """How it does with its list of tools."""

    async def refresh(self) -> str:
        """List its tools now; returns what went wrong, empty if nothing did.

        Raises:
            CallError: it is not up, and cannot be woken.
        """


class Archive(Protocol):
    """What outlives the daemon (`actors.recorder`)."""

    persistence: Watch[Persistence]
    """How keeping it goes."""
    totals: Totals
    """What was counted, over all restarts."""

    async def kept(self) -> bool:
        """Whether what operators have switched is on disk, after a bounded wait."""

    async def sessions(self, limit: int) -> tuple[SessionRecord, ...]:
        """The sessions used last, newest first.

        Raises:
            McpdError: they cannot be read now.
        """

    async def recall(self, key: str) -> SessionRecord | None:
        """One session; None if there is none of this key.

        Raises:
            McpdError: it cannot be known now.
        """


class LiveSession(Protocol):
    """An open connection of a client (`actors.session`)."""

    number: int
    """Counts connections."""

    @property
    def key(self) -> str | None:
        """The key of its session; None if that ends with the connection."""

    def statistics(self) -> SessionStatistics:
        """How it is doing."""

    def move(self, profile: str) -> None:
        """Serve it another profile from now on, and tell its client."""


@attrs.frozen(kw_only=True)
class Clients:
    """Who is connected, and through which door."""

    live: Callable[[], Iterable[LiveSession]]
    """Open connections of clients."""
    in_use: Callable[[], Iterable[tuple[SessionRecord, int]]]
    """Sessions with a key that are in use, as they are in memory, each with the number of its connections: a
    connection may take part in several."""
    moves: Moves
    """Which sessions were given another profile."""
    connections: Callable[[], Mapping[str, Connections]]
    """How many are connected through each door, and how many were refused."""

    def statistics(self) -> list[SessionStatistics]:
        """How each open connection is doing."""
        return [session.statistics() for session in self.live()]


@attrs.frozen(kw_only=True)
class Counters:
    """What is counted while the daemon runs."""

    tally: Tally
    """Calls, loads, lists."""
    mended: RepairCounts
    """How often arguments had to be repaired, by client."""
    summarizer: Callable[[], Mapping[str, object] | None]
    """How the model that shortens descriptions does, by field; None where there is none."""
    export: Callable[[], Awaitable[str]]
    """All metrics as text; raises `InvalidArguments` where they are off."""


@attrs.frozen(kw_only=True)
class OperatorContext:
    """What operators' commands work with."""

    facts: DaemonFacts
    """About the daemon."""
    registry: CatalogWriter
    """Knows the catalog."""
    upstreams: Mapping[str, ObservedUpstream]
    """Running servers by name, as callers see them."""
    children: Mapping[str, Child]
    """The same, as the supervisor knows them."""
    reload: Callable[[], Awaitable[Plan]]
    """Reads the configuration and puts it in force (`actors.reloader`)."""
    archive: Archive
    """What outlives the daemon."""
    clients: Clients
    """Who is connected."""
    counters: Counters
    """What is counted."""
    means: Means
    """What surfaces work with."""
    redact: Redactors
    """Takes secrets out of what servers said."""
    outbox: Outbox
    """The daemon's outbox."""
    wall: Callable[[], float]
    """Seconds since the epoch."""
    switching: trio.Lock = attrs.field(factory=trio.Lock, repr=False)
    """Held while something is switched: what is off is told as a whole set, so that one must see another's."""

    @property
    def catalog(self) -> Catalog:
        """The newest catalog."""
        return self.registry.catalog.value

    @property
    def config(self) -> Config:
        """The configuration as it is now."""
        return self.catalog.config

    def state_of(self, server: str) -> dict[str, str]:
        """The state of a server and why it is in it; both empty if there is none of that name."""
        child, entry = self.children.get(server), self.catalog.servers.get(server)
        # The child's own if it has one: what it told last may not be in the catalog yet.
        if child is not None:
            status = child.status.value
        elif entry is not None:
            status = entry.status
        else:
            return {"state": "", "reason": ""}
        return {"state": str(status.state), "reason": self.redact.of(server)(status.reason)}

    def unknown(self, server: str) -> UnknownServer:
        """Why a server cannot be meant that does not run."""
        servers = self.catalog.servers
        if server in servers:
            return UnknownServer(f'server {server} is switched off in the configuration ("enabled": false)')
        return UnknownServer(f"no server is named {server!r}. {hint(server, servers)}")
