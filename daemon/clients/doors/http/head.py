"""The head of an HTTP request, and the refusal of one."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import unquote

import attrs
import h11

from daemon.config.listen import is_loopback, split_authority

if TYPE_CHECKING:
    from collections.abc import Mapping

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
