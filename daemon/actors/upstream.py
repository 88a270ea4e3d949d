"""One upstream server: opened, greeted, listed, kept alive, and called.

`run` is one life of the connection, from opening to loss; the supervisor decides about the next. Calls do not
pass through this actor's task: `send` puts them on the connection in the caller's own, and the answer goes
straight back. What the actor's tasks do meanwhile: list again when told to, ping when it is silent, give up on
calls that show no life.
"""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from daemon.admission import Admission
from daemon.cataloguing import Listing
from daemon.causes import HEALTHY, Cause, Reason
from daemon.errors import (
    Busy,
    CallError,
    ConnectionLost,
    ProtocolFault,
    RunError,
    UpstreamLost,
    UpstreamTimeout,
    UpstreamUnavailable,
    leaf,
)
from daemon.measures import STDERR_LINE, CallStats, Noise, StderrTail
from daemon.model import Era
from daemon.runlog import RunLog
from daemon.states import COMING, WAKEABLE
from daemon.transports.context import OpenContext
from daemon.transports.handshake import Greeter, Greeting, ProbeKilled
from daemon.transports.keepalive import fallen_silent
from daemon.transports.opening import connector
from daemon.upstreams.refusals import outlook, unavailable
from daemon.upstreams.waking import Waking

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from daemon.cataloguing import ListingStatus
    from daemon.config.model import Server
    from daemon.facts import Fact
    from daemon.ports import CallToSend, Connection
    from daemon.redact import Redactor
    from daemon.supervision.supervisor import Child, Lifecycle
    from daemon.transports.children import Children
    from daemon.wire.outbox import Outbox
    from daemon.wire.peer import Exchange

INSTALLERS = frozenset({"npx", "uvx", "docker", "podman", "bunx", "pnpm", "pipx"})
"""Commands whose first start may download what they run: they get `timeouts.firstInitialize`."""

EXPIRY_CHECKS = 1.0
"""Seconds between looks for calls that timed out, while any are in flight."""

REASON_SECONDS = 0.5
"""How long a lost request waits for the connection itself to tell the reason."""


class Upstream:
    """A server, up or down: `ports.Upstream` for callers, `ports.ConnectionEvents` for its connection."""

    child: Child
    """Set by the tree once the supervisor knows it."""

    def __init__(
        self,
        server: Server,
        *,
        outbox: Outbox,
        children: Children,
        tell: Callable[[Fact], None],
        wall: Callable[[], float],
        redact: Redactor,
        settle: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint,
    ) -> None:
        """Prepare; nothing is started.

        Args:
            server: its configuration.
            outbox: the daemon's outbox.
            children: the daemon's child processes.
            tell: leaves a fact with the registry.
            wall: seconds since the epoch.
            redact: takes secrets out of what the server says of itself.
            settle: returns once the registry has taken in what it was told.
        """
        self.name = server.name
        self.server = server
        self.stats = CallStats()
        self.noise = Noise()
        self.stderr = StderrTail()
        self.greeting: Greeting | None = None
        self.pid: int | None = None
        self.mark: int | None = None
        self._context = OpenContext(server=server, events=self, outbox=outbox, children=children)
        self._tell = tell
        self._wall = wall
        self._redact = redact
        self.log = RunLog(server.name, stable_after=server.restart.stable_after, wall=wall)
        self._admission: Admission | None = None
        self._greeter = Greeter()
        self._was_ready = False
        self._waking = Waking(server.timeouts, self._start_limit)
        self._listing = Listing(server, tell=tell, wall=wall, redact=redact, settle=settle)
        self._busy = trio.Event()
        self._lifecycle: Lifecycle | None = None
        self._connection: Connection | None = None
        self._end_asked = trio.Event()
        self._end_reason = HEALTHY

    def __repr__(self) -> str:
        return f"<Upstream {self.name}: {'up' if self._admission else 'down'}, {self.stats.calls} calls>"

    # --- ports.Upstream: what sessions and operators do -----------------------------------------------------

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

    def send(self, call: CallToSend, exchange: Exchange, client: int = 0) -> int:
        """Forward a call of a client's now (`ports.Upstream.send`)."""
        if self._admission is None:
            raise self._unavailable()
        self._busy.set()
        return self._admission.admit(call, exchange, client)

    def cancel(self, key: int, reason: str) -> None:
        """Give a call up; one of an earlier connection is gone already."""
        if self._admission is not None:
            self._admission.cancel(key, reason)

    async def wake(self) -> bool:
        """Cut a wait short and see whether the server comes up in time (`ports.Upstream.wake`)."""
        if self._admission is not None or not self.can_wake:
            return self._admission is not None
        await self._waking.for_call(self.child)
        return self._admission is not None

    async def wake_to_list(self) -> bool:
        """As `wake`, for one who wants to know what it has (`ports.Upstream.wake_to_list`)."""
        if self._admission is None and self.can_wake:
            await self._waking.for_list(self.child)
        return self._admission is not None

    @property
    def outlook(self) -> str:
        """How it is, for one who waits for it."""
        return outlook(self.name, self.child.status.value)

    @property
    def is_stale(self) -> bool:
        """Whether it has said that its tools changed, and has not listed them since."""
        return self._listing.is_stale

    async def wait_current(self) -> None:
        """Return once its list is current, or late enough (`ports.Upstream.wait_current`)."""
        await self._listing.wait_current()

    async def refresh(self) -> str:
        """List the tools again now. Returns what went wrong, empty if nothing did.

        Raises:
            UpstreamUnavailable: the server is down, and does not come up for it.
        """
        if not await self.wake():
            raise self._unavailable()
        problem = await self._listing.refresh()
        if self._admission is None:
            raise self._unavailable()
        return problem

    @property
    def standing(self) -> ListingStatus:
        """How it does with its list (`cataloguing.Listing.standing`)."""
        return self._listing.standing

    def record(self, seconds: float, *, ok: bool) -> None:
        """Count a call of ours that ended."""
        self.stats.record(seconds, ok=ok)

    # --- one life ------------------------------------------------------------------------------------------

    async def run(self, lifecycle: Lifecycle) -> None:
        """Connect, serve until the connection is lost.

        Raises:
            RunError: why the life ended; the supervisor reads it.
        """
        self._lifecycle = lifecycle
        self.log.begin(failing=self.child.status.value.attempt > 0)
        self._greeter.begin()
        try:
            await self._connect(lifecycle)
        except ProbeKilled:
            self.log.say("INFO", "ended when asked for the newer protocol; starting again without asking")
            self.log.retried()
            self._greeter.begin(probing=False)
            await self._connect(lifecycle)

    def end(self, reason: Reason) -> None:
        """End this run for a reason of ours, which its calls are told."""
        if self._connection is None or self._lifecycle is None or self._end_asked.is_set():
            return
        self._end_reason = reason
        self._end_asked.set()
        self._lifecycle.ending(reason)
        self._shut()
        for _key, exchange in self._connection.expire(idle=0.0, total=0.0):
            exchange.lost(UpstreamLost(f"{reason.text}; whether the call ran is unknown", server=self.name))
        self._context.outbox.flush()

    async def _connect(self, lifecycle: Lifecycle) -> None:
        try:
            async with await connector(self._context) as self._connection:
                await self._hold(self._connection, lifecycle)
        except Busy as busy:
            lifecycle.hold_off(busy.wait)
            raise

    async def _hold(self, connection: Connection, lifecycle: Lifecycle) -> None:
        self._end_asked = trio.Event()
        try:
            await self._live(connection, lifecycle)
        except ProbeKilled:
            raise
        except Exception as error:
            # Told at once: the clean-up of the connection may take seconds.
            ours = Reason(str(error), Cause.INTERNAL, {"error": str(error)})
            lifecycle.ending(error.reason if isinstance(error, RunError) else ours)
            raise
        finally:
            self._shut()
            self.pid = self.mark = self._connection = None

    async def _live(self, connection: Connection, lifecycle: Lifecycle) -> None:
        """Everything between an open connection and its loss; raises the plain error, never a group."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(connection.run)
                nursery.start_soon(self._await_end)
                try:
                    self.greeting = await self._greet(connection)
                    await self._serve(connection, self.greeting, lifecycle)
                except* UpstreamLost:
                    # The receiving task is about to say why, with the exit status.
                    await trio.sleep(REASON_SECONDS)
                    raise ConnectionLost("the connection was lost") from None
        except BaseExceptionGroup as group:
            raise leaf(group) from None

    async def _await_end(self) -> None:
        await self._end_asked.wait()
        why = self._end_reason
        raise ConnectionLost(why.text, why.cause, **why.data)

    async def _greet(self, connection: Connection) -> Greeting:
        return await self._greeter.greet(connection, self.server.timeouts, installs=self._may_install)

    def _start_limit(self) -> float:
        return self._greeter.limit(self.server.timeouts, installs=self._may_install)

    @property
    def _may_install(self) -> bool:
        return not self._was_ready and Path(self.server.command or "").name in INSTALLERS

    async def _serve(self, connection: Connection, greeting: Greeting, lifecycle: Lifecycle) -> None:
        self.log.say("INFO", f"speaks MCP {greeting.version}: {greeting.server_info}")
        async with trio.open_nursery() as nursery:
            if greeting.era is Era.MODERN and greeting.announces_changes:
                # Before the first list: a change between the two would be missed.
                nursery.start_soon(self._listing.listen, connection)
                await trio.lowlevel.checkpoint()
            self._listing.begin(connection, lifecycle.incarnation, greeting)
            listed = await self._listing.list_now()
            self._admission = Admission(self.name, connection, self.server.limits)
            self._was_ready = True
            self._greeter.is_up()
            self._report(lifecycle, self.standing.problem)
            nursery.start_soon(self._listing.keep, listed, partial(self._report, lifecycle))
            nursery.start_soon(self._keep_alive, connection, greeting.era)
            nursery.start_soon(self._expire_calls, connection)

    def _report(self, lifecycle: Lifecycle, problem: Reason) -> None:
        if problem.cause:
            lifecycle.degraded(problem)
        else:
            lifecycle.ready()
            self.log.ready()

    async def _keep_alive(self, connection: Connection, era: Era) -> None:
        self.end(await fallen_silent(connection, era, self.server.timeouts))

    async def _expire_calls(self, connection: Connection) -> None:
        timeouts = self.server.timeouts
        while True:
            await self._busy.wait()
            self._busy = trio.Event()
            while connection.in_flight:
                await trio.sleep(min(EXPIRY_CHECKS, timeouts.call / 4, timeouts.queue / 4))
                for _key, exchange in connection.expire(idle=math.inf, total=timeouts.call_max):
                    exchange.lost(self._timeout(f"took more than {timeouts.call_max:g} s in all", "callMax"))
                for _key, exchange in connection.expire(idle=timeouts.call, total=math.inf):
                    exchange.lost(self._timeout(f"showed no life for {timeouts.call:g} s", "call"))
                if self._admission is not None:
                    self._admission.expire(timeouts.queue)
                self._context.outbox.flush()

    def _shut(self) -> None:
        """Take no more calls, and give those in line back."""
        self._listing.end()
        if self._admission is not None:
            admission, self._admission = self._admission, None
            admission.close()
            self._context.outbox.flush()

    def close_line(self) -> None:
        """Send nothing more: calls in line are answered as not sent. The daemon is going down."""
        if self._admission is not None:
            self._admission.close()

    # --- ports.ConnectionEvents ----------------------------------------------------------------------------

    def on_list_changed(self) -> None:
        """Remember to list again; the debounce makes one of many."""
        self._listing.is_asked_for()

    def on_lost(self, reason: str) -> None:
        """Take no more calls from this very moment: the clean-up, and the reason, take longer."""
        if self._admission is not None and self._lifecycle is not None:
            self._lifecycle.ending(Reason(reason, Cause.CONNECTION_LOST))
            self._shut()

    def on_noise(self, line: bytes, problem: str) -> None:
        """Count what is no protocol; too much of it degrades the server.

        Raises:
            ProtocolFault: it is a flood: reading it costs everybody else's time.
        """
        too_much = self.noise.add(line, trio.current_time(), self._redact.cut)
        if self.noise.count == 1:
            self.log.say("WARNING", f"prints something that is not MCP ({problem}): {self.noise.first!r}")
        text = f"floods its stdout with what is not MCP, e.g. {self.noise.first!r}"
        if self.noise.is_unbearable:
            raise ProtocolFault(text, Cause.NOISE, first=self.noise.first)
        if too_much and self._admission is not None and self._lifecycle is not None:
            self._lifecycle.degraded(Reason(text, Cause.NOISE, {"first": self.noise.first}))

    def on_child(self, pid: int, mark: int) -> None:
        """Remember the child for `mcpd status`."""
        self.pid = pid
        self.mark = mark
        if self._lifecycle is not None:
            self._lifecycle.runs_as(mark)
        self.log.say("INFO", f"started {self.server.command} as pid {pid}")

    def on_log(self, said: bytes) -> None:
        """Keep and log a line of its stderr."""
        text = self._redact.cut(said, STDERR_LINE)
        self.stderr.add(text)
        self.log.stderr(text)

    # --- texts ---------------------------------------------------------------------------------------------

    def _timeout(self, what: str, key: str) -> CallError:
        return UpstreamTimeout(
            f"server {self.name} {what} (timeouts.{key}); it was told to cancel, whether the call ran is"
            " unknown. Find out before you repeat it, and ask for less at once.",
            server=self.name,
        )

    def _unavailable(self) -> UpstreamUnavailable:
        return unavailable(self.name, self.child.status.value, self._wall())
