"""A server as callers and operators reach it, whether it is up or down.

Calls do not pass through the server's actor: `send` puts them on the connection in the caller's own task, and
the answer goes straight back. What the actor opens and closes is the admission to a live connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon.counting.measures import CallStats
from daemon.states import COMING, WAKEABLE
from daemon.upstreams.listing import Listing
from daemon.upstreams.waking import Waking, outlook, unavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from daemon.config.model import Server
    from daemon.errors import UpstreamUnavailable
    from daemon.facts import Fact
    from daemon.ports import CallToSend
    from daemon.safety.redact import Redactor
    from daemon.supervision.child import Child
    from daemon.upstreams.admission import Admission
    from daemon.upstreams.listing import ListingStatus
    from daemon.wire.requests import Exchange


class UpstreamAccess:
    """The way to one server: `ports.Upstream`, and what operators ask of it."""

    child: Child
    """Set once the supervisor knows it."""

    def __init__(
        self,
        server: Server,
        *,
        tell: Callable[[Fact], None],
        wall: Callable[[], float],
        redact: Redactor,
        settle: Callable[[], Awaitable[None]],
        start_limit: Callable[[], float],
    ) -> None:
        """Prepare; the server is down.

        Args:
            server: its configuration.
            tell: leaves a fact with the registry.
            wall: seconds since the epoch.
            redact: takes secrets out of what the server says of itself.
            settle: returns once the registry has taken in what it was told.
            start_limit: seconds that the handshake under way, or the next one, may take.
        """
        self.name = server.name
        self.server = server
        self.tell = tell
        self.stats = CallStats()
        self.listing = Listing(server, tell=tell, wall=wall, redact=redact, settle=settle)
        self.record, self.wait_current = self.stats.record, self.listing.wait_current
        self._wall = wall
        self._waking = Waking(server.timeouts, start_limit)
        self._admission: Admission | None = None

    def __repr__(self) -> str:
        return f"<Upstream {self.name}: {'up' if self._admission else 'down'}, {self.stats.calls} calls>"

    @property
    def in_flight(self) -> int:
        """Calls that wait for the server's answer, or in line for it."""
        return 0 if self._admission is None else len(self._admission)

    @property
    def queued(self) -> int:
        """Calls in line for it."""
        return 0 if self._admission is None else self._admission.queued

    @property
    def can_wake(self) -> bool:
        """Whether a call should wait for `wake` instead of failing at once."""
        state = self.child.status.value.state
        return state in WAKEABLE | COMING and not self.child.pause.held

    @property
    def outlook(self) -> str:
        """How it is, for one who waits for it."""
        return outlook(self.name, self.child.status.value)

    @property
    def is_stale(self) -> bool:
        """Whether it has said that its tools changed, and has not listed them since."""
        return self.listing.is_stale

    @property
    def standing(self) -> ListingStatus:
        """How it does with its list (`upstreams.listing.Listing.standing`)."""
        return self.listing.standing

    def send(self, call: CallToSend, exchange: Exchange, client: int = 0) -> int:
        """Forward a call of a client's now (`ports.Upstream.send`)."""
        if self._admission is None:
            raise self._unavailable()
        return self._admission.admit(call, exchange, client)

    def cancel(self, key: int, reason: str) -> None:
        """Give a call up; one of an earlier connection is gone already."""
        if self._admission is not None:
            self._admission.cancel(key, reason)

    def close_line(self) -> None:
        """Send nothing more: calls in line are answered as not sent. The daemon is going down."""
        if self._admission is not None:
            self._admission.close()

    async def wake(self) -> bool:
        """Cut a wait short and see whether the server comes up in time (`ports.Upstream.wake`)."""
        if self._admission is None and self.can_wake:
            await self._waking.for_call(self.child)
        return self._admission is not None

    async def wake_to_list(self) -> bool:
        """As `wake`, for one who wants to know what it has (`ports.Upstream.wake_to_list`)."""
        if self._admission is None and self.can_wake:
            await self._waking.for_list(self.child)
        return self._admission is not None

    async def refresh(self) -> str:
        """List the tools again now. Returns what went wrong, empty if nothing did.

        Raises:
            UpstreamUnavailable: the server is down, and does not come up for it.
        """
        if not await self.wake():
            raise self._unavailable()
        problem = await self.listing.refresh()
        if self._admission is None:
            raise self._unavailable()
        return problem

    def _unavailable(self) -> UpstreamUnavailable:
        return unavailable(self.name, self.child.status.value, self._wall())
