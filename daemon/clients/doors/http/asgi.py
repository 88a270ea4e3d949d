"""Runs ASGI applications over exchanges: one request each, its body read whole, its response with backpressure.

HTTP connection scope 2.4, with two differences: `path` stays encoded, because a decoded `%2F` would look like a
separator; and a leaving client cancels the request's task, so `http.disconnect` never comes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from http import HTTPStatus
from typing import Any, Protocol

import attrs
import trio
from loguru import logger

from daemon.clients.doors.http.http_connection import HttpExchange, internal_error
from daemon.clients.doors.http.reading import Head, Refusal
from daemon.errors import leaf
from daemon.wire.link import STUCK_SECONDS
from daemon.wire.outbox import Outbox

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

BODY_BYTES = 64 * 1024  # longest body of a request: a console's forms have a few hundred bytes

WAITING_BYTES = 64 * 1024  # bytes waiting for a client above which its stream makes no more


PATH = "/ui"  # root of the pages for people


def is_console(head: Head) -> bool:
    """Whether a request asks for a page of the console."""
    return head.path == PATH or head.path.startswith(f"{PATH}/")


def is_own_page(head: Head, origin: str) -> bool:
    """Whether a request comes from a console page, with the same host and port."""
    authority = origin.partition("://")[2].lower()
    return is_console(head) and bool(authority) and authority == head.headers.get("host", "").lower()


class WebApplication(Protocol):
    """An ASGI application that authenticates its users."""

    strangers: trio.Lock
    """Makes requests of unknown users wait for each other."""

    def knows(self, headers: Mapping[str, str]) -> bool:
        """Whether the headers show a known user."""

    def revoked(self, token: str) -> None:
        """End the sessions that this token has opened."""

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve one request."""


@attrs.frozen
class AsgiRequest:
    """One request that an application answers."""

    exchange: HttpExchange
    application: WebApplication
    address: str  # the client's
    outbox: Outbox = attrs.field(kw_only=True)
    scheme: str = attrs.field(default="http", kw_only=True)  # `https` if the whole way is encrypted

    def start(self, spawn: Callable[..., None]) -> None:
        """Serve the request in a task once its body has arrived. Raises `Refusal` for its length (411, 413)."""
        exchange = self.exchange
        if exchange.length is None:
            raise Refusal(
                HTTPStatus.LENGTH_REQUIRED,
                "the header Content-Length is missing: it must give the length of the body\n",
            )
        if exchange.length > BODY_BYTES:
            text = f"the body is longer than {BODY_BYTES} bytes\n"
            raise Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, text)
        if exchange.length:
            exchange.on_body = lambda body: spawn(self.serve, body)
        else:
            spawn(self.serve, b"")

    async def serve(self, body: bytes) -> None:
        """Have the application answer; an internal error of mcpd ends only this response."""
        response = _Response(self.exchange, self.outbox)
        with trio.CancelScope() as scope:
            self.exchange.on_gone = scope.cancel
            if not self.exchange.is_open:
                return
            try:
                if not self.application.knows(self.exchange.head.headers):
                    # One in each pass of the loop: a hundred pages at once would hold up everybody's calls.
                    async with self.application.strangers:
                        pass
                await self.application(self._scope(), _receiving(body), response.send)
            except Exception as error:  # noqa: BLE001 - the boundary of a request
                plain = leaf(error)
                if not isinstance(plain, ClientStuck):
                    logger.opt(exception=plain).error("internal error in mcpd while serving a page")
            finally:
                response.end()

    def _scope(self) -> Message:
        head = self.exchange.head
        path, _, query = head.target.partition("?")
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1",
            "method": head.method,
            "scheme": self.scheme,
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(name.encode(), value.encode("latin-1")) for name, value in head.headers.items()],
            "client": (self.address, 0),
            "server": None,
        }


class ClientStuck(OSError):
    """A client does not read its response."""


class _Response:
    def __init__(self, exchange: HttpExchange, outbox: Outbox) -> None:
        self._exchange = exchange
        self._outbox = outbox
        self._begun: tuple[HTTPStatus, dict[str, str]] | None = None

    async def send(self, message: Message) -> None:
        """Take an ASGI message; raises ClientStuck after `STUCK_SECONDS` without progress."""
        if message["type"] == "http.response.start":
            names = ((name.decode("ascii"), value.decode("latin-1")) for name, value in message["headers"])
            self._begun = HTTPStatus(message["status"]), dict(names)
        else:
            await self._send(message.get("body", b""), more=message.get("more_body", False))

    async def _send(self, body: bytes, *, more: bool) -> None:
        assert self._begun is not None, "a body comes after its head"
        if not more and not self._exchange.is_begun:
            self._exchange.respond(self._begun[0], (body,), self._begun[1])
        else:
            if not self._exchange.is_begun:
                self._exchange.open_stream(self._begun[1])
            self._exchange.send((body,))
        self._outbox.flush()
        if more:
            await self._room()

    async def _room(self) -> None:
        written = trio.Event()
        self._exchange.on_written = written.set
        if self._exchange.waiting <= WAITING_BYTES:
            return
        with trio.move_on_after(STUCK_SECONDS):
            await written.wait()
            return
        raise ClientStuck

    def end(self) -> None:
        """End an incomplete response: with an error if nothing was sent yet, else by closing the connection."""
        exchange = self._exchange
        exchange.on_written = None
        if exchange.is_open and not exchange.is_begun:
            exchange.refuse(internal_error())
        elif exchange.is_open:
            exchange.responses.is_last = True
            exchange.finish()
        self._outbox.flush()


def _receiving(body: bytes) -> Receive:
    bodies = [body]

    async def receive() -> Message:
        if bodies:
            return {"type": "http.request", "body": bodies.pop(), "more_body": False}
        # Until the client leaves, which cancels the task.
        return await trio.sleep_forever()

    return receive
