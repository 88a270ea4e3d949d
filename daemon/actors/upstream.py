"""The actor of one upstream server, for one connection after the other.

`run` is one incarnation, from opening the connection to losing it; the supervisor decides about the next. How
callers reach the server meanwhile is described in `upstreams.access`. While connected, the actor's tasks list
the tools when asked to, ping the server when it is silent, and give up calls that show no sign of life.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from daemon.causes import HEALTHY, Cause, Reason
from daemon.counting.measures import STDERR_LINE, Noise, StderrTail
from daemon.errors import (
    Busy,
    ConnectionLost,
    ProtocolFault,
    RunError,
    UpstreamLost,
    leaf,
)
from daemon.model import Era, Kind
from daemon.protocol import ACKNOWLEDGED, LOG_MESSAGE, RESOURCE_UPDATED, TASK_STATUS
from daemon.upstreams.access import UpstreamAccess
from daemon.upstreams.admission import Admission
from daemon.upstreams.listening import Listening
from daemon.upstreams.own_requests import Greeter, Greeting, ProbeKilled, fallen_silent
from daemon.upstreams.runlog import RunLog
from daemon.upstreams.transports.opening import OpenContext, connector
from daemon.upstreams.watched import WatchedServer
from daemon.wire.envelope import INVALID_REQUEST
from daemon.wire.requests import NO_CLIENT

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from msgspec import Raw

    from daemon.config.model import Server
    from daemon.facts import Fact
    from daemon.ports import Audience, UpstreamConnection
    from daemon.processes.children import Children
    from daemon.safety.redact import Redactor
    from daemon.supervision.lifecycle import Lifecycle
    from daemon.wire.outbox import Outbox
    from daemon.wire.peer_requests import PeerRequest
    from daemon.wire.requests import Exchange

INSTALLERS = frozenset({"npx", "uvx", "docker", "podman", "bunx", "pnpm", "pipx"})
"""Commands whose first start may download the server: they get `timeouts.firstInitialize`."""

OF_NO_CALL = frozenset({RESOURCE_UPDATED, TASK_STATUS})
"""Notifications that say themselves whom they are for."""

REASON_SECONDS = 0.5
"""Seconds that a lost request waits for the connection to say why it ended."""


class UpstreamActor(UpstreamAccess):
    """Opens a server's connections, serves calls over them, and receives their `ports.ConnectionEvents`."""

    def __init__(
        self,
        server: Server,
        tell: Callable[[Fact], None],
        redact: Redactor,
        *,
        outbox: Outbox,
        children: Children,
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
            children: the daemon's child processes.
            wall: seconds since the epoch.
            audience: the clients, for what belongs to no call.
            settle: returns once the registry has processed the facts it was told.
        """
        super().__init__(
            server, tell=tell, wall=wall, redact=redact, settle=settle, start_limit=self._start_limit
        )
        self.log = RunLog(server.name, stable_after=server.restart.stable_after, wall=wall)
        self.noise = Noise()
        self.stderr = StderrTail()
        self.greeting: Greeting | None = None
        self.pid: int | None = None
        self.mark: int | None = None
        self._redact = redact
        self._audience = audience
        self._context = OpenContext(server=server, events=self, outbox=outbox, children=children)
        self._greeter = Greeter()
        self._watched = WatchedServer(server.name, audience)
        self._listening = Listening(server.name, audience, self.listing.may_have_changed)
        self._may_install = Path(server.command or "").name in INSTALLERS
        self._lifecycle: Lifecycle | None = None
        self._connection: UpstreamConnection | None = None
        self._end_asked = trio.Event()
        self._end_reason = HEALTHY

    # --- one incarnation -----------------------------------------------------------------------------------

    async def run(self, lifecycle: Lifecycle) -> None:
        """Connect, and serve until the connection is lost.

        Raises:
            RunError: why the run ended, for the supervisor.
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
        """End this run for a reason of the daemon's, which its open calls are told."""
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
        self._end_asked = trio.Event()
        try:
            async with await connector(self._context) as connection:
                self._connection = connection
                try:
                    await self._live(connection, lifecycle)
                except ProbeKilled:
                    raise
                except Exception as error:
                    # Reported at once: the clean-up of the connection may take seconds.
                    ours = Reason(str(error), Cause.INTERNAL, {"error": str(error)})
                    lifecycle.ending(error.reason if isinstance(error, RunError) else ours)
                    raise
                finally:
                    self._shut()
                    self.pid = self.mark = self._connection = None
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
        self.has_resources = "resources" in greeting.others
        self.log.say("INFO", f"speaks MCP {greeting.version}: {greeting.server_info}")
        async with trio.open_nursery() as nursery:
            if greeting.era is Era.MODERN:
                lists = {"toolsListChanged": True} if greeting.announces_changes else {}
                # Before the first listing: a change between the two would be missed.
                await nursery.start(self._listening.keep, connection, lists)
            else:
                nursery.start_soon(self._watched.keep, connection, greeting)
            self.listing.begin(connection, lifecycle.incarnation, greeting)
            listed = await self.listing.list_now()
            self._admission = Admission(self.name, connection, self.server.limits)
            self._may_install = False
            self._greeter.is_up()
            self._report(lifecycle, self.standing.problem)
            nursery.start_soon(self.listing.keep, listed, partial(self._report, lifecycle))
            nursery.start_soon(self._keep_alive, connection, greeting.era)
            nursery.start_soon(self._admission.keep_expiring, self.server.timeouts, self._context.outbox.flush)

    def _report(self, lifecycle: Lifecycle, problem: Reason) -> None:
        if problem.cause:
            lifecycle.degraded(problem)
        else:
            lifecycle.ready()
            self.log.ready()

    async def _keep_alive(self, connection: UpstreamConnection, era: Era) -> None:
        self.end(await fallen_silent(connection, era, self.server.timeouts))

    def _shut(self) -> None:
        """Take no more calls, and give back those in line."""
        self.listing.end()
        self._audience.lost(self.name)
        if self._admission is not None:
            admission, self._admission = self._admission, None
            admission.close()
            self._context.outbox.flush()

    # --- ports.ConnectionEvents ----------------------------------------------------------------------------

    def on_lost(self, reason: str) -> None:
        """Take no more calls from now on: the clean-up, and the reason, take longer."""
        if self._admission is not None and self._lifecycle is not None:
            self._lifecycle.ending(Reason(reason, Cause.CONNECTION_LOST))
            self._shut()

    def on_noise(self, line: bytes, problem: str) -> None:
        """Count what is not MCP; too much of it degrades the server.

        Raises:
            ProtocolFault: it is a flood, and reading it blocks the loop.
        """
        too_much = self.noise.add(line, trio.current_time(), self._redact.cut)
        if self.noise.count == 1:
            self.log.say("WARNING", f"prints something that is not MCP ({problem}): {self.noise.first!r}")
        text = f"floods its stdout with what is not MCP, e.g. {self.noise.first!r}"
        if self.noise.is_unbearable:
            raise ProtocolFault(text, Cause.NOISE, first=self.noise.first)
        if too_much and self._admission is not None and self._lifecycle is not None:
            self._lifecycle.degraded(Reason(text, Cause.NOISE, {"first": self.noise.first}))

    def on_list_changed(self, kinds: tuple[Kind, ...] = (Kind.TOOL,)) -> None:
        """Have the lists read again."""
        if Kind.TOOL in kinds:
            self.listing.is_asked_for()

    def on_server_request(self, request: PeerRequest, cause: Exchange | None) -> None:
        """Hand a request to the call or task that it belongs to, or refuse it: never to another client."""
        request.server = self.name
        if (owner := self._audience.owner_of(request)) is not None:
            owner.asked(request)
            return
        if cause is None and self._admission is not None:
            cause = self._admission.only_call()
        if cause is None:
            request.refuse(INVALID_REQUEST, NO_CLIENT)
        else:
            cause.asked(request)

    def on_message(self, method: str, params: Raw, cause: Exchange | None) -> None:
        """Log a line of the server's log, and pass everything on to the clients that it is for."""
        if method == ACKNOWLEDGED:
            self._listening.acknowledged(params)
            return
        if method == LOG_MESSAGE:
            self.on_log(bytes(params))
        if cause is None and self._admission is not None and method not in OF_NO_CALL:
            cause = self._admission.only_call()
        if method != LOG_MESSAGE or self.greeting is None or self.greeting.era is Era.HANDSHAKE:
            self._audience.hear(self.name, method, params, cause)
        elif cause is not None:
            # Since 2026-07-28 a line belongs to the request that has asked for it.
            cause.notified(method, params)

    def on_child(self, pid: int, mark: int) -> None:
        """Remember the child for `mcpd status`."""
        self.pid = pid
        self.mark = mark
        if self._lifecycle is not None:
            self._lifecycle.runs_as(mark)
        self.log.say("INFO", f"started {self.server.command} as pid {pid}")

    def on_log(self, said: bytes) -> None:
        """Keep and log a line of the server's stderr."""
        text = self._redact.cut(said, STDERR_LINE)
        self.stderr.add(text)
        self.log.stderr(text)
