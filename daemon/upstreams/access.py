"""One server as callers and operators reach it, whether it is up or down, and how long they wait for it.

Calls do not pass through the server's actor: `send` puts them on the connection in the caller's own task, and
the answer goes straight back. The actor only opens and closes the admission to a live connection. A call waits
for a server that is down longer than a request for what the server offers.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import trio

from daemon.config.labels import server_of
from daemon.counting.measures import CallStats
from daemon.errors import UpstreamUnavailable
from daemon.states import COMING, SERVING, WAKEABLE, ServerState
from daemon.supervision.starts import HOLD_SECONDS, LOOK_SECONDS, Rank
from daemon.surfaces.answers import told, what_helps
from daemon.upstreams.attribution import Apart
from daemon.upstreams.server_actors import LastUse, last_use_of
from daemon.upstreams.server_lists import ServerLists

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from daemon.config.model import Server
    from daemon.config.tuning import Timeouts
    from daemon.facts import Fact, ServerStatus
    from daemon.ports import CallToSend, Instances, Upstream
    from daemon.safety.redact import Redactor
    from daemon.supervision.child import Child
    from daemon.upstreams.admission import Admission
    from daemon.upstreams.instances.own_lists import OwnLists
    from daemon.upstreams.server_lists import ListingStatus
    from daemon.wire.requests import Exchange

LINE_SECONDS = HOLD_SECONDS + 2 * LOOK_SECONDS
"""Seconds that a call waits for a start to begin: a called server that is next in line has a place by then."""


class Waking:
    """Waits for one server to come up."""

    def __init__(self, timeouts: Timeouts, start_limit: Callable[[], float]) -> None:
        """Start with nobody waiting.

        Args:
            timeouts: the server's timeouts.
            start_limit: seconds that the handshake under way, or the next one, may take.
        """
        self._timeouts = timeouts
        self._start_limit = start_limit
        self.waiting = 0
        """How many wait."""
        self._awaited_run = 0
        self._since = 0.0

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count somebody who waits during the block."""
        self.waiting += 1
        try:
            yield
        finally:
            self.waiting -= 1

    async def for_call(self, child: Child) -> None:
        """Cut a backoff short; return once the server is up or has failed, or a call has waited long enough.

        Whether a server that was never tried works is not known yet: its turn and its whole first start are
        waited for. One that has failed or gone down is waited for no longer than `timeouts.wake`.
        """
        child.wake()
        if child.status.untried:
            await self._first_start(child)
            return
        with trio.move_on_after(self._timeouts.wake):
            await child.status.wait_settled()

    async def for_list(self, child: Child, *, wholly: bool = False) -> None:
        """As `for_call`, for a caller that wants to know the tools: once for each run, and not as long.

        All that ask during one run share a deadline, and do not wait after it: a server that hangs costs one
        wait, not one for each answer. Only the first start of a lazy server, which nobody else would start, and
        that of one that a client has chosen is waited for as a whole; it goes before all but those for calls.

        Args:
            child: the server's.
            wholly: whether the client has chosen this server.
        """
        state = child.status.value.state
        run = child.status.value.incarnation + (state not in COMING | SERVING)
        if run != self._awaited_run:
            self._awaited_run, self._since = run, trio.current_time()
        is_first = child.status.untried and (wholly or child.spec.lazy)
        child.wake(Rank.LISTED if is_first else Rank.OTHER)
        with trio.move_on_at(self._since + (self._whole_start if is_first else self._timeouts.wake)):
            await child.status.wait_settled()

    async def _first_start(self, child: Child) -> None:
        before = child.status.value
        with trio.move_on_after(LINE_SECONDS) as line:
            await child.status.wait_until(
                lambda now: now.state not in WAKEABLE or now.attempt > before.attempt,
            )
        if not line.cancelled_caught:
            with trio.move_on_after(self._whole_start):
                # It may have failed already, which only the newest state shows.
                await child.status.wait_settled(since=before)

    @property
    def _whole_start(self) -> float:
        return self._timeouts.probe + self._start_limit()


_HINTS = {
    ServerState.STARTING: "Try again in a few seconds.",
    ServerState.QUEUED: "Try again in a few seconds: a server that is called is started before the others.",
}


def unavailable(server: str, status: ServerStatus, now: float) -> UpstreamUnavailable:
    """The error for a call that is not sent: why, and what to do.

    Args:
        server: the server's name.
        status: the server's state, and why it is in it.
        now: seconds since the epoch.
    """
    due = status.next_retry_at
    wait = None if due is None else max(0.0, due - now)
    hint = _HINTS.get(status.state) or what_helps(server_of(server), status.why)
    retry = "" if wait is None else f" The next attempt is in {wait:.1f} s."
    return UpstreamUnavailable(
        f"server {server} is {status.state}: {told(status.why) or 'not ready yet'}."
        f" The call was not sent.{retry} {hint or 'Try again later, or use another tool.'}",
        server=server,
        state=str(status.state),
        reason=status.reason,
        cause=status.cause,
        **status.why.diagnosis,
        attempt=status.attempt,
        nextRetryInMs=None if wait is None else round(wait * 1000),
    )


def outlook(server: str, status: ServerStatus) -> str:
    """The state of a server in words, for a caller that waits for it."""
    return f"server {server} is {status.state}" + (f": {status.reason}" if status.reason else "")


class UpstreamAccess:
    """Access to one server: `ports.Upstream`, and what operators ask of it."""

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
        """Start with the server down.

        Args:
            server: the server's configuration.
            tell: leaves a fact with the registry.
            wall: seconds since the epoch.
            redact: takes secrets out of what the server says about itself.
            settle: returns once the registry has processed the facts it was told.
            start_limit: seconds that the handshake under way, or the next one, may take.
        """
        self.name = server.label
        self.of = server.name
        self.instances: Instances | None = None
        self.is_gone = False
        self.has_resources = False
        self.second: Upstream | None = None
        self.server = server
        self.is_modern = False
        """Whether it speaks MCP 2026-07-28 (`ports.Upstream`)."""
        self.tell = tell
        self.stats = CallStats()
        self.apart = Apart(server.label)
        """Whether calls are made one client at a time."""
        self.listing = ServerLists(server, tell=tell, wall=wall, redact=redact, settle=settle)
        self.record: Callable[..., None] = self.stats.record
        self.wait_current = self.listing.tools.wait_current
        self.own: OwnLists | None = None
        """What it lists, if other instances of its server may list something else."""
        self.use: LastUse | None = last_use_of(server)
        """When it was last used; None if nothing depends on it."""
        if self.use is not None:
            self.record = partial(self.use.counted, stats=(self.stats,))
        self._wall = wall
        self.waking = Waking(server.timeouts, start_limit)
        self._admission: Admission | None = None

    def __repr__(self) -> str:
        return f"<Upstream {self.name}: {'up' if self._admission else 'down'}, {self.stats.calls} calls>"

    @property
    def in_flight(self) -> int:
        """Calls that wait for the server's answer or are in line for the server."""
        return 0 if self._admission is None else len(self._admission)

    @property
    def queued(self) -> int:
        """Calls in line for the server."""
        return 0 if self._admission is None else self._admission.queued

    @property
    def is_up(self) -> bool:
        """Whether calls are taken."""
        return self._admission is not None

    @property
    def can_wake(self) -> bool:
        """Whether a call should wait for `wake` instead of failing at once."""
        state = self.child.status.value.state
        return state in WAKEABLE | COMING and not self.child.pause.held

    @property
    def outlook(self) -> str:
        """The state of the server in words (`ports.Upstream.outlook`)."""
        return outlook(self.name, self.child.status.value)

    @property
    def is_stale(self) -> bool:
        """Whether the server has announced that its tools changed, and has not listed them since."""
        return self.listing.tools.is_stale

    @property
    def standing(self) -> ListingStatus:
        """The state of its list of tools (`upstreams.listing.Listing.standing`)."""
        return self.listing.tools.standing

    def send(self, call: CallToSend, exchange: Exchange, client: int = 0) -> int:
        """Forward a client's call now (`ports.Upstream.send`)."""
        if self.use is not None:
            self.use.note()
        if self._admission is None:
            raise self._unavailable()
        return self._admission.admit(call, exchange, client)

    def cancel(self, key: int, reason: str) -> None:
        """Give up a call; a call of an earlier connection has ended already."""
        if self._admission is not None:
            self._admission.cancel(key, reason)

    async def wake(self) -> bool:
        """Cut a backoff short and wait for the server to come up (`ports.Upstream.wake`)."""
        if self._admission is None and self.can_wake:
            with self.waking.counted():
                await self.waking.for_call(self.child)
        return self._admission is not None

    async def wake_to_list(self, *, wholly: bool = False) -> bool:
        """As `wake`, for a caller that wants to know what it offers (`ports.Upstream.wake_to_list`)."""
        if self._admission is None and self.can_wake:
            with self.waking.counted():
                await self.waking.for_list(self.child, wholly=wholly)
        return self._admission is not None

    async def refresh(self) -> str:
        """List everything again now; return what went wrong with the tools, empty if nothing did.

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
