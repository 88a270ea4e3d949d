"""One request over HTTP and its response: for an application, and on the wire (RFC 9112)."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from http import HTTPStatus

import msgspec
import trio

from daemon.clients.doors.http.reading import Head, RequestReader
from daemon.config.listen import is_loopback, split_authority
from daemon.errors import ConnectionLost
from daemon.wire.envelope import Buffer
from daemon.wire.link import FdWriter


class Refusal(Exception):
    """A request is not served; carries the response."""

    def __init__(
        self, status: HTTPStatus, text: str, *, headers: Mapping[str, str] | None = None, delay: float = 0.0
    ) -> None:
        """Refuse with a text, which never repeats a secret, after `delay` seconds."""
        super().__init__(text)
        self.status = status
        self.text = text
        self.headers = headers or {}
        self.delay = delay


def require_loopback(head: Head) -> None:
    """Check that a request names this machine, at a loopback door without tokens.

    Raises `Refusal`: it names another host, like a web page whose name resolves to this machine.
    """
    host, _port = split_authority(head.headers.get("host", ""))
    if host is None or not is_loopback(host):
        text = "only for this machine: ask for it as localhost, 127.0.0.1 or [::1]\n"
        raise Refusal(HTTPStatus.FORBIDDEN, text)


PLAIN: Mapping[str, str] = {"content-type": "text/plain; charset=utf-8"}


class HttpExchange(msgspec.Struct, eq=False):
    """A request and its response."""

    head: Head
    responses: ResponseWriter  # of its connection
    on_body: Callable[[bytes], None] | None = None  # takes the whole body; None: the answer needs none
    on_gone: Callable[[], None] | None = None  # called if the client leaves before the end of the response
    on_written: Callable[[], None] | None = None  # called when nothing waits for the client
    due: float = math.inf  # time for `on_due` on trio's clock, to half a second
    on_due: Callable[[], None] | None = None
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)  # for any response
    length: int | None = 0  # bytes of the body as announced; None if unknown

    @property
    def is_open(self) -> bool:
        """Whether the client is there and the response incomplete."""
        return self.responses.exchange is self

    @property
    def waiting(self) -> int:
        """Bytes that wait for the client on its connection."""
        return self.responses.writer.queued

    def respond(
        self, status: HTTPStatus, parts: Sequence[Buffer] = (), headers: Mapping[str, str] | None = None
    ) -> None:
        """Send a whole response, unless there is one already or the client has left."""
        if self.is_open:
            self.responses.respond(status, {**self.headers, **(headers or {})}, parts)

    def refuse(self, refusal: Refusal) -> None:
        """Send the response of a refusal, after its delay."""
        headers = {**PLAIN, **refusal.headers}
        respond = partial(self.respond, refusal.status, (refusal.text.encode(),), headers)
        if refusal.delay:
            self.wait_until(trio.current_time() + refusal.delay, respond)
        else:
            respond()

    def open_stream(self, headers: Mapping[str, str]) -> None:
        """Begin a response of unknown length."""
        if self.is_open:
            self.responses.open_stream({**self.headers, **headers})

    def send(self, parts: Sequence[Buffer]) -> None:
        """Send a part of a response of unknown length."""
        if self.is_open:
            self.responses.send_part(parts)

    def finish(self) -> None:
        """End a response of unknown length."""
        if self.is_open:
            self.responses.finish()

    def wait_until(self, due: float, on_due: Callable[[], None]) -> None:
        """Have `on_due` called at a time, in place of an earlier wish."""
        self.due, self.on_due = due, on_due


KNOWN_HEADS = 256  # cached heads of responses: most answers share a few lengths

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
"""Makes a client send the body that it holds back (RFC 9110, 10.1.1)."""

_UNSAFE = re.compile(r"[\r\n\0]")  # characters that would end a header, and let its value be another one


class ResponseWriter:
    """Writes the responses of one connection, one at a time."""

    def __init__(self, writer: FdWriter, reader: RequestReader, on_done: Callable[[], None]) -> None:
        """Begin without a request; `on_done` is called after each response."""
        self.exchange: HttpExchange | None = None  # the request whose response is incomplete
        self.is_begun = False
        self.is_last = False  # whether the connection ends with this response
        self.writer = writer
        self._reader = reader
        self._on_done = on_done
        self._is_chunked = False

    def respond(self, status: HTTPStatus, headers: Mapping[str, str], parts: Sequence[Buffer]) -> None:
        """Send a whole response."""
        if status is not HTTPStatus.NO_CONTENT:  # RFC 9110, 8.6
            headers = {**headers, "content-length": str(sum(map(len, parts)))}
        out: list[Buffer] = [self._begun(status, headers)]
        if not self._reader.is_head:
            out += parts
        self.writer.queue(out)
        self.finish()

    def open_stream(self, headers: Mapping[str, str]) -> None:
        """Begin a response of unknown length."""
        self._is_chunked = self._reader.takes_chunks
        if self._is_chunked:
            headers = {**headers, "transfer-encoding": "chunked"}
        self.writer.queue((self._begun(HTTPStatus.OK, headers),))

    def send_part(self, parts: Sequence[Buffer]) -> None:
        """Send a part of a response of unknown length."""
        size = sum(map(len, parts))
        if self._reader.is_head or not size:
            return
        self.writer.queue((b"%x\r\n" % size, *parts, b"\r\n") if self._is_chunked else parts)

    def finish(self) -> None:
        """End the response, and go on to the next request, or close."""
        if self._is_chunked and not self._reader.is_head:
            self.writer.queue((b"0\r\n\r\n",))
        if (done := self.exchange) is not None:
            # They refer to the request, and would make a cycle for the garbage collector.
            done.on_body = done.on_due = done.on_gone = done.on_written = None
        self.exchange = None
        self.is_begun = self._is_chunked = False
        self.is_last = self._ends
        self._on_done()

    def upgrade(self) -> None:
        """Release the socket for another protocol; raises Refusal if more than the request has come."""
        if self._reader.held or not self._reader.is_complete:
            # The bytes that have come are no request.
            self.is_last = True
            raise Refusal(
                HTTPStatus.BAD_REQUEST, "a client must wait for the answer to its opening handshake\n"
            )
        self.exchange = None
        self.writer.end(ConnectionLost("another protocol from here on"))

    @property
    def _ends(self) -> bool:
        return self.is_last or self._reader.is_last or not self._reader.is_complete

    def _begun(self, status: HTTPStatus, headers: Mapping[str, str]) -> bytes:
        self.is_begun = True
        if self._ends:
            headers = {**headers, "connection": "close"}
        # A cookie is a secret, which no cache may hold.
        made = _response.__wrapped__ if "set-cookie" in headers else _response
        return made(status, tuple(headers.items()))


@lru_cache(KNOWN_HEADS)
def _response(status: HTTPStatus, headers: tuple[tuple[str, str], ...]) -> bytes:
    lines = [f"HTTP/1.1 {status.value} {status.phrase}", *(f"{name}: {value}" for name, value in headers)]
    if any(_UNSAFE.search(line) for line in lines):
        raise ValueError("a header of a response has an end of line in it")
    return "\r\n".join((*lines, "", "")).encode("latin-1")
