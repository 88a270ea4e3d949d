"""The requests of one HTTP/1.1 connection, read from its bytes.

Theory of operation. h11 reads a request; that takes it as long as everything else about a call. A client
sends the same head with each of its requests, but for the length of the body. So a head that h11 has read is
remembered, and when the same bytes come again the reader knows what they mean. Only what stands in place of the
digits of the one Content-Length may differ.

Invariants.
- A head is remembered only if h11 took it for one of HTTP/1.1 whose body has one announced length, or none.
- Bytes that follow a request are kept until `begin_next`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import attrs
import h11

from daemon.clients.doors.http.head import HEAD_BYTES, head_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from daemon.clients.doors.http.head import Head

MAX_KNOWN = 4
"""Heads of a connection that are remembered, about 2 KB each: a client sends one for each kind of request."""

END_OF_HEAD = b"\r\n\r\n"

_LENGTH = re.compile(rb"(?i)\r\ncontent-length:[ \t]*([0-9]{1,15})[ \t]*\r\n")


@attrs.frozen(kw_only=True)
class Begun:
    """A request whose head was read."""

    head: Head
    """Its head, without Content-Length."""
    length: int | None
    """Bytes of its body; None: it comes in chunks."""
    keeps: bool = True
    """Whether the connection may be kept after it."""
    chunks: bool = True
    """Whether its client understands chunks (HTTP/1.1)."""
    waits: bool = False
    """Whether it waits to be told that its body is wanted (`Expect: 100-continue`)."""


@attrs.frozen
class Ended:
    """The end of a request."""


ENDED = Ended()


class RequestReader:
    """Makes requests of bytes, one at a time."""

    def __init__(self, peer: str) -> None:
        """Begin without any; `peer` is the address that they come from."""
        self._peer = peer
        self._held = b""
        """What has come and was not read; h11 has it while it reads."""
        self._left: int | None = None
        """Bytes of the body that have not come; None before there is a head, and where they come in chunks."""
        self._http: h11.Connection | None = None
        """Reads a head that has not come whole, and a body in chunks."""
        self._is_over = False
        """Whether the end of the request was told."""
        self._known: dict[bytes, tuple[Head, bool]] = {}
        """Heads without the digits of their lengths, and whether they have some."""

    @property
    def held(self) -> bytes:
        """What has come and was not read."""
        return self._held

    @property
    def is_complete(self) -> bool:
        """Whether the request has come to its end."""
        return self._left == 0

    def feed(self, data: bytes) -> None:
        """Take bytes."""
        if self._http is None:
            self._held = self._held + data if self._held else data
        else:
            self._http.receive_data(data)

    def next(self) -> Begun | bytes | Ended | None:
        """What comes next: a head, a piece of a body, the end of a request; None until there is more.

        Raises:
            h11.RemoteProtocolError: it is no request of HTTP/1.1.
        """
        if self._http is not None:
            return self._read(self._http)
        if self._left is not None:
            return self._piece(self._left)
        return self._head() if self._held else None

    def begin_next(self) -> None:
        """Go on to the next request, the present one being complete."""
        self._left, self._is_over = None, False

    def _piece(self, left: int) -> bytes | Ended | None:
        if not left:
            if self._is_over:
                return None
            self._is_over = True
            return ENDED
        if not self._held:
            return None
        piece, self._held = self._held[:left], self._held[left:]
        self._left = left - len(piece)
        return piece

    def _head(self) -> Begun | bytes | Ended | None:
        held = self._held
        # Three if it is not all there: no head is so short.
        end = held.find(END_OF_HEAD) + len(END_OF_HEAD)
        if end > HEAD_BYTES:
            raise h11.RemoteProtocolError(f"its head is longer than {HEAD_BYTES} bytes", error_status_hint=431)
        found = _LENGTH.search(held, 0, end)
        digits = b"" if found is None else found[1]
        key = held[:end] if found is None else held[: found.start(1)] + held[found.end(1) : end]
        if known := self._known.get(key):
            head, has_length = known
            self._held, self._left = held[end:], int(digits) if has_length else 0
            return Begun(head=head, length=self._left)
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES)
        self._http.receive_data(held)
        self._held = b""
        begun = self._read(self._http)
        if isinstance(begun, Begun) and len(held) - len(self._held) == end:
            self._remember(key, begun, has_length=bool(digits))
        return begun

    def _remember(self, key: bytes, begun: Begun, *, has_length: bool) -> None:
        """Know a head that h11 has read again, if it means the same whatever length it says."""
        # h11 takes the same length twice, and a line feed alone for the end of a line.
        lengths = key.lower().count(b"\ncontent-length")
        if begun.length is not None and begun.keeps and not begun.waits and lengths == has_length:
            while len(self._known) >= MAX_KNOWN:
                del self._known[next(iter(self._known))]
            self._known[key] = begun.head, has_length

    def _read(self, http: h11.Connection) -> Begun | bytes | Ended | None:
        match http.next_event():
            case h11.Request() as request:
                begun = self._begun(request, waits=http.they_are_waiting_for_100_continue)
                self._left = begun.length
                if begun.length is not None:
                    self._held, self._http = http.trailing_data[0], None
                return begun
            case h11.Data(data=data):
                return bytes(data)
            case h11.EndOfMessage():
                self._held, self._http = http.trailing_data[0], None
                self._left, self._is_over = 0, True
                return ENDED
            case _:  # NEED_DATA, or the end
                return None

    def _begun(self, request: h11.Request, *, waits: bool) -> Begun:
        head = head_of(request, self._peer)
        headers = dict(head.headers)
        length = headers.pop("content-length", None)
        is_current = request.http_version == b"1.1"
        return Begun(
            head=attrs.evolve(head, headers=headers),
            length=None if "transfer-encoding" in headers else int(length or 0),
            keeps=is_current and not _closes(headers),
            chunks=is_current,
            waits=waits,
        )


def _closes(headers: Mapping[str, str]) -> bool:
    """Whether the client says that it sends no further request."""
    return "close" in {each.strip() for each in headers.get("connection", "").lower().split(",")}
