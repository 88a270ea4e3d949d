"""Parses HTTP/1.1 requests from a byte stream, without a socket, a task or a clock (RFC 9112).

llhttp (`httptools`) parses all of its input, so it gets one head at a time, and bodies only up to a line end. A
request that a proxy could read differently is refused: proxy and mcpd would disagree where the next request
begins (request smuggling).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus
from urllib.parse import unquote

import attrs
import httptools

HEAD_BYTES = 16 * 1024  # longest head; agents send 500 bytes, browsers up to 8 KiB with cookies


@attrs.frozen(kw_only=True)
class Head:
    """The head of a request."""

    method: str  # as sent: `GET`, `POST`
    path: str
    """The target without the query, percent-decoded except for the first part, which proxies route by."""
    headers: Mapping[str, str] = attrs.field(repr=False)
    """Headers by lower-case name; the values of repeated headers are joined by a comma."""
    target: str = attrs.field(default="", repr=False)
    """The target as sent, without the host: the encoded path and query."""
    peer: str  # the peer's address, without a port


SCHEMES = ("http://", "https://")  # beginnings of a target that names the host, too (RFC 9112, 3.2.2)

LINES_AT_ONCE = 16  # lines of a chunked body given to llhttp at once: 20 us

LENGTH_DIGITS = 18  # digits of a length that is a number at all; its limit is checked elsewhere

_CHUNKED = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
"""A head that makes llhttp expect chunks."""

_NO_METHOD = frozenset(bytes((each,)) for each in range(ord("!")))
"""First bytes that begin no request: a TLS record's, and an empty line's."""

_LINE = re.compile(rb"([^ ]+) ([^ ]+) HTTP/(\d\.\d)")  # A request line, whose characters llhttp checks


class Refusal(Exception):
    """Raised instead of serving a request; carries the response."""

    def __init__(
        self, status: HTTPStatus, text: str, *, headers: Mapping[str, str] | None = None, delay: float = 0.0
    ) -> None:
        """`text` must not repeat a secret; the response is sent after `delay` seconds."""
        super().__init__(text)
        self.status = status
        self.text = text
        self.headers = headers or {}
        self.delay = delay


def malformed(text: str, status: HTTPStatus = HTTPStatus.BAD_REQUEST) -> Refusal:
    """The refusal of bytes that are no HTTP/1.1 request; `text` repeats none of them."""
    return Refusal(status, f"not a request of HTTP/1.1: {text}\n")


class _Fields:
    def __init__(self) -> None:
        self.found: list[tuple[bytes, bytes]] = []

    def on_header(self, name: bytes, value: bytes) -> None:
        self.found.append((name, value))

    def hosts(self) -> int:
        return sum(name.lower() == b"host" for name, _ in self.found)

    def headers(self) -> dict[str, str]:
        headers: dict[str, str] = {}
        for raw_name, raw_value in self.found:
            name, value = raw_name.decode("ascii").lower(), raw_value.decode("latin-1").strip(" \t")
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        return headers


class _Chunks:
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
    """Cuts a stream into requests: call `head`, then `body` until `is_complete`, then `head` again."""

    def __init__(self) -> None:
        self.is_complete = True  # whether the whole request was taken, or none begun
        self.length: int | None = 0  # bytes of the body as announced; None if unknown
        self.is_awaited = False  # whether the client waits for 100 Continue (RFC 9110, 10.1.1)
        self.is_last = False  # whether the client expects no further request to be served
        self.is_head = False  # whether the response has no body (HEAD)
        self.takes_chunks = True  # whether the client reads a chunked response
        self.held = b""  # bytes sent and not yet taken
        self._looked = 0  # searched bytes of an unfinished head
        self._missing = 0
        self._chunks: _Chunks | None = None
        self._framing = 0  # bytes since the last part of a chunked body

    def feed(self, data: bytes) -> None:
        """Add bytes."""
        self.held = self.held + data if self.held else data

    def head(self, peer: str) -> Head | None:
        """The next head; None if incomplete. Raises Refusal if malformed."""
        data = self.held
        self.is_head = data.startswith(b"HEAD ")
        end = data.find(b"\r\n\r\n", max(0, self._looked - 3), HEAD_BYTES)
        if end < 0:
            self._check_beginning()
            return None
        raw, self.held, self._looked = data[: end + 4], data[end + 4 :], 0
        head, version = _head_of(raw, peer)
        self.takes_chunks = version != b"1.0"
        self.is_awaited = self.takes_chunks and head.headers.get("expect", "").lower() == "100-continue"
        self.is_last = not self.takes_chunks or "close" in options(head.headers.get("connection", ""))
        self._begin_body(head.headers)
        return head

    def body(self) -> bytes | None:
        """The next part of the body, perhaps empty at its end; None without new bytes. Raises Refusal."""
        if not self.held:
            return None
        if self._chunks is not None:
            return self._part_of_chunks(self._chunks)
        part, self.held = self.held[: self._missing], self.held[self._missing :]
        self._missing -= len(part)
        self.is_complete = not self._missing
        return part

    def _check_beginning(self) -> None:
        if len(self.held) >= HEAD_BYTES:
            status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
            raise malformed(f"its head is longer than {HEAD_BYTES} bytes", status)
        fresh = self.held[max(0, self._looked - 1) :]
        self._looked = len(self.held)
        bare = fresh.count(b"\n") - fresh.count(b"\r\n") - fresh.startswith(b"\n")
        if bare or self.held[:1] in _NO_METHOD:
            raise malformed("its head has a malformed line")

    def _begin_body(self, headers: Mapping[str, str]) -> None:
        if "transfer-encoding" in headers:
            if headers["transfer-encoding"].lower() != "chunked":
                raise _no_coding()
            if "content-length" in headers or not self.takes_chunks:
                raise malformed("its body has two lengths, or is chunked in HTTP/1.0")
            self._chunks, self._framing = _Chunks(), 0
            self.length, self.is_complete = None, False
        else:
            length = headers.get("content-length", "0")
            if not (length.isascii() and length.isdigit() and len(length) <= LENGTH_DIGITS):
                raise malformed("its length is not a number")
            self.length = self._missing = int(length)
            self.is_complete = not self._missing

    def _part_of_chunks(self, chunks: _Chunks) -> bytes | None:
        """Parse a few lines of a chunked body; no more, because the next request follows the body."""
        data, at = self.held, 0
        try:
            for _ in range(LINES_AT_ONCE):
                found = data.find(b"\r\n", at)
                # A CR at the end may be half of a line end.
                line_end = found + 2 if found >= 0 else len(data) - data.endswith(b"\r")
                if line_end == at:
                    break
                chunks.parser.feed_data(data[at:line_end])
                at = line_end
                if chunks.is_complete:
                    break
        except httptools.HttpParserError as error:
            raise malformed(str(error).lower()) from None
        if not at:
            return None
        self.held = data[at:]
        part = b"".join(chunks.parts)
        self._framing = 0 if part else self._framing + at
        chunks.parts.clear()
        if chunks.is_complete:
            self._chunks, self.is_complete = None, True
        elif self._framing > HEAD_BYTES:
            raise malformed("the framing between its chunks is too long")
        return part


def _no_coding() -> Refusal:
    return malformed("its Transfer-Encoding is not chunked", HTTPStatus.NOT_IMPLEMENTED)


def options(header: str) -> list[str]:
    """The comma-separated options of a header, in lower case."""
    return [each.strip() for each in header.lower().split(",")]


def _head_of(raw: bytes, peer: str) -> tuple[Head, bytes]:
    line = _LINE.fullmatch(raw, 0, raw.index(b"\r\n"))
    if line is None:
        raise malformed("no request line")
    method, raw_target, version = line.groups()
    if version not in {b"1.1", b"1.0"}:
        raise malformed("it is of another version", HTTPStatus.HTTP_VERSION_NOT_SUPPORTED)
    fields = _Fields()
    try:
        httptools.HttpRequestParser(fields).feed_data(raw)
    except httptools.HttpParserUpgrade:
        pass  # The application decides about the next protocol.
    except httptools.HttpParserInvalidMethodError:
        raise malformed("no such method", HTTPStatus.NOT_IMPLEMENTED) from None
    except httptools.HttpParserError as error:
        if fields.headers().get("transfer-encoding", "chunked").lower() != "chunked":
            raise _no_coding() from None
        raise malformed(str(error).lower()) from None
    headers = fields.headers()
    host = headers.get("host")
    if (host is None and version == b"1.1") or (host and "," in host and fields.hosts() > 1):
        raise malformed("it has no Host header, or two")
    target = raw_target.decode("ascii")
    if target.lower().startswith(SCHEMES):
        headers["host"], slash, path = target.partition("//")[2].partition("/")
        target = slash + path
    path = target.partition("?")[0]
    first, slash, rest = path[1:].partition("/")
    decoded = path[:1] + first + slash + (unquote(rest) if "%" in rest else rest)
    head = Head(method=method.decode("ascii"), path=decoded, headers=headers, target=target, peer=peer)
    return head, version
