"""What a configuration holds that no log, status or error may show."""

from __future__ import annotations

import re
from base64 import b64decode
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote, unquote_plus, urlsplit

from daemon.config.credentials import NAMED, in_arguments, is_wordy, looks_random

if TYPE_CHECKING:
    from collections.abc import Iterator

    from daemon.config.model import Config, Server

SHORTEST = 6
"""Shorter values are left alone: leaving `true` or `8080` out of every log would hide more than it protects."""

ORDINARY = frozenset({
    "always", "critical", "default", "development", "disabled", "enabled", "production", "staging", "testing",
    "verbose", "warning",
})  # fmt: skip
"""Values of variables that are words of every log, in any case: without them nobody could read one."""

_PATH = re.compile(r"(?:/[\w. -]+){2,}/?", re.ASCII)
_BASIC = re.compile(r"(?i)basic\s+([A-Za-z0-9+/_-]+={0,2})\s*")
_SCHEME = re.compile(r"(?i)(?:basic|bearer|token)\s")

STATE_PASSWORDS = frozenset({"password", "sslpassword", "passfile", "oauth_client_secret"})
"""Parameters of `state.url` that nobody may see; those of `store.urls`."""


def secrets(config: Config) -> frozenset[str]:
    """Every value of `config` that must never be shown, in all spellings in which it may turn up."""
    return frozenset(value for value, _ in _all(config) if len(value) >= SHORTEST)


def doubtful(config: Config) -> frozenset[str]:
    """Which of the `secrets` are words, and secret only because some variable or header holds them.

    A definition may have the same words: `us-east-1` in an `enum`, `issues` in a tool's name.
    """
    values = list(_all(config))
    return frozenset(value for value, doubt in values if doubt) - {
        value for value, doubt in values if not doubt
    }


def _all(config: Config) -> Iterator[tuple[str, bool]]:
    """All values, each with whether it is in doubt."""
    for server in config.mcp_servers.values():
        yield from _named(server)
        yield from ((value, False) for value in _of_server(server))
    for value in _in_url(config.summaries.base_url if config.summaries else None):
        yield value, False
    for value in _in_state_url(config.state.url):
        yield value, False


def _named(server: Server) -> Iterator[tuple[str, bool]]:
    """The values of variables and headers."""
    for name, value in (*server.env.items(), *(("", value) for value in server.substituted)):
        if not _is_ordinary(value):
            doubt = is_wordy(value) and not NAMED.search(name)
            yield from ((each, doubt) for each in _spellings(value))
    for name, value in server.headers.items():
        doubt = is_wordy(value) and not NAMED.search(name)
        yield from ((each, doubt) for each in _in_header(value))


def _of_server(server: Server) -> Iterator[str]:
    """What is a credential by where it stands."""
    for _, value in in_arguments(server.args):
        yield from _in_header(value) if _SCHEME.match(value) else _spellings(value)
    yield from server.defaults
    for url in (server.url, *server.args, *server.defaults, *server.env.values(), *server.substituted):
        yield from _in_url(url)


def _is_ordinary(value: str) -> bool:
    """Whether a value is a word of every log, or the path of something: without it, a reason tells nothing."""
    if value.lower() in ORDINARY:
        return True
    return _PATH.fullmatch(value) is not None and not any(map(looks_random, value.split("/")))


def _in_header(value: str) -> Iterator[str]:
    yield from _spellings(value)
    # "Bearer abc": the word before the token is no secret, the token alone is.
    yield value.partition(" ")[2].strip()
    if match := _BASIC.fullmatch(value):
        yield from _in_basic(match[1])


def _in_basic(encoded: str) -> Iterator[str]:
    """`user:password` in base64: the whole, and each half, for either may be the token."""
    padded = encoded + "=" * (-len(encoded) % 4)
    try:
        told = b64decode(padded, altchars=b"-_" if {"-", "_"} & set(padded) else None).decode()
    except ValueError:
        return
    user, _, password = told.partition(":")
    yield from (told, password)
    # Beside a password a name is no secret if it is a word: `postgres` stands in many a log.
    if not password or not user.isalpha():
        yield user


def _spellings(value: str) -> Iterator[str]:
    """The whole and, since logs are made of lines, each line."""
    yield value
    for line in value.splitlines():
        yield line.strip()


def _in_state_url(url: str | None) -> Iterator[str]:
    """Passwords only: hosts and users of databases are words of many logs, `postgres` above all."""
    if not url:
        return
    try:
        parts = urlsplit(url)
    except ValueError:
        yield url
        return
    written = [parts.password or ""]
    for pair in parts.query.split("&"):
        name, _, value = pair.partition("=")
        if unquote(name) in STATE_PASSWORDS:
            written.append(value)
    for value in written:
        yield from (value, unquote(value), unquote_plus(value))


def _in_url(url: str | None) -> Iterator[str]:
    """User, password, query values and credentials in the path of a url, as written and decoded."""
    if not url or "://" not in url:
        return
    try:
        parts = urlsplit(url)
    except ValueError:
        yield url
        return
    # A user without a password is how tokens are often given.
    hidden = (parts.password if parts.password is not None else parts.username) or ""
    yield from (hidden, unquote(hidden))
    for pair in parts.query.split("&"):
        yield pair.partition("=")[2]
    for _, value in parse_qsl(parts.query):
        yield value
    for written in parts.path.split("/"):
        if looks_random(segment := unquote(written)):
            yield from (written, segment)
