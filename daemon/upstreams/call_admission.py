"""Admission control for one connection: some calls in flight, some more in line, the rest refused.

A slow server must not collect the calls of every client without bound, and a call that it was not given yet can
still be taken back: a call in line that is given up, or whose connection ends, was never sent.

Clients take turns: a freed place goes to the next client in line, not to the next call. A client that is alone
may have the whole line. When others want in and the line is full, the newest call of the client with the most
places makes room (P. E. McKenney, "Stochastic fairness queueing", 1990). None of this costs anything while the
line is empty.

A server whose requests could not be told apart works for one client at a time (`attribution.Apart`): as long as
nobody else waits, that client's calls go out as before; then the others have their turns, each once the calls
before have ended.
"""

from __future__ import annotations

import math
from itertools import count
from typing import TYPE_CHECKING

import msgspec
import trio

from daemon.counting.measures import Pace
from daemon.errors import CallError, Overloaded, UpstreamTimeout, UpstreamUnavailable
from daemon.protocol import ROOTS_CHANGED
from daemon.upstreams.attribution import Admitted, Apart, Attribution, SizeLimited

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from daemon.config.tuning import ServerLimits, Timeouts
    from daemon.ports import CallToSend, UpstreamConnection
    from daemon.wire.requests import Exchange


class InLine(msgspec.Struct, frozen=True, eq=False):
    """A call in line, and since when it is (seconds on the clock)."""

    ticket: int
    client: int
    call: CallToSend
    admitted: Admitted
    since: float


class Line:
    """Calls in line: round-robin between clients, first come, first served within one."""

    def __init__(self) -> None:
        """Begin empty."""
        self.clients: dict[int, int] = {}
        """The client of each ticket in line."""
        self._turns: dict[int, dict[int, InLine]] = {}
        """The calls of each client that has any, in the order of the clients' turns."""

    def places_of(self, client: int) -> int:
        """How many calls of a client are in line."""
        return len(self._turns.get(client, ()))

    def all(self) -> list[InLine]:
        """Every call in line."""
        return [place for places in self._turns.values() for place in places.values()]

    def join(self, place: InLine) -> None:
        """Add a call, behind the others of its client."""
        self.clients[place.ticket] = place.client
        self._turns.setdefault(place.client, {})[place.ticket] = place

    def leave(self, ticket: int) -> InLine | None:
        """Remove a call; None if it is not in line."""
        client = self.clients.pop(ticket, None)
        if client is None:
            return None
        places = self._turns[client]
        place = places.pop(ticket)
        if not places:
            del self._turns[client]
        return place

    def is_all_of(self, asker: object) -> bool:
        """Whether only one client waits, and it is this one (`Exchange.asker`)."""
        return all(place.admitted.asker is asker for place in self.all())

    def next(self, most: int = 1) -> list[InLine]:
        """Remove the oldest calls of the client whose turn it is; its next turn is after all other clients'.

        They have one asker, too: a connection may be shared by clients that nothing else tells apart.
        """
        client = next(iter(self._turns))
        places = self._turns.pop(client)
        found: list[InLine] = []
        for place in list(places.values())[:most]:
            if found and place.admitted.asker is not found[0].admitted.asker:
                break
            found.append(place)
            del places[place.ticket], self.clients[place.ticket]
        if places:
            self._turns[client] = places
        return found

    def crowd_out(self, client: int) -> InLine | None:
        """Remove the newest call of the client with the most; None if that would be no fairer than before."""
        longest = max(self._turns.values(), key=len, default=None)
        if longest is None or self.places_of(client) + 1 >= len(longest):
            return None
        return self.leave(next(reversed(longest)))


EXPIRY_CHECKS = 1.0
"""Seconds between checks for calls that timed out, while any are in flight."""


async def keep_expiring(
    admission: Admission,
    timeouts: Timeouts,
    flush: Callable[[], None],
    problem: Callable[[], str] = str,
) -> None:
    """Give up calls that show no sign of life, or take or wait too long, until cancelled.

    A call whose server waits for its client is no silent one: only `callMax` bounds it.

    Args:
        admission: the calls of one connection.
        timeouts: the server's timeouts.
        flush: writes the frames that this queues.
        problem: says what else the server does not answer, its pings; empty if it answers them.
    """
    server, connection = admission.server, admission.connection
    every = min(EXPIRY_CHECKS, timeouts.call / 4, timeouts.queue / 4)
    while True:
        await admission.used.wait()
        admission.used = trio.Event()
        while connection.in_flight:
            await trio.sleep(every)
            for _key, exchange in connection.expire(idle=math.inf, total=timeouts.call_max):
                exchange.lost(timed_out(server, f"took more than {timeouts.call_max:g} s in all", "callMax"))
            alive = admission.attribution.alive()
            for _key, exchange in connection.expire(idle=timeouts.call, total=math.inf, alive=alive):
                beside = f"; it {silent}" if (silent := problem()) else ""
                exchange.lost(timed_out(server, f"showed no life for {timeouts.call:g} s", "call", beside))
            admission.expire(timeouts.queue)
            flush()


def timed_out(server: str, what: str, key: str, beside: str = "") -> UpstreamTimeout:
    """The error for a call that took too long: what it did, by which of the `timeouts`, and what else is so."""
    return UpstreamTimeout(
        f"server {server} {what} (timeouts.{key}){beside}; it was told to cancel, whether the call ran is"
        " unknown. Find out before you repeat it, and ask for less at once.",
        server=server,
    )


RETRY_LEAST = 0.1
"""Shortest hint when to try again, in seconds: less is not worth saying."""

RETRY_MOST = 60.0
"""Longest hint, in seconds: an estimate from the last calls says nothing beyond a minute."""

RETRY_UNKNOWN = 1.0
"""The hint, in seconds, for a server that had no line, so that its pace is not known."""

ONE_AT_A_TIME = ", and it works for one client at a time"

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
        apart: Apart | None = None,
    ) -> None:
        """Admit calls to a live connection.

        Args:
            server: the server's name.
            connection: the connection.
            limits: how many calls may be in flight and in line, and how large an answer may be.
            clock: trio's.
            apart: whether the server works for one client at a time.
        """
        self.server = server
        self.connection = connection
        self.used = trio.Event()
        """Set when a call is admitted."""
        self.output_bytes = limits.output_bytes
        """Bytes of the longest answer; None is no limit."""
        self._limits = limits
        self._in_flight: dict[int, Admitted] = {}
        self._line = Line()
        self._queued = self._line.clients
        self._apart = apart or Apart(server, clock)
        self._most = limits.in_flight
        self._pace: Pace | None = None
        self._clock = clock
        self._closed = False
        self.attribution = Attribution(self._in_flight, connection.given_up, self._apart, clock)
        self.asked, self.ends = self.attribution.open, self.attribution.ended
        # Chosen once: a server without a limit pays nothing for it.
        self._admitted = Admitted if limits.output_bytes is None else SizeLimited

    def __repr__(self) -> str:
        return f"<Admission to {self.server}: {len(self._in_flight)} in flight, {self.queued} in line>"

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
            raise UpstreamUnavailable(f"server {self.server} has just gone. The call was not sent.")
        self.used.set()
        ticket = next(_tickets)
        admitted = self._admitted(self, ticket, exchange)
        # No call goes out at once where clients take turns: each needs a closer look.
        if len(self._in_flight) < self._most and (not self._apart.until or self._may_go(admitted.asker)):
            admitted.key = self.connection.call(call, admitted)
            self._in_flight[ticket] = admitted
        else:
            self._queue(InLine(ticket, client, call, admitted, self._clock()))
        return ticket

    def notify(self, method: str) -> None:
        """Tell the server something that needs no params."""
        self.connection.notify(method)
        if method == ROOTS_CHANGED:
            self.attribution.expects_roots = True

    def cancel(self, ticket: int, reason: str) -> None:
        """Give up a call; nothing happens if it has ended already."""
        if self._line.leave(ticket) is None and ticket in self._in_flight:
            self.connection.cancel(self._in_flight.pop(ticket).key, reason)
            self.attribution.ended(ticket, reason)
            self._advance()

    def close(self) -> None:
        """Take no more calls: the connection has ended. Those in line are told that they were not sent."""
        self._closed = True
        waiting, self._line = self._line, Line()
        self._queued = self._line.clients
        for place in waiting.all():
            place.admitted.was_not_sent(
                UpstreamUnavailable(
                    f"server {self.server} went away. The call was not sent.", server=self.server
                )
            )

    def expire(self, seconds: float) -> None:
        """Refuse calls that have been in line for `seconds` or longer."""
        now = self._clock()
        for place in self._line.all():
            if now - place.since >= seconds and self._line.leave(place.ticket) is not None:
                text = f"waited {seconds:g} s in line (timeouts.queue) for server {self.server}, which"
                place.admitted.was_not_sent(self._overloaded(f"{text} {{}}", place.client, "timeouts.queue"))

    def done(self, ticket: int) -> None:
        """Free the place of a call that has ended."""
        self._in_flight.pop(ticket, None)
        if self._queued:
            self._advance()

    def _queue(self, place: InLine) -> None:
        line, client = self._line, place.client
        crowded_out = None
        if len(line.clients) >= self._limits.queue:
            crowded_out = line.crowd_out(client)
            if crowded_out is None:
                raise self._overloaded(f"server {self.server} {{}}", client)
        if not line.clients and crowded_out is None:
            self._pace = Pace(place.since)
        line.join(place)
        place.call.in_line = True
        if crowded_out is not None:
            text = f"another client's turn has come: you had the most places in line. Server {self.server} {{}}"
            crowded_out.admitted.was_not_sent(self._overloaded(text, crowded_out.client))

    def _advance(self) -> None:
        line = self._line
        if line.clients and self._pace is not None:
            self._pace.ended(self._clock())
        while line.clients and not self._closed and (room := self._room()) > 0:
            for place in line.next(room):
                place.call.in_line = False
                try:
                    if place.call.check():
                        place.admitted.key = self.connection.call(place.call, place.admitted)
                        self._in_flight[place.ticket] = place.admitted
                except CallError as error:
                    # Not `lost`: it has no place to free, and freeing one would advance the line recursively.
                    place.admitted.was_not_sent(error)

    def _room(self) -> int:
        """How many calls may leave the line now, all of the client whose turn it is."""
        free = self._most - len(self._in_flight)
        if not self._apart.is_on:
            return min(free, 1)
        if not self._in_flight:
            return free
        asker = next(iter(self._in_flight.values())).asker
        return free if self._line.is_all_of(asker) and all_of(self._in_flight.values(), asker) else 0

    def _may_go(self, asker: object) -> bool:
        """Whether a call may go out at once where clients take turns, or have until a moment ago."""
        if not self._apart.is_on:
            self._advance()
            return len(self._in_flight) < self._most and not self._line.clients
        return not self._line.clients and all_of(self._in_flight.values(), asker)

    def _overloaded(self, text: str, client: int, bound: str = "limits.queue") -> Overloaded:
        queued, yours = len(self._line.clients), self._line.places_of(client)
        seconds = RETRY_UNKNOWN
        if self._pace is not None:
            seconds = min(max(self._pace.seconds_for(queued, self._clock()), RETRY_LEAST), RETRY_MOST)
        said = (
            f"works on {len(self._in_flight)} calls, {queued} are in line ({yours} of them yours); its limits"
            f" are {self._limits.in_flight} and {self._limits.queue} (limits.inFlight, limits.queue)"
            f"{ONE_AT_A_TIME if self._apart.is_on else ''}."
            f" The call was not sent; try again in about {seconds:.2g} s."
        )
        return Overloaded(
            text.format(said),
            server=self.server,
            bound=bound,
            inFlight=len(self._in_flight),
            queued=queued,
            yours=yours,
            retryAfterMs=round(seconds * 1000),
        )


def all_of(calls: Iterable[Admitted], asker: object) -> bool:
    """Whether calls are all one client's (`Exchange.asker`)."""
    return all(call.asker is asker for call in calls)
