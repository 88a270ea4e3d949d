"""Admits the calls of one connection (sent, queued or refused), and finds the client for a server's request.

Clients take turns: a free place goes to the next client in the queue. A lone client may fill the whole queue;
once it is full, the newest call of the client with most places makes room (McKenney, "Stochastic fairness
queueing", 1990).

A server's request goes to the client whose call caused it. If it arrives in the answer to a call's POST, the
cause is certain. Otherwise each client with a call in flight, or just cancelled, may be the cause. If there is
one such client, mcpd asks it; if several, none, and the server then gets one client's calls at a time
(`Apart`). Exceptions are a request that none of them can answer, and a connection's first `roots/list`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import count

import msgspec
import trio
from loguru import logger
from msgspec import Raw, Struct

from daemon import protocol
from daemon.config.tuning import ServerLimits
from daemon.counting.measures import Pace
from daemon.errors import CallError, Overloaded, RequestTooLarge, UpstreamUnavailable
from daemon.ports import CallToSend, UpstreamConnection
from daemon.protocol import ROOTS_CHANGED
from daemon.wire.envelope import INVALID_REQUEST, Buffer
from daemon.wire.requests import NO_CLIENT, Exchange, GivenUp, PeerRequest

UNCERTAIN = (
    "calls of several clients may have caused this request (one may just have been cancelled), so no client"
    " gets it. For now, this server works on the calls of one client at a time"
)

GIVEN_UP = "the call that caused this request was cancelled"

NO_TASK = "this request names a task that no client is waiting for"

AT_START = (
    "this request belongs to no call, and more than one client may be meant: no client is asked. Ask while you"
    " work on a call"
)
"""The answer to a request for roots that a server makes as it starts."""

APART_SECONDS = 60.0
"""Seconds without a request of the server after which it gets all clients' calls together again. Longer than
the pause between two calls of a server that asks in each; short, as the mode slows clients down."""


class Admitted(Struct, eq=False):
    """An exchange whose end frees the call's place at the server."""

    places: Admission
    ticket: int
    exchange: Exchange
    key: int = 0

    def answered(self, result: Buffer) -> None:
        """Pass the result on, and free the place."""
        if self.places.asked:
            self.places.ends(self.ticket)
        self.exchange.answered(result)
        self.places.done(self.ticket)

    def refused(self, error: Buffer) -> None:
        """Pass the server's error on, and free the place."""
        self.places.ends(self.ticket)
        self.exchange.refused(error)
        self.places.done(self.ticket)

    def lost(self, error: CallError) -> None:
        """Report the call as lost, and free the place."""
        self.places.ends(self.ticket)
        self.exchange.lost(error)
        self.places.done(self.ticket)

    def was_not_sent(self, error: CallError) -> None:
        """Report that the call left the queue unsent; it had no place to free."""
        self.exchange.lost(error)

    def progressed(self, params: dict[str, Raw]) -> None:
        """Pass progress on."""
        self.exchange.progressed(params)

    def asked(self, request: PeerRequest) -> None:
        """Pass the server's request on."""
        self.exchange.asked(request)

    def notified(self, method: str, params: Raw) -> None:
        """Pass a notification on."""
        self.exchange.notified(method, params)

    @property
    def spared_until(self) -> float:
        """The time before which the call is not expired."""
        return self.exchange.spared_until

    @property
    def asker(self) -> object:
        """The client that made the call."""
        return self.exchange.asker

    @property
    def answerable(self) -> frozenset[str]:
        """The requests that the calling client can answer."""
        return self.exchange.answerable


class SizeLimited(Admitted):
    """An admitted call whose answer must not be larger than `limits.output_bytes`."""

    def answered(self, result: Buffer) -> None:
        """Pass the result on, or an error that it is too large."""
        self._pass(result, super().answered)

    def refused(self, error: Buffer) -> None:
        """Pass the error on, or an error that it is too large: the limit holds for every answer."""
        self._pass(error, super().refused)

    def _pass(self, answer: Buffer, on: Callable[[Buffer], None]) -> None:
        limit, server, size = self.places.output_bytes, self.places.server, len(answer)
        if limit is None or size <= limit:
            on(answer)
            return
        text = (
            f"the answer has {size} bytes, over the limit of {limit} for server {server}"
            " (limits.outputBytes). The call ran; ask for less per call."
        )
        self.lost(RequestTooLarge(text, server=server, bytes=size, limit=limit))


class Apart:
    """Decides whether a server gets one client's calls at a time, after a request of uncertain origin."""

    def __init__(self, server: str, clock: Callable[[], float] = trio.current_time) -> None:
        self.until = 0.0
        """When this mode ends, on the clock, unless the server asks again; 0 if it is off."""
        self._server = server
        self._clock = clock

    @property
    def is_on(self) -> bool:
        """Whether the server gets one client's calls at a time now."""
        if self.until and self._clock() >= self.until:
            self.until = 0.0
            logger.bind(server=self._server).info(
                f"has asked clients nothing for {APART_SECONDS:g} s: it works on all clients' calls again"
            )
        return self.until > 0.0

    def begin(self) -> None:
        """Serve one client at a time for a while, over all connections of the server; logged when it begins."""
        if not self.is_on:
            logger.bind(server=self._server).warning(
                "asks a client something, but mcpd cannot tell which: mcpd serves one client at a time"
                f" until the server has asked nothing for {APART_SECONDS:g} s"
            )
        self.until = self._clock() + APART_SECONDS

    def extend(self) -> None:
        """Prolong the time, because the server has made another request."""
        if self.is_on:
            self.until = self._clock() + APART_SECONDS


class Attribution:
    """Maps the server's requests on one connection to the calls that may have caused them."""

    def __init__(
        self, calls: Mapping[int, Admitted], given_up: GivenUp, apart: Apart, clock: Callable[[], float]
    ) -> None:
        self.open: dict[PeerRequest, set[int]] = {}
        self._calls = calls
        self._given_up = given_up
        self._apart = apart
        self.expects_roots = True
        """Whether the server's next request for roots counts as the connection's own, not a call's."""
        self._clock = clock

    def take(self, request: PeerRequest, carrier: Exchange | None) -> bool:
        """Ask the request's client, or refuse; False if no call caused it. `carrier`'s answer contained it."""
        self._apart.extend()
        if names_task(request.params):
            request.refuse(INVALID_REQUEST, NO_TASK)
        elif carrier is not None:
            self._ask(request, [each for each in self._calls.values() if each is carrier])
        else:
            return self._guess(request)
        return True

    def only_call(self) -> Exchange | None:
        """The newest call in flight, if no other client can have caused the message just received."""
        calls = list(self._calls.values())
        is_certain = _are_one((*self._given_up.askers(self._clock()), *(each.asker for each in calls)))
        return calls[-1] if calls and is_certain else None

    def ended(self, ticket: int, reason: str = "the call that it belongs to has ended") -> None:
        """End the requests that only this call, which has ended, can have caused."""
        for request, tickets in list(self.open.items()):
            tickets.discard(ticket)
            if not tickets or not request.is_open:
                del self.open[request]
                request.end(reason)

    def alive(self) -> set[int]:
        """The keys of calls that wait for a client, during which the server does not count as silent."""
        waiting = [tickets for request, tickets in self.open.items() if request.is_open]
        return {self._calls[ticket].key for tickets in waiting for ticket in tickets if ticket in self._calls}

    def _guess(self, request: PeerRequest) -> bool:
        calls, now, method = list(self._calls.values()), self._clock(), request.method
        given_up = self._given_up.askers(now)
        at_start = self.expects_roots and method == protocol.LIST_ROOTS
        if at_start:
            self.expects_roots = False
        if not calls and not given_up:
            return False
        is_certain = _are_one((*given_up, *(call.asker for call in calls)))
        if not is_certain and (
            any(method in call.answerable for call in calls) or self._given_up.may_answer(method, now)
        ):
            if request.otherwise is None and not at_start:
                self._apart.begin()
            request.refuse(INVALID_REQUEST, AT_START if at_start else UNCERTAIN)
        elif not calls:
            request.refuse(INVALID_REQUEST, GIVEN_UP)
        else:
            self._ask(request, calls)
        return True

    def _ask(self, request: PeerRequest, causes: list[Admitted]) -> None:
        if not causes:
            request.refuse(INVALID_REQUEST, NO_CLIENT)
            return
        for ended in [each for each in self.open if not each.is_open]:
            del self.open[ended]
        self.open[request] = {call.ticket for call in causes}
        causes[-1].asked(request)
        if not request.is_open:
            del self.open[request]


def _are_one(askers: Iterable[object]) -> bool:
    return len(set(map(id, askers))) == 1


def names_task(params: Raw | None) -> bool:
    """Whether a request names a task; also true for unreadable `params`, to avoid a guess."""
    if params is None or b"related-task" not in bytes(params):
        return False
    meta = protocol.decoded(protocol.meta_of, params)
    return meta is None or protocol.RELATED_TASK_KEY in meta


class InLine(msgspec.Struct, frozen=True, eq=False):
    """A queued call, with the time at which it was queued."""

    ticket: int
    client: int
    call: CallToSend
    admitted: Admitted
    since: float


class Line:
    """Queued calls: clients take turns, and each client's calls keep their order."""

    def __init__(self) -> None:
        self.clients: dict[int, int] = {}
        """The client of each queued ticket."""
        self._turns: dict[int, dict[int, InLine]] = {}

    def places_of(self, client: int) -> int:
        """The number of a client's queued calls."""
        return len(self._turns.get(client, ()))

    def all(self) -> list[InLine]:
        """Every queued call."""
        return [place for places in self._turns.values() for place in places.values()]

    def join(self, place: InLine) -> None:
        """Queue a call after its client's other calls."""
        self.clients[place.ticket] = place.client
        self._turns.setdefault(place.client, {})[place.ticket] = place

    def leave(self, ticket: int) -> InLine | None:
        """Remove a call; None if it is not queued."""
        client = self.clients.pop(ticket, None)
        if client is None:
            return None
        places = self._turns[client]
        place = places.pop(ticket)
        if not places:
            del self._turns[client]
        return place

    def next(self, most: int = 1) -> list[InLine]:
        """Remove and return one asker's oldest calls from the client whose turn it is, and end that turn."""
        # One connection may be shared by clients that only the asker tells apart.
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
        """Remove the newest call of the client with the most; None if that would not make the queue fairer."""
        longest = max(self._turns.values(), key=len, default=None)
        if longest is None or self.places_of(client) + 1 >= len(longest):
            return None
        return self.leave(next(reversed(longest)))


RETRY_LEAST = 0.1
"""Shortest hint to try again, in seconds; less would be useless."""

RETRY_MOST = 60.0
"""Longest hint, in seconds: the pace of the last calls predicts a minute at most."""

RETRY_UNKNOWN = 1.0
"""The hint, in seconds, for a server whose pace is unknown because it never had a queue."""

ONE_AT_A_TIME = ", and it works for one client at a time"

_tickets = count(1)
"""Tickets are never reused while the daemon runs: a late cancel cannot hit another connection's call."""


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
        self.server = server
        self.connection = connection
        self.used = trio.Event()
        self.output_bytes = limits.output_bytes
        """Most bytes of an answer; None for no limit."""
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
        return len(self._in_flight) + len(self._line.clients)

    @property
    def queued(self) -> int:
        """The number of queued calls."""
        return len(self._line.clients)

    def admit(self, call: CallToSend, exchange: Exchange, client: int = 0) -> int:
        """Send or queue a call; return its ticket, for `cancel`.

        Raises Overloaded: the queue is full, or the server does not read; UpstreamUnavailable: the connection
        ended.
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
        """Send the server a notification without params."""
        self.connection.notify(method)
        if method == ROOTS_CHANGED:
            self.attribution.expects_roots = True

    def cancel(self, ticket: int, reason: str) -> None:
        """Cancel a call; does nothing if it has already ended."""
        if self._line.leave(ticket) is None and ticket in self._in_flight:
            self.connection.cancel(self._in_flight.pop(ticket).key, reason)
            self.attribution.ended(ticket, reason)
            self._advance()

    def close(self) -> None:
        """Take no more calls, because the connection has ended; report queued calls as not sent."""
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
        """Refuse calls that have been queued for `seconds` or longer."""
        now = self._clock()
        for place in self._line.all():
            if now - place.since >= seconds and self._line.leave(place.ticket) is not None:
                text = f"waited {seconds:g} s in line (timeouts.queue) for server {self.server}, which"
                place.admitted.was_not_sent(self._overloaded(f"{text} {{}}", place.client, "timeouts.queue"))

    def done(self, ticket: int) -> None:
        """Free the place of an ended call."""
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
            text = f"your call had to leave the full queue: most calls were yours. Server {self.server} {{}}"
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
        """The number of calls that may leave the queue now, all from the client whose turn it is."""
        free = self._most - len(self._in_flight)
        if not self._apart.is_on:
            return min(free, 1)
        if not self._in_flight:
            return free
        asker = next(iter(self._in_flight.values())).asker
        calls = (*self._in_flight.values(), *(place.admitted for place in self._line.all()))
        return free if all_of(calls, asker) else 0

    def _may_go(self, asker: object) -> bool:
        """Whether a call may be sent at once while clients take turns, or shortly after that."""
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
    """Whether the same client (`Exchange.asker`) made all these calls."""
    return all(call.asker is asker for call in calls)
