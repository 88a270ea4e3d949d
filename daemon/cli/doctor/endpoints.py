"""Servers that somebody else runs: is the way to them safe, does somebody listen on this machine.

Only loopback and unix sockets are connected to, never the network: a checkup must neither show up in the log of
somebody at the other end of the world nor wait for it.
"""

from __future__ import annotations

import ipaddress
import socket
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from daemon.cli.doctor.findings import found
from daemon.config.model import PORTS, TransportType

if TYPE_CHECKING:
    from collections.abc import Iterator

    from daemon.cli.doctor.findings import Finding
    from daemon.config.model import Server

CONNECT_SECONDS = 1.0
"""For a connection within this machine, which takes microseconds."""

LOCAL = ("127.0.0.1", "::1")
"""What `localhost` is (RFC 6761), whatever a name server says."""


def check(server: Server, *, connect: bool) -> Iterator[Finding]:
    """Everything that can be said about a url.

    Args:
        server: its configuration.
        connect: whether to try a server on this machine; False where the daemon has told how it is.
    """
    if server.type is TransportType.UNIX:
        yield from _unix(server.name, unix_path(server.url or "")) if connect else ()
        return
    parts = urlsplit(server.url or "")
    host, port = parts.hostname or "", parts.port or PORTS[parts.scheme]
    addresses = loopback(host)
    if addresses:
        yield from _local(server.name, host, port, addresses) if connect else ()
    elif parts.scheme in {"http", "ws"}:
        carried = "its headers and all calls" if server.headers else "all calls"
        yield found("endpoint-unencrypted", server=server.name, host=host, scheme=parts.scheme, carried=carried)
    else:
        yield found("endpoint-remote", server=server.name, host=host)


def loopback(host: str) -> tuple[str, ...]:
    """The addresses of a host that is this machine; none if it is another."""
    if host == "localhost" or host.endswith(".localhost"):
        return LOCAL
    try:
        return (host,) if ipaddress.ip_address(host).is_loopback else ()
    except ValueError:
        return ()


def unix_path(url: str) -> str:
    """The path in a url of type unix, or the bare path that it is."""
    return url if url.startswith("/") else unquote(urlsplit(url).path)


def _local(name: str, host: str, port: int, addresses: tuple[str, ...]) -> Iterator[Finding]:
    problems = [problem for address in addresses if (problem := _refusal(address, port))]
    if len(problems) == len(addresses):
        yield found("endpoint-silent", server=name, address=f"{host}:{port}", problem=problems[0])


def _refusal(address: str, port: int) -> str:
    """Why a connection to this machine fails; empty if it does not."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return _tried(family, (address, port))


def _unix(name: str, path: str) -> Iterator[Finding]:
    if problem := _tried(socket.AF_UNIX, path):
        yield found("endpoint-socket-silent", server=name, address=path, problem=problem)


def _tried(family: socket.AddressFamily, address: str | tuple[str, int]) -> str:
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.settimeout(CONNECT_SECONDS)
            probe.connect(address)
    except OSError as error:
        return error.strerror or str(error)
    return ""
