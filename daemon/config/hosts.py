"""Decides which hosts a sandboxed server may reach: first by name, then by the address found for it."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import attrs
import msgspec

from daemon.kit.later import later, pattern

if TYPE_CHECKING:
    import idna
else:
    idna = later("idna")

ANY = "*"
"""The pattern of every public name. Addresses and names without a dot must be named themselves."""

_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME = pattern(rf"(?=.{{1,253}}\Z){_LABEL}(?:\.{_LABEL})*")
_NUMBER = pattern(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)")
"""Matches a host whose last label is a number, which C libraries read as IPv4: `0x7f.1`, `2130706433`."""

LOCAL = (".localhost", ".local", ".internal", ".lan", ".home.arpa", ".test")
"""Suffixes of names that cannot be registered. Any other name leads where its owner wants."""

_RANGES = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7")
_NETWORKS = tuple(map(ip_network, _RANGES))
"""Private, shared and unique local networks: other machines have these addresses, so a name may lead there."""

_METADATA = ("168.63.129.16", "192.0.0.192", "100.100.100.200")
"""Addresses of cloud metadata outside of the link-local network: Azure, Oracle, Alibaba."""

_NAT64 = ip_network("64:ff9b::/96")


REGISTRIES = {
    **dict.fromkeys(("npx", "npm", "pnpm", "bunx", "yarn"), ("registry.npmjs.org",)),
    **dict.fromkeys(("uvx", "uv", "pipx"), ("pypi.org", "files.pythonhosted.org")),
}
"""Hosts from which each program installs packages; these names may lead to a private mirror's address."""

_REGISTRY_HOSTS = frozenset(host for hosts in REGISTRIES.values() for host in hosts)


class HostRefusal(StrEnum):
    """Why a sandboxed server may not reach a host."""

    NOT_ALLOWED = "not-allowed"
    DENIED = "denied"
    IS_AN_ADDRESS = "is-an-address"
    INVALID_NAME = "invalid-name"
    NOT_PUBLIC = "not-public"


class HostVerdict(msgspec.Struct, frozen=True):
    """A normalised host, and why it is refused; None if it is allowed."""

    host: str
    refusal: HostRefusal | None = None


def _patterns(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(map(_pattern, texts))


@attrs.frozen
class HostRules:
    """Allowed and denied hosts: `example.com`, `*.example.com` (not the apex), `*`; denial wins.

    An invalid pattern raises `ValueError`: a denial without a match would open the sandbox.
    """

    allowed: tuple[str, ...] = attrs.field(default=(), converter=_patterns)
    denied: tuple[str, ...] = attrs.field(default=(), converter=_patterns)

    def verdict(self, host: str) -> HostVerdict:
        """Judge a host by its name, for any port. An address must itself be in `allowed`."""
        try:
            name, is_address = _normal(host)
        except ValueError:
            return HostVerdict(host, HostRefusal.INVALID_NAME)
        if any(_matches(each, name) for each in self.denied):
            return HostVerdict(name, HostRefusal.DENIED)
        by_pattern = "." in name and not is_address and any(_matches(each, name) for each in self.allowed)
        if by_pattern or name in self.allowed:
            return HostVerdict(name)
        return HostVerdict(name, HostRefusal.IS_AN_ADDRESS if is_address else HostRefusal.NOT_ALLOWED)

    def missing(self, host: str, address: str) -> str:
        """The name or address that `allowed` still lacks for this host to be reached at this address; or empty.

        A public address needs nothing. A private one needs the host's own name, not a pattern. Loopback needs
        the address, or a name that cannot be registered. Link-local (cloud metadata), multicast and reserved
        addresses must be named. A package registry may have a mirror in a private network.
        """
        ip = ip_address(address.partition("%")[0])
        reached = _embedded(ip)
        is_near = reached.is_loopback or reached.is_link_local or reached.is_multicast or reached.is_unspecified
        is_mirror = host in _REGISTRY_HOSTS and not (is_near or str(reached) in _METADATA)
        if _is_public(reached) or is_mirror or str(ip) in self.allowed:
            return ""
        is_local = "." not in host or host.endswith(LOCAL)
        by_name = any(reached in each for each in _NETWORKS) or (reached.is_loopback and is_local)
        by_name = by_name and str(reached) not in _METADATA
        needed = host if by_name else str(ip)
        return "" if needed in self.allowed else needed


def pattern_problem(text: str) -> str:
    """The fault of a configured pattern, and what to write instead; empty if it is valid."""
    if text == ANY:
        return ""
    bare = text.removeprefix("*.")
    try:
        name, is_address = _normal(bare)
    except ValueError:
        if host := _host(text if "://" in text else f"//{text}"):
            return f"{text!r} is more than a host: write {host!r} (mcpd knows no ranges; every port is allowed)"
        return (
            f"{text!r} is not a host: write a name such as 'example.com', or '*.example.com' for all below it"
        )
    if bare != text and is_address:
        return f"{text!r} is not a pattern of names: name each address alone"
    if is_address and ":" not in name and name != _address(name):
        return f"{text!r} is another way to write an address: write its four numbers with dots"
    return ""


def _host(url: str) -> str:
    try:
        return _normal(urlsplit(url).hostname or "")[0]
    except ValueError:
        return ""


def _pattern(text: str) -> str:
    if problem := pattern_problem(text):
        raise ValueError(problem)
    if text == ANY:
        return ANY
    bare = text.removeprefix("*.")
    return ("" if bare == text else "*.") + _normal(bare)[0]


def _matches(pattern: str, name: str) -> bool:
    return pattern in (ANY, name) or (pattern.startswith("*.") and name.endswith(pattern[1:]))


def _normal(host: str) -> tuple[str, bool]:
    """A host in lower case and ASCII, and whether it is an address. Raises ValueError if it is no host."""
    if not host.isascii():
        host = idna.encode(host, uts46=True).decode()
    host = host.lower()
    if ":" in host:
        host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
        if "%" in host:
            raise ValueError("an address of one interface")
        return str(IPv6Address(host)), True
    host = host.removesuffix(".")
    if not _NAME.fullmatch(host):
        raise ValueError("no name")
    if not _NUMBER.fullmatch(host):
        return host, False
    return _address(host) or host, True


def _address(text: str) -> str:
    """An IPv4 address in its usual form; empty for a form that only C libraries accept."""
    try:
        return str(IPv4Address(text))
    except ValueError:
        return ""


def _embedded(ip: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """The IPv4 address to which packets for an IPv6 address are sent, or else the address itself."""
    if isinstance(ip, IPv4Address):
        return ip
    if ip in _NAT64:
        return IPv4Address(ip.packed[-4:])
    return ip.ipv4_mapped or ip.sixtofour or ip


def _is_public(ip: IPv4Address | IPv6Address) -> bool:
    is_special = ip.is_multicast or ip.is_reserved or (isinstance(ip, IPv6Address) and ip.is_site_local)
    return ip.is_global and not is_special and str(ip) not in _METADATA
