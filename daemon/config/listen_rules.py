"""Rules for `listen.http`: who may come in by it, and that nobody is let in unasked.

No fault repeats a token, nor a path that may be the content of a key.
"""

from __future__ import annotations

import re
from ipaddress import ip_network
from typing import TYPE_CHECKING

from daemon.config.jsonc import below
from daemon.config.listen import DEFAULT_HTTP_ADDRESS, AccessToken, is_loopback, numeric, split_authority
from daemon.config.model import DEFAULT_PROFILE, MAX_PORT
from daemon.errors import Fault
from daemon.kit.wording import quoted, suggestion

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from daemon.config.listen import HttpListen, Tls

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
