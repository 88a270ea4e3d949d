"""HTTP for this machine alone: metrics and health without a token, and the console without the HTTP door.

Clients are untrusted: their number and time are bounded, and the Host header reveals DNS rebinding.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable
from http import HTTPStatus

from loguru import logger

from daemon.clients.client import Principal
from daemon.clients.doors.http.asgi import BODY_BYTES, AsgiRequest, WebApplication, is_console, is_own_page
from daemon.clients.doors.http.http_connection import PLAIN, Bounds, HttpExchange, require_loopback
from daemon.clients.doors.http.http_listener import HttpListener, Visit
from daemon.clients.doors.http.reading import Head, Refusal
from daemon.config.listen import numeric, split_authority
from daemon.errors import CallError
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
    """The answer to a health check; None for any other request. Raises Refusal for methods but GET and HEAD."""
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
    """Whether a request is a health check without a Host or with an address, which no web page can send."""
    if head.path not in PATHS:
        return False
    sent = head.headers.get("host", "")
    host, _port = split_authority(sent)
    return not sent or (host is not None and numeric(host) is not None)


PATH = "/metrics"

TEXT_FORMAT = "text/plain; version=0.0.4; charset=utf-8"
"""Content type of Prometheus' text format; one-line refusals use it, too."""

REQUEST_SECONDS = 5.0  # for a whole connection: a scrape takes milliseconds, and Prometheus gives up after 10 s

CONNECTIONS = 8  # concurrent readers of metrics; further ones wait in the kernel's backlog

OWNER = "console: "  # the owner of the places of all browsers

MAX_STRANGERS = 128  # unauthenticated connections to the console


def require_get(head: Head) -> None:
    """Raise Refusal unless a request for metrics is a GET."""
    if head.method != "GET":
        text = f"metrics can only be read: GET {PATH}\n"
        raise Refusal(HTTPStatus.METHOD_NOT_ALLOWED, text, headers={"allow": "GET"})


def require_all_profiles(visitor: Principal) -> None:
    """Raise Refusal for a token bound to profiles, because metrics name every server."""
    if visitor.profiles is not None:
        text = "metrics name every server, so a token that is bound to profiles cannot read them\n"
        raise Refusal(HTTPStatus.FORBIDDEN, text)


async def answer(exchange: HttpExchange, export: Callable[[], Awaitable[str]], outbox: Outbox) -> None:
    """Answer a request for metrics; an internal error of mcpd ends only this answer."""
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


def answers(
    exchange: HttpExchange,
    visit: Visit,
    readiness: Readiness,
    export: Callable[[], Awaitable[str]] | None,
    outbox: Outbox,
    admit: Callable[[], object] = lambda: None,
) -> bool:
    """Answer a request for health, or for metrics unless `admit` raises Refusal; False for other requests."""
    found = health(exchange.head, readiness)
    if found is not None:
        status, text = found
        exchange.respond(status, (text.encode(),), PLAIN)
    elif exchange.head.path == PATH and export is not None:
        admit()
        require_get(exchange.head)
        visit.tasks.start_soon(answer, exchange, export, outbox)
    else:
        return False
    return True


METRICS = Bounds(
    door="metrics",
    strangers=CONNECTIONS,
    # Its few seconds leave no time for more.
    queue=1024 * 1024,
    pause=1024 * 1024,
    # No request for metrics has one.
    body=8 * 1024,
    seconds=REQUEST_SECONDS,
)  # for a few scrapers

CONSOLE = Bounds(
    door="console",
    strangers=MAX_STRANGERS,
    # Each browser opens six, and there are 64 streams at most.
    places=128,
    # Twenty of the largest pages.
    queue=4 * 1024 * 1024,
    pause=4 * 1024 * 1024,
    body=BODY_BYTES,
)  # for browsers


def metrics_door(
    listener: socket.socket,
    export: Callable[[], Awaitable[str]],
    *,
    readiness: Callable[[], Readiness],
    outbox: Outbox,
) -> HttpListener:
    """Make the door of `metrics.listen`; `listener` is bound to loopback and non-blocking."""

    def judge(exchange: HttpExchange, visit: Visit) -> None:
        if not is_probe(exchange.head):
            require_loopback(exchange.head)
        if not answers(exchange, visit, readiness(), export, outbox):
            raise Refusal(HTTPStatus.NOT_FOUND, f"nothing here: metrics are at {PATH}\n")

    return HttpListener(METRICS, listener, judge, outbox=outbox)


def console_door(
    listener: socket.socket,
    console: WebApplication,
    *,
    outbox: Outbox,
    vet: Callable[[socket.socket], Awaitable[bool]] | None = None,
) -> HttpListener:
    """Make the console's own door on a loopback `listener`; `vet` judges the process at the other end."""

    def judge(exchange: HttpExchange, visit: Visit) -> None:
        head = exchange.head
        require_loopback(head)
        origin = head.headers.get("origin")
        if origin is not None and not is_own_page(head, origin):
            raise Refusal(HTTPStatus.FORBIDDEN, "only its own pages may use the console\n")
        if not is_console(head):
            raise Refusal(HTTPStatus.NOT_FOUND, "nothing here: the console is at /ui\n")
        AsgiRequest(exchange, console, head.peer, outbox=outbox).start(visit.tasks.start_soon)
        if console.knows(head.headers) and len(door.owners()) < CONSOLE.places:
            door.settle(visit, OWNER)

    door = HttpListener(CONSOLE, listener, judge, outbox=outbox, vet=vet)
    return door
