"""Reaches one server, up or down, for callers and operators: its counts, its log, and waits for its start.

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
from daemon.counting.measures import LogShare, Noise, StderrTail
from daemon.counting.tally import CallStats
from daemon.errors import UpstreamUnavailable
from daemon.facts import ServerStatus
from daemon.ports import CallRoute, CallToSend, Instances, Subscribers
from daemon.sandbox.egress import Egress, SeenHosts
from daemon.states import COMING, SERVING, WAKEABLE, ServerState, in_sentence
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
"""Most lines of a run that are remembered, the last ones: a traceback of Node.js has some 30."""

KNOWN = 4 * LINES
"""Most lines remembered of all failed runs together; older ones are logged again if they recur."""

CHARACTERS = 200
"""Characters by which lines are compared: lines that differ only after them count as equal."""

SAID_AGAIN_FIRST = 60.0
"""Seconds until the log repeats that runs still end alike; doubled each time."""

SAID_AGAIN_LATEST = 3600.0
"""Longest such pause: each hour of log must show that a server does not work."""

_NUMBER = re.compile(r"(?<![0-9a-fA-F])[a-fA-F]*\d[0-9a-fA-F]*")
"""Decimal or hexadecimal numbers, matched only at their beginning, so that the search stays linear."""

_LARGE = re.compile(r"\d{4,}")
"""Large numbers in a reason; small ones matter, such as an exit status, errno or HTTP status."""


class RunLog:
    """Logs the runs of one server, and only counts failures that repeat.

    A run after a failed one logs only new lines, until it has been up long enough to be trusted; equal failures
    are logged less and less often. Numbers (times, process ids) are not compared. `mcpd logs` has every line.
    """

    def __init__(self, server: str, *, stable_after: float, wall: Callable[[], float]) -> None:
        """A run that has been up for `stable_after` seconds is trusted (`restart.stableAfter`)."""
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
        """Note that a run begins; `failing` if it follows a failed run and no operator asked for it."""
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
        """Log a line about this run; as DEBUG if earlier runs logged the same line."""
        self._log.log(level if self._is_new(text) else "DEBUG", "{}", text)

    def stderr(self, text: str) -> None:
        """Log a line of the server's stderr, if it is new and the server has not used up its share."""
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
        """Whether to log a line; if so, first logs how many lines were suppressed before it."""
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
    """The hash that stands for a line without its numbers."""
    return hash(_NUMBER.sub("#", line))


LINE_SECONDS = HOLD_SECONDS + 2 * LOOK_SECONDS
"""Seconds that a call waits for a start to begin: a called server at the head of the queue begins sooner."""


class Waking:
    """Waits until one server is up."""

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

        A call waits for an untried server's whole first start, and `timeouts.wake` for one that has failed.
        """
        child.wake()
        if child.status.untried:
            await self._first_start(child)
            return
        with trio.move_on_after(self._timeouts.wake):
            await child.status.wait_settled()

    async def for_list(self, child: Child, *, wholly: bool = False) -> None:
        """Like `for_call`, for a caller that needs the list of tools: once per run, and for a shorter time.

        All callers during a run share a deadline, so that a hanging server costs one wait. They wait for a
        whole start only at the first start of a lazy server, or of one that a client has chosen (`wholly`).
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
    ServerState.QUEUED: "Try again in a few seconds: mcpd starts a server that is called before the others.",
}


def unavailable(server: str, status: ServerStatus, now: float) -> UpstreamUnavailable:
    """The error for a call that was not sent: why, and what to do; `now` in seconds since the epoch."""
    due = status.next_retry_at
    wait = None if due is None else max(0.0, due - now)
    hint = _HINTS.get(status.state) or what_helps(server_of(server), status.why)
    retry = "" if wait is None else f" The next attempt is in {wait:.1f} s."
    return UpstreamUnavailable(
        f"server {server} is {in_sentence(status.state)}: {told(status.why) or 'not ready yet'}."
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
    return f"server {server} is {in_sentence(status.state)}" + (f": {status.reason}" if status.reason else "")


INSTANCE_IDLE = 600.0
"""Seconds without use after which an instance ends unless `idle` differs: browsers use much memory."""


def idle_seconds(server: Server) -> float:
    """Seconds without use after which a server becomes dormant or an instance ends; infinite for never."""
    if server.idle is not None:
        return server.idle
    return math.inf if server.shared_by is Share.ALL else INSTANCE_IDLE


class LastUse:
    """The time when one server was last used: when a call was sent or ended."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.at = -math.inf
        """The time, on trio's clock."""

    def note(self) -> None:
        """Note a use now."""
        self.at = trio.current_time()

    def counted(self, seconds: Sequence[float], *, ok: bool, stats: tuple[CallStats, ...]) -> None:
        """Count ended calls in each of `stats`."""
        self.note()
        for each in stats:
            each.record(seconds, ok=ok)

    @property
    def due(self) -> float:
        """The time when the server has been unused long enough, on trio's clock."""
        return self.at + self.seconds


def last_use_of(server: Server) -> LastUse | None:
    """The record of a server's last use; None if the server never ends for lack of use."""
    seconds = idle_seconds(server)
    return LastUse(seconds) if server.instance is not None or seconds < math.inf else None


def succeed(actor: UpstreamAccess, old: UpstreamAccess) -> None:
    """Hand the knowledge of the actor with the earlier configuration over to the new actor."""
    actor.stats, actor.stderr = old.stats, old.stderr
    program, before = (
        (each.command, each.args, each.url, each.confined is None) for each in (actor.server, old.server)
    )
    if program == before:
        # Another one, or the same in the caches of a sandbox, may have to be downloaded first: by one process.
        actor.has_both_eras, actor.opens_both = old.has_both_eras, old.second_admission is not None
    actor.record = _recorded(actor)
    actor.stderr.begin(old.child.status.runs)


def _recorded(actor: UpstreamAccess) -> Callable[..., None]:
    return actor.stats.record if actor.use is None else partial(actor.use.counted, stats=(actor.stats,))


class UpstreamAccess:
    """One server for clients (`ports.Upstream`), operators and its supervisor."""

    child: Child
    """Set when the actor is added to its supervisor."""
    run: Callable[[Lifecycle], Awaitable[None]]
    """Runs one incarnation; the exception that ends it tells why. Set by its actor."""
    end: Callable[[Reason], None]
    """Ends the current run with a reason of the daemon, which open calls get as error. Set by its actor."""

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
        """Whether the server speaks MCP 2026-07-28 (`ports.Upstream`)."""
        self.is_own = server.instance is not None and server.instance.capabilities is not None
        self.roots = roots_of(server)
        self.second: CallRoute | None = None
        self.admission: Admission | None = None
        """The admission to the first connection, while the connection takes calls."""
        self.second_admission: Admission | None = None
        """The admission to the second connection (`second`)."""
        self.has_both_eras = self.opens_both = False
        """Whether a second connection has opened before; if so, the next start opens one without a call."""
        self.stats, self.noise, self.stderr = CallStats(), Noise(), StderrTail()
        self.apart = Apart(server.label)
        self.log = RunLog(server.label, stable_after=server.restart.stable_after, wall=wall)
        self.greeting: Greeting | None = None
        self.pings: Keepalive | None = None
        self.lifecycle: Lifecycle | None = None
        self.pid: int | None = None
        """The process of the first connection, or None."""
        self.children: dict[int, int] = {}
        """The marks of the server's processes by pid, the first connection's before the second's."""
        self.egress: Egress | None = None
        """The proxy of the sandbox, with the hosts that the server asked for; None without a sandbox."""
        self.own_catalog: Callable[[Catalog], Catalog] = lambda catalog: catalog
        """Returns the catalog for the clients' calls: an instance's lists may differ."""
        self.wait_current = listing.tools.wait_current
        self.use: LastUse | None = last_use_of(server)
        self.record: Callable[..., None] = _recorded(self)
        self.waking = Waking(server.timeouts, start_limit)
        self._outbox = outbox

    def __repr__(self) -> str:
        return f"<Upstream {self.name}: {'up' if self.admission else 'down'}, {self.stats.calls} calls>"

    @property
    def in_flight(self) -> int:
        """The number of calls on both connections that wait for the server's answer or are queued."""
        return sum(len(each) for each in (self.admission, self.second_admission) if each is not None)

    @property
    def queued(self) -> int:
        """The number of queued calls on both connections."""
        return sum(each.queued for each in (self.admission, self.second_admission) if each is not None)

    @property
    def is_busy(self) -> bool:
        """Whether a client waits for the server, follows one of its resources, or has a task there."""
        return self.in_flight > 0 or self.waking.waiting > 0 or self.subscribers.uses(self.name)

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
        """Whether the server announced changed tools and has not listed them since."""
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
        """Cancel a call on either connection: each call has another key."""
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
        """As `wake`, for a caller that needs the server's lists (`ports.Upstream.wake_to_list`)."""
        if self.admission is None and self.can_wake:
            with self.waking.counted():
                await self.waking.for_list(self.child, wholly=wholly)
        return self.admission is not None

    async def refresh(self) -> str:
        """List everything again now; return the problem with the tools. Raises UpstreamUnavailable if down."""
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
        """Take no more calls over the first connection, and report the queued ones as not sent."""
        self.listing.end()
        if not self.is_gone:
            # Its name may be another's by now.
            self.subscribers.lost(self.name)
        if self.admission is not None:
            admission, self.admission = self.admission, None
            admission.close()
            self._outbox.flush()

    def leave(self, successor: Server | None = None) -> None:
        """Take no new calls, finish those in flight; tasks go on only if the successor is the same server."""
        self.is_gone = True
        if successor is None:
            self.subscribers.gone(self.name)
        else:
            self.subscribers.lost(self.name, wholly=fingerprint(successor) != fingerprint(self.server))

    def _unavailable(self) -> UpstreamUnavailable:
        return unavailable(self.name, self.child.status.value, self.wall())
