"""One server for callers and operators, whether it is up or down: its counts, its log, the waits for it.

`send` puts calls on the connection in the caller's task; the actor only opens and closes the admission.
"""

from __future__ import annotations

import math
import re
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import trio
from loguru import logger

from daemon.catalog.definitions import fingerprint
from daemon.catalog.snapshot import Catalog
from daemon.causes import Reason
from daemon.config.config_model import Server, Share
from daemon.config.labels import server_of
from daemon.config.tuning import Timeouts
from daemon.counting.measures import CallStats, LogShare, Noise, StderrTail
from daemon.errors import UpstreamUnavailable
from daemon.facts import ServerStatus
from daemon.ports import CallRoute, CallToSend, Instances, Subscribers
from daemon.sandbox.egress import Egress, SeenHosts
from daemon.states import COMING, SERVING, WAKEABLE, ServerState
from daemon.supervision.backoff import Ending, Run
from daemon.supervision.lifecycle import Lifecycle
from daemon.supervision.starts import HOLD_SECONDS, LOOK_SECONDS, Rank
from daemon.supervision.supervisor import Child
from daemon.surfaces.answers import told, what_helps
from daemon.upstreams.call_admission import Admission, Apart
from daemon.upstreams.handshake import Greeting, Keepalive, roots_of
from daemon.upstreams.server_lists import ListingStatus, ServerLists
from daemon.wire.outbox import Outbox
from daemon.wire.requests import Exchange

LINES = 256
"""Last lines of a run that are remembered: a traceback of Node.js has some 30."""

KNOWN = 4 * LINES
"""Lines remembered of all failed runs together; beyond that, the oldest are logged again."""

CHARACTERS = 200
"""Characters of a line that are compared: lines that differ only after them are logged once."""

SAID_AGAIN_FIRST = 60.0
"""Seconds until it is logged again that runs end as before, doubled each time ..."""

SAID_AGAIN_LATEST = 3600.0
"""... up to this: a reader of an hour of log must see that a server does not work."""

_NUMBER = re.compile(r"(?<![0-9a-fA-F])[a-fA-F]*\d[0-9a-fA-F]*")
"""Numbers, decimal or hexadecimal; matched only where one begins, so that the search stays linear."""

_LARGE = re.compile(r"\d{4,}")
"""Large numbers in a reason; small ones matter: an exit status, an errno, an HTTP status."""


class RunLog:
    """Logs the runs of one server: a failure like the one before is counted, not repeated.

    A run after a failed one logs only new lines, until it has been up long enough to be trusted; equal ends are
    logged less and less often. Numbers (times, process ids) are not compared. `mcpd logs` has every line.
    """

    def __init__(self, server: str, *, stable_after: float, wall: Callable[[], float]) -> None:
        """Start before the first run; `stable_after` seconds up make a run trusted (`restart.stableAfter`)."""
        self._server = server
        self._stable_after = stable_after
        self._wall = wall
        self._log = logger.bind(server=server)
        self._share = LogShare()
        self._known: dict[int, None] = {}
        self._said: deque[str] = deque(maxlen=LINES)
        self._reason = ""
        self._failing = False
        self._ready_at: float | None = None
        self._news = False
        self._held = self._untold = 0
        self._alike, self._since = 0, 0.0
        self._due, self._pause = 0.0, SAID_AGAIN_FIRST

    def begin(self, *, failing: bool) -> None:
        """Note that a run begins; `failing` if it follows a failed one, and no operator asked for it."""
        if failing:
            for form in map(_form, self._said):
                self._known.pop(form, None)
                self._known[form] = None
            for form in list(self._known)[: max(0, len(self._known) - KNOWN)]:
                del self._known[form]
        else:
            self._known.clear()
            self._reason = ""
        self._said.clear()
        self._failing, self._ready_at = failing, None
        self._news = False
        self._held = self._untold = 0

    def ready(self) -> None:
        """Note that the server is up."""
        if self._ready_at is None:
            self._ready_at = trio.current_time()
            if self._alike:
                self.say("INFO", "is up again")

    def say(self, level: str, text: str) -> None:
        """Log a line about this run; as DEBUG if it was logged in the runs before."""
        self._log.log(level if self._is_new(text) else "DEBUG", "{}", text)

    def stderr(self, text: str) -> None:
        """Log a line of the server's stderr, if it is new and within the server's share."""
        if self._is_new(text):
            for line in self._share.lines(text, trio.current_time()):
                self._log.info("{}", line)

    def ended(self, number: int, run: Run) -> None:
        """Log that a run has ended, or count it."""
        text = f"run {number} ended: {run.reason.text}"
        if not self._ends_alike(run):
            level = "INFO" if run.ending in {Ending.ASKED, Ending.NORMAL} else "WARNING"
            self._log.bind(event=True).log(level, "{}", text)
            self._alike, self._since = 0, self._wall()
            self._due, self._pause = 0.0, SAID_AGAIN_FIRST
            return
        self._alike += 1
        now = trio.current_time()
        if now < self._due:
            self._log.debug("{}", text)
            return
        self._due = now + self._pause
        self._pause = min(self._pause * 2, SAID_AGAIN_LATEST)
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self._since))
        runs = "as the one before it" if self._alike == 1 else f"as the {self._alike} before it"
        lines = (
            f", with the same {self._held} lines (`mcpd logs {self._server}` has them)" if self._held else ""
        )
        self._log.bind(event=True).warning("{}; {}, since {}{}", text, runs, since, lines)

    def _ends_alike(self, run: Run) -> bool:
        before, self._reason = self._reason, _LARGE.sub("#", run.reason.text)
        known = self._failing and not self._news and not self._is_stable
        return known and before == self._reason and run.ending is not Ending.ASKED

    @property
    def _is_stable(self) -> bool:
        return self._ready_at is not None and trio.current_time() - self._ready_at >= self._stable_after

    def _is_new(self, text: str) -> bool:
        """Whether a line is to be logged; if so, the number of lines suppressed before it is logged first."""
        line = text[:CHARACTERS]
        self._said.append(line)
        if not self._failing or self._is_stable:
            return True
        if _form(line) in self._known:
            self._held += 1
            self._untold += 1
            return False
        if self._untold:
            self._log.info("{} lines as in the runs before", self._untold)
            self._untold = 0
        self._news = True
        return True


def _form(line: str) -> int:
    """The hash that a line is compared by: without its numbers."""
    return hash(_NUMBER.sub("#", line))


LINE_SECONDS = HOLD_SECONDS + 2 * LOOK_SECONDS
"""Seconds that a call waits for a start to begin: a called server next in line has a place by then."""


class Waking:
    """Waits for one server to come up."""

    def __init__(self, timeouts: Timeouts, start_limit: Callable[[], float]) -> None:
        self._timeouts = timeouts
        self._start_limit = start_limit
        self.waiting = 0
        self._awaited_run = 0
        self._since = 0.0

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count a waiter during the block."""
        self.waiting += 1
        try:
            yield
        finally:
            self.waiting -= 1

    async def for_call(self, child: Child) -> None:
        """Cut a backoff short; return once the server is up or has failed, or a call has waited long enough.

        An untried server has its turn and its whole first start, a failed one `timeouts.wake`.
        """
        child.wake()
        if child.status.untried:
            await self._first_start(child)
            return
        with trio.move_on_after(self._timeouts.wake):
            await child.status.wait_settled()

    async def for_list(self, child: Child, *, wholly: bool = False) -> None:
        """As `for_call`, for a caller that needs the list of tools: once per run, and for a shorter time.

        All callers during a run share a deadline: a server that hangs costs one wait. Only the first start
        of a lazy server, or of one that a client has chosen (`wholly`), is waited for as a whole.
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
            await child.status.wait_until(lambda now: now.state not in WAKEABLE or now.attempt > before.attempt)
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
    """The error for a call that is not sent: why, and what to do; `now` in seconds since the epoch."""
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


INSTANCE_IDLE = 600.0
"""Seconds without use after which an instance ends unless `idle` says otherwise: browsers hold much memory."""


def idle_seconds(server: Server) -> float:
    """Seconds without use after which a server or an instance is ended; infinite for never."""
    if server.idle is not None:
        return server.idle
    return math.inf if server.shared_by is Share.ALL else INSTANCE_IDLE


class LastUse:
    """The last use of one server: a call that was sent or has ended."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.at = -math.inf
        """On trio's clock."""

    def note(self) -> None:
        """Note that it is used now."""
        self.at = trio.current_time()

    def counted(self, seconds: Sequence[float], *, ok: bool, stats: tuple[CallStats, ...]) -> None:
        """Count ended calls in each of these."""
        self.note()
        for each in stats:
            each.record(seconds, ok=ok)

    @property
    def due(self) -> float:
        """When it has been unused for long enough, on trio's clock."""
        return self.at + self.seconds


def last_use_of(server: Server) -> LastUse | None:
    """The record of a server's last use; None if nothing depends on it."""
    seconds = idle_seconds(server)
    return LastUse(seconds) if server.instance is not None or seconds < math.inf else None


def succeed(actor: UpstreamAccess, old: UpstreamAccess) -> None:
    """Have an actor go on with the counts and the stderr of one with an earlier configuration."""
    actor.stats, actor.stderr = old.stats, old.stderr
    actor.record = _recorded(actor)
    actor.stderr.begin(old.child.status.runs)


def _recorded(actor: UpstreamAccess) -> Callable[..., None]:
    return actor.stats.record if actor.use is None else partial(actor.use.counted, stats=(actor.stats,))


class UpstreamAccess:
    """One server for clients (`ports.Upstream`), operators and its supervisor."""

    child: Child
    """Set once it is added to its supervisor."""
    run: Callable[[Lifecycle], Awaitable[None]]
    """Runs one incarnation; the exception that ends it is the reason. Set by its actor."""
    end: Callable[[Reason], None]
    """Ends the current run for a reason of the daemon's, which its open calls get. Set by its actor."""

    def __init__(
        self,
        server: Server,
        listing: ServerLists,
        *,
        subscribers: Subscribers,
        outbox: Outbox,
        wall: Callable[[], float],
        start_limit: Callable[[], float],
    ) -> None:
        self.server, self.name, self.of = server, server.label, server.name
        self.listing, self.subscribers, self.wall = listing, subscribers, wall
        self.instances: Instances | None = None
        self.is_gone = self.has_resources = False
        self.is_modern = False
        """Whether it speaks MCP 2026-07-28 (`ports.Upstream`)."""
        self.is_own = server.instance is not None and server.instance.capabilities is not None
        self.roots = roots_of(server)
        self.second: CallRoute | None = None
        self.admission: Admission | None = None
        """The admission to its first connection while that takes calls."""
        self.second_admission: Admission | None = None
        """The same for its second connection (`second`)."""
        self.stats, self.noise, self.stderr = CallStats(), Noise(), StderrTail()
        self.apart = Apart(server.label)
        self.log = RunLog(server.label, stable_after=server.restart.stable_after, wall=wall)
        self.greeting: Greeting | None = None
        self.pings: Keepalive | None = None
        self.lifecycle: Lifecycle | None = None
        self.pid: int | None = None
        """The process of its first connection; None without one."""
        self.children: dict[int, int] = {}
        """The marks of the server's processes by pid: first connection, then second."""
        self.egress: Egress | None = None
        """The proxy of its sandbox, with the hosts that it asked for; None without a sandbox."""
        self.own_catalog: Callable[[Catalog], Catalog] = lambda catalog: catalog
        """The catalog for the clients' calls: an instance's list may differ."""
        self.wait_current = listing.tools.wait_current
        self.use: LastUse | None = last_use_of(server)
        """Its last use; None if nothing depends on it."""
        self.record: Callable[..., None] = _recorded(self)
        self.waking = Waking(server.timeouts, start_limit)
        self._outbox = outbox

    def __repr__(self) -> str:
        return f"<Upstream {self.name}: {'up' if self.admission else 'down'}, {self.stats.calls} calls>"

    @property
    def in_flight(self) -> int:
        """Calls that wait for the server's answer or are in line for the server."""
        return 0 if self.admission is None else len(self.admission)

    @property
    def queued(self) -> int:
        """Calls in line for the server."""
        return 0 if self.admission is None else self.admission.queued

    @property
    def has_calls(self) -> bool:
        """Whether calls are in flight, over either connection."""
        return any(len(each) for each in (self.admission, self.second_admission) if each is not None)

    @property
    def is_busy(self) -> bool:
        """Whether a client waits for it, follows a resource of it, or has a task there."""
        return self.has_calls or self.waking.waiting > 0 or self.subscribers.uses(self.name)

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
        """Whether the server has announced changed tools, and has not listed them since."""
        return self.listing.tools.is_stale

    @property
    def list_status(self) -> ListingStatus:
        """The state of the server's list of tools."""
        return self.listing.tools.status

    def send(self, call: CallToSend, exchange: Exchange, client: int = 0) -> int:
        """Forward a client's call now (`ports.CallRoute.send`)."""
        if self.use is not None:
            self.use.note()
        if self.admission is None:
            raise self._unavailable()
        return self.admission.admit(call, exchange, client)

    def cancel(self, key: int, reason: str) -> None:
        """Give up a call on either connection: no two calls have the same key."""
        for each in (self.admission, self.second_admission):
            if each is not None:
                each.cancel(key, reason)

    def notify(self, method: str) -> None:
        """Send a notification without params over both connections (`ports.Upstream.notify`)."""
        for each in (self.admission, self.second_admission):
            if each is not None:
                each.notify(method)

    async def wake(self) -> bool:
        """Cut a backoff short and wait for the server to come up (`ports.CallRoute.wake`)."""
        if self.admission is None and self.can_wake:
            with self.waking.counted():
                await self.waking.for_call(self.child)
        return self.admission is not None

    async def wake_to_list(self, *, wholly: bool = False) -> bool:
        """As `wake`, for a caller that wants its lists (`ports.Upstream.wake_to_list`)."""
        if self.admission is None and self.can_wake:
            with self.waking.counted():
                await self.waking.for_list(self.child, wholly=wholly)
        return self.admission is not None

    async def refresh(self) -> str:
        """List everything again now; return the problem with the tools; raises UpstreamUnavailable: down."""
        if not await self.wake():
            raise self._unavailable()
        problem = await self.listing.refresh()
        if self.admission is None:
            raise self._unavailable()
        return problem

    @property
    def refused_hosts(self) -> SeenHosts | None:
        """The hosts that its sandbox refused; None without a sandbox."""
        return None if self.egress is None else self.egress.refused

    def shut(self) -> None:
        """Take no more calls over the first connection, and give back the queued ones."""
        self.listing.end()
        if not self.is_gone:
            # Its name may be another's by now.
            self.subscribers.lost(self.name)
        if self.admission is not None:
            admission, self.admission = self.admission, None
            admission.close()
            self._outbox.flush()

    def leave(self, successor: Server | None = None) -> None:
        """Take no new calls, finish those under way; tasks go on only if the successor is the same server."""
        self.is_gone = True
        if successor is None:
            self.subscribers.gone(self.name)
        else:
            self.subscribers.lost(self.name, wholly=fingerprint(successor) != fingerprint(self.server))

    def _unavailable(self) -> UpstreamUnavailable:
        return unavailable(self.name, self.child.status.value, self.wall())
