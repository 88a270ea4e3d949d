"""A request over HTTP and the response to it, as its application sees them."""

from __future__ import annotations

import math
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Protocol
from urllib.parse import unquote

import attrs
import h11
import msgspec
import trio

from daemon.config.listen import is_loopback, split_authority

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from daemon.wire.envelope import Buffer


HEAD_BYTES = 16 * 1024
"""Longest head of a request; agents send 500 bytes, browsers up to 8 KiB with cookies."""

SCHEMES = ("http://", "https://")
"""How a target begins that names the host, too (RFC 9112, 3.2.2)."""


@attrs.frozen(kw_only=True)
class Head:
    """The head of a request."""

    method: str
    """As it was sent: `GET`, `POST`."""
    path: str
    """The path of its target without the query, percent-decoded but for its first part, which a proxy goes by
    (`/%6detrics` is not `/metrics`)."""
    headers: Mapping[str, str] = attrs.field(repr=False)
    """By lower-case name; a header that was sent twice has both values, joined by a comma."""
    target: str = attrs.field(default="", repr=False)
    """Its target as it was sent, without the host: the path, percent-encoded, and the query."""
    peer: str
    """The address at the other end of the connection, without its port."""


class Refusal(Exception):
    """A request is not served; carries the response that says so."""

    def __init__(
        self, status: HTTPStatus, text: str, *, headers: Mapping[str, str] | None = None, delay: float = 0.0
    ) -> None:
        """Refuse.

        Args:
            status: the status of the response.
            text: what failed, why, and what to do; it never repeats a secret.
            headers: further headers, such as `WWW-Authenticate`.
            delay: seconds that the response is held back.
        """
        super().__init__(text)
        self.status = status
        self.text = text
        self.headers = headers or {}
        self.delay = delay


def require_loopback(head: Head) -> None:
    """Check that a request asks for this machine, for a door that is on loopback and asks for no token.

    Raises:
        Refusal: it asks for another host, as a web page does whose own name resolves to this machine.
    """
    host, _port = split_authority(head.headers.get("host", ""))
    if host is None or not is_loopback(host):
        text = "only for this machine: ask for it as localhost, 127.0.0.1 or [::1]\n"
        raise Refusal(HTTPStatus.FORBIDDEN, text)


def head_of(request: h11.Request, peer: str) -> Head:
    """What a request says of itself.

    Raises:
        RemoteProtocolError: it is longer than is read, of another version, or its body has two lengths: a proxy
            might take the other one, and the rest for another request (RFC 9112, 6.1 and 11.2).
    """
    headers: dict[str, str] = {}
    for raw_name, raw_value in request.headers:
        name, value = raw_name.decode("ascii"), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    if sum(len(name) + len(value) for name, value in request.headers) + len(request.target) > HEAD_BYTES:
        status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
        raise h11.RemoteProtocolError(f"its head is longer than {HEAD_BYTES} bytes", error_status_hint=status)
    if not request.http_version.startswith(b"1."):
        status = HTTPStatus.HTTP_VERSION_NOT_SUPPORTED
        raise h11.RemoteProtocolError("it is of another version", error_status_hint=status)
    if "transfer-encoding" in headers and ("content-length" in headers or request.http_version == b"1.0"):
        raise h11.RemoteProtocolError("its body has two lengths, or is chunked in HTTP/1.0")
    target = request.target.decode("ascii")
    if target.lower().startswith(SCHEMES):
        headers["host"], slash, path = target.partition("//")[2].partition("/")
        target = slash + path
    raw = target.partition("?")[0]
    first, slash, rest = raw[1:].partition("/")
    return Head(
        method=request.method.decode(),
        path=raw[:1] + first + slash + unquote(rest),
        headers=headers,
        target=target,
        peer=peer,
    )


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
