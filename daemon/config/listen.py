"""Addresses where the daemon is reached, and the HTTP clients that may come in.

Every field has one line of documentation, which is also its description in the JSON Schema. No fault repeats a
token, nor a path that may be the content of a key.
"""

from __future__ import annotations

import re
from enum import StrEnum
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import TYPE_CHECKING

import attrs

from daemon.config.jsonc import below
from daemon.config.tuning import Patience, UserId  # noqa: TC001 - the reader of files looks the types up
from daemon.errors import Fault
from daemon.kit.wording import quoted, suggestion

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

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


MAX_PORT = 65535
"""The largest TCP port."""

DEFAULT_PROFILE = "default"
"""The profile of a client that asks for none; it always exists."""

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


SHORTEST_TOKEN, LONGEST_TOKEN = 16, 1024
"""Characters of a token: fewer can be guessed by a patient program, more are no token but a file."""

TOKEN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}", re.ASCII)
"""The name of a token. Without a blank or colon: the keys of its sessions begin with it."""

_TOKEN = re.compile(r"[!-~]+")
"""What a header can carry as one word."""

_HOST = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9_](?:[A-Za-z0-9_-]*[A-Za-z0-9_])?(?:\.[A-Za-z0-9_-]+)*", re.ASCII)
_ORIGIN = re.compile(
    r"[A-Za-z][A-Za-z0-9+.-]*://(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?", re.ASCII
)
_NO_PATH = re.compile(r"[\r\n]|-----BEGIN|\A\s*\Z")


def http_faults(http: HttpListen, trail: str, profiles: Collection[str]) -> Iterator[Fault]:
    """Everything wrong with what `listen.http` contains; `closing_faults` finds what it lacks.

    Args:
        http: the section.
        trail: its place in the file.
        profiles: the names of all profiles.
    """
    yield from _address(http.address, below(trail, "address"))
    yield from _tokens(http, below(trail, "tokens"), {DEFAULT_PROFILE: None, **dict.fromkeys(profiles)})
    yield from _hosts(http, below(trail, "hosts"))
    yield from _origins(http, below(trail, "origins"))
    yield from _proxies(http, below(trail, "trustedProxies"))
    if http.tls is not None:
        yield from _tls(http.tls, below(trail, "tls"))


def closing_faults(http: HttpListen, trail: str) -> Iterator[Fault]:
    """What an address lacks that other machines can reach."""
    host, port = split_authority(http.address)
    if host is None or port is None or is_loopback(host):
        return
    if not http.tokens:
        message = (
            f"other machines can reach {quoted(http.address)}: write the tokens that let them in, best by"
            " reference (${VAR}, ${file:PATH}), or listen on a loopback address"
        )
        yield Fault(path=below(trail, "tokens"), message=message)
    if http.tls is None and not http.trusted_proxies:
        message = (
            f"other machines can reach {quoted(http.address)}, and without TLS everybody on the way reads the"
            ' tokens: write "tls": {"cert": PATH, "key": PATH}, or in "trustedProxies" who speaks TLS for mcpd'
        )
        yield Fault(path=below(trail, "tls"), message=message)


def served_by_http(http: HttpListen | None, metrics: str) -> bool:
    """Whether the address of `metrics.listen` is one that `listen.http` has already."""
    if http is None:
        return False
    host, port = split_authority(http.address)
    other, metrics_port = split_authority(metrics)
    if host is None or other is None or port != metrics_port or not port:
        return False
    one, two = (numeric("127.0.0.1" if each.lower() == "localhost" else each) for each in (host, other))
    return one is not None and (one == two or one.is_unspecified)


def _address(address: str, here: str) -> Iterator[Fault]:
    host, port = split_authority(address)
    if host is None or port is None or port > MAX_PORT:
        message = f"{quoted(address)} is not HOST:PORT: write {DEFAULT_HTTP_ADDRESS}"
        yield Fault(path=here, message=message)
    elif host.lower() != "localhost" and numeric(host) is None:
        message = (
            f"{quoted(host)} is a name: write an address of this machine, as in {DEFAULT_HTTP_ADDRESS}; 0.0.0.0"
            " and [::] are all it has. Names by which clients reach it stand in `hosts`"
        )
        yield Fault(path=here, message=message)


def _tokens(http: HttpListen, trail: str, profiles: Collection[str]) -> Iterator[Fault]:
    if isinstance(http.tokens, str):
        yield from _value(http.tokens, trail)
    elif http.tokens is not None:
        for number, token in enumerate(http.tokens):
            yield from _token(token, below(trail, number), profiles)
            yield from _repeated(token, http.tokens[:number], below(trail, number))


def _token(token: AccessToken, trail: str, profiles: Collection[str]) -> Iterator[Fault]:
    if not TOKEN_NAME.fullmatch(token.name):
        message = "a token's name is 1 to 64 of A-Z, a-z, 0-9, . _ @ and -, beginning with a letter or digit"
        yield Fault(path=below(trail, "name"), message=message)
    yield from _value(token.value, below(trail, "value"))
    here = below(trail, "profiles")
    if token.profiles is not None and not token.profiles:
        yield Fault(path=here, message="without a profile it lets nobody in: remove the key for all of them")
    for number, name in enumerate(token.profiles or ()):
        if name not in profiles:
            message = f"unknown profile {quoted(name)}{suggestion(name, profiles)}"
            yield Fault(path=below(here, number), message=message)


def _value(value: str, here: str) -> Iterator[Fault]:
    if not SHORTEST_TOKEN <= len(value) <= LONGEST_TOKEN:
        message = (
            f"a token has {SHORTEST_TOKEN} to {LONGEST_TOKEN} characters, this one {len(value)}, and short ones"
            " can be guessed: `openssl rand -hex 32` prints a good one"
        )
        yield Fault(path=here, message=message)
    elif not _TOKEN.fullmatch(value):
        message = "a token is one word of ASCII letters, digits and signs: a header carries nothing else"
        yield Fault(path=here, message=message)


def _repeated(token: AccessToken, earlier: tuple[AccessToken, ...], trail: str) -> Iterator[Fault]:
    if any(token.name == each.name for each in earlier):
        message = f"{quoted(token.name)} stands here twice: give each token a name of its own"
        yield Fault(path=below(trail, "name"), message=message)
    same = next((each.name for each in earlier if token.value == each.value), None)
    if same is not None:
        message = f"this is the value of {quoted(same)}, too: nobody could tell them apart"
        yield Fault(path=below(trail, "value"), message=message)


def _hosts(http: HttpListen, trail: str) -> Iterator[Fault]:
    for number, host in enumerate(http.hosts):
        if not _HOST.fullmatch(host):
            message = (
                f"{quoted(host)} is no name: write it without scheme, port and path, as in mcp.example.org."
                " Addresses need not be named"
            )
            yield Fault(path=below(trail, number), message=message)


def _origins(http: HttpListen, trail: str) -> Iterator[Fault]:
    for number, origin in enumerate(http.origins):
        if not _ORIGIN.fullmatch(origin):
            message = (
                f"{quoted(origin)} is no origin: write scheme, host and perhaps a port without a path, as in"
                " https://app.example"
            )
            yield Fault(path=below(trail, number), message=message)


def _proxies(http: HttpListen, trail: str) -> Iterator[Fault]:
    for number, proxy in enumerate(http.trusted_proxies):
        here = below(trail, number)
        try:
            network = ip_network(proxy, strict=False)
        except ValueError:
            message = f"{quoted(proxy)} is no address or network: write 10.0.0.7 or 10.0.0.0/24"
            yield Fault(path=here, message=message)
            continue
        if not network.prefixlen:
            message = f"{quoted(proxy)} is everybody, who could then pretend to be anybody: name the proxies"
            yield Fault(path=here, message=message)


def _tls(tls: Tls, trail: str) -> Iterator[Fault]:
    for key, path in (("cert", tls.cert), ("key", tls.key)):
        if _NO_PATH.search(path):
            message = "write the path of a PEM file, not what is in it"
            yield Fault(path=below(trail, key), message=message)
        elif path == "~" or path.startswith("~/"):
            yield Fault(path=below(trail, key), message="~ is not expanded here: write ${HOME}")
