"""Serves HTTP connections on one listening socket: it limits and times them, and contains the faults of each.

A new unauthenticated connection takes the place of an old one, so that ten thousand of them keep no client out.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, NoReturn

import attrs
import trio
from loguru import logger

from daemon.clients.doors.http.binding import peer_of
from daemon.clients.doors.http.http_connection import Bounds, HttpConnection
from daemon.clients.doors.listening import Listener, Strangers
from daemon.errors import leaf
from daemon.kit.later import later

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Awaitable, Callable

    from daemon.clients.client import Principal
    from daemon.clients.doors.http.http_connection import HttpExchange, ResponseWriter
    from daemon.clients.doors.tls import Turns, terminate
    from daemon.wire.outbox import Outbox
else:
    # Needed only with a certificate.
    terminate = later("daemon.clients.doors.tls", "terminate")
    Turns = later("daemon.clients.doors.tls", "Turns")

TICK_SECONDS = 0.5  # seconds between checks for due work: every deadline is 2 s or more


@attrs.define(eq=False, repr=False)
class Visit:
    """One connection, and the principals that its requests come from."""

    connection: HttpConnection
    scope: trio.CancelScope
    tasks: trio.Nursery
    """Runs the tasks that answer requests; while one runs, the connection keeps its place."""
    owner: str | None = None
    """The owner of the first principal, to whom the place is charged; None while unauthenticated."""
    visitors: set[Principal] = attrs.field(factory=set)
    upgrade: Callable[[socket.socket], Awaitable[None]] | None = None
    """Serves the connection in another protocol and closes it."""


@attrs.define(eq=False, repr=False)
class HttpListener:
    """Accepts connections, and passes each request to the door."""

    _bounds: Bounds
    _socket: socket.socket  # bound, listening and non-blocking
    _judge: Callable[[HttpExchange, Visit], None]
    """Answers a request by its head, or raises `Refusal`."""
    _outbox: Outbox = attrs.field(kw_only=True)
    _tls: ssl.SSLContext | None = attrs.field(default=None, kw_only=True)
    """The certificate; None serves without TLS."""
    _vet: Callable[[socket.socket], Awaitable[bool]] | None = attrs.field(default=None, kw_only=True)
    """Vets the process at the other end; None admits any."""
    _on_tick: Callable[[float], None] = attrs.field(default=lambda _now: None, kw_only=True)
    """Called every `TICK_SECONDS`."""
    _on_ended: Callable[[ResponseWriter], None] = attrs.field(default=lambda _responses: None, kw_only=True)
    """Called when a connection has no further requests."""
    visits: dict[ResponseWriter, Visit] = attrs.field(factory=dict, init=False)
    _strangers: Strangers = attrs.field(init=False)
    _handshakes: Turns | None = attrs.field(init=False)
    _listener: Listener[str] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        bounds = self._bounds
        self._handshakes = None if self._tls is None else Turns()
        self._strangers = Strangers(bounds.strangers)
        # One more: an accepted connection ends a stranger's.
        room = bounds.strangers + (bounds.places + 1 if bounds.places else 0)
        self._listener = Listener(
            bounds.door, self._socket, places=room, admit=peer_of, vet=self._vet, serve=self._serve
        )

    async def run(self) -> NoReturn:
        """Serve until cancelled; raises OSError for a broken listening socket."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._tick)
            await self._listener.run()

    def drain(self) -> None:
        """Accept no more connections, and close each open one after its current request."""
        self._listener.stop_accepting()
        for visit in list(self.visits.values()):
            visit.connection.close_when_done()

    def owners(self) -> list[str]:
        """The owner of each authenticated connection."""
        return [each.owner for each in self.visits.values() if each.owner is not None]

    def settle(self, visit: Visit, owner: str) -> None:
        """Move an authenticated connection out of the places for unauthenticated ones."""
        visit.owner = owner if visit.owner is None else visit.owner
        self._strangers.leave(visit.scope)

    async def _tick(self) -> NoReturn:
        while True:
            await trio.sleep(TICK_SECONDS)
            now = trio.current_time()
            for visit in list(self.visits.values()):
                visit.connection.tick(now)
            self._on_tick(now)
            self._outbox.flush()

    async def _serve(self, accepted: socket.socket, address: str) -> None:
        scope = self._strangers.join()
        scope.deadline = trio.current_time() + self._bounds.seconds
        speak = partial(self._speak, address=address, scope=scope)
        try:
            # Inside: a fault of a connection that is being ended comes with the Cancelled that the scope takes.
            with scope:
                if self._tls is None or self._handshakes is None:
                    await speak(accepted)
                else:
                    await terminate(accepted, self._tls, speak, self._handshakes)
        except Exception as error:  # noqa: BLE001 - the boundary of a connection: the others go on
            bound = logger.opt(exception=leaf(error))
            bound.error("an internal error in mcpd ended a connection: {}", self._bounds.door)
        finally:
            self._strangers.leave(scope)

    async def _speak(self, plain: socket.socket, address: str, scope: trio.CancelScope) -> None:

        def judge(exchange: HttpExchange) -> None:
            if self._bounds.seconds < math.inf:
                connection.close_when_done()
            self._judge(exchange, visit)

        connection = HttpConnection(plain, judge, peer=address, outbox=self._outbox, bounds=self._bounds)
        try:
            try:
                async with trio.open_nursery() as tasks:
                    visit = self.visits[connection.responses] = Visit(connection, scope, tasks)
                    await connection.run()
            finally:
                self._on_ended(connection.responses)
            if visit.upgrade is not None:
                await visit.upgrade(connection.release())
        finally:
            self.visits.pop(connection.responses, None)
            connection.close()
