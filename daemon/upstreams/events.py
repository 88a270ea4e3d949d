"""What a server says of its own accord, and what becomes of it.

Requests go to the client whose call has caused them, notifications to the clients that they are for, everything
else into the log or the status.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from daemon.catalog.authorship import UnsafeQuestion, authored
from daemon.causes import Cause, Reason
from daemon.counting.measures import STDERR_LINE, Noise, StderrTail
from daemon.errors import ProtocolFault
from daemon.model import Era, Kind
from daemon.protocol import ACKNOWLEDGED, LIST_ROOTS, LOG_MESSAGE, RESOURCE_UPDATED, TASK_STATUS
from daemon.upstreams.access import UpstreamAccess
from daemon.upstreams.instances.own_lists import roots_of
from daemon.upstreams.runlog import RunLog
from daemon.upstreams.watched import HeldSubscription
from daemon.wire.envelope import INVALID_PARAMS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from msgspec import Raw

    from daemon.catalog.snapshot import Catalog
    from daemon.config.model import Server
    from daemon.facts import Fact
    from daemon.ports import Audience
    from daemon.safety.redact import Redactor
    from daemon.supervision.lifecycle import Lifecycle
    from daemon.upstreams.admission import Admission
    from daemon.upstreams.handshake import Greeting
    from daemon.upstreams.keepalive import Keepalive
    from daemon.wire.outbox import Outbox
    from daemon.wire.requests import Exchange, PeerRequest

OF_NO_CALL = frozenset({RESOURCE_UPDATED, TASK_STATUS})
"""Notifications that say themselves whom they are for."""


class UpstreamEvents(UpstreamAccess):
    """Access to one server that takes what its connections report: `ports.ConnectionEvents`."""

    def __init__(
        self,
        server: Server,
        *,
        tell: Callable[[Fact], None],
        wall: Callable[[], float],
        redact: Redactor,
        settle: Callable[[], Awaitable[None]],
        start_limit: Callable[[], float],
        outbox: Outbox,
        audience: Audience,
    ) -> None:
        """Start with the server down.

        Args:
            server: the server's configuration.
            tell: leaves a fact with the registry.
            wall: seconds since the epoch.
            redact: takes secrets out of what the server says about itself.
            settle: returns once the registry has processed the facts it was told.
            start_limit: seconds that the handshake under way, or the next one, may take.
            outbox: the daemon's outbox.
            audience: the clients, for what belongs to no call.
        """
        super().__init__(server, tell=tell, wall=wall, redact=redact, settle=settle, start_limit=start_limit)
        self.log = RunLog(server.label, stable_after=server.restart.stable_after, wall=wall)
        self.greeting: Greeting | None = None
        self.subscription = HeldSubscription(server.label, audience, self.listing.may_have_changed)
        self.noise = Noise()
        self.stderr = StderrTail()
        self.pings: Keepalive | None = None
        self.children: dict[int, int] = {}
        """The marks of the server's processes by pid: that of the first connection, then that of the second."""
        self.roots = roots_of(server)
        self._redact = redact
        self._outbox = outbox
        self._audience = audience
        self._lifecycle: Lifecycle | None = None

    @property
    def pid(self) -> int | None:
        """The process of its first connection; None while it has none."""
        return next(iter(self.children), None)

    def own_catalog(self, catalog: Catalog, /) -> Catalog:
        """The catalog by which its clients' calls are judged (`ports.Upstream.own_catalog`)."""
        return catalog if self.own is None else self.own.own_catalog(catalog)

    def notify(self, method: str) -> None:
        """Tell the server something that needs no params (`ports.Upstream.notify`)."""
        if self._admission is not None:
            self._admission.notify(method)

    def _shut(self) -> None:
        """Take no more calls, and give back those in line."""
        self.listing.end()
        if not self.is_gone:
            # Its name may be another's by now.
            self._audience.lost(self.name)
        if self._admission is not None:
            admission, self._admission = self._admission, None
            admission.close()
            self._outbox.flush()

    def close_line(self) -> None:
        """Send nothing more: calls in line are answered as not sent. The daemon is going down."""
        if self._admission is not None:
            self._admission.close()

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

    def on_list_changed(self, kinds: tuple[Kind, ...] = tuple(Kind)) -> None:
        """Have the lists read again."""
        self.listing.are_asked_for(kinds)

    def on_server_request(self, request: PeerRequest, cause: Exchange | None) -> None:
        """Hand a request to the call that it belongs to, or refuse it: never to another client."""
        self.attribute(request, cause, self._admission)

    def attribute(self, request: PeerRequest, cause: Exchange | None, admission: Admission | None) -> None:
        """Hand a request to its task or to a call of the connection that it came over (`on_server_request`)."""
        request.server = self.name
        if request.method == LIST_ROOTS:
            request.otherwise = self.roots
        try:
            request.params = authored(self.name, request.method, request.params)
        except UnsafeQuestion as error:
            self._audience.unsafe(self.name, error)
            request.refuse(INVALID_PARAMS, f"mcpd does not pass this question on: {error}")
            return
        if (owner := self._audience.owner_of(request)) is not None:
            owner.asked(request)
            return
        if admission is None or not admission.attribution.take(request, cause):
            self._audience.ask(request)

    def on_message(self, method: str, params: Raw, cause: Exchange | None) -> None:
        """Take a notification over the first connection."""
        era = Era.HANDSHAKE if self.greeting is None else self.greeting.era
        self.hear(method, params, cause, self._admission, era)

    def hear(
        self, method: str, params: Raw, cause: Exchange | None, admission: Admission | None, era: Era
    ) -> None:
        """Log a line of the server's log, and pass everything on to the clients that it is for.

        Args:
            method: the method of the notification.
            params: its params.
            cause: the call that it belongs to, if the transport says so.
            admission: the calls of the connection that it came over.
            era: the era of that connection.
        """
        if method == ACKNOWLEDGED:
            self.subscription.acknowledged(params)
            return
        if method == LOG_MESSAGE:
            self.on_log(bytes(params))
        if cause is None and admission is not None and method not in OF_NO_CALL:
            cause = admission.attribution.only_call()
        if method != LOG_MESSAGE or era is Era.HANDSHAKE:
            self._audience.hear(self.name, method, params, cause)
        elif cause is not None:
            # Since 2026-07-28 a line belongs to the request that has asked for it.
            cause.notified(method, params)

    def on_child(self, pid: int, mark: int) -> None:
        """Remember the child for `mcpd status`."""
        self.children[pid] = mark
        if self._lifecycle is not None:
            self._lifecycle.runs_as(mark)
        self.log.say("INFO", f"started {self.server.command} as pid {pid}")

    def on_log(self, said: bytes) -> None:
        """Keep and log a line of the server's stderr."""
        text = self._redact.cut(said, STDERR_LINE)
        self.stderr.add(text, self._wall(), 0 if self._lifecycle is None else self._lifecycle.incarnation)
        self.log.stderr(text)
