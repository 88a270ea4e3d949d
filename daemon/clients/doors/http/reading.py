"""Requests of HTTP/1.1 from a byte stream: heads and bodies, without a socket, a task or a clock.

llhttp (`httptools`) reads heads and chunks, strictly: no folded lines, no bare line ends, no second length. It
pushes what it finds, and goes on with the next request if that is there; so it is shown one head at a time, and
the body of a request up to an end of line. A body of a known length is cut out of the stream without it.

A proxy in front of mcpd may read an unusual request otherwise than we do, and take the rest of it for another
request. So whatever two could read in two ways is refused.

Source: RFC 9112.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import unquote

import attrs
import httptools

if TYPE_CHECKING:
    from collections.abc import Mapping

HEAD_BYTES = 16 * 1024
"""Longest head of a request; agents send 500 bytes, browsers up to 8 KiB with cookies."""


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


SCHEMES = ("http://", "https://")
"""How a target begins that names the host, too (RFC 9112, 3.2.2)."""

LINES_AT_ONCE = 16
"""Lines of a body in chunks that are shown to llhttp at once: some 20 us."""

LENGTH_DIGITS = 18
"""Digits of the longest length that is a number at all; which bodies are too long is said elsewhere."""

_CHUNKED = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
"""A head that makes a parser expect chunks, whatever else the real one says."""

_NO_METHOD = frozenset(bytes((each,)) for each in range(ord("!")))
"""Characters that begin no request: TLS begins with one, and an empty line."""

_LINE = re.compile(rb"([^ ]+) ([^ ]+) HTTP/(\d\.\d)")
"""A request line, whose characters llhttp checks."""


class BadRequest(Exception):
    """What a client has sent is no request of HTTP/1.1; carries the response, which repeats nothing of it."""

    def __init__(self, text: str, status: HTTPStatus = HTTPStatus.BAD_REQUEST) -> None:
        super().__init__(text)
        self.status = status
        self.text = f"not a request of HTTP/1.1: {text}\n"


class _Fields:
    """The fields of a head, as llhttp finds them."""

    def __init__(self) -> None:
        self.found: list[tuple[bytes, bytes]] = []

    def on_header(self, name: bytes, value: bytes) -> None:
        self.found.append((name, value))

    def hosts(self) -> int:
        """How many name a host."""
        return sum(name.lower() == b"host" for name, _ in self.found)

    def headers(self) -> dict[str, str]:
        """By lower-case name; the values of one that was sent twice are joined by a comma."""
        headers: dict[str, str] = {}
        for raw_name, raw_value in self.found:
            name, value = raw_name.decode("ascii").lower(), raw_value.decode("latin-1").strip(" \t")
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        return headers


class _Chunks:
    """A body in chunks, as llhttp finds it; what follows the last chunk is dropped."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.is_complete = False
        self.parser = httptools.HttpRequestParser(self)
        self.parser.feed_data(_CHUNKED)

    def on_body(self, part: bytes) -> None:
        self.parts.append(part)

    def on_message_complete(self) -> None:
        self.is_complete = True


class RequestReader:
    """Cuts a stream into heads and bodies. `head` comes first, then `body` until `is_complete`, then `head`."""

    def __init__(self) -> None:
        """Start before the first request."""
        self.is_complete = True
        """Whether all of the request was taken, or none was begun."""
        self.length: int | None = 0
        """Bytes of the body as announced; None if that is not said."""
        self.is_awaited = False
        """Whether its client waits to be told to send the body (RFC 9110, 10.1.1)."""
        self.is_last = False
        """Whether its client waits for no further request to be served."""
        self.is_head = False
        """Whether its response has no body (HEAD)."""
        self.takes_chunks = True
        """Whether its client reads a response in chunks."""
        self._data = b""
        self._looked = 0
        """Bytes of an unfinished head that were looked at."""
        self._missing = 0
        self._chunks: _Chunks | None = None
        self._framing = 0
        """Bytes since the last part of a body in chunks."""

    @property
    def held(self) -> bytes:
        """What was sent and not taken yet."""
        return self._data

    def feed(self, data: bytes) -> None:
        """Add what was read."""
        self._data = self._data + data if self._data else data

    def head(self, peer: str) -> Head | None:
        """The head of the next request; None if it is not all there.

        Args:
            peer: the address at the other end.

        Raises:
            BadRequest: it is none.
        """
        data = self._data
        self.is_head = data.startswith(b"HEAD ")
        end = data.find(b"\r\n\r\n", max(0, self._looked - 3), HEAD_BYTES)
        if end < 0:
            self._check_beginning()
            return None
        raw, self._data, self._looked = data[: end + 4], data[end + 4 :], 0
        head, version = _head_of(raw, peer)
        self.takes_chunks = version != b"1.0"
        self.is_awaited = self.takes_chunks and head.headers.get("expect", "").lower() == "100-continue"
        self.is_last = not self.takes_chunks or "close" in options(head.headers.get("connection", ""))
        self._begin_body(head.headers)
        return head

    def body(self) -> bytes | None:
        """The next part of the body, which may be empty at its end; None if nothing of it is there.

        Raises:
            BadRequest: it is not framed as it should be.
        """
        if not self._data:
            return None
        if self._chunks is not None:
            return self._part_of_chunks(self._chunks)
        part, self._data = self._data[: self._missing], self._data[self._missing :]
        self._missing -= len(part)
        self.is_complete = not self._missing
        return part

    def _check_beginning(self) -> None:
        """Check what is no whole head yet, so that nobody waits for the rest of what will never be one."""
        if len(self._data) >= HEAD_BYTES:
            status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
            raise BadRequest(f"its head is longer than {HEAD_BYTES} bytes", status)
        fresh = self._data[max(0, self._looked - 1) :]
        self._looked = len(self._data)
        bare = fresh.count(b"\n") - fresh.count(b"\r\n") - fresh.startswith(b"\n")
        if bare or self._data[:1] in _NO_METHOD:
            raise BadRequest("no line of a head")

    def _begin_body(self, headers: Mapping[str, str]) -> None:
        if "transfer-encoding" in headers:
            if headers["transfer-encoding"].lower() != "chunked":
                raise _no_coding()
            if "content-length" in headers or not self.takes_chunks:
                raise BadRequest("its body has two lengths, or is chunked in HTTP/1.0")
            self._chunks, self._framing = _Chunks(), 0
            self.length, self.is_complete = None, False
        else:
            length = headers.get("content-length", "0")
            if not (length.isascii() and length.isdigit() and len(length) <= LENGTH_DIGITS):
                raise BadRequest("its length is no number")
            self.length = self._missing = int(length)
            self.is_complete = not self._missing

    def _part_of_chunks(self, chunks: _Chunks) -> bytes | None:
        """Show llhttp a few lines: a body ends where one does, and what follows is the next request."""
        data, at = self._data, 0
        try:
            for _ in range(LINES_AT_ONCE):
                found = data.find(b"\r\n", at)
                # A CR at the end may be half of one.
                line_end = found + 2 if found >= 0 else len(data) - data.endswith(b"\r")
                if line_end == at:
                    break
                chunks.parser.feed_data(data[at:line_end])
                at = line_end
                if chunks.is_complete:
                    break
        except httptools.HttpParserError as error:
            raise BadRequest(str(error).lower()) from None
        if not at:
            return None
        self._data = data[at:]
        part = b"".join(chunks.parts)
        self._framing = 0 if part else self._framing + at
        chunks.parts.clear()
        if chunks.is_complete:
            self._chunks, self.is_complete = None, True
        elif self._framing > HEAD_BYTES:
            raise BadRequest("what stands between its chunks is too long")
        return part


def _no_coding() -> BadRequest:
    return BadRequest("its body may be chunked, and in no other coding", HTTPStatus.NOT_IMPLEMENTED)


def options(header: str) -> list[str]:
    """What a header names, in lower case, with commas between."""
    return [each.strip() for each in header.lower().split(",")]


def _head_of(raw: bytes, peer: str) -> tuple[Head, bytes]:
    """A whole head, and the version that it is of."""
    line = _LINE.fullmatch(raw, 0, raw.index(b"\r\n"))
    if line is None:
        raise BadRequest("no request line")
    method, raw_target, version = line.groups()
    if version not in {b"1.1", b"1.0"}:
        raise BadRequest("it is of another version", HTTPStatus.HTTP_VERSION_NOT_SUPPORTED)
    fields = _Fields()
    try:
        httptools.HttpRequestParser(fields).feed_data(raw)
    except httptools.HttpParserUpgrade:
        pass  # Which protocol follows, if any, is up to the application.
    except httptools.HttpParserInvalidMethodError:
        raise BadRequest("no such method", HTTPStatus.NOT_IMPLEMENTED) from None
    except httptools.HttpParserError as error:
        if fields.headers().get("transfer-encoding", "chunked").lower() != "chunked":
            raise _no_coding() from None
        raise BadRequest(str(error).lower()) from None
    headers = fields.headers()
    host = headers.get("host")
    if (host is None and version == b"1.1") or (host and "," in host and fields.hosts() > 1):
        raise BadRequest("it names no host, or two")
    target = raw_target.decode("ascii")
    if target.lower().startswith(SCHEMES):
        headers["host"], slash, path = target.partition("//")[2].partition("/")
        target = slash + path
    path = target.partition("?")[0]
    first, slash, rest = path[1:].partition("/")
    decoded = path[:1] + first + slash + (unquote(rest) if "%" in rest else rest)
    head = Head(method=method.decode("ascii"), path=decoded, headers=headers, target=target, peer=peer)
    return head, version
