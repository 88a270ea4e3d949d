"""Admission control for one connection: some calls in flight, some more in line, the rest refused.

A slow server must not collect the calls of every client without bound, and a call that it was not given yet can
still be taken back: a call in line that is given up, or whose connection ends, was never sent.

Clients take turns: a freed place goes to the next client in line, not to the next call. A client that is alone
may have the whole line. When others want in and the line is full, the newest call of the client with the most
places makes room (P. E. McKenney, "Stochastic fairness queueing", 1990). None of this costs anything while the
line is empty.
"""

from __future__ import annotations

import math
from itertools import count
from typing import TYPE_CHECKING

import attrs
import trio
from msgspec import Struct

from daemon.counting.measures import Pace
from daemon.errors import CallError, Overloaded, RequestTooLarge, UpstreamTimeout, UpstreamUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from msgspec import Raw

    from daemon.config.model import ServerLimits
    from daemon.config.tuning import Timeouts
    from daemon.ports import CallToSend, UpstreamConnection
    from daemon.wire.envelope import Buffer
    from daemon.wire.peer_requests import PeerRequest
    from daemon.wire.requests import Exchange

RETRY_LEAST = 0.1
"""Shortest hint when to try again, in seconds: less is not worth saying."""

RETRY_MOST = 60.0
"""Longest hint, in seconds: an estimate from the last calls says nothing beyond a minute."""

EXPIRY_CHECKS = 1.0
"""Seconds between checks for calls that timed out, while any are in flight."""

RETRY_UNKNOWN = 1.0
"""The hint, in seconds, for a server that had no line, so that its pace is not known."""

_tickets = count(1)
"""Never repeated while the daemon runs: a late cancel cannot hit another connection's call."""


class Admission:
    """The calls of one connection."""

    def __init__(
        self,
        server: str,
        connection: UpstreamConnection,
        limits: ServerLimits,
        clock: Callable[[], float] = trio.current_time,
    ) -> None:
        """Admit calls to a live connection, within `limits`: calls in flight and in line, size of an answer."""
        self._server = server
        self._connection = connection
        self._limits = limits
        self._in_flight: dict[int, int] = {}
        self._line = _Line()
        self._queued = self._line.clients
        self._most = limits.in_flight
        self._pace: Pace | None = None
        self._clock = clock
        self._closed = False
        self._used = trio.Event()
        # Chosen once: a server without a limit pays nothing for it.
        self._admitted = Admitted if limits.output_bytes is None else SizeLimited

    def __repr__(self) -> str:
        return f"<Admission to {self._server}: {len(self._in_flight)} in flight, {self.queued} in line>"

    def __len__(self) -> int:
        """The number of calls without an answer, sent or not."""
        return len(self._in_flight) + len(self._line.clients)

    @property
    def queued(self) -> int:
        """The number of calls in line."""
        return len(self._line.clients)

    def admit(self, call: CallToSend, exchange: Exchange, client: int = 0) -> int:
        """Send a call, or put it in line; return its ticket, for `cancel`.

        Args:
            call: what to send.
            exchange: gets the answer.
            client: the number of its client; clients take turns.

        Raises:
            Overloaded: the line is full, and no client has more places in it; or the server does not read.
            UpstreamUnavailable: the connection has ended.
        """
        if self._closed:
            raise UpstreamUnavailable(f"server {self._server} has just gone. The call was not sent.")
        self._used.set()
        ticket = next(_tickets)
        admitted = self._admitted(self, ticket, exchange)
        if len(self._in_flight) < self._most:
            self._in_flight[ticket] = self._connection.call(call, admitted)
        else:
            self._queue(ticket, call, admitted, client)
        return ticket

    def only_call(self) -> Exchange | None:
        """A call in flight, if all in flight are one client's; None if it is uncertain whose a request is."""
        calls = [call for key in self._in_flight.values() if (call := self._connection.exchange_of(key))]
        askers = {id(call.asker) for call in calls}
        return calls[0] if len(askers) == 1 else None

    def cancel(self, ticket: int, reason: str) -> None:
        """Give up a call; nothing happens if it has ended already."""
        if self._line.leave(ticket) is None and ticket in self._in_flight:
            self._connection.cancel(self._in_flight.pop(ticket), reason)
            self._advance()

    def close(self) -> None:
        """Take no more calls: the connection has ended. Those in line are told that they were not sent."""
        self._closed = True
        waiting, self._line = self._line, _Line()
        self._queued = self._line.clients
        for place in waiting.all():
            place.admitted.was_not_sent(
                UpstreamUnavailable(
                    f"server {self._server} went away. The call was not sent.", server=self._server
                )
            )

    def expire(self, seconds: float) -> None:
        """Refuse calls that have been in line for `seconds` or longer."""
        now = self._clock()
        for place in self._line.all():
            if now - place.since >= seconds and self._line.leave(place.ticket) is not None:
                text = f"waited {seconds:g} s in line (timeouts.queue) for server {self._server}, which"
                place.admitted.was_not_sent(self._overloaded(f"{text} {{}}", place.client))

    async def keep_expiring(self, timeouts: Timeouts, flush: Callable[[], None]) -> None:
        """Give up calls that show no sign of life, or take or wait too long, until cancelled.

        Args:
            timeouts: the server's timeouts.
            flush: writes the frames that this queues.
        """
        every = min(EXPIRY_CHECKS, timeouts.call / 4, timeouts.queue / 4)
        while True:
            await self._used.wait()
            self._used = trio.Event()
            while self._connection.in_flight:
                await trio.sleep(every)
                for _key, exchange in self._connection.expire(idle=math.inf, total=timeouts.call_max):
                    exchange.lost(self._timed_out(f"took more than {timeouts.call_max:g} s in all", "callMax"))
                for _key, exchange in self._connection.expire(idle=timeouts.call, total=math.inf):
                    exchange.lost(self._timed_out(f"showed no life for {timeouts.call:g} s", "call"))
                self.expire(timeouts.queue)
                flush()

    def done(self, ticket: int) -> None:
        """Free the place of a call that has ended."""
        self._in_flight.pop(ticket, None)
        if self._queued:
            self._advance()

    def too_large(self, size: int) -> RequestTooLarge | None:
        """The error in place of an answer of `size` bytes; None if it is within the limit."""
        limit = self._limits.output_bytes
        if limit is None or size <= limit:
            return None
        text = (
            f"the answer has {size} bytes, over the limit of {limit} for server {self._server}"
            " (limits.outputBytes). The call ran; ask for less at once."
        )
        return RequestTooLarge(text, server=self._server, bytes=size, limit=limit)

    def _queue(self, ticket: int, call: CallToSend, admitted: Admitted, client: int) -> None:
        line = self._line
        crowded_out = None
        if len(line.clients) >= self._limits.queue:
            crowded_out = line.crowd_out(client)
            if crowded_out is None:
                raise self._overloaded(f"server {self._server} {{}}", client)
        now = self._clock()
        if not line.clients and crowded_out is None:
            self._pace = Pace(now)
        line.join(_Place(ticket, client, call, admitted, now))
        if crowded_out is not None:
            text = (
                f"another client's turn has come: you had the most places in line. Server {self._server} {{}}"
            )
            crowded_out.admitted.was_not_sent(self._overloaded(text, crowded_out.client))

    def _advance(self) -> None:
        line = self._line
        if line.clients and self._pace is not None:
            self._pace.ended(self._clock())
        while line.clients and not self._closed and len(self._in_flight) < self._limits.in_flight:
            place = line.next()
            try:
                if place.call.check():
                    self._in_flight[place.ticket] = self._connection.call(place.call, place.admitted)
            except CallError as error:
                # Not `lost`: it has no place to free, and freeing one would advance the line recursively.
                place.admitted.was_not_sent(error)

    def _timed_out(self, what: str, key: str) -> UpstreamTimeout:
        return UpstreamTimeout(
            f"server {self._server} {what} (timeouts.{key}); it was told to cancel, whether the call ran is"
            " unknown. Find out before you repeat it, and ask for less at once.",
            server=self._server,
        )

    def _overloaded(self, text: str, client: int) -> Overloaded:
        queued, yours = len(self._line.clients), self._line.places_of(client)
        seconds = RETRY_UNKNOWN
        if self._pace is not None:
            seconds = min(max(self._pace.seconds_for(queued, self._clock()), RETRY_LEAST), RETRY_MOST)
        said = (
            f"works on {len(self._in_flight)} calls, {queued} are in line ({yours} of them yours); its limits"
            f" are {self._limits.in_flight} and {self._limits.queue} (limits.inFlight, limits.queue)."
            f" The call was not sent; try again in about {seconds:.2g} s."
        )
        return Overloaded(
            text.format(said),
            server=self._server,
            inFlight=len(self._in_flight),
            queued=queued,
            yours=yours,
            retryAfterMs=round(seconds * 1000),
        )


@attrs.frozen(eq=False)
class _Place:
    """A call in line, and since when it is (seconds on the clock)."""

    ticket: int
    client: int
    call: CallToSend
    admitted: Admitted
    since: float


class _Line:
    """Calls in line: round-robin between clients, first come, first served within one."""

    def __init__(self) -> None:
        self.clients: dict[int, int] = {}
        """The client of each ticket in line."""
        self._turns: dict[int, dict[int, _Place]] = {}
        """The calls of each client that has any, in the order of the clients' turns."""

    def places_of(self, client: int) -> int:
        return len(self._turns.get(client, ()))

    def all(self) -> list[_Place]:
        return [place for places in self._turns.values() for place in places.values()]

    def join(self, place: _Place) -> None:
        self.clients[place.ticket] = place.client
        self._turns.setdefault(place.client, {})[place.ticket] = place

    def leave(self, ticket: int) -> _Place | None:
        client = self.clients.pop(ticket, None)
        if client is None:
            return None
        places = self._turns[client]
        place = places.pop(ticket)
        if not places:
            del self._turns[client]
        return place

    def next(self) -> _Place:
        """Remove the oldest call of the client whose turn it is; its next turn is after all other clients'."""
        client = next(iter(self._turns))
        places = self._turns.pop(client)
        ticket = next(iter(places))
        place = places.pop(ticket)
        del self.clients[ticket]
        if places:
            self._turns[client] = places
        return place

    def crowd_out(self, client: int) -> _Place | None:
        """Remove the newest call of the client with the most; None if that would be no fairer than before."""
        longest = max(self._turns.values(), key=len, default=None)
        if longest is None or self.places_of(client) + 1 >= len(longest):
            return None
        return self.leave(next(reversed(longest)))


class Admitted(Struct, eq=False):
    """An exchange that frees its place when it ends."""

    _admission: Admission
    _ticket: int
    _exchange: Exchange

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
        """Pass on that the call left the line unsent; it had no place to free."""
        self._exchange.lost(error)

    def progressed(self, params: dict[str, Raw]) -> None:
        """Pass progress on."""
        self._exchange.progressed(params)

    def asked(self, request: PeerRequest) -> None:
        """Pass a request on."""
        self._exchange.asked(request)

    def notified(self, method: str, params: Raw) -> None:
        """Pass a notification on."""
        self._exchange.notified(method, params)

    @property
    def expires(self) -> bool:
        """Whether it may be given up."""
        return self._exchange.expires

    @property
    def asker(self) -> object:
        """Who has made the call."""
        return self._exchange.asker


class SizeLimited(Admitted):
    """An admitted call whose answer must not be larger than `limits.output_bytes`."""

    def answered(self, result: Buffer) -> None:
        """Pass the result on, or the error that it is too large."""
        error = self._admission.too_large(len(result))
        if error is None:
            super().answered(result)
        else:
            self.lost(error)

    def refused(self, error: Buffer) -> None:
        """Pass the error on, or that it is too large: the limit holds for every answer."""
        too_large = self._admission.too_large(len(error))
        if too_large is None:
            super().refused(error)
        else:
            self.lost(too_large)
