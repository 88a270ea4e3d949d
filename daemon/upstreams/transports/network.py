"""Connects to servers, and explains failures; texts name host and port only: URLs may hold secrets."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import trio

from daemon.causes import Cause, of_errno, of_status
from daemon.config.config_model import PORTS
from daemon.errors import CannotStart, ConnectionLost, NeedsAuth, RunError
from daemon.host.sockets import causes, reason

Stream = trio.SocketStream | trio.SSLStream[trio.SocketStream]

UNAUTHORIZED = 401
FORBIDDEN = 403


def host_and_port(url: str, *schemes: str) -> tuple[str, int]:
    """The host and port of a URL; CannotStart if it has no known scheme, no host or no valid port."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise CannotStart("the url is not valid", Cause.BAD_URL) from None
    if parts.scheme not in schemes:
        known = " or ".join(f"{scheme}://" for scheme in schemes)
        raise CannotStart(f"the url must begin with {known}", Cause.BAD_URL)
    if not parts.hostname:
        raise CannotStart("the url names no host", Cause.BAD_URL)
    return parts.hostname, PORTS[parts.scheme] if port is None else port


def place_of(host: str, port: int) -> str:
    """Host and port as shown to users."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@contextmanager
def in_time(text: str, place: str, seconds: float, *, begun: float | None = None) -> Iterator[None]:
    """Bound the time of an attempt to connect, from `begun` or now on; raises ConnectionLost with the text."""
    try:
        with trio.fail_at((trio.current_time() if begun is None else begun) + seconds):
            yield
    except trio.TooSlowError:
        raise ConnectionLost(f"{text} within {seconds:g} s", Cause.CONNECT_TIMEOUT, place=place) from None


async def connect(host: str, port: int, tls: ssl.SSLContext | None) -> Stream:
    """A connection to a server; raises CannotStart for an untrusted certificate, else ConnectionLost."""
    try:
        if tls is None:
            return await trio.open_tcp_stream(host, port)
        stream = await trio.open_ssl_over_tcp_stream(host, port, ssl_context=tls, https_compatible=True)
    except OSError as error:
        raise opening_error(error, place_of(host, port)) from None
    try:
        await stream.do_handshake()
    except BaseException as error:
        await trio.aclose_forcefully(stream)
        if isinstance(error, OSError | trio.BrokenResourceError):
            raise opening_error(error, place_of(host, port)) from None
        raise
    return stream


def opening_error(error: BaseException, place: str) -> RunError:
    """The error for the supervisor after a failed attempt to connect."""
    why, cause = reason(error), cause_of(error)
    if is_untrusted(error):
        text = f"tls: the certificate of {place} is not trusted: {why}"
        return CannotStart(text, cause, place=place, error=why)
    return ConnectionLost(f"cannot connect to {place}: {why}", cause, place=place, error=why)


def refused(status: int, place: str) -> RunError:
    """The error for the supervisor if an HTTP status came instead of a connection."""
    if status in {UNAUTHORIZED, FORBIDDEN}:
        text = f"{place} requires credentials that mcpd did not send (HTTP {status})"
        return NeedsAuth(text, of_status(status), place=place, status=status)
    return ConnectionLost(f"{place} answered HTTP {status}", of_status(status), place=place, status=status)


def is_untrusted(error: BaseException) -> bool:
    """Whether a connection failed because the server's certificate does not verify."""
    return any(isinstance(cause, ssl.SSLCertVerificationError) for cause in causes(error))


def cause_of(error: BaseException) -> Cause:
    """The cause of a failed attempt to connect, from the innermost exception that maps to one."""
    found = Cause.CANNOT_CONNECT
    for each in causes(error):
        if isinstance(each, ssl.SSLCertVerificationError):
            return _OF_CERTIFICATES.get(each.verify_code, Cause.TLS_UNTRUSTED)
        if isinstance(each, ssl.SSLError):
            found = Cause.NOT_TLS if each.reason in _NOT_TLS else found
        elif isinstance(each, socket.gaierror):
            found = Cause.NAME_NOT_FOUND
        elif isinstance(each, OSError) and each.errno:
            found = of_errno(each.errno)
    return found


_OF_CERTIFICATES = {10: Cause.TLS_EXPIRED, 62: Cause.TLS_NAME, 64: Cause.TLS_NAME}
"""Causes by OpenSSL's X509_V_ERR_CERT_HAS_EXPIRED, _HOSTNAME_MISMATCH, _IP_ADDRESS_MISMATCH (x509_vfy.h)."""

_NOT_TLS = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST"})
"""OpenSSL's reasons that mean the peer does not speak TLS."""
