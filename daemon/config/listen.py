"""Addresses where the daemon is reached, and the HTTP clients that may come in.

Every field has one line of documentation, which is also its description in the JSON Schema.
"""

from __future__ import annotations

import re
from enum import StrEnum
from ipaddress import IPv4Address, IPv6Address, ip_address

import attrs

from daemon.config.tuning import Patience, UserId  # noqa: TC001 - the reader of files looks the types up

_AUTHORITY = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\s\[\]:/@]+))(?::([0-9]{1,5}))?", re.ASCII)
"""HOST or HOST:PORT, with IPv6 addresses in brackets (RFC 3986 §3.2)."""


def split_authority(text: str) -> tuple[str | None, int | None]:
    """Host and port of `HOST:PORT`; the host is None if the text is malformed, the port if it is absent."""
    found = _AUTHORITY.fullmatch(text)
    if found is None:
        return None, None
    bracketed, plain, port = found.groups()
    return bracketed or plain, None if port is None else int(port)


def numeric(host: str) -> IPv4Address | IPv6Address | None:
    """The address that a host is, an IPv4 address within an IPv6 one as the former; None if it is a name."""
    try:
        address = ip_address(host)
    except ValueError:
        return None
    if "%" in host:  # after it anything may stand
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def is_loopback(host: str) -> bool:
    """Whether a host is this machine: `localhost`, 127.0.0.0/8 or ::1."""
    if host.lower() == "localhost":
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    return address == IPv6Address("::1") if isinstance(address, IPv6Address) else address.is_loopback


DEFAULT_HTTP_ADDRESS = "127.0.0.1:7337"
"""Where HTTP is served if no address is given."""


class ConsoleRole(StrEnum):
    """What somebody may do in the console."""

    READ = "read"
    CONTROL = "control"


@attrs.frozen(kw_only=True)
class AccessToken:
    """A bearer token that clients show over HTTP and WebSocket."""

    name: str
    """What logs, sessions and metrics call it."""
    value: str = attrs.field(repr=False)
    """What clients send: `Authorization: Bearer VALUE`. Best by reference: ${VAR} or ${file:...}."""
    profiles: tuple[str, ...] | None = None
    """The profiles that it may use, the first where a path names none; null is all of them."""
    workspaces: tuple[str, ...] = ()
    """Globs of directories that its clients may name as workspaces, * standing for any characters; none unless
    given."""
    console: ConsoleRole | None = None
    """What whoever signs in to the console with it may do there; null: nothing, it is for clients only."""


@attrs.frozen(kw_only=True)
class Tls:
    """The certificate of the HTTP listener."""

    cert: str
    """Path of a PEM file: the certificate, and those that lead to its authority."""
    key: str
    """Path of a PEM file: its private key."""


@attrs.frozen(kw_only=True)
class HttpListen:
    """Where clients reach the daemon over HTTP and WebSocket."""

    address: str = DEFAULT_HTTP_ADDRESS
    """HOST:PORT; anything but loopback needs `tokens`, and `tls` or `trustedProxies`."""
    hosts: tuple[str, ...] = ()
    """Names that clients may reach it by (`Host`), besides localhost and addresses."""
    origins: tuple[str, ...] = ()
    """Web pages that may use it (`Origin`), as in https://app.example; on loopback those of this machine
    may."""
    tokens: str | tuple[AccessToken, ...] | None = attrs.field(default=None, repr=False)
    """The bearer tokens: one without a name, or several; null: on loopback one that mcpd makes and keeps."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses or networks of proxies whose X-Forwarded-For and X-Forwarded-Proto are believed."""
    tls: Tls | None = None
    """null: without TLS."""
    console: bool = True
    """Whether it serves the console (`mcpd ui`), too, at /ui."""
    drain: Patience = 0
    """Seconds after SIGTERM in which /readyz says 503 and everything else is served as before, for a balancer
    to notice."""
    substituted: frozenset[str] = attrs.field(metadata={"in_file": False}, default=frozenset(), repr=False)
    """What its ${...} references stood for."""


@attrs.frozen(kw_only=True)
class Listen:
    """Where clients and operators reach the daemon."""

    socket: str | None = None
    """Path of the clients' socket; null is the runtime directory's."""
    control_socket: str | None = None
    """Path of the operators' socket; null is control.sock beside the clients'."""
    uids: tuple[UserId, ...] = ()
    """Users other than the daemon's own who may connect, by number or name."""
    workspaces: tuple[str, ...] = ()
    """Globs of directories that the users in uids may name as workspaces, * standing for any characters; none
    unless given."""
    http: HttpListen | None = None
    """Where it listens for HTTP and WebSocket; null: nowhere."""
    servers: tuple[str, ...] = ()
    """Servers whose processes may connect as clients, as an agent's that uses mcpd; those of others may not."""


def without_values(http: HttpListen | None) -> list[dict[str, object]] | None:
    """What each configured token may do, for reports; None if tokens are left to mcpd."""
    if http is None or http.tokens is None:
        return None
    if isinstance(http.tokens, str):
        return [{"name": None, "profiles": None, "console": None, "workspaces": None}]
    shown = ("name", "profiles", "console", "workspaces")
    return [{key: getattr(token, key) for key in shown} for token in http.tokens]
