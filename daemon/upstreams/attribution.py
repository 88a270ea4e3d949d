"""Which client a server's request goes to: the one whose call has caused it, or none.

What the transport says is certain: a request in the answer to a call's POST belongs to that call. One that
names a task is refused: no client waits for it. Otherwise it can only belong to a client that has a call in
flight, or has given one up that the server may still work on. If there is one such client, it is asked. If
there are more, nobody is, and the server's calls are made one client at a time (`Apart`), which makes the next
request certain, until the server has asked nothing for a minute.

Two kinds of requests set nobody apart. A request that none of these clients can answer is answered in their
place, as it would be for each of them. And the first `roots/list` of a connection, or after the server was told
of changed roots, belongs to the connection: servers ask for roots once they are up, while calls that have
waited for the server are in flight.

A request lasts as long as one of the calls that may have caused it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec
import trio
from loguru import logger
from msgspec import Struct

from daemon import protocol
from daemon.errors import RequestTooLarge
from daemon.wire.envelope import INVALID_REQUEST
from daemon.wire.requests import NO_CLIENT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from msgspec import Raw

    from daemon.errors import CallError
    from daemon.wire.envelope import Buffer
    from daemon.wire.requests import Exchange, GivenUp, PeerRequest

UNCERTAIN = (
    "this request may belong to the call of one client or of another, one that was given up a moment ago"
    " included: it is passed on to none. For now this server's calls are made one client at a time"
)
"""The answer to a request whose client is not certain."""

GIVEN_UP = "the call that has caused this request was given up"
"""The answer to a request while only calls are left that were given up."""

NO_TASK = "this request names a task that no client is waiting for"
"""The answer to a request of a task that is not known."""

AT_START = (
    "this request belongs to no call, and more than one client may be meant: no client is asked. Ask while you"
    " work on a call"
)
"""The answer to a request for roots that a server makes because it has just come up."""

APART_SECONDS = 60.0
"""Seconds without a request of the server's after which its calls go out together again: longer than a server
that asks in each call is silent between two, and no user is to pay for one doubt until mcpd is restarted."""

RELATED_TASK = protocol.META + "related-task"
"""The member of a request's `_meta` that names its task (MCP 2025-11-25, tasks)."""

_decode_members = msgspec.json.Decoder(dict[str, object]).decode


class Places(Protocol):
    """The places at one server, as each call that has one needs them (`upstreams.call_admission`)."""

    server: str
    """The name of the server."""
    output_bytes: int | None
    """Bytes of the longest answer; None is no limit."""
    asked: dict[PeerRequest, set[int]]
    """The server's open requests, with the tickets of the calls that may have caused each."""

    def ends(self, ticket: int) -> None:
        """End what the server has asked on account of this call alone: its result, if any, comes next."""

    def done(self, ticket: int) -> None:
        """Free the place of a call that has ended."""


class Admitted(Struct, eq=False):
    """An exchange that frees its place when it ends."""

    places: Places
    ticket: int
    exchange: Exchange
    key: int = 0
    """The key of its request at the connection, once it is sent."""

    def answered(self, result: Buffer) -> None:
        """Pass the result on."""
        if self.places.asked:
            self.places.ends(self.ticket)
        self.exchange.answered(result)
        self.places.done(self.ticket)

    def refused(self, error: Buffer) -> None:
        """Pass the server's error on."""
        self.places.ends(self.ticket)
        self.exchange.refused(error)
        self.places.done(self.ticket)

    def lost(self, error: CallError) -> None:
        """Pass the loss on."""
        self.places.ends(self.ticket)
        self.exchange.lost(error)
        self.places.done(self.ticket)

    def was_not_sent(self, error: CallError) -> None:
        """Pass on that the call left the line unsent; it had no place to free."""
        self.exchange.lost(error)

    def progressed(self, params: dict[str, Raw]) -> None:
        """Pass progress on."""
        self.exchange.progressed(params)

    def asked(self, request: PeerRequest) -> None:
        """Pass a request on."""
        self.exchange.asked(request)

    def notified(self, method: str, params: Raw) -> None:
        """Pass a notification on."""
        self.exchange.notified(method, params)

    @property
    def spared_until(self) -> float:
        """Until when it is not given up."""
        return self.exchange.spared_until

    @property
    def asker(self) -> object:
        """Who has made the call."""
        return self.exchange.asker

    @property
    def answerable(self) -> frozenset[str]:
        """What its client can answer."""
        return self.exchange.answerable


class SizeLimited(Admitted):
    """An admitted call whose answer must not be larger than `limits.output_bytes`."""

    def answered(self, result: Buffer) -> None:
        """Pass the result on, or the error that it is too large."""
        error = self._too_large(len(result))
        if error is None:
            super().answered(result)
        else:
            self.lost(error)

    def refused(self, error: Buffer) -> None:
        """Pass the error on, or that it is too large: the limit holds for every answer."""
        too_large = self._too_large(len(error))
        if too_large is None:
            super().refused(error)
        else:
            self.lost(too_large)

    def _too_large(self, size: int) -> RequestTooLarge | None:
        """The error in place of an answer of `size` bytes; None if it is within the limit."""
        limit, server = self.places.output_bytes, self.places.server
        if limit is None or size <= limit:
            return None
        text = (
            f"the answer has {size} bytes, over the limit of {limit} for server {server}"
            " (limits.outputBytes). The call ran; ask for less at once."
        )
        return RequestTooLarge(text, server=server, bytes=size, limit=limit)


class Apart:
    """Whether a server's calls are made one client at a time, because of a request of uncertain origin."""

    def __init__(self, server: str, clock: Callable[[], float] = trio.current_time) -> None:
        """Begin with all clients at once; `server` is the server's name, `clock` trio's."""
        self.until = 0.0
        """When that ends unless the server asks again, on the clock; 0 if it is not so."""
        self._server = server
        self._clock = clock

    @property
    def is_on(self) -> bool:
        """Whether it is so now."""
        if self.until and self._clock() >= self.until:
            self.until = 0.0
            logger.bind(server=self._server).info(
                f"has asked clients nothing for {APART_SECONDS:g} s: its calls are made at once again"
            )
        return self.until > 0.0

    def begin(self) -> None:
        """Make calls one client at a time for a while, over all connections; logged as it begins."""
        if not self.is_on:
            logger.bind(server=self._server).warning(
                "asks clients something, and more than one may be meant: its calls are made one client at a"
                f" time until it has asked nothing for {APART_SECONDS:g} s"
            )
        self.until = self._clock() + APART_SECONDS

    def extend(self) -> None:
        """Note that the server has asked: it may ask again."""
        if self.is_on:
            self.until = self._clock() + APART_SECONDS


class Attribution:
    """The requests of one connection's server, each with the calls that may have caused it."""

    def __init__(
        self,
        calls: Mapping[int, Admitted],
        given_up: GivenUp,
        apart: Apart,
        clock: Callable[[], float],
    ) -> None:
        """Begin without any.

        Args:
            calls: the calls in flight, by their tickets.
            given_up: the calls that were given up and may still run.
            apart: begins with a request that may belong to more than one client.
            clock: trio's.
        """
        self.open: dict[PeerRequest, set[int]] = {}
        """What clients were asked, with the tickets of the calls that may have caused it; it may have ended."""
        self._calls = calls
        self._given_up = given_up
        self._apart = apart
        self.expects_roots = True
        """Whether the next request for roots is one of the connection's own."""
        self._clock = clock

    def take(self, request: PeerRequest, carrier: Exchange | None) -> bool:
        """Ask the client that a request belongs to, or refuse it; False if no call can have caused it.

        Args:
            request: the request.
            carrier: the call in whose answer it came, if the transport says so.
        """
        self._apart.extend()
        if related_task(request.params) is not None:
            request.refuse(INVALID_REQUEST, NO_TASK)
        elif carrier is not None:
            self._ask(request, [each for each in self._calls.values() if each is carrier])
        else:
            return self._guess(request)
        return True

    def only_call(self) -> Exchange | None:
        """The newest call in flight, if nobody else can have caused what the server says just now."""
        calls = list(self._calls.values())
        askers = {
            id(asker) for asker in (*self._given_up.askers(self._clock()), *(each.asker for each in calls))
        }
        return calls[-1] if calls and len(askers) == 1 else None

    def ended(self, ticket: int, reason: str = "the call that it belongs to has ended") -> None:
        """End the requests that only this call can have caused: it has ended."""
        for request, tickets in list(self.open.items()):
            tickets.discard(ticket)
            if not tickets or not request.is_open:
                del self.open[request]
                request.end(reason)

    def alive(self) -> set[int]:
        """The keys of the calls that wait for a client: such a wait is no silence of the server's."""
        waiting = [tickets for request, tickets in self.open.items() if request.is_open]
        return {self._calls[ticket].key for tickets in waiting for ticket in tickets if ticket in self._calls}

    def _guess(self, request: PeerRequest) -> bool:
        """Ask the only client that can be meant."""
        calls, now, method = list(self._calls.values()), self._clock(), request.method
        given_up = self._given_up.askers(now)
        at_start = self.expects_roots and method == protocol.LIST_ROOTS
        if at_start:
            self.expects_roots = False
        if not calls and not given_up:
            return False
        is_certain = len({id(asker) for asker in (*given_up, *(call.asker for call in calls))}) == 1
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
        """Ask the client of these calls, over the newest of them."""
        if not causes:
            request.refuse(INVALID_REQUEST, NO_CLIENT)
            return
        for ended in [each for each in self.open if not each.is_open]:
            del self.open[ended]
        self.open[request] = {call.ticket for call in causes}
        causes[-1].asked(request)
        if not request.is_open:
            del self.open[request]


def related_task(params: Raw | None) -> str | None:
    """The task that a request belongs to, by the server's id of it; None if it names none."""
    if params is None or b"related-task" not in bytes(params):
        return None
    try:
        named = protocol.meta_of(params).get(RELATED_TASK)
        found = None if named is None else _decode_members(named).get("taskId")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        # It names one, and nothing is guessed instead.
        return ""
    return found if isinstance(found, str) else None if named is None else ""
