"""What a server says of its own accord, and what becomes of it.

Requests go to the client whose call has caused them, notifications to the clients that they are for, everything
else into the log or the status.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from daemon.catalog.authorship import UnsafeQuestion, authored
from daemon.causes import Cause, Reason
from daemon.counting.measures import STDERR_LINE
from daemon.errors import ProtocolFault
from daemon.model import Era, Kind
from daemon.protocol import ACKNOWLEDGED, LIST_ROOTS, LOG_MESSAGE, RESOURCE_UPDATED, TASK_STATUS
from daemon.upstreams.watched import HeldSubscription
from daemon.wire.envelope import INVALID_PARAMS

if TYPE_CHECKING:
    from msgspec import Raw

    from daemon.safety.redact import Redactor
    from daemon.upstreams.call_admission import Admission
    from daemon.upstreams.upstream_access import UpstreamAccess
    from daemon.wire.requests import Exchange, PeerRequest

OF_NO_CALL = frozenset({RESOURCE_UPDATED, TASK_STATUS})
"""Notifications that say themselves whom they are for."""


class ServerEvents:
    """Takes what the first connection of a server reports: `ports.ConnectionEvents`."""

    def __init__(self, server: UpstreamAccess, redact: Redactor) -> None:
        """Begin without a connection.

        Args:
            server: the server.
            redact: takes secrets out of what it says about itself.
        """
        self._server = server
        self.redact = redact
        self.subscription = HeldSubscription(server.name, server.subscribers, server.listing.may_have_changed)

    @property
    def admission(self) -> Admission | None:
        """The way to the connection while that takes calls."""
        return self._server.admission

    @property
    def era(self) -> Era:
        """The era of the connection."""
        return Era.HANDSHAKE if self._server.greeting is None else self._server.greeting.era

    def on_lost(self, reason: str) -> None:
        """Take no more calls from now on: the clean-up, and the reason, take longer."""
        if self._server.admission is not None and self._server.lifecycle is not None:
            self._server.lifecycle.ending(Reason(reason, Cause.CONNECTION_LOST))
            self._server.shut()

    def on_noise(self, line: bytes, problem: str) -> None:
        """Count what is not MCP; too much of it degrades the server.

        Raises:
            ProtocolFault: it is a flood, and reading it blocks the loop.
        """
        too_much = self._server.noise.add(line, trio.current_time(), self.redact.cut)
        if self._server.noise.count == 1:
            self._server.log.say(
                "WARNING", f"prints something that is not MCP ({problem}): {self._server.noise.first!r}"
            )
        text = f"floods its stdout with what is not MCP, e.g. {self._server.noise.first!r}"
        if self._server.noise.is_unbearable:
            raise ProtocolFault(text, Cause.NOISE, first=self._server.noise.first)
        if too_much and self._server.admission is not None and self._server.lifecycle is not None:
            self._server.lifecycle.degraded(Reason(text, Cause.NOISE, {"first": self._server.noise.first}))

    def on_list_changed(self, kinds: tuple[Kind, ...] = tuple(Kind)) -> None:
        """Have the lists read again."""
        self._server.listing.are_asked_for(kinds)

    def on_server_request(self, request: PeerRequest, cause: Exchange | None) -> None:
        """Hand a request to its task or to a call of this connection, or refuse it: never to another client."""
        request.server = self._server.name
        if request.method == LIST_ROOTS:
            request.otherwise = self._server.roots
        try:
            request.params = authored(self._server.name, request.method, request.params)
        except UnsafeQuestion as error:
            self._server.subscribers.unsafe(self._server.name, error)
            request.refuse(INVALID_PARAMS, f"mcpd does not pass this question on: {error}")
            return
        if (owner := self._server.subscribers.owner_of(request)) is not None:
            owner.asked(request)
            return
        admission = self.admission
        if admission is None or not admission.attribution.take(request, cause):
            self._server.subscribers.ask(request)

    def on_message(self, method: str, params: Raw, cause: Exchange | None) -> None:
        """Log a line of the server's log, and pass everything on to the clients that it is for."""
        if method == ACKNOWLEDGED:
            self.subscription.acknowledged(params)
            return
        if method == LOG_MESSAGE:
            self.on_log(bytes(params))
        if cause is None and self.admission is not None and method not in OF_NO_CALL:
            cause = self.admission.attribution.only_call()
        if method != LOG_MESSAGE or self.era is Era.HANDSHAKE:
            self._server.subscribers.hear(self._server.name, method, params, cause)
        elif cause is not None:
            # Since 2026-07-28 a line belongs to the request that has asked for it.
            cause.notified(method, params)

    def on_child(self, pid: int, mark: int) -> None:
        """Remember the child for `mcpd status`."""
        self._server.pid, self._server.children[pid] = pid, mark
        if self._server.lifecycle is not None:
            self._server.lifecycle.runs_as(mark)
        self._server.log.say("INFO", f"started {self._server.server.command} as pid {pid}")

    def on_log(self, said: bytes) -> None:
        """Keep and log a line of the server's stderr."""
        text = self.redact.cut(said, STDERR_LINE)
        self._server.stderr.add(
            text,
            self._server.wall(),
            0 if self._server.lifecycle is None else self._server.lifecycle.incarnation,
        )
        self._server.log.stderr(text)
