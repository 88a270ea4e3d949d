"""The actor of one upstream server. A `run` is one incarnation: from opening a connection to losing it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import trio

from daemon.causes import HEALTHY, Cause, Reason
from daemon.config.config_model import EraWish, Server
from daemon.errors import Busy, ConnectionLost, NeedsAuth, RunError, UpstreamLost, leaf
from daemon.facts import Fact
from daemon.model import Era
from daemon.ports import Subscribers, UpstreamConnection
from daemon.safety.redact import Redactor
from daemon.sandbox.egress import Egress
from daemon.supervision.lifecycle import Lifecycle
from daemon.upstreams.call_admission import Admission
from daemon.upstreams.events import ServerEvents, WatchedServer
from daemon.upstreams.handshake import Greeter, Greeting, Keepalive, capabilities_of, keep_expiring
from daemon.upstreams.second import SecondConnection
from daemon.upstreams.server_lists import Listing, ServerLists
from daemon.upstreams.transports.server_connection import OpenContext, connector
from daemon.upstreams.upstream_access import UpstreamAccess
from daemon.wire.outbox import Outbox

INSTALLERS = frozenset({"npx", "uvx", "docker", "podman", "bunx", "pnpm", "pipx"})
"""Commands whose start may download a server; the first, and one after a failure, get `firstInitialize`."""

QUESTIONS_SECONDS = 2.0
"""Most seconds to answer a server's questions; until then, the server might refuse its first call."""

REASON_SECONDS = 0.5
"""Seconds that a lost request waits for the reason why the connection ended."""


class UpstreamActor:
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
        subscribers: Subscribers,
        settle: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint,
    ) -> None:
        """`opening` makes the context of a connection from `server` and `events`."""
        lists = ServerLists(partial(Listing, server, tell=tell, wall=wall, redact=redact, settle=settle))
        self.access = UpstreamAccess(
            server, lists, subscribers=subscribers, outbox=outbox, wall=wall, start_limit=self._start_limit
        )
        self.access.run, self.access.end = self.run, self.end
        self.events = ServerEvents(self.access, redact)
        self._server = server
        if (rules := server.confined) is not None:
            self.access.egress = Egress(server.name, rules.host_rules, self.events.on_refused_host)
        self._context = opening(server=server, events=self.events, egress=self.access.egress)
        self._second: SecondConnection | None = None
        if server.era is EraWish.AUTO:
            self._second = SecondConnection(
                self.access, self.events, self._context, self._start_limit, self._report
            )
        self.access.second = self._second
        self._greeter = Greeter()
        self._watched = WatchedServer(server.label, subscribers)
        self._may_install = self._is_installer = Path(server.command or "").name in INSTALLERS
        self._connection: UpstreamConnection | None = None
        self._end_asked = trio.Event()
        self._end_reason = HEALTHY
        self._may_renew = True

    async def run(self, lifecycle: Lifecycle) -> None:
        """Connect, and serve until the connection is lost; raises `RunError` with the reason."""
        self.access.lifecycle = lifecycle
        self.access.log.begin(failing=self.access.child.status.value.attempt > 0)
        last = self.access.child.status.last.cause
        # npm never completes what an interrupted installation left, and a lesson's caches are not a sandbox's.
        self._may_install |= bool(last and self._is_installer) or self._server.name in self._context.lessons
        self._greeter.begin(self._server.era, self._context.introduced(self.access.of), last=last)
        try:
            await self._connect(lifecycle)
        except NeedsAuth as refusal:
            if self._may_renew and self._server.late:
                self._may_renew = False
                lifecycle.restart(refusal.reason.after("its secrets are looked up again: "))
            raise
        finally:
            self._context.secrets.ended(self._server)

    def end(self, reason: Reason) -> None:
        """End this incarnation for a `reason` of the daemon; open calls fail with it."""
        if self._connection is None or self.access.lifecycle is None or self._end_asked.is_set():
            return
        self._end_reason = reason
        self._end_asked.set()
        self.access.lifecycle.ending(reason)
        self.access.shut()
        for _key, exchange in self._connection.expire(idle=0.0, total=0.0):
            exchange.lost(UpstreamLost(f"{reason.text}; whether the call ran is unknown"))
        self._context.outbox.flush()

    async def _connect(self, lifecycle: Lifecycle) -> None:
        self._end_asked = trio.Event()
        # Until the server has said which era it speaks, calls wait for both connections.
        self.access.second = self._second
        try:
            async with await connector(self._context) as connection:
                self._connection = connection
                connection.capabilities = capabilities_of(self._server)
                try:
                    await self._live(connection, lifecycle)
                except Exception as error:
                    # Reported at once: the clean-up of the connection may take seconds.
                    ours = Reason(str(error), Cause.INTERNAL, {"error": str(error)})
                    lifecycle.ending(error.reason if isinstance(error, RunError) else ours)
                    raise
                finally:
                    self.access.shut()
                    self.access.pings = self._connection = None
                    self.access.pid = None
                    self.access.children.clear()
        except Busy as busy:
            lifecycle.hold_off(busy.wait)
            raise

    async def _live(self, connection: UpstreamConnection, lifecycle: Lifecycle) -> None:
        """Serve between opening and losing a connection; raises the plain error, never a group."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(connection.run)
                nursery.start_soon(self._await_end)
                if self._second is not None:
                    nursery.start_soon(self._second.keep)
                try:
                    self.access.greeting = await self._greeter.greet(
                        connection, self._server.timeouts, installs=self._may_install
                    )
                    await self._serve(connection, self.access.greeting, lifecycle)
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
        return self._greeter.limit(self._server.timeouts, installs=self._may_install)

    async def _serve(self, connection: UpstreamConnection, greeting: Greeting, lifecycle: Lifecycle) -> None:
        self.access.is_modern = greeting.era is Era.MODERN
        if not self.access.is_modern:
            self.access.second = None
            if self._second is not None:
                self._second.give_up()
        self.access.has_resources = "resources" in greeting.others
        self.access.log.say("INFO", f"speaks MCP {greeting.version}: {greeting.server_info}")
        if greeting.dropped:
            self.access.log.say("WARNING", f"declares things that mcpd drops: {greeting.dropped}")
        async with trio.open_nursery() as nursery:
            if greeting.era is Era.MODERN:
                # Before the first listing: a change between the two would be missed.
                await nursery.start(self.events.subscription.keep, connection, greeting.wishes)
            else:
                nursery.start_soon(self._watched.keep, connection, greeting)
            self.access.listing.begin(connection, lifecycle.incarnation, greeting)
            listed = await self.access.listing.tools.list_now()
            with trio.move_on_after(QUESTIONS_SECONDS):
                await connection.wait_answered()
            connection.given_up.seconds = self._server.timeouts.call
            self.access.admission = Admission(
                self.access.name, connection, self._server.limits, apart=self.access.apart
            )
            self._may_install = False
            self._greeter.is_up()
            self._may_renew = True
            self.access.pings = pings = Keepalive(connection, self._server.timeouts, self._report)
            nursery.start_soon(self._keep_alive, self.access.pings, greeting.era)
            flush = self._context.outbox.flush
            nursery.start_soon(
                keep_expiring, self.access.admission, self._server.timeouts, flush, lambda: pings.problem.text
            )
            await nursery.start(self.access.listing.keep, listed, self._report)
            if not self._end_asked.is_set():
                self._report()

    def _report(self, _changed: Reason = HEALTHY) -> None:
        """Report the server's state; a silent connection takes precedence over problems of the list."""
        if self.access.lifecycle is None or self.access.admission is None:
            return
        second = None if self._second is None else self._second.pings
        problems = (
            *(pings.problem for pings in (self.access.pings, second) if pings),
            self.access.list_status.problem,
        )
        problem = next((each for each in problems if each.cause), HEALTHY)
        if problem.cause:
            self.access.lifecycle.degraded(problem)
        else:
            self.access.lifecycle.ready()
            self.access.log.ready()

    async def _keep_alive(self, pings: Keepalive, era: Era) -> None:
        self.end(await pings.run(era))
