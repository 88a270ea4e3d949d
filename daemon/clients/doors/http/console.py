"""The door of the console where HTTP is not served: on loopback, for this machine's browsers, and nothing else.

A web page whose own name resolves to this machine (DNS rebinding) is refused by the Host that a browser sends.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, NoReturn

import trio
from loguru import logger

from daemon.clients.doors.http.asgi import BODY_BYTES, AsgiRequest, is_console, is_own_page
from daemon.clients.doors.http.binding import peer_of
from daemon.clients.doors.http.connection import HttpConnection
from daemon.clients.doors.http.head import Refusal, require_loopback
from daemon.clients.doors.listening import Listener, Strangers
from daemon.errors import leaf

if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable, Callable

    from daemon.clients.doors.http.asgi import WebApplication
    from daemon.clients.doors.http.exchange import HttpExchange
    from daemon.wire.outbox import Outbox

CONNECTIONS = 128
"""Connections of browsers that were let in: each opens six, and there are 64 streams at most."""

MAX_STRANGERS = 128
"""Connections of all others; with one more the oldest is closed, so that nobody is kept out by them."""

QUEUE_BYTES = 4 * 1024 * 1024
"""Bytes that may wait for a browser before it is behind: twenty of the largest pages."""

TICK_SECONDS = 0.5
"""Seconds between looks at what is due on a connection: every deadline is 2 s or more."""


class ConsoleDoor:
    """Serves the console on one listening socket."""

    def __init__(
        self,
        listener: socket.socket,
        console: WebApplication,
        *,
        outbox: Outbox,
        vet: Callable[[socket.socket], Awaitable[bool]] | None = None,
    ) -> None:
        """Prepare to serve.

        Args:
            listener: bound to loopback, listening and non-blocking.
            console: serves the pages.
            outbox: the daemon's outbox.
            vet: says whether the process at the other end of a connection may come in; None: any.
        """
        self._console = console
        self._outbox = outbox
        self._listener = Listener(
            "console",
            listener,
            # One more: a stranger makes room for a connection that was accepted.
            places=CONNECTIONS + MAX_STRANGERS + 1,
            admit=peer_of,
            vet=vet,
            serve=self._serve_connection,
        )
        self._strangers = Strangers(MAX_STRANGERS)
        self._let_in = 0

    async def run(self) -> NoReturn:
        """Serve until cancelled.

        Raises:
            OSError: the listening socket is broken.
        """
        await self._listener.run()

    async def _serve_connection(self, plain: socket.socket, peer: str) -> None:
        scope = self._strangers.join()
        settled = False

        def settle(exchange: HttpExchange) -> None:
            """Give a browser that was let in a place that nobody takes from it."""
            nonlocal settled
            if not settled and self._let_in < CONNECTIONS and self._console.knows(exchange.head.headers):
                self._strangers.leave(scope)
                self._let_in += 1
                settled = True

        try:
            with scope:
                await self._speak(plain, peer, settle)
        finally:
            self._strangers.leave(scope)
            self._let_in -= settled

    async def _speak(self, plain: socket.socket, peer: str, settle: Callable[[HttpExchange], None]) -> None:
        """Serve the requests of one connection; `settle` is shown each that the console answers."""

        def judge(exchange: HttpExchange) -> None:
            self._route(exchange, peer, tasks)
            settle(exchange)

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
            async with trio.open_nursery() as tasks:
                tasks.start_soon(_tick, connection)
                await connection.run()
                tasks.cancel_scope.cancel()
        except Exception as error:  # noqa: BLE001 - the boundary of a connection
            plain_error = leaf(error) if isinstance(error, BaseExceptionGroup) else error
            logger.opt(exception=plain_error).error("a fault of mcpd's own while serving the console")
        finally:
            connection.close()

    def _route(self, exchange: HttpExchange, peer: str, tasks: trio.Nursery) -> None:
        head = exchange.head
        require_loopback(head)
        origin = head.headers.get("origin")
        if origin is not None and not is_own_page(head, origin):
            raise Refusal(HTTPStatus.FORBIDDEN, "only its own pages may use the console\n")
        if not is_console(head):
            raise Refusal(HTTPStatus.NOT_FOUND, "nothing here: the console is at /ui\n")
        AsgiRequest(exchange, self._console, peer, outbox=self._outbox).start(tasks.start_soon)


async def _tick(connection: HttpConnection) -> NoReturn:
    while True:
        await trio.sleep(TICK_SECONDS)
        connection.tick(trio.current_time())
