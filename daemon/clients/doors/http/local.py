"""HTTP for this machine alone: metrics and health without a token, and the console without an HTTP listener.

`/healthz` is about the process, for restarts; `/readyz` about new clients, for balancers. The HTTP listener
serves both and `/metrics`, too. Clients are untrusted: connections and time are bounded, and the Host exposes
DNS rebinding.
"""

from __future__ import annotations

import math
import socket
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import NoReturn

import msgspec
import trio
from loguru import logger

from daemon.clients.client import Principal
from daemon.clients.doors.http.asgi import BODY_BYTES, AsgiRequest, WebApplication, is_console, is_own_page
from daemon.clients.doors.http.binding import peer_of
from daemon.clients.doors.http.exchange import PLAIN, HttpExchange, Refusal, require_loopback
from daemon.clients.doors.http.http_connection import HttpConnection
from daemon.clients.doors.http.reading import Head
from daemon.clients.doors.listening import Listener, Strangers
from daemon.config.listen import numeric, split_authority
from daemon.errors import CallError, leaf
from daemon.host.notify import Readiness
from daemon.wire.outbox import Outbox

HEALTH, READY = "/healthz", "/readyz"
PATHS = frozenset({HEALTH, READY})

METHODS = ("GET", "HEAD")


TEXTS = {
    Readiness.STARTING: "starting: not yet\n",
    Readiness.SERVING: "ready\n",
    Readiness.DRAINING: "stopping: present clients are still served, new ones must go elsewhere\n",
}


def health(head: Head, readiness: Readiness) -> tuple[HTTPStatus, str] | None:
    """The answer to a request for health; None for any other request, Refusal for one that does not read."""
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
    """Whether a request is for health and names no host, or an address, as probes do.

    No web page can send this under a name of its own, so its Host needs no check.
    """
    if head.path not in PATHS:
        return False
    sent = head.headers.get("host", "")
    host, _port = split_authority(sent)
    return not sent or (host is not None and numeric(host) is not None)


PATH = "/metrics"

TEXT_FORMAT = "text/plain; version=0.0.4; charset=utf-8"
"""Content type of Prometheus' text format, and good for a one-line refusal."""

REQUEST_SECONDS = 5.0  # for a whole connection: a scrape takes milliseconds, and Prometheus gives up after 10 s

CONNECTIONS = 8  # concurrent readers of metrics; further ones wait in the kernel's backlog

MAX_STRANGERS = 128  # unauthenticated connections to the console

TICK_SECONDS = 0.5  # seconds between checks for due work: every deadline is 2 s or more


def require_get(head: Head) -> None:
    """Raise Refusal unless a request for metrics only reads."""
    if head.method != "GET":
        text = f"metrics can only be read: GET {PATH}\n"
        raise Refusal(HTTPStatus.METHOD_NOT_ALLOWED, text, headers={"allow": "GET"})


def require_all_profiles(visitor: Principal) -> None:
    """Raise Refusal for a token bound to profiles: metrics name every server."""
    if visitor.profiles is not None:
        text = "metrics name every server: a token that is bound to profiles does not read them\n"
        raise Refusal(HTTPStatus.FORBIDDEN, text)


async def answer(exchange: HttpExchange, export: Callable[[], Awaitable[str]], outbox: Outbox) -> None:
    """Answer a request for metrics; an internal error in mcpd costs only this answer."""
    status = HTTPStatus.OK
    try:
        text = await export()
    except CallError as error:
        status, text = HTTPStatus.SERVICE_UNAVAILABLE, f"{error.message}\n"
    except Exception:  # noqa: BLE001 - the boundary of a request
        logger.exception("internal error in mcpd while collecting metrics")
        status, text = HTTPStatus.INTERNAL_SERVER_ERROR, "internal error in mcpd: see its log\n"
    exchange.respond(status, (text.encode(),), {"content-type": TEXT_FORMAT})
    outbox.flush()


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """A door's limits for its clients."""

    door: str  # for the log
    served: str  # the clients, for the log
    strangers: int  # unauthenticated connections; one more closes the oldest, so that they keep nobody out
    places: int = 0  # authenticated connections, which none closes
    queue: int  # bytes that may wait for a client before it is behind
    body: int  # bytes of the longest body
    seconds: float = math.inf  # for a whole connection, which then has one request


METRICS = Bounds(
    door="metrics",
    served="a reader of metrics",
    strangers=CONNECTIONS,
    # Its few seconds leave no time for more.
    queue=1024 * 1024,
    # No request for metrics has one.
    body=8 * 1024,
    seconds=REQUEST_SECONDS,
)  # for a few scrapers

CONSOLE = Bounds(
    door="console",
    served="the console",
    strangers=MAX_STRANGERS,
    # Each browser opens six, and there are 64 streams at most.
    places=128,
    # Twenty of the largest pages.
    queue=4 * 1024 * 1024,
    body=BODY_BYTES,
)  # for browsers


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
            bounds: its limits.
            listener: bound to loopback, listening and non-blocking.
            route: answers a request, given the client's address and a nursery of the connection.
            outbox: the daemon's outbox.
            knows: whether the headers show a known user.
            vet: vets the process at the other end; None: any may come in.
        """
        self._bounds = bounds
        self._route = route
        self._outbox = outbox
        self._knows = knows
        self._strangers = Strangers(bounds.strangers)
        self._let_in = 0
        # One more: an accepted connection ends a stranger's.
        room = bounds.strangers + (bounds.places + 1 if bounds.places else 0)
        self._listener = Listener(
            bounds.door, listener, places=room, admit=peer_of, vet=vet, serve=self._serve_connection
        )

    async def run(self) -> NoReturn:
        """Serve until cancelled; raises OSError for a broken listening socket."""
        await self._listener.run()

    async def _serve_connection(self, plain: socket.socket, peer: str) -> None:
        scope = self._strangers.join()
        scope.deadline = trio.current_time() + self._bounds.seconds
        settled = False

        def serve(exchange: HttpExchange) -> None:
            """Answer a request; a known user keeps a place of its own from then on."""
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
                # Answers are made in here: a client that does not wait for them still holds a place.
                async with trio.open_nursery() as tasks:
                    ticking = await tasks.start(_tick, connection)
                    await connection.run()
                    ticking.cancel()
        except Exception as error:  # noqa: BLE001 - the boundary of a connection
            fault = leaf(error) if isinstance(error, BaseExceptionGroup) else error
            logger.opt(exception=fault).error("internal error in mcpd while serving {}", self._bounds.served)
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

    `listener` is bound to loopback and non-blocking; `export` makes the text.
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
    """The door of the console without an HTTP listener, for this machine's browsers only.

    `listener` is bound to loopback and non-blocking; `vet` judges the process at the other end.
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
