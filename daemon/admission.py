"""How many calls a server works on at once: some in flight, some more in line, the rest refused.

A slow server must not collect the calls of every client without bound, and what it has not been given yet can
still be taken back: a call in line that is given up, or whose connection ends, was never sent.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import trio

from daemon.errors import CallError, Overloaded, UpstreamUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from msgspec import Raw

    from daemon.config.model import ServerLimits
    from daemon.ports import Connection, ToolCall
    from daemon.wire.envelope import Buffer
    from daemon.wire.peer import Exchange

_tickets = count(1)
"""Never repeated while the daemon runs: a late cancel cannot hit another connection's call."""


class Admission:
    """The calls of one connection."""

    def __init__(
        self,
        server: str,
        connection: Connection,
        limits: ServerLimits,
        clock: Callable[[], float] = trio.current_time,
    ) -> None:
        """Admit calls to a live connection, within `limits.in_flight` and `limits.queue`."""
        self._server = server
        self._connection = connection
        self._limits = limits
        self._in_flight: dict[int, int] = {}
        self._in_line: dict[int, tuple[ToolCall, Admitted, float]] = {}
        self._clock = clock
        self._closed = False

    def __len__(self) -> int:
        """Calls that wait for an answer, sent or not."""
        return len(self._in_flight) + len(self._in_line)

    @property
    def queued(self) -> int:
        """Calls in line."""
        return len(self._in_line)

    def admit(self, call: ToolCall, exchange: Exchange) -> int:
        """Send a call, or put it in line. Returns its ticket, for `cancel`.

        Raises:
            Overloaded: the line is full, or the server does not read.
            UpstreamUnavailable: the connection has ended.
        """
        if self._closed:
            raise UpstreamUnavailable(f"server {self._server} has just gone. The call was not sent.")
        ticket = next(_tickets)
        admitted = Admitted(self, ticket, exchange)
        if len(self._in_flight) < self._limits.in_flight:
            self._in_flight[ticket] = self._connection.call(call, admitted)
        elif len(self._in_line) < self._limits.queue:
            self._in_line[ticket] = (call, admitted, self._clock())
        else:
            raise Overloaded(
                f"server {self._server} works on {self._limits.in_flight} calls, {self._limits.queue} are in"
                " line: its limits. The call was not sent; try again when some have ended.",
                server=self._server,
            )
        return ticket

    def cancel(self, ticket: int, reason: str) -> None:
        """Give a call up; one that has ended already is no matter."""
        if self._in_line.pop(ticket, None) is None and ticket in self._in_flight:
            self._connection.cancel(self._in_flight.pop(ticket), reason)
            self._advance()

    def close(self) -> None:
        """The connection has ended: what is in line is told that it was not sent."""
        self._closed = True
        waiting, self._in_line = self._in_line, {}
        for _, admitted, _ in waiting.values():
            admitted.lost(
                UpstreamUnavailable(
                    f"server {self._server} went away. The call was not sent.", server=self._server
                )
            )

    def expire(self, seconds: float) -> None:
        """Refuse what has been in line for longer: its client has better things to do than to wait."""
        now = self._clock()
        for ticket, (_, admitted, since) in list(self._in_line.items()):
            if now - since >= seconds:
                del self._in_line[ticket]
                text = f"waited {seconds:g} s in line for server {self._server}. The call was not sent."
                admitted.lost(Overloaded(text, server=self._server))

    def done(self, ticket: int) -> None:
        """A call has ended: its place is free."""
        self._in_flight.pop(ticket, None)
        self._advance()

    def _advance(self) -> None:
        while self._in_line and not self._closed and len(self._in_flight) < self._limits.in_flight:
            ticket = next(iter(self._in_line))
            call, admitted, _ = self._in_line.pop(ticket)
            try:
                if call.check():
                    self._in_flight[ticket] = self._connection.call(call, admitted)
            except CallError as error:
                # It has no place that its end could free: a long line would be refused within itself.
                admitted.was_not_sent(error)


class Admitted:
    """An exchange that frees its place when it ends."""

    __slots__ = ("_admission", "_exchange", "_ticket")

    def __init__(self, admission: Admission, ticket: int, exchange: Exchange) -> None:
        self._admission = admission
        self._ticket = ticket
        self._exchange = exchange

    def answered(self, result: Buffer) -> None:
        """Pass the result on."""
        self._exchange.answered(result)
        self._admission.done(self._ticket)

    def refused(self, error: Buffer) -> None:
        """Pass the server's error on."""
        self._exchange.refused(error)
        self._admission.done(self._ticket)

    def lost(self, error: CallError) -> None:
        """Pass the loss on."""
        self._exchange.lost(error)
        self._admission.done(self._ticket)

    def was_not_sent(self, error: CallError) -> None:
        """It has left the line, and had no place yet."""
        self._exchange.lost(error)

    def progressed(self, params: dict[str, Raw]) -> None:
        """Pass progress on."""
        self._exchange.progressed(params)
