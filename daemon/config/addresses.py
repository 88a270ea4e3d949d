"""Addresses as they are written in a configuration: HOST:PORT, and which hosts are this machine."""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address, ip_address

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
