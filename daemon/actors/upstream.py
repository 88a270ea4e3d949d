"""The actor of one upstream server, for one connection after the other.

`run` is one incarnation, from opening the connection to losing it; the supervisor decides about the next. How
callers reach the server meanwhile is described in `upstreams.access`, and what becomes of what the server says
of its own accord in `upstreams.events`. While connected, the actor's tasks list
the tools when asked to, ping the server when it is silent, and give up calls that show no sign of life.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import trio

from daemon.causes import HEALTHY, Cause, Reason
from daemon.config.model import EraWish
from daemon.errors import (
    Busy,
    ConnectionLost,
    RunError,
    UpstreamLost,
    leaf,
)
from daemon.model import Era
from daemon.upstreams.admission import Admission, keep_expiring
from daemon.upstreams.events import UpstreamEvents
from daemon.upstreams.handshake import Greeter, Greeting
from daemon.upstreams.instances.own_lists import capabilities_of
from daemon.upstreams.keepalive import Keepalive
from daemon.upstreams.second import SecondConnection
from daemon.upstreams.transports.opening import OpenContext, connector
from daemon.upstreams.watched import WatchedServer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from daemon.config.model import Server
    from daemon.facts import Fact
    from daemon.ports import Audience, UpstreamConnection
    from daemon.safety.redact import Redactor
    from daemon.supervision.lifecycle import Lifecycle
    from daemon.wire.outbox import Outbox

INSTALLERS = frozenset({"npx", "uvx", "docker", "podman", "bunx", "pnpm", "pipx"})
"""Commands whose first start may download the server: they get `timeouts.firstInitialize`."""

QUESTIONS_SECONDS = 2.0
"""Seconds that what a server has asked before its first call (its clients' roots) may take to be answered: it
may refuse a call that comes before. Clients answer without asking anybody, and some never do."""

REASON_SECONDS = 0.5
"""Seconds that a lost request waits for the connection to say why it ended."""


class UpstreamActor(UpstreamEvents):
    """Opens a server's connections, and serves calls over them."""

    def __init__(
        self,
        server: Server,
        tell: Callable[[Fact], None],
        redact: Redactor,
        *,
        outbox: Outbox,
        opening: Callable[..., OpenContext],
        wall: Callable[[], float],
        audience: Audience,
        settle: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint,
    ) -> None:
        """Start nothing yet.

        Args:
            server: the server's configuration.
            tell: leaves a fact with the registry.
            redact: takes secrets out of what the server says about itself.
            outbox: the daemon's outbox.
            opening: makes what a connection needs, of `server` and `events`.
            wall: seconds since the epoch.
            audience: the clients, for what belongs to no call.
            settle: returns once the registry has processed the facts it was told.
        """
        super().__init__(
            server,
            tell=tell,
            wall=wall,
            redact=redact,
            settle=settle,
            start_limit=self._start_limit,
            outbox=outbox,
            audience=audience,
        )
        self._context = opening(server=server, events=self)
        self._second: SecondConnection | None = None
        if server.era is EraWish.AUTO:
            self._second = SecondConnection(self, self._context, audience, self._start_limit, self._report)
        self.second = self._second
        self._greeter = Greeter()
        self._watched = WatchedServer(server.label, audience)
        self._may_install = Path(server.command or "").name in INSTALLERS
        self._connection: UpstreamConnection | None = None
        self._end_asked = trio.Event()
        self._end_reason = HEALTHY

    @property
    def has_calls(self) -> bool:
        """Whether calls are in flight, over whichever connection."""
        second = None if self._second is None else self._second.admission
        return self.in_flight > 0 or (second is not None and len(second) > 0)

    @property
    def is_busy(self) -> bool:
        """Whether somebody waits for it, follows a resource of it, or has a task there."""
        return self.has_calls or self.waking.waiting > 0 or self._audience.uses(self.name)

    def rest(self) -> None:
        """End this run until the next call: nobody has used it for a while."""
        self._shut()
        self.child.rest()

    def be_gone(self) -> None:
        """Take no new calls any more; those under way go on. What clients want beside calls ends here."""
        if not self.is_gone:
            self.is_gone = True
            self._audience.gone(self.name)

    def be_replaced(self) -> None:
        """Take no new calls any more: another actor has its name and its child."""
        self._audience.lost(self.name)
        self.is_gone = True

    def restart_drained(self) -> None:
        """End the run that a restart leaves to its calls."""
        if self._lifecycle is not None:
            self._lifecycle.restart_now()

    def be_forgotten(self) -> None:
        """Note that nobody has its name any more: what clients want of it is kept no longer."""
        self._audience.gone(self.name)

    # --- one incarnation -----------------------------------------------------------------------------------

    async def run(self, lifecycle: Lifecycle) -> None:
        """Connect, and serve until the connection is lost.

        Raises:
            RunError: why the run ended, for the supervisor.
        """
        self._lifecycle = lifecycle
        self.log.begin(failing=self.child.status.value.attempt > 0)
        last = self.child.status.last.cause
        self._greeter.begin(self.server.era, self._context.introduced(self.of), last=last)
        await self._connect(lifecycle)

    def end(self, reason: Reason) -> None:
        """End this run for a reason of the daemon's, which its open calls are told."""
        if self._connection is None or self._lifecycle is None or self._end_asked.is_set():
            return
        self._end_reason = reason
        self._end_asked.set()
        self._lifecycle.ending(reason)
        self._shut()
        for _key, exchange in self._connection.expire(idle=0.0, total=0.0):
            exchange.lost(UpstreamLost(f"{reason.text}; whether the call ran is unknown"))
        self._context.outbox.flush()

    async def _connect(self, lifecycle: Lifecycle) -> None:
        self._end_asked = trio.Event()
        # Until the server has said which era it speaks, calls wait for both connections.
        self.second = self._second
        try:
            async with await connector(self._context) as connection:
                self._connection = connection
                connection.capabilities = capabilities_of(self.server)
                try:
                    await self._live(connection, lifecycle)
                except Exception as error:
                    # Reported at once: the clean-up of the connection may take seconds.
                    ours = Reason(str(error), Cause.INTERNAL, {"error": str(error)})
                    lifecycle.ending(error.reason if isinstance(error, RunError) else ours)
                    raise
                finally:
                    self._shut()
                    self.pings = self._connection = None
                    self.children.clear()
        except Busy as busy:
            lifecycle.hold_off(busy.wait)
            raise

    async def _live(self, connection: UpstreamConnection, lifecycle: Lifecycle) -> None:
        """Do everything between opening and losing a connection; raises the plain error, never a group."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(connection.run)
                nursery.start_soon(self._await_end)
                try:
                    self.greeting = await self._greeter.greet(
                        connection, self.server.timeouts, installs=self._may_install
                    )
                    await self._serve(connection, self.greeting, lifecycle)
                except* UpstreamLost:
                    # The receiving task is about to raise the reason, with the exit status.
                    await trio.sleep(REASON_SECONDS)
                    raise ConnectionLost("the connection was lost") from None
        except BaseExceptionGroup as group:
            raise leaf(group) from None

    async def _await_end(self) -> None:
        await self._end_asked.wait()
        why = self._end_reason
        raise ConnectionLost(why.text, why.cause, **why.data)

    def _start_limit(self) -> float:
        return self._greeter.limit(self.server.timeouts, installs=self._may_install)

    async def _serve(self, connection: UpstreamConnection, greeting: Greeting, lifecycle: Lifecycle) -> None:
        self.is_modern = greeting.era is Era.MODERN
        if not self.is_modern:
            self.second = None
        self.has_resources = "resources" in greeting.others
        self.log.say("INFO", f"speaks MCP {greeting.version}: {greeting.server_info}")
        async with trio.open_nursery() as nursery:
            if greeting.era is Era.MODERN:
                # Before the first listing: a change between the two would be missed.
                await nursery.start(self.subscription.keep, connection, greeting.wishes)
            else:
                nursery.start_soon(self._watched.keep, connection, greeting)
            self.listing.begin(connection, lifecycle.incarnation, greeting)
            listed = await self.listing.tools.list_now()
            with trio.move_on_after(QUESTIONS_SECONDS):
                await connection.wait_answered()
            connection.given_up.seconds = self.server.timeouts.call
            self._admission = Admission(self.name, connection, self.server.limits, apart=self.apart)
            self._may_install = False
            self._greeter.is_up()
            if self._second is not None and self.is_modern:
                nursery.start_soon(self._second.keep)
            self.pings = pings = Keepalive(connection, self.server.timeouts, self._report)
            nursery.start_soon(self._keep_alive, self.pings, greeting.era)
            flush = self._context.outbox.flush
            nursery.start_soon(
                keep_expiring, self._admission, self.server.timeouts, flush, lambda: pings.problem.text
            )
            await nursery.start(self.listing.keep, listed, self._report)
            if not self._end_asked.is_set():
                self._report()

    def _report(self, _changed: Reason = HEALTHY) -> None:
        """Report how it is, whatever has changed: silence says more than what is wrong with its list."""
        if self._lifecycle is None or self._admission is None:
            return
        second = None if self._second is None else self._second.pings
        problems = (*(pings.problem for pings in (self.pings, second) if pings), self.standing.problem)
        problem = next((each for each in problems if each.cause), HEALTHY)
        if problem.cause:
            self._lifecycle.degraded(problem)
        else:
            self._lifecycle.ready()
            self.log.ready()

    async def _keep_alive(self, pings: Keepalive, era: Era) -> None:
        self.end(await pings.run(era))
