"""The context that all sessions share, and the statistics of one session."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence

import attrs
import msgspec

from daemon.audit.audit_log import Audit
from daemon.authorization.login_runs import LoginRuns
from daemon.catalog.snapshot import Catalog
from daemon.catalog.tool_results import Observed
from daemon.clients.client import CallRates, DecidedSurfaces
from daemon.clients.connected_clients import ConnectedClients
from daemon.clients.input_required import RequestStates
from daemon.clients.kept_results import KeptResults
from daemon.clients.notifications import Habit
from daemon.clients.sessions import AgreedCalls, Sessions, SessionState
from daemon.config.redaction import Redactors
from daemon.counting.measures import RepairCounts
from daemon.counting.recent_calls import CallLogger, RecentCalls
from daemon.counting.tally import Tally
from daemon.history.event import Event
from daemon.kit.waiting import Watch
from daemon.model import Definition
from daemon.ports import Upstream
from daemon.search.index import Index
from daemon.surfaces.surface import Services, Surface
from daemon.surfaces.table import SurfaceChoice
from daemon.tracing.tracer import Tracer
from daemon.wire.outbox import Outbox


class SessionContext(msgspec.Struct, frozen=True, kw_only=True):
    """The context that all sessions share."""

    catalog: Watch[Catalog]
    upstreams: Mapping[str, Upstream]
    surfaces: Mapping[str, Surface]
    services: Services
    index: Watch[Index]
    mended: RepairCounts
    sessions: Sessions
    tally: Tally
    settle_names: Callable[[], None]
    """Fixes which tool each name means; called when a client is shown tools or uses one."""
    settled: Callable[[], Awaitable[None]]
    """Returns once the catalog holds every fact that the registry has got by now."""
    outbox: Outbox
    log: CallLogger
    recent: RecentCalls
    wall: Callable[[], float]
    """Seconds since the epoch."""
    redact: Redactors
    subscribers: ConnectedClients = msgspec.field(default_factory=ConnectedClients)
    states: RequestStates = msgspec.field(default_factory=RequestStates)
    agreed: AgreedCalls = msgspec.field(default_factory=AgreedCalls)
    """Approved calls that ended with a server's request for input, and will be repeated with the answers."""
    habits: dict[str, Habit] = msgspec.field(default_factory=dict)
    """Whether clients list tools again when notified, by their name and version."""
    rates: CallRates = msgspec.field(default_factory=CallRates)
    links: dict[tuple[str, str], dict[str, str]] = msgspec.field(default_factory=dict)
    decided: DecidedSurfaces = msgspec.field(default_factory=DecidedSurfaces)
    logins: LoginRuns | None = None
    """Logins at servers; None where clients get no links to logins."""
    offered: dict[str, float] = msgspec.field(default_factory=dict)
    """The time at which each server's next login link may be handed out (`login_links`)."""
    approve: Callable[[Sequence[Definition], str, Catalog], Awaitable[object]] | None = None
    """`setup.approving.Approver.approve`, for a client's user; None where users are not asked."""
    pauses: dict[Hashable, float] = msgspec.field(default_factory=dict)
    """The times at which users may be asked again about held definitions (`approvals`)."""
    look: Callable[[], Awaitable[None]] | None = None
    """Returns once the writes of other daemons are known here; None without other daemons."""
    note: Callable[[Event], None] = lambda _event: None
    gather: Callable[[Event], None] = lambda _event: None
    """Records a refused call; refusals may be many."""
    run_script: Callable[..., None]
    """Runs a client's script and answers its call (`script_calls.Scripts.begin`)."""
    tracer: Tracer | None = None
    audit: Audit = msgspec.field(default_factory=Audit)
    observed: Observed
    results: KeptResults = msgspec.field(default_factory=KeptResults)
    moves: Mapping[str, str] = msgspec.field(default_factory=dict)
    """The profiles that operators have given to sessions, by session key."""


@attrs.frozen(kw_only=True)
class SessionStatistics:
    """A session as `mcpd status` reports it."""

    number: int
    key: str | None
    client: str
    protocol: str
    token: str = ""
    """The token's name; empty without a token or a name."""
    profile: str
    surface: str
    choice: SurfaceChoice
    servers: tuple[str, ...] = ()
    """The servers that the client sees as themselves; empty for none."""
    since: float
    """Seconds since the epoch."""
    calls: int
    in_flight: int
    loaded: int
    own: SessionState = attrs.field(factory=lambda: SessionState(None), repr=False)
    """The connection's own session, for requests that name none."""
    repaired: int
    tokens_not_sent: int | None = 0
    """An estimate of the tokens saved; None if the client itself defers tools."""
    workspace: str = ""
    """The directory, or why it cannot be used; empty if none was named or needed."""
    instances: tuple[str, ...] = ()
