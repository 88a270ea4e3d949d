"""What all sessions share, and what is reported about each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from daemon.catalog.loaded import Loaded
from daemon.clients.client import DecidedSurfaces
from daemon.clients.connected_clients import ConnectedClients
from daemon.clients.grants import AgreedCalls, Grants
from daemon.clients.input_required import RequestStates
from daemon.clients.rates import CallRates

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable, Mapping

    from daemon.authorization.login_runs import LoginRuns
    from daemon.catalog.snapshot import Catalog
    from daemon.clients.list_changes import Habit
    from daemon.clients.sessions import Sessions
    from daemon.config.redaction import Redactors
    from daemon.counting.measures import RepairCounts
    from daemon.counting.recent_calls import CallLogger, RecentCalls
    from daemon.counting.tally import Tally
    from daemon.history.event import Event
    from daemon.kit.waiting import Watch
    from daemon.ports import Upstream
    from daemon.search.index import Index
    from daemon.surfaces.surface import Means, Surface
    from daemon.surfaces.table import SurfaceChoice
    from daemon.wire.outbox import Outbox


@attrs.frozen(kw_only=True)
class SessionContext:
    """What all sessions share."""

    catalog: Watch[Catalog]
    """The newest catalog."""
    upstreams: Mapping[str, Upstream]
    """The running servers, by name."""
    surfaces: Mapping[str, Surface]
    """All surfaces, by name."""
    means: Means
    """The services that surfaces use."""
    index: Watch[Index]
    """The newest search index."""
    mended: RepairCounts
    """Counts repaired arguments, by client."""
    sessions: Sessions
    """The sessions in use, with what they have loaded."""
    tally: Tally
    """The daemon's counters."""
    settle_names: Callable[[], None]
    """Fixes the meaning of tool names; called when a client is shown or uses some."""
    settled: Callable[[], Awaitable[None]]
    """Returns once the catalog holds every fact that the registry was told before."""
    outbox: Outbox
    """The daemon's outbox."""
    log: CallLogger
    """The log of calls; writing to it does not block."""
    recent: RecentCalls
    """The last calls, and the last errors of each server."""
    wall: Callable[[], float]
    """Seconds since the epoch."""
    redact: Redactors
    """Removes secrets from what a server says about a failed call."""
    subscribers: ConnectedClients = attrs.field(factory=ConnectedClients)
    """The connected clients, which join it to hear servers' notifications."""
    states: RequestStates = attrs.field(factory=RequestStates)
    """The states of all calls that wait for their clients' input (MCP 2026-07-28)."""
    agreed: AgreedCalls = attrs.field(factory=AgreedCalls)
    """Calls that users have agreed to and that their servers want again."""
    habits: dict[str, Habit] = attrs.field(factory=dict)
    """Which kinds of clients ask for their tools when they are notified of a change, by name and version."""
    rates: CallRates = attrs.field(factory=CallRates)
    """Calls a minute of servers and profiles."""
    links: dict[tuple[str, str], dict[str, str]] = attrs.field(factory=dict)
    """What clients without sessions were given links to (`links.links_of`)."""
    decided: DecidedSurfaces = attrs.field(factory=DecidedSurfaces)
    """The surfaces that were found to fit clients without sessions."""
    logins: LoginRuns | None = None
    """The logins at servers, those under way included; None where nobody is handed one."""
    offered: dict[str, float] = attrs.field(factory=dict)
    """The servers that a client was handed a login for, each with when another one is (`login_links`)."""
    look: Callable[[], Awaitable[None]] | None = None
    """Returns once all that other daemons wrote before now is known here; None where nobody else writes. What a
    client has just loaded at one daemon, the next one may not have been told yet."""
    note: Callable[[Event], None] = lambda _event: None
    """Takes what happens to sessions."""
    gather: Callable[[Event], None] = lambda _event: None
    """Takes refusals of calls, which may be many."""
    moves: Mapping[str, str] = attrs.field(factory=dict)
    """The profiles that operators have given to sessions, by their keys."""


@attrs.frozen(kw_only=True)
class SessionStatistics:
    """A session as `mcpd status` reports it."""

    number: int
    """The connection's number, counted since the daemon started."""
    key: str | None
    """The key of its session; None if that ends with the connection."""
    client: str
    """The name and version that the client gives."""
    protocol: str
    """The protocol revision that it speaks; empty until known."""
    token: str = ""
    """The name of the token that it showed; empty if it showed none, or one without a name."""
    profile: str
    """The name of its profile."""
    surface: str
    """The name of its surface."""
    choice: SurfaceChoice
    """On what grounds it has that."""
    servers: tuple[str, ...] = ()
    """The servers that it sees as themselves; empty: what its surface shows."""
    since: float
    """When the client connected, in seconds since the epoch."""
    calls: int
    """How many tool calls the client has made."""
    in_flight: int
    """How many of its calls have no answer yet."""
    loaded: int
    """How many tools it has loaded."""
    identity: Hashable = None
    """Identifies the session that it has without a key (`SessionState.identity`)."""
    own: Loaded = attrs.field(factory=Loaded, repr=False)
    """What it has loaded in the session that has no key."""
    grants: Grants = attrs.field(factory=Grants, repr=False)
    """What that session may call without its user being asked again."""
    repaired: int
    """How many calls had arguments that were repaired."""
    tokens_not_sent: int | None = 0
    """About how many tokens it was spared; None if it defers tools itself."""
    workspace: str = ""
    """The directory that it works in, its home abbreviated, or why what it has named cannot be used; empty if
    it has named none, and while no server has needed to know."""
    instances: tuple[str, ...] = ()
    """The instances of servers that it uses, by their own names, where clients do not share one."""
