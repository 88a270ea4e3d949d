"""`GET /metrics` over HTTP, and the door of `metrics.listen`, which serves it on loopback without a token.

No peer of that door is trusted: connections and time are bounded, and a web page whose own name resolves to
this machine (DNS rebinding) is refused by the Host that its browser sends.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, NoReturn

import trio
from loguru import logger

from daemon.clients.doors.http.binding import peer_of
from daemon.clients.doors.http.connection import HttpConnection
from daemon.clients.doors.http.exchange import PLAIN
from daemon.clients.doors.http.head import Refusal, require_loopback
from daemon.clients.doors.http.health import health, is_probe
from daemon.clients.doors.listening import Listener
from daemon.errors import CallError

if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable, Callable

    from daemon.clients.doors.http.exchange import HttpExchange
    from daemon.clients.doors.http.head import Head
    from daemon.clients.identity import Principal
    from daemon.host.notify import Readiness
    from daemon.wire.outbox import Outbox

PATH = "/metrics"

TEXT_FORMAT = "text/plain; version=0.0.4; charset=utf-8"
"""The content type of Prometheus' text format; also right for a one-line refusal."""

CONNECTIONS = 8
"""Connections at once, further ones wait in the kernel's backlog: a few scrapers, each with one request."""

REQUEST_SECONDS = 5.0
"""Seconds for a whole connection: a scrape takes milliseconds, and Prometheus itself gives up after 10 s."""

BODY_BYTES = 8 * 1024
"""Longest body of a request, which none needs."""

QUEUE_BYTES = 1024 * 1024
"""Bytes that may wait for a client before it is behind, which its few seconds leave no time for."""


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


class MetricsDoor:
    """Serves metrics and health on one listening socket, one request per connection."""

    def __init__(
        self,
        listener: socket.socket,
        export: Callable[[], Awaitable[str]],
        *,
        readiness: Callable[[], Readiness],
        outbox: Outbox,
    ) -> None:
        """Prepare to serve.

        Args:
            listener: bound, listening and non-blocking.
            export: makes the text.
            readiness: whether the daemon takes new clients.
            outbox: the daemon's outbox.
        """
        self._export = export
        self._readiness = readiness
        self._outbox = outbox
        self._listener = Listener(
            "metrics", listener, places=CONNECTIONS, admit=peer_of, serve=self._serve_connection
        )

    async def run(self) -> NoReturn:
        """Serve until cancelled.

        Raises:
            OSError: the listening socket is broken.
        """
        await self._listener.run()

    async def _serve_connection(self, plain: socket.socket, peer: str) -> None:
        def judge(exchange: HttpExchange) -> None:
            connection.close_when_done()
            self._route(exchange, tasks)

        connection = HttpConnection(
            plain,
            judge,
            peer=peer,
            outbox=self._outbox,
            max_body=BODY_BYTES,
            max_queue=QUEUE_BYTES,
            pause_at=QUEUE_BYTES,
        )
        try:
            with trio.move_on_after(REQUEST_SECONDS):
                # The text is made in here: whoever does not wait for it keeps a place all the same.
                async with trio.open_nursery() as tasks:
                    await connection.run()
        except Exception:  # noqa: BLE001 - the boundary of a connection
            logger.exception("a fault of mcpd's own while serving a reader of metrics")
        finally:
            connection.close()

    def _route(self, exchange: HttpExchange, tasks: trio.Nursery) -> None:
        head = exchange.head
        if not is_probe(head):
            require_loopback(head)
        found = health(head, self._readiness())
        if found is not None:
            status, text = found
            exchange.respond(status, (text.encode(),), PLAIN)
        elif head.path != PATH:
            raise Refusal(HTTPStatus.NOT_FOUND, f"nothing here: metrics are at {PATH}\n")
        else:
            require_get(head)
            tasks.start_soon(answer, exchange, self._export, self._outbox)
