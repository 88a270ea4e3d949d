"""The secrets of a configuration, and which of them are taken out of which texts.

A server's texts lose the secrets that this server was given: a password that is a common word must not blank
out the logs of all other servers. A secret that nobody writes by chance is taken out of every text, because
servers may know each other's. The daemon's own texts lose all secrets.
"""

from __future__ import annotations

import re
from base64 import b64decode
from typing import TYPE_CHECKING
from urllib.parse import unquote, unquote_plus, urlsplit

from daemon.config.credentials import (
    in_arguments,
    in_pairs,
    is_setting,
    looks_random,
    may_be_common,
    names_credential,
)
from daemon.config.labels import server_of
from daemon.config.model import WORKSPACE, OAuth
from daemon.config.state_url import passwords
from daemon.safety.redact import SHOWN, Redactor
from daemon.safety.shapes import SHORTEST, nested, tokens

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from daemon.config.listen import AccessToken
    from daemon.config.model import Config, Server

ORDINARY = frozenset({
    "always", "bearer", "critical", "default", "development", "digest", "disabled", "enabled", "negotiate",
    "oauth2", "optional", "production", "required", "staging", "testing", "verbose", "warning",
})  # fmt: skip
"""Values that are never hidden, in any case and under any name: without these words no log is readable."""

_LIST = re.compile(r"[\s,;|\"']+")
_BETWEEN = re.compile(r"[:=]")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,30}://\S+")
_PATH = re.compile(r"(?:/[\w. -]+){2,}/?", re.ASCII)
_BASIC = re.compile(r"(?i)basic\s+([A-Za-z0-9+/_-]+={0,2})\s*")
_SCHEME = re.compile(r"(?i)(?:basic|bearer|token)\s")


def secrets(config: Config) -> frozenset[str]:
    """Every value of `config` that must never be shown, in all spellings in which it may appear."""
    return frozenset(value for value, _ in _all(config) if len(value) >= SHORTEST)


def doubtful(config: Config) -> frozenset[str]:
    """The `secrets` that may just as well be common words.

    A definition may contain the same words: `postgres` in a tool's name, `password` as the name of a property.
    """
    return _in_doubt(_all(config))


def secrets_of(server: Server) -> tuple[frozenset[str], frozenset[str]]:
    """The secrets that one server was given, and those of them that may just as well be common words."""
    values = list(_of_server(server))
    return frozenset(value for value, _ in values if len(value) >= SHORTEST), _in_doubt(values)


def _in_doubt(values: Iterable[tuple[str, bool]]) -> frozenset[str]:
    long = [(value, doubt) for value, doubt in values if len(value) >= SHORTEST]
    return frozenset(value for value, doubt in long if doubt) - {value for value, doubt in long if not doubt}


def _all(config: Config) -> Iterator[tuple[str, bool]]:
    """All secrets, each with whether it is doubtful."""
    for server in config.mcp_servers.values():
        yield from _of_server(server)
    yield from _of_daemon(config)


def _of_daemon(config: Config) -> Iterator[tuple[str, bool]]:
    yield from _in_urls(config.summaries.base_url if config.summaries else None)
    yield from _judged([config.summaries.kept_key or ""] if config.summaries else [], named=True)
    yield from _judged(passwords(config.state.url or ""), named=True)
    tokens = config.listen.http.tokens if config.listen.http else None
    # However it looks: it opens the daemon, and is too long to be in a text by chance.
    yield from ((value, False) for value in ([tokens] if isinstance(tokens, str) else _values(tokens)))


def _values(tokens: Iterable[AccessToken] | None) -> list[str]:
    return [token.value for token in tokens or ()]


def _of_server(server: Server) -> Iterator[tuple[str, bool]]:
    yield from _in_variables(server)
    yield from _in_headers(server)
    yield from _in_command(server)
    if isinstance(server.oauth, OAuth) and server.oauth.client_secret:
        yield from _judged(_spellings(server.oauth.client_secret), named=True)
    for value in server.credentials:
        yield from _whole(value, named=True)
    for text in (server.url, *server.args, *server.credentials, *server.env.values(), *server.substituted):
        yield from _in_urls(text)


def _judged(values: Iterable[str], *, named: bool) -> Iterator[tuple[str, bool]]:
    """Credentials, each with whether it is doubtful."""
    for value in values:
        yield value, may_be_common(value, named=named)


def _whole(value: str, *, named: bool) -> Iterator[tuple[str, bool]]:
    """A value whose name says that it is a credential, and the credentials within it.

    If it is JSON, such as a credentials file, its strings count where their own names or looks say so.
    """
    if _is_ordinary(value):
        return
    yield from _judged(_spellings(value), named=named)
    yield from _within(value, named=named)


def _within(value: str, *, named: bool) -> Iterator[tuple[str, bool]]:
    for name, text in nested(value):
        if names_credential(name) or (named and not name):
            yield from _judged(_spellings(text), named=True)
        elif not is_setting(text):
            yield text, False


def _by_look(value: str) -> Iterator[tuple[str, bool]]:
    """Possible credentials in a value whose name says nothing: all that is not clearly a setting."""
    if not is_setting(value):
        yield from _judged(_spellings(value), named=False)
    for item in _LIST.split(value):
        if not is_setting(item):
            yield from ((word, False) for word in (item, *_BETWEEN.split(item)) if not is_setting(word))
    for part in value.split("/") if _PATH.fullmatch(value) else ():
        if looks_random(part):
            yield part, False
    yield from _within(value, named=False)


def _in_variables(server: Server) -> Iterator[tuple[str, bool]]:
    for name, written in server.env.items():
        for value in _around_workspaces(written):
            yield from _whole(value, named=True) if names_credential(name) else _by_look(value)
            yield from _judged(_in_list(value), named=True)


def _in_headers(server: Server) -> Iterator[tuple[str, bool]]:
    for name, value in server.headers.items():
        named = names_credential(name) or _SCHEME.match(value) is not None
        # Most configured headers are credentials, whatever their names.
        if named or not is_setting(value):
            yield from _judged(_in_header(value), named=named)
        yield from _judged(_in_list(value), named=True)


def _in_command(server: Server) -> Iterator[tuple[str, bool]]:
    """Arguments that are credentials by their name or by a token's prefix."""
    given = (value for _, written in in_arguments(server.args) for value in _around_workspaces(written))
    for value in given:
        if not _is_ordinary(value):
            yield from _judged(_in_header(value) if _SCHEME.match(value) else _spellings(value), named=True)
    yield from ((word[start:end], False) for word in server.args for start, end in tokens(word))


def _around_workspaces(written: str) -> Iterator[str]:
    """What stands around ${workspace}, which is a path; what follows it may go on with one."""
    first, *rest = written.split(WORKSPACE)
    yield first
    yield from (f"/workspace{each}" if each.startswith("/") else each for each in rest)


def _is_ordinary(value: str) -> bool:
    """Whether a value is a common word or a path: without those, a reason would say nothing."""
    if value.lower() in ORDINARY:
        return True
    return _PATH.fullmatch(value) is not None and not any(map(looks_random, value.split("/")))


def _in_list(value: str) -> Iterator[str]:
    return (told for told in in_pairs(value) if not _is_ordinary(told))


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
    # Next to a password, a user name that is a word is no secret: `postgres` is in many logs.
    if not password or not user.isalpha():
        yield user


def _spellings(value: str) -> Iterator[str]:
    """The whole and, since logs are made of lines, each line."""
    yield value
    for line in value.splitlines():
        yield line.strip()


def _in_urls(text: str | None) -> Iterator[tuple[str, bool]]:
    """User, password, query values and credentials in the path of each url, as written and decoded."""
    for found in _URL.finditer(text or ""):
        try:
            parts = urlsplit(found[0])
        except ValueError:
            yield found[0], False
            continue
        # A user without a password is how tokens are often given.
        hidden = (parts.password if parts.password is not None else parts.username) or ""
        yield from _judged((hidden, unquote(hidden)), named=True)
        yield from _in_query(parts.query)
        for written in parts.path.split("/"):
            if looks_random(segment := unquote(written)):
                yield from ((written, False), (segment, False))


def _in_query(query: str) -> Iterator[tuple[str, bool]]:
    for pair in query.split("&"):
        name, _, written = pair.partition("=")
        for value in (written, unquote_plus(written)):
            if names_credential(unquote_plus(name)):
                yield value, may_be_common(value, named=True)
            elif not is_setting(value):
                yield value, False


UNMISTAKABLE = 12
"""Characters from which a secret that is no plain word appears in no text by chance."""


MAX_TOKENS = 12
"""Tokens of one server's logins that stay hidden: those of the latest four renewals, minutes at the least."""


class Redactors:
    """A redactor for each server, and, when called, one for texts that belong to no server."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        """Start with secrets that no text may show."""
        self._renewed = Redactor(())
        self._tokens: dict[str, list[str]] = {}
        self._unmistakable = Redactor(secrets, beside=self._renewed)
        self._all = Redactor((), beside=self._unmistakable)
        self._each: dict[str, Redactor] = {}

    def __call__(self, text: str, most: int = SHOWN) -> str:
        """The text without any secret (`Redactor.__call__`)."""
        return self._all(text, most)

    def of(self, server: str) -> Redactor:
        """The redactor for the texts of a server or its instances; always the same object for all of these."""
        known = self._each.get(server) or self._each.get(server := server_of(server))
        if known is None:
            known = self._each[server] = Redactor((), beside=self._unmistakable)
        return known

    def hide(self, values: Iterable[str]) -> None:
        """Add secrets that no configuration names. May be called in any thread."""
        self._unmistakable.learn(values)

    def hide_login(self, server: str, values: Iterable[str]) -> None:
        """Hide the tokens of a login at a server, and the latest of those before, which it may still repeat."""
        known = self._tokens.get(server, [])
        self._tokens[server] = [*known, *(each for each in values if each not in known)][-MAX_TOKENS:]
        self._renewed.replace(each for tokens in self._tokens.values() for each in tokens)

    def learn(self, config: Config) -> None:
        """Add the secrets of this configuration; those learned before stay secret.

        May be called in any thread.
        """
        every, common = secrets(config), doubtful(config)
        self._unmistakable.learn(value for value in every - common if len(value) >= UNMISTAKABLE)
        self._all.learn(every, common)
        for server in config.mcp_servers.values():
            self.of(server.name).learn(*secrets_of(server))
        # Names of servers, categories and profiles are public, so they stay readable.
        names = {*config.mcp_servers, *config.categories, *config.profiles}
        for each in (self._all, *self._each.values()):
            each.spare(names)
