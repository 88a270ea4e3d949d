"""What a configuration holds that no log, status or error may show."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote, unquote_plus, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from daemon.config.model import Config, Server

SHORTEST = 6
"""Shorter values are left alone: leaving `true` or `8080` out of every log would hide more than it protects."""


STATE_PASSWORDS = frozenset({"password", "sslpassword", "passfile", "oauth_client_secret"})
"""Parameters of `state.url` that nobody may see; those of `store.urls`."""


def secrets(config: Config) -> frozenset[str]:
    """Every value of `config` that must never be shown, in all spellings in which it may turn up."""
    return frozenset(value for value in _all(config) if len(value) >= SHORTEST)


def _all(config: Config) -> Iterator[str]:
    for server in config.mcp_servers.values():
        yield from _of_server(server)
    yield from _in_url(config.summaries.base_url if config.summaries else None)
    yield from _in_state_url(config.state.url)


def _of_server(server: Server) -> Iterator[str]:
    for value in (*server.env.values(), *server.substituted):
        yield from _spellings(value)
        yield from _in_url(value)
    for value in server.headers.values():
        yield from _spellings(value)
        # "Bearer abc": the word before the token is no secret, the token alone is.
        yield value.partition(" ")[2].strip()
    yield from _in_url(server.url)


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
    """User, password and query values of a url, as written and decoded; nothing of what is no url."""
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
