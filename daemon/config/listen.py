"""The keys for listening addresses and HTTP clients. No fault quotes a token, or a path that may be a key."""

from __future__ import annotations

import re
from collections.abc import Collection
from enum import StrEnum
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Annotated
from urllib.parse import SplitResult, urlsplit

import attrs

from daemon.config.tuning import Patience, Problems, Rule, UserId, like
from daemon.kit.later import pattern
from daemon.kit.wording import quoted, suggestion

_AUTHORITY = pattern(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\s\[\]:/@]+))(?::([0-9]{1,5}))?", re.ASCII)
"""Matches HOST or HOST:PORT, with IPv6 in brackets (RFC 3986, section 3.2)."""


def split_authority(text: str) -> tuple[str | None, int | None]:
    """Split `HOST:PORT`; a malformed host and a missing port are None."""
    found = _AUTHORITY.fullmatch(text)
    if found is None:
        return None, None
    bracketed, plain, port = found.groups()
    return bracketed or plain, None if port is None else int(port)


def numeric(host: str) -> IPv4Address | IPv6Address | None:
    """A host's IP address, with IPv4-mapped ones as IPv4; None for a name."""
    try:
        address = ip_address(host)
    except ValueError:
        return None
    if "%" in host:  # after it anything may stand
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def web_address(url: str) -> SplitResult | None:
    """The parts of an http or https URL with a host and a possible port; None for any other text."""
    try:
        parts = urlsplit(url)
        fits = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:
        return None
    return parts if fits else None


def is_loopback(host: str) -> bool:
    """Whether a host means this machine: `localhost`, 127.0.0.0/8 or ::1."""
    if host.lower() == "localhost":
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    return address == IPv6Address("::1") if isinstance(address, IPv6Address) else address.is_loopback


MAX_PORT = 65535

DEFAULT_PROFILE = "default"
"""The profile of clients that name none; it always exists."""

DEFAULT_HTTP_ADDRESS = "127.0.0.1:7337"


METRICS_EXAMPLE = "127.0.0.1:9464"
"""An example of `metrics.listen`; the port is from Prometheus' list of default ports for exporters."""

SHORTEST_TOKEN, LONGEST_TOKEN = 16, 1024
"""Characters of a token: a shorter one can be guessed, a longer one is probably a file."""

TOKEN_NAME = pattern(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}", re.ASCII)
"""Matches no blank and no colon: the keys of the token's sessions begin with the name and a colon."""

_TOKEN = pattern(r"[!-~]+")

_HOST = pattern(r"(?=.{1,253}\Z)[A-Za-z0-9_](?:[A-Za-z0-9_-]*[A-Za-z0-9_])?(?:\.[A-Za-z0-9_-]+)*", re.ASCII)
_ORIGIN = pattern(r"[A-Za-z][A-Za-z0-9+.-]*://(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?", re.ASCII)
_NO_PATH = pattern(r"[\r\n]|-----BEGIN|\A\s*\Z")


def wrong_address(address: str) -> str:
    """The fault of a listening address; empty if it is valid."""
    host, port = split_authority(address)
    if host is None or port is None or port > MAX_PORT:
        return f"{quoted(address)} is not HOST:PORT: write {DEFAULT_HTTP_ADDRESS}"
    if host.lower() == "localhost" or numeric(host) is not None:
        return ""
    return (
        f"{quoted(host)} is a name: write an address of this machine, as in {DEFAULT_HTTP_ADDRESS}; 0.0.0.0"
        " and [::] mean all its addresses. Write the names that clients use into `hosts`"
    )


def _wrong_metrics_address(address: str) -> str:
    host, port = split_authority(address)
    if host is None or port is None or not 0 < port <= MAX_PORT:
        return f"{quoted(address)} is not HOST:PORT: write {METRICS_EXAMPLE}"
    if is_loopback(host):
        return ""
    return (
        f"{quoted(host)} is not a loopback address, and metrics have no password. Write {METRICS_EXAMPLE}, and"
        " let a proxy serve other machines"
    )


def _wrong_token(value: str) -> str:
    if not SHORTEST_TOKEN <= len(value) <= LONGEST_TOKEN:
        return (
            f"a token has {SHORTEST_TOKEN} to {LONGEST_TOKEN} characters, this one {len(value)}, and short ones"
            " can be guessed: `openssl rand -hex 32` prints a good one"
        )
    if _TOKEN.fullmatch(value):
        return ""
    return "a token is one word of ASCII letters, digits and signs: a header carries nothing else"


def _wrong_proxy(proxy: str) -> str:
    try:
        network = ip_network(proxy, strict=False)
    except ValueError:
        return f"{quoted(proxy)} is not an address or network: write 10.0.0.7 or 10.0.0.0/24"
    if network.prefixlen:
        return ""
    return f"{quoted(proxy)} would trust every machine to claim any client: list the proxies"


def _wrong_path(path: str) -> str:
    if _NO_PATH.search(path):
        return "write the path of a PEM file, not its content"
    return "~ is not expanded here: write ${HOME}" if path == "~" or path.startswith("~/") else ""


HttpAddress = Annotated[str, Rule(wrong_address)]
MetricsAddress = Annotated[str, Rule(_wrong_metrics_address)]
NAME_RULE = "a token's name is 1 to 64 of A-Z, a-z, 0-9, . _ @ and -, beginning with a letter or digit"
TokenName = Annotated[str, like(TOKEN_NAME, NAME_RULE)]
TokenValue = Annotated[str, Rule(_wrong_token)]
Profiles = Annotated[
    tuple[str, ...],
    Rule(
        lambda names: (
            "" if names else "without a profile the token is useless: remove the key to allow all profiles"
        )
    ),
]
HostName = Annotated[
    str,
    like(
        _HOST,
        "{} is not a name: write it without scheme, port and path, as in mcp.example.org. Addresses need not be"
        " named",
    ),
]
Origin = Annotated[
    str,
    like(
        _ORIGIN,
        "{} is not an origin: write scheme, host and perhaps a port without a path, as in https://app.example",
    ),
]
Proxy = Annotated[str, Rule(_wrong_proxy)]
PemPath = Annotated[str, Rule(_wrong_path)]


class ConsoleRole(StrEnum):
    """The rights of a user of the console."""

    READ = "read"
    CONTROL = "control"


@attrs.frozen(kw_only=True)
class AccessToken:
    """A bearer token of HTTP and WebSocket clients."""

    name: TokenName
    """The token's name in logs, sessions and metrics."""
    value: TokenValue = attrs.field(repr=False)
    """The secret, as ${VAR} or ${file:...}."""
    profiles: Profiles | None = None
    """Profiles that the token gives access to. The first is the default. null: all."""
    workspaces: tuple[str, ...] = ()
    """Globs of directories that the token's clients may name as workspaces."""
    console: ConsoleRole | None = None
    """read or control: the token's rights in the console."""


@attrs.frozen(kw_only=True)
class Tls:
    """The certificate of the HTTP listener."""

    cert: PemPath
    """Path of a PEM file with the certificate and its intermediate certificates."""
    key: PemPath
    """Path of a PEM file with the private key."""


@attrs.frozen(kw_only=True)
class HttpListen:
    """The listener for HTTP and WebSocket clients."""

    address: HttpAddress = DEFAULT_HTTP_ADDRESS
    """HOST:PORT. An address outside of loopback requires `tokens`, and `tls` or `trustedProxies`."""
    hosts: tuple[HostName, ...] = ()
    """Host names that clients may use (`Host`), besides localhost and IP addresses."""
    origins: tuple[Origin, ...] = ()
    """Web origins that may connect, such as https://app.example. On loopback, this machine's may, too."""
    tokens: TokenValue | tuple[AccessToken, ...] | None = attrs.field(default=None, repr=False)
    """One bearer token, or a list of named ones. null on loopback: mcpd generates and stores a token."""
    trusted_proxies: tuple[Proxy, ...] = ()
    """Addresses or networks of proxies whose X-Forwarded-For and -Proto count."""
    tls: Tls | None = None
    """The certificate for TLS."""
    console: bool = True
    """true: the listener serves the console (`mcpd ui`) at /ui."""
    drain: Patience = 0
    """Seconds after SIGTERM in which only /readyz says no (503)."""
    substituted: frozenset[str] = attrs.field(metadata={"in_file": False}, default=frozenset(), repr=False)
    """Values of ${...} references."""


@attrs.frozen(kw_only=True)
class Listen:
    """The addresses of the daemon."""

    socket: str | None = None
    """Path of the socket for clients. null: in the runtime directory."""
    control_socket: str | None = None
    """Path of the socket for operators. null: control.sock next to the clients' socket."""
    uids: tuple[UserId, ...] = ()
    """Users besides the daemon's own who may connect, by number or name."""
    workspaces: tuple[str, ...] = ()
    """Globs of directories that users in `uids` may name as workspaces."""
    http: HttpListen | None = None
    """The listener for HTTP and WebSocket. null: none."""
    servers: tuple[str, ...] = ()
    """Servers whose processes may connect as clients."""


def without_values(http: HttpListen | None) -> list[dict[str, object]] | None:
    """The rights of each configured token, for reports."""
    if http is None or http.tokens is None:
        return None
    if isinstance(http.tokens, str):
        return [{"name": None, "profiles": None, "console": None, "workspaces": None}]
    shown = ("name", "profiles", "console", "workspaces")
    return [{key: getattr(token, key) for key in shown} for token in http.tokens]


def http_problems(http: HttpListen, profiles: Collection[str]) -> Problems:
    """Contradictions within `listen.http`; `profiles` are the names of all profiles."""
    known = {DEFAULT_PROFILE: None, **dict.fromkeys(profiles)}
    tokens = () if http.tokens is None or isinstance(http.tokens, str) else http.tokens
    for number, token in enumerate(tokens):
        here, earlier = f"tokens[{number}]", tokens[:number]
        for index, name in enumerate(token.profiles or ()):
            if name not in known:
                yield f"{here}.profiles[{index}]", f"unknown profile {quoted(name)}{suggestion(name, known)}"
        if any(token.name == each.name for each in earlier):
            yield f"{here}.name", f"{quoted(token.name)} occurs twice: give each token its own name"
        same = next((each.name for each in earlier if token.value == each.value), None)
        if same is not None:
            yield f"{here}.value", f"{quoted(same)} has the same value: nobody could tell the two apart"


def http_lacks(http: HttpListen) -> Problems:
    """Keys that are missing for an address which other machines can reach."""
    host, port = split_authority(http.address)
    if host is None or port is None or is_loopback(host):
        return
    reached = f"other machines can reach {quoted(http.address)}"
    if not http.tokens:
        message = (
            f"{reached}: write the tokens that let them in, best by reference (${{VAR}}, ${{file:PATH}}),"
            " or listen on a loopback address"
        )
        yield "tokens", message
    if http.tls is None and not http.trusted_proxies:
        message = (
            f"{reached}, and without TLS anyone on the network path can read the tokens: write"
            ' "tls": {"cert": PATH, "key": PATH}, or in "trustedProxies" the proxies that speak TLS for mcpd'
        )
        yield "tls", message


def served_by_http(http: HttpListen | None, metrics: str) -> bool:
    """Whether `listen.http` listens on the address of `metrics.listen`, too."""
    if http is None:
        return False
    host, port = split_authority(http.address)
    other, metrics_port = split_authority(metrics)
    if host is None or other is None or port != metrics_port or not port:
        return False
    one, two = (numeric("127.0.0.1" if each.lower() == "localhost" else each) for each in (host, other))
    return one is not None and (one == two or one.is_unspecified)
