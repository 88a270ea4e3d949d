"""A second connection to a server of the modern era, for clients of the handshake era.

A modern server returns its question and expects the call again, so tools that ask during a call fail. mcpd
therefore tries an older revision, too; if not, or if the configuration names the era, these calls use the first
connection. Lists and log come from the first connection only.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import attrs
import trio

from daemon.causes import HEALTHY, Cause, Reason
from daemon.errors import ConnectionLost, McpdError, ProtocolFault, UpstreamUnavailable, leaf
from daemon.model import Era
from daemon.ports import CallToSend, UpstreamConnection
from daemon.safety.redact import Redactor
from daemon.upstreams.call_admission import Admission
from daemon.upstreams.events import ServerEvents, keep_level
from daemon.upstreams.handshake import Keepalive, capabilities_of, initialize, keep_expiring
from daemon.upstreams.transports.server_connection import OpenContext, connector
from daemon.upstreams.upstream_access import UpstreamAccess
from daemon.wire.requests import Exchange

IDLE_SECONDS = 600.0
"""Seconds without a call until the connection is closed: longer than a person thinks."""

REFUSED_SECONDS = 300.0
"""Seconds that calls use the first connection after the second failed to open: as after a server's failure."""


class SecondConnection:
    """Routes the calls of handshake clients: `ports.CallRoute`."""

    def __init__(
        self,
        first: UpstreamAccess,
        events: ServerEvents,
        context: OpenContext,
        limit: Callable[[], float],
        on_change: Callable[[Reason], None] = lambda _problem: None,
        idle: float = IDLE_SECONDS,
    ) -> None:
        """Start closed. `limit`: seconds of a handshake; `on_change` gets the reports of `Keepalive`."""
        self._first = first
        self._context = attrs.evolve(context, events=SecondEvents(first, events.redact, self))
        self._limit = limit
        self._idle_seconds = idle
        self._on_change = on_change
        self.pings: Keepalive | None = None
        """The pings over this connection, while it is up."""
        self.pid: int | None = None
        """The connection's own process, while it counts as a process of the server."""
        self._wanted = trio.Event()
        self._settled = trio.Event()
        self._refused_until = -math.inf
        self._called = False
        self._is_open = False
        self._keeping = trio.CancelScope()

    def __repr__(self) -> str:
        return f"<Second connection to {self._first.name}: {'up' if self._first.second_admission else 'down'}>"

    # --- ports.CallRoute -----------------------------------------------------------------------------------

    @property
    def can_wake(self) -> bool:
        """Whether a call should wait for `wake`, even while only the second connection is down."""
        return self._first.admission is not None or self._first.can_wake

    def send(self, call: CallToSend, exchange: Exchange, client: int = 0) -> int:
        """Forward a call (`ports.CallRoute.send`); if closed, raises UpstreamUnavailable with nothing sent."""
        self._called = True
        if self._first.use is not None:
            self._first.use.note()
        if self._first.second_admission is not None and self._first.admission is not None:
            return self._first.second_admission.admit(call, exchange, client)
        if self._goes_over_first or self._first.admission is None:
            return self._first.send(call, exchange, client)
        name = self._first.name
        text = f"server {name} has no connection yet for clients with your revision of MCP. Try again."
        raise UpstreamUnavailable(text, server=name)

    async def wake(self) -> bool:
        """Open the connection once the server is up; if that fails, calls use the first connection."""
        if self._first.has_both_eras and not self._goes_over_first:
            # Both open at once: the first one's answer would say nothing new.
            self._wanted.set()
        if not await self._first.wake():
            return False
        if self._first.second_admission is None and not self._goes_over_first:
            self._wanted.set()
            with self._first.waking.counted(), trio.move_on_after(self._limit()):
                await self._settled.wait()
            if self._first.second_admission is None:
                self._refuse(REFUSED_SECONDS)
        return True

    @property
    def _goes_over_first(self) -> bool:
        return not self._first.is_modern or trio.current_time() < self._refused_until

    def _refuse(self, seconds: float) -> None:
        self._refused_until = max(self._refused_until, trio.current_time() + seconds)

    # --- its life ------------------------------------------------------------------------------------------

    async def keep(self) -> None:
        """Open the connection when needed, until the first one ends: a new process may speak another era."""
        self._refused_until = -math.inf
        if self._context.server.name in self._context.lessons:
            # Its caches are others, which one process fills first.
            self._first.has_both_eras, self._wanted = False, trio.Event()
        if self._first.opens_both:
            self._first.opens_both = False
            self._wanted.set()
        with trio.CancelScope() as self._keeping:
            while True:
                await self._wanted.wait()
                self._is_open = True
                try:
                    await self._serve()
                    self._first.log.say("INFO", "closed its second connection, which nobody used")
                except Exception as error:
                    plain = leaf(error)
                    if not isinstance(plain, McpdError):
                        raise
                    if isinstance(plain, ProtocolFault):
                        # It speaks the modern era only, which no later attempt changes.
                        self._refuse(math.inf)
                        self._first.log.say(
                            "INFO", f"has no connection for clients of older revisions: {plain}"
                        )
                    else:
                        if self._is_open and self._first.second_admission is None:
                            self._refuse(REFUSED_SECONDS)
                        text = f"its connection for clients of older revisions ended: {plain}"
                        self._first.log.say("WARNING", text)
                finally:
                    self.close()

    def give_up(self) -> None:
        """End the connection and open none during this run: the server itself speaks an older revision."""
        self._first.has_both_eras = False
        self._keeping.cancel()

    async def _serve(self) -> None:
        timeouts = self._context.server.timeouts
        async with await connector(self._context) as connection, trio.open_nursery() as nursery:
            connection.capabilities = capabilities_of(self._context.server)
            nursery.start_soon(connection.run)
            greeting = await initialize(connection, self._limit())
            if greeting.logs:
                # Before the first call: its lines would be missed.
                await nursery.start(keep_level, connection, self._first.name, self._first.subscribers)
            connection.given_up.seconds = timeouts.call
            limits, first = self._context.server.limits, self._first
            first.second_admission = Admission(first.name, connection, limits, apart=first.apart)
            first.has_both_eras = True
            self._settled.set()
            nursery.start_soon(keep_expiring, first.second_admission, timeouts, self._context.outbox.flush)
            self.pings = Keepalive(connection, timeouts, self._on_change)
            nursery.start_soon(_keep_alive, self.pings)
            await self._idle(connection)
            nursery.cancel_scope.cancel()

    async def _idle(self, connection: UpstreamConnection) -> None:
        while True:
            self._called = False
            await trio.sleep(self._idle_seconds)
            if not self._called and not connection.in_flight:
                return

    def close(self) -> None:
        """Take no more calls; a new one may open the connection again, even before the clean-up ends."""
        if not self._is_open:
            return
        self._is_open = False
        if self.pings is not None:
            self.pings = None
            self._on_change(HEALTHY)
        if self.pid is not None:
            self._first.children.pop(self.pid, None)
        self._settled.set()
        self._wanted, self._settled = trio.Event(), trio.Event()
        if self._first.second_admission is not None:
            admission, self._first.second_admission = self._first.second_admission, None
            admission.close()
            self._context.outbox.flush()


async def _keep_alive(pings: Keepalive) -> None:
    reason = await pings.run(Era.HANDSHAKE)
    raise ConnectionLost(reason.text, Cause.NOT_ANSWERING, **reason.data)


class SecondEvents(ServerEvents):
    """The events of a second connection: its own calls and its end; otherwise as for the first connection."""

    def __init__(self, first: UpstreamAccess, redact: Redactor, second: SecondConnection) -> None:
        super().__init__(first, redact)
        self._second = second

    @property
    def admission(self) -> Admission | None:
        """The admission to the second connection."""
        return self._server.second_admission

    @property
    def era(self) -> Era:
        """The older era."""
        return Era.HANDSHAKE

    def on_lost(self, reason: str) -> None:
        """Take no more calls over this connection."""
        del reason
        self._second.close()

    def on_child(self, pid: int, mark: int) -> None:
        """Count the child as a second process of the server."""
        self._second.pid, self._server.children[pid] = pid, mark
        self._server.log.say("INFO", f"started a second time, as pid {pid}, for clients of older revisions")
