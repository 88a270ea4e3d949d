"""Pings: whether a server that says nothing is still there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from daemon.causes import HEALTHY, Cause, Reason
from daemon.errors import UpstreamTimeout
from daemon.kit.wording import counted, span
from daemon.model import Era
from daemon.wire.requests import RemoteError

if TYPE_CHECKING:
    from collections.abc import Callable

    from daemon.config.tuning import Timeouts
    from daemon.ports import UpstreamConnection


class Keepalive:
    """Pings one connection after each silence, and says when nothing comes back."""

    def __init__(
        self,
        connection: UpstreamConnection,
        timeouts: Timeouts,
        on_change: Callable[[Reason], None] = lambda _problem: None,
    ) -> None:
        """Begin with a server that is well.

        Args:
            connection: the connection, which is up.
            timeouts: the server's timeouts.
            on_change: told once why the server is degraded, and `HEALTHY` at its next sign of life.
        """
        self.unanswered = 0
        """Pings in a row without an answer."""
        self.last_ms: float | None = None
        """Milliseconds that the last answered ping took; None before the first."""
        self._connection = connection
        self._timeouts = timeouts
        self._on_change = on_change
        self._missed = 0
        self._is_silent = False

    @property
    def silence(self) -> float:
        """Seconds since the server was last heard."""
        return max(0.0, trio.current_time() - self._connection.last_heard)

    @property
    def problem(self) -> Reason:
        """Why the server is degraded, as of now: the numbers in it grow. `HEALTHY` if it shows life."""
        if not self._is_silent:
            return HEALTHY
        calls, seconds = self._connection.in_flight, round(self.silence)
        pings, heard = counted(self.unanswered, "ping"), f"last heard {span(seconds)} ago"
        said = f"answers no pings ({pings} so far), and was {heard}"
        if calls:
            said = f"answers no pings while it works on {counted(calls, 'call')}, {heard}"
        return Reason(
            said, Cause.UNANSWERED_PINGS, {"count": self.unanswered, "seconds": seconds, "calls": calls}
        )

    async def run(self, era: Era) -> Reason:
        """Ping after each silence; return the reason once too many pings in a row were left unanswered.

        Any sign of life counts. Pings beside calls are not counted as missed: a server may be too busy with its
        calls to answer, and is only said to be.
        """
        method = "ping" if era is Era.HANDSHAKE else "server/discover"
        while self._missed < self._timeouts.missed_pings:
            # A deadline rather than a duration: the rest of a duration may be too short to advance the clock.
            due = self._connection.last_heard + self._timeouts.ping_interval
            if trio.current_time() < due and not self.unanswered:
                await trio.sleep_until(due)
            elif await self._shows_life(method):
                self._is_well()
                await trio.sleep(self._timeouts.ping_interval)
        seconds = self._timeouts.ping
        text = f"no answer to {self._missed} pings of {seconds:g} s"
        return Reason(text, Cause.NOT_ANSWERING, {"count": self._missed, "seconds": seconds})

    async def _shows_life(self, method: str) -> bool:
        """Ping once; whether the server has said anything since."""
        sent, beside_calls = trio.current_time(), self._connection.in_flight > 0
        seconds = self._timeouts.ping
        if beside_calls and sent < self._verdict_at:
            seconds = min(seconds, self._verdict_at - sent)
        try:
            await self._connection.request(method, {}, timeout=seconds)
        except RemoteError:
            return True
        except UpstreamTimeout:
            if self._connection.last_heard > sent:
                return True
            self._was_unanswered(beside_calls=beside_calls, had_its_time=seconds == self._timeouts.ping)
            return False
        self.last_ms = round((trio.current_time() - sent) * 1000, 3)
        return True

    @property
    def _verdict_at(self) -> float:
        """When a server that works on calls counts as degraded: any ping has had its time by then."""
        interval = self._timeouts.ping_interval
        return self._connection.last_heard + interval + max(interval, self._timeouts.ping)

    def _was_unanswered(self, *, beside_calls: bool, had_its_time: bool) -> None:
        self.unanswered += 1
        self._missed = 0 if self._connection.in_flight else self._missed + had_its_time
        if self._is_silent or (beside_calls and trio.current_time() < self._verdict_at):
            return
        self._is_silent = True
        self._on_change(self.problem)

    def _is_well(self) -> None:
        self.unanswered = self._missed = 0
        if self._is_silent:
            self._is_silent = False
            self._on_change(HEALTHY)
