"""HTTP for this machine alone: metrics and health without a token, and the console where HTTP is not served.

`/healthz` is about the process: whoever restarts what fails looks there. `/readyz` is about new clients: a
balancer sends them elsewhere while it says 503. Both, and `/metrics`, are also served by the HTTP listener.

No client of these doors is trusted: connections and time are bounded, and a web page whose own name resolves to
this machine (DNS rebinding) is refused by the Host that its browser sends.
"""

from __future__ import annotations

import math
from http import HTTPStatus
from typing import TYPE_CHECKING, NoReturn

import msgspec
import trio
from loguru import logger

from daemon.clients.doors.http.asgi import BODY_BYTES, AsgiRequest, is_console, is_own_page
from daemon.clients.doors.http.binding import peer_of
from daemon.clients.doors.http.exchange import PLAIN, Refusal, require_loopback
from daemon.clients.doors.http.http_connection import HttpConnection
from daemon.clients.doors.listening import Listener, Strangers
from daemon.config.listen import numeric, split_authority
from daemon.errors import CallError, leaf
from daemon.host.notify import Readiness

if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable, Callable, Mapping

    from daemon.clients.client import Principal
    from daemon.clients.doors.http.asgi import WebApplication
    from daemon.clients.doors.http.exchange import HttpExchange
    from daemon.clients.doors.http.reading import Head
    from daemon.wire.outbox import Outbox


HEALTH, READY = "/healthz", "/readyz"
PATHS = frozenset({HEALTH, READY})

METHODS = ("GET", "HEAD")


TEXTS = {
    Readiness.STARTING: "starting: not yet\n",
    Readiness.SERVING: "ready\n",
    Readiness.DRAINING: "stopping: whoever is here is still served, others are to go elsewhere\n",
}


def health(head: Head, readiness: Readiness) -> tuple[HTTPStatus, str] | None:
    """The status and the text that a request for health is answered with; None if it is for something else.

    Raises:
        Refusal: it would do more than read.
    """
    if head.path not in PATHS:
        return None
    if head.method not in METHODS:
        text = f"health can only be read: GET {head.path}\n"
        raise Refusal(HTTPStatus.METHOD_NOT_ALLOWED, text, headers={"allow": ", ".join(METHODS)})
    if head.path == HEALTH:
        return HTTPStatus.OK, "ok\n"
    is_ready = readiness is Readiness.SERVING
    return HTTPStatus.OK if is_ready else HTTPStatus.SERVICE_UNAVAILABLE, TEXTS[readiness]


def is_probe(head: Head) -> bool:
    """Whether a request is for health and names no host, or an address: probes know nothing better to send.

    Such a request needs no check of its Host: no web page can send it by a name of its own.
    """
    if head.path not in PATHS:
        return False
    sent = head.headers.get("host", "")
    host, _port = split_authority(sent)
    return not sent or (host is not None and numeric(host) is not None)


PATH = "/metrics"

TEXT_FORMAT = "text/plain; version=0.0.4; charset=utf-8"
"""The content type of Prometheus' text format; also right for a one-line refusal."""

REQUEST_SECONDS = 5.0
"""Seconds for a whole connection: a scrape takes milliseconds, and Prometheus itself gives up after 10 s."""

CONNECTIONS = 8
"""Readers of metrics at once, a few scrapers; further ones wait in the kernel's backlog."""

MAX_STRANGERS = 128
"""Connections to the console that were not let in."""

TICK_SECONDS = 0.5
"""Seconds between looks at what is due on a connection: every deadline is 2 s or more."""


def require_get(head: Head) -> None:
    """Check that a request for metrics only reads.

    Raises:
        Refusal: it does not.
    """
    if head.method != "GET":
        text = f"metrics can only be read: GET {PATH}\n"
        raise Refusal(HTTPStatus.METHOD_NOT_ALLOWED, text, headers={"allow": "GET"})


def require_all_profiles(visitor: Principal) -> None:
    """Check that a visitor may know of every server, as metrics name them all.

    Raises:
        Refusal: the visitor's token is bound to profiles.
    """
    if visitor.profiles is not None:
        text = "metrics name every server: a token that is bound to profiles does not read them\n"
        raise Refusal(HTTPStatus.FORBIDDEN, text)


async def answer(exchange: HttpExchange, export: Callable[[], Awaitable[str]], outbox: Outbox) -> None:
    """Answer a request for metrics; a fault of ours costs this one answer."""
    status = HTTPStatus.OK
    try:
        text = await export()
    except CallError as error:
        status, text = HTTPStatus.SERVICE_UNAVAILABLE, f"{error.message}\n"
    except Exception:  # noqa: BLE001 - the boundary of a request
        logger.exception("a fault of mcpd's own while collecting metrics")
        status, text = HTTPStatus.INTERNAL_SERVER_ERROR, "a fault of mcpd's own: see its log\n"
    exchange.respond(status, (text.encode(),), {"content-type": TEXT_FORMAT})
    outbox.flush()


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """How much a door gives to its clients."""

    door: str
    """The door's name, for the log."""
    served: str
    """The clients, for the log."""
    strangers: int
    """Connections that were not let in; one more closes the oldest, so that they keep nobody out."""
    places: int = 0
    """Connections that were let in, which nobody's connection closes."""
    queue: int
    """Bytes that may wait for a client before it is behind."""
    body: int
    """Bytes of the longest body of a request."""
    seconds: float = math.inf
    """Seconds for a whole connection, which has one request then."""


METRICS = Bounds(
    door="metrics",
    served="a reader of metrics",
    strangers=CONNECTIONS,
    # The few seconds of a connection leave no time for more.
    queue=1024 * 1024,
    # No request for metrics has one.
    body=8 * 1024,
    seconds=REQUEST_SECONDS,
)
"""Metrics are read by a few scrapers."""

CONSOLE = Bounds(
    door="console",
    served="the console",
    strangers=MAX_STRANGERS,
    # Each browser opens six, and there are 64 streams at most.
    places=128,
    # Twenty of the largest pages.
    queue=4 * 1024 * 1024,
    body=BODY_BYTES,
)
"""The console is read by browsers."""


class LocalDoor:
    """Serves this machine's clients on one listening socket on loopback."""

    def __init__(
        self,
        bounds: Bounds,
        listener: socket.socket,
        route: Callable[[HttpExchange, str, trio.Nursery], None],
        *,
        outbox: Outbox,
        knows: Callable[[Mapping[str, str]], bool] = lambda _headers: False,
        vet: Callable[[socket.socket], Awaitable[bool]] | None = None,
    ) -> None:
        """Prepare to serve.

        Args:
            bounds: how much its clients are given.
            listener: bound to loopback, listening and non-blocking.
            route: has a request answered, given its client's address and where tasks of the connection run.
            outbox: the daemon's outbox.
            knows: whether a request with these headers comes from somebody who was let in.
            vet: says whether the process at the other end of a connection may come in; None: any.
        """
        self._bounds = bounds
        self._route = route
        self._outbox = outbox
        self._knows = knows
        self._strangers = Strangers(bounds.strangers)
        self._let_in = 0
        # One more: a stranger makes room for a connection that was accepted.
        room = bounds.strangers + (bounds.places + 1 if bounds.places else 0)
        self._listener = Listener(
            bounds.door, listener, places=room, admit=peer_of, vet=vet, serve=self._serve_connection
        )

    async def run(self) -> NoReturn:
        """Serve until cancelled.

        Raises:
            OSError: the listening socket is broken.
        """
        await self._listener.run()

    async def _serve_connection(self, plain: socket.socket, peer: str) -> None:
        scope = self._strangers.join()
        scope.deadline = trio.current_time() + self._bounds.seconds
        settled = False

        def serve(exchange: HttpExchange) -> None:
            """Answer a request; a client that was let in has a place then that nobody takes from it."""
            nonlocal settled
            if self._bounds.seconds < math.inf:
                connection.close_when_done()
            self._route(exchange, peer, tasks)
            if not settled and self._let_in < self._bounds.places and self._knows(exchange.head.headers):
                self._strangers.leave(scope)
                self._let_in += 1
                settled = True

        queue = self._bounds.queue
        connection = HttpConnection(
            plain,
            serve,
            peer=peer,
            outbox=self._outbox,
            max_body=self._bounds.body,
            max_queue=queue,
            pause_at=queue,
        )
        try:
            with scope:
                # What is answered is made in here: whoever does not wait for it keeps a place all the same.
                async with trio.open_nursery() as tasks:
                    ticking = await tasks.start(_tick, connection)
                    await connection.run()
                    ticking.cancel()
        except Exception as error:  # noqa: BLE001 - the boundary of a connection
            fault = leaf(error) if isinstance(error, BaseExceptionGroup) else error
            logger.opt(exception=fault).error("a fault of mcpd's own while serving {}", self._bounds.served)
        finally:
            connection.close()
            self._strangers.leave(scope)
            self._let_in -= settled


async def _tick(
    connection: HttpConnection, task_status: trio.TaskStatus[trio.CancelScope] = trio.TASK_STATUS_IGNORED
) -> None:
    with trio.CancelScope() as scope:
        task_status.started(scope)
        while True:
            await trio.sleep(TICK_SECONDS)
            connection.tick(trio.current_time())


def metrics_door(
    listener: socket.socket,
    export: Callable[[], Awaitable[str]],
    *,
    readiness: Callable[[], Readiness],
    outbox: Outbox,
) -> LocalDoor:
    """The door of `metrics.listen`, for metrics and health, one request per connection.

    Args:
        listener: bound to loopback, listening and non-blocking.
        export: makes the text.
        readiness: whether the daemon takes new clients.
        outbox: the daemon's outbox.
    """

    def route(exchange: HttpExchange, _peer: str, tasks: trio.Nursery) -> None:
        head = exchange.head
        if not is_probe(head):
            require_loopback(head)
        found = health(head, readiness())
        if found is not None:
            status, text = found
            exchange.respond(status, (text.encode(),), PLAIN)
        elif head.path != PATH:
            raise Refusal(HTTPStatus.NOT_FOUND, f"nothing here: metrics are at {PATH}\n")
        else:
            require_get(head)
            tasks.start_soon(answer, exchange, export, outbox)

    return LocalDoor(METRICS, listener, route, outbox=outbox)


def console_door(
    listener: socket.socket,
    console: WebApplication,
    *,
    outbox: Outbox,
    vet: Callable[[socket.socket], Awaitable[bool]] | None = None,
) -> LocalDoor:
    """The door of the console where HTTP is not served, for this machine's browsers and nothing else.

    Args:
        listener: bound to loopback, listening and non-blocking.
        console: serves the pages.
        outbox: the daemon's outbox.
        vet: says whether the process at the other end of a connection may come in; None: any.
    """

    def route(exchange: HttpExchange, peer: str, tasks: trio.Nursery) -> None:
        head = exchange.head
        require_loopback(head)
        origin = head.headers.get("origin")
        if origin is not None and not is_own_page(head, origin):
            raise Refusal(HTTPStatus.FORBIDDEN, "only its own pages may use the console\n")
        if not is_console(head):
            raise Refusal(HTTPStatus.NOT_FOUND, "nothing here: the console is at /ui\n")
        AsgiRequest(exchange, console, peer, outbox=outbox).start(tasks.start_soon)

    return LocalDoor(CONSOLE, listener, route, outbox=outbox, knows=console.knows, vet=vet)
