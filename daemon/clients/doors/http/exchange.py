"""A request over HTTP and the response to it, as its application sees them."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Protocol

import msgspec
import trio

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from http import HTTPStatus

    from daemon.clients.doors.http.head import Head, Refusal
    from daemon.wire.envelope import Buffer

PLAIN: Mapping[str, str] = {"content-type": "text/plain; charset=utf-8"}
"""The content type of one-line refusals."""


class Responding(Protocol):
    """The connection of an exchange, which writes its response."""

    exchange: HttpExchange | None
    """The request whose response is not complete."""
    queued: int
    """Bytes that wait for the client."""

    def respond(self, status: HTTPStatus, headers: Mapping[str, str], parts: Sequence[Buffer]) -> None:
        """Send a whole response."""

    def open_stream(self, headers: Mapping[str, str]) -> None:
        """Begin a response of unknown length."""

    def send_part(self, parts: Sequence[Buffer]) -> None:
        """Send a part of a response that was begun."""

    def finish(self) -> None:
        """End the response, and go on to the next request, or close."""

    def close_when_done(self) -> None:
        """Serve the request that is under way, if any, as the last one."""

    def tick(self, now: float) -> None:
        """Do what is due."""

    def upgrade(self) -> None:
        """End this connection's part: its socket goes on under another protocol."""


class HttpExchange(msgspec.Struct, eq=False):
    """A request and the response to it."""

    head: Head
    """The head of the request."""
    connection: Responding
    """Where it came in."""
    on_body: Callable[[bytes], None] | None = None
    """Takes the whole body; None: the request is answered without it."""
    on_gone: Callable[[], None] | None = None
    """Told that the client has left before the response was complete."""
    on_written: Callable[[], None] | None = None
    """Told that nothing waits for the client now."""
    due: float = math.inf
    """When `on_due` is to be called, on trio's clock; to about half a second."""
    on_due: Callable[[], None] | None = None
    """Called once when it is due."""
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Headers of the response, whatever it is."""
    length: int | None = 0
    """Bytes of the body as announced; None if that is not said."""

    @property
    def is_open(self) -> bool:
        """Whether the response is not complete, and the client is there."""
        return self.connection.exchange is self

    @property
    def waiting(self) -> int:
        """Bytes that wait for the client on its connection."""
        return self.connection.queued

    def respond(
        self, status: HTTPStatus, parts: Sequence[Buffer] = (), headers: Mapping[str, str] | None = None
    ) -> None:
        """Send a whole response; nothing happens if there is one already, or the client has left."""
        if self.is_open:
            self.connection.respond(status, {**self.headers, **(headers or {})}, parts)

    def refuse(self, refusal: Refusal) -> None:
        """Send the response that says why the request is not served, after the refusal's delay."""
        headers = {**PLAIN, **refusal.headers}
        respond = partial(self.respond, refusal.status, (refusal.text.encode(),), headers)
        if refusal.delay:
            self.wait_until(trio.current_time() + refusal.delay, respond)
        else:
            respond()

    def open_stream(self, headers: Mapping[str, str]) -> None:
        """Begin a response of unknown length."""
        if self.is_open:
            self.connection.open_stream({**self.headers, **headers})

    def send(self, parts: Sequence[Buffer]) -> None:
        """Send a part of a response that was begun."""
        if self.is_open:
            self.connection.send_part(parts)

    def finish(self) -> None:
        """End a response that was begun."""
        if self.is_open:
            self.connection.finish()

    def wait_until(self, due: float, on_due: Callable[[], None]) -> None:
        """Have `on_due` called at a time, in place of whatever was due before."""
        self.due, self.on_due = due, on_due
