"""What all sessions share, and what is told of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import attrs

from daemon.catalog.loaded import Loaded
from daemon.clients.announcements import Habits

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from daemon.catalog.snapshot import Catalog
    from daemon.clients.sessions import Sessions
    from daemon.config.redaction import Redactors
    from daemon.counting.measures import Mended
    from daemon.counting.tally import Tally
    from daemon.kit.watch import Watch
    from daemon.ports import Upstream
    from daemon.search.index import Index
    from daemon.surfaces.base import Means, Surface
    from daemon.wire.outbox import Outbox


class CallLog(Protocol):
    """Where ended calls are noted; must not block."""

    def note(self, session: int, label: str, seconds: float, outcome: str) -> None:
        """Note one call; `outcome` is `ok` or an error code of design.md §6."""


@attrs.frozen(kw_only=True)
class SessionContext:
    """What all sessions share."""

    catalog: Watch[Catalog]
    """The newest catalog."""
    upstreams: Mapping[str, Upstream]
    """Running servers by name."""
    surfaces: Mapping[str, Surface]
    """Surfaces by name."""
    means: Means
    """What surfaces work with."""
    index: Watch[Index]
    """The newest search index."""
    mended: Mended
    """How often arguments had to be repaired, by client."""
    sessions: Sessions
    """What clients have loaded."""
    tally: Tally
    """What is counted."""
    settle_names: Callable[[], None]
    """A client is shown, or uses, names of tools: from now on they mean what they mean."""
    settled: Callable[[], Awaitable[None]]
    """Returns once the catalog holds all that its registry was told before."""
    outbox: Outbox
    """The daemon's outbox."""
    log: CallLog
    """Where calls are noted."""
    wall: Callable[[], float]
    """Seconds since the epoch."""
    redact: Redactors
    """Takes secrets out of what a server says of a call that failed."""
    habits: Habits = attrs.field(factory=Habits)
    """Which kinds of clients ask for their tools when they are told to."""
    moved: Callable[[str | None], str | None] = lambda _key: None
    """The profile that an operator has given the session with this key, if any (`clients.client`)."""


@attrs.frozen(kw_only=True)
class SessionStatistics:
    """How a session is, for `mcpd status`."""

    number: int
    """Counts connections since the daemon started."""
    key: str | None
    """The key of its session; None if that ends with the connection."""
    client: str
    """What the client calls itself."""
    protocol: str
    """The revision it speaks, empty until known."""
    profile: str
    """Its profile."""
    surface: str
    """Its surface."""
    since: float
    """When it connected, in seconds since the epoch."""
    calls: int
    """Tool calls so far."""
    in_flight: int
    """Calls without an answer yet."""
    loaded: int
    """Tools that it has loaded."""
    own: Loaded = attrs.field(factory=Loaded, repr=False)
    """What it has loaded in the session that no key names."""
    repaired: int
    """Calls whose arguments had to be repaired."""
    tokens_not_sent: int | None = 0
    """About how many tokens it was spared; None if it defers tools itself, whatever it is given."""
