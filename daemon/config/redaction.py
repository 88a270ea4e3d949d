"""Finds the secrets of a configuration, and redacts them from texts.

A value that is not clearly a setting counts as a secret. In the texts of a server, only its own secrets are
redacted, even if they are common words; unmistakable ones everywhere.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, pairwise
from urllib.parse import unquote, unquote_plus, urlsplit

import msgspec

from daemon.config.client_keys import read_table
from daemon.config.config_model import LATE, WORKSPACE, Config, OAuth, Server
from daemon.config.labels import server_of
from daemon.config.state_url import passwords
from daemon.kit.later import pattern
from daemon.safety.redact import SHORTEST, SHOWN, Redactor, nested, tokens

_CREDENTIAL = pattern(
    r".*(?:password|passwd|passphrase|pwd|token|secret|credential|authorization|cookie|mnemonic)s?"
    r"|(?:access|account|api|app|auth|encryption|license|licence|master|private|secret|shared|signing|ssh)?keys?"
    r"|(?:admin|app|db|mail|master|my|pg|root|smtp|sql|user)?(?:pass|pw)|passcode|pat|bearer|dsn|creds?|jwt|psk"
)
"""Words that mark the name of a credential, alone or joined to other words."""


class _Words(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    last: frozenset[str]
    together: frozenset[tuple[str, str]]
    of_one: frozenset[str]
    counted: frozenset[str]
    of_data: frozenset[str]
    roots: frozenset[str]
    ordinary: frozenset[str]
    pairs: tuple[str, ...]


_WORDS = read_table("secret_words", _Words)

_OF_TABLES = ("primary", "key")
"""Words that form the name of a database key, not of a credential; `COSMOS_PRIMARY_KEY` is a credential."""

RANDOM_CHARACTERS = 16
"""Fewest characters of a credential in a path; a 128-bit identifier has 32."""

_WORDS_OF_NAME = pattern(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_NAMED_VALUE = pattern(r"(?P<name>-{0,2}[A-Za-z][\w.-]*)(?:=|:\s*)(?P<value>.*)", re.ASCII | re.DOTALL)
_PAIR = pattern(
    r"(?:^|(?<=\s))(?P<name>-{0,2}[A-Za-z][\w.-]*)\s*=\s*(?P<value>.*?)(?=\s-{0,2}[A-Za-z][\w.-]*\s*=|$)",
    re.ASCII | re.DOTALL,
)
_CHARACTERS = pattern(r"[\w.~+=-]+", re.ASCII)
_PLAIN = pattern(r"(?:[A-Z]?[a-z]+|[A-Z]+)(?:[_.-](?:[A-Z]?[a-z]+|[A-Z]+))*")


def names_credential(name: str) -> bool:
    """Whether a name means a credential, as `githubToken` and `PGPASSWORD` do, but not `max-tokens`."""
    words = [word.lower() for word in _WORDS_OF_NAME.findall(name)]
    if not words or words[-1] in _WORDS.of_one or words[0] in _WORDS.counted or tuple(words) == _OF_TABLES:
        return False
    before = ["", *words]
    return (
        words[-1] in _WORDS.last
        or tuple(words[-2:]) in _WORDS.together
        or any(
            _CREDENTIAL.fullmatch(word) and not (word.startswith("key") and before[index] in _WORDS.of_data)
            for index, word in enumerate(words)
        )
    )


def may_be_common(value: str, *, named: bool) -> bool:
    """Whether a value may be common words; of `named` credentials, only short values without digits may."""
    if named:
        return len(value) < RANDOM_CHARACTERS and bool(
            _PLAIN.fullmatch(value) or (value.isalpha() and not value.isascii())
        )
    return is_setting(value)


def looks_random(text: str) -> bool:
    """Whether a part of a path looks like a credential: a UUID does; `mcp-server-2025-11-25` does not."""
    if len(text) < RANDOM_CHARACTERS or not _CHARACTERS.fullmatch(text):
        return False
    if not re.search(r"[0-9]", text) or not re.search(r"[A-Za-z]", text):
        return False
    return not is_setting(text)


def in_arguments(args: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Yield index and value of credentials in arguments: `--api-key VALUE`, `--token=VALUE`, `KEY=VALUE`."""
    for index, word in enumerate(args):
        if word.startswith("-") and names_credential(word) and "=" not in word:
            place, values = index + 1, args[index + 1 : index + 2]
        else:
            place, values = index, list(dict.fromkeys((*_named_value(word), *in_pairs(word))))
        # `--token-file PATH` and a switch without a value reveal nothing.
        yield from ((place, value) for value in values if value and not value.startswith(("-", "/", "./")))


def _named_value(word: str) -> Iterator[str]:
    """Yield the credential in a word, such as `--header=Authorization: VALUE`."""
    while (match := _NAMED_VALUE.fullmatch(word)) is not None:
        word = match["value"]
        if names_credential(match["name"]):
            yield word
            return


def in_pairs(text: str) -> Iterator[str]:
    """The credentials in `Server=h;Password=X;` or `host=h password=X`."""
    for part in text.split(";"):
        for pair in _PAIR.finditer(part.strip()):
            value = pair["value"].strip().strip("'\"")
            if not value or not names_credential(pair["name"]):
                continue
            yield value
            # A command may follow.
            first, *more = value.split(maxsplit=1)
            if more and not is_setting(first):
                yield first


LONG_WORD = 10
"""Letters of words that must be pronounceable; shorter ones may be abbreviations."""

PAIRS = frozenset((row[0], second) for row in _WORDS.pairs for second in row[1:])

_PRIVATE_KEY = "PRIVATE KEY-----"
_SEPARATORS = pattern(r"[\s,;|]+")
_URL = pattern(r"[A-Za-z][A-Za-z0-9+.-]{0,30}://\S+")
_HOST = pattern(r"(?:[a-z0-9-]{1,63}\.)+[a-z]{2,24}(?::[0-9]{1,5})?")
_LOCAL_PATH = pattern(r"(?:~|\.{1,2})?(?:/[\w.@+ -]+){2,}/?")
_NAMED = pattern(r"-{0,2}(?P<name>[A-Za-z][\w.-]*)={1,2}(?P<value>.*)", re.DOTALL)
_AROUND = "\"'()[]{}.:!?"
_ITEM = pattern(r"[\w./:@+~*\\-]*")
_TIME = pattern(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]{5,15}Z?")
_JOINERS = pattern(r"[\W_]")

_LETTERS = pattern(r"[A-Z]?[a-z]+|[A-Z]+")
_CAMEL = pattern(r"(?:[A-Z]?[a-z]+|[A-Z]{2,5})(?:[A-Z][a-z]+|[A-Z]{2,5})+")
_PIECE = pattern(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_WITH_NUMBER = pattern(r"([A-Za-z]{2,})[0-9]{1,4}")
_SHORT = pattern(r"[A-Za-z]?[0-9]{1,3}[A-Za-z]?|[0-9]{1,3}[A-Za-z][0-9]{1,3}|[0-9]+(?:[kKMGT]i?[Bb]|ms|px)")

MOST_JOINERS = 4
"""Different characters that may join the words of a setting: `en_US.UTF-8` has three."""


def is_setting(value: str) -> bool:
    """Whether a value is clearly words, numbers, versions, paths, hosts, URLs, models or a list.

    `us-east-1` and `gpt-4o-mini` are; `7fK2mQ9xVb4Z` is not. Secrets within a URL or path are searched for
    separately.
    """
    if _PRIVATE_KEY in value or any(tokens(value)):
        return False
    if value.lstrip().startswith(("{", "[")) and (strings := nested(value)):
        return all(is_setting(text) for _, text in strings)
    return _is_path(value) or all(map(_is_item, _SEPARATORS.split(value)))


def _is_path(value: str) -> bool:
    if not _LOCAL_PATH.fullmatch(value):
        return False
    first, *rest = [each for each in value.split("/") if each]
    return first.lower() in _WORDS.roots or first in {"~", ".", ".."} or all(map(_is_item, (first, *rest)))


def _is_item(text: str) -> bool:
    item = text.strip(_AROUND)
    while named := _NAMED.fullmatch(item):
        if not _is_joined(named["name"]):
            return False
        item = named["value"].strip(_AROUND)
    if _URL.fullmatch(item):
        return True
    return any(each.fullmatch(item) for each in (_HOST, _TIME)) or _is_path(item) or _is_joined(item)


def _is_joined(item: str) -> bool:
    if not _ITEM.fullmatch(item) or len(set(_JOINERS.findall(item))) > MOST_JOINERS:
        return False
    parts = [part for part in _JOINERS.split(item) if part]
    if not all(map(_is_part, parts)):
        return False
    # Short mixtures need a real word among them: no setting is `k9-Q2-z3-aB`.
    words = [part for part in parts if _is_word(part.rstrip("0123456789"))]
    odd = [part for part in parts if not part.isdigit() and part not in words]
    return not odd or len(parts) == 1 or any(len(word) > len("ab") for word in words)


def _is_part(part: str) -> bool:
    if part.isdigit() or _is_word(part):
        return True
    with_number = _WITH_NUMBER.fullmatch(part)
    return _is_word(with_number[1]) if with_number else _SHORT.fullmatch(part) is not None


def _is_word(part: str) -> bool:
    if not part.isascii():
        return part.isalpha()
    if _LETTERS.fullmatch(part):
        return len(part) < LONG_WORD or _is_pronounceable(part)
    if not _CAMEL.fullmatch(part):
        return False
    pieces = _PIECE.findall(part)
    return len(part) >= (3 if len(pieces) == len(("Git", "Hub")) else 4) * len(pieces) and all(
        piece.isupper() or _is_pronounceable(piece) for piece in pieces
    )


def _is_pronounceable(word: str) -> bool:
    lower = word.lower()
    return all(pair in PAIRS for pair in pairwise(lower))


_LIST = pattern(r"[\s,;|\"']+")
_BETWEEN = pattern(r"[:=]")
_PATH = pattern(r"(?:/[\w. -]+){2,}/?", re.ASCII)
_BUNDLE = pattern(r"/mcpd/bundles/[a-z0-9_-]+-[0-9a-f]{32}(?=/|\Z)")
_BASIC = pattern(r"(?i)basic\s+([A-Za-z0-9+/_-]+={0,2})\s*")
_SCHEME = pattern(r"(?i)(?:basic|bearer|token)\s")


def secrets(config: Config) -> frozenset[str]:
    """All secrets of a configuration, in each spelling that may appear."""
    return with_doubts(config)[0]


def with_doubts(config: Config) -> tuple[frozenset[str], frozenset[str]]:
    """The `secrets`, and those among them that may be common words, which definitions contain."""
    return _long(chain(_of_daemon(config), *map(_of_server, config.mcp_servers.values())))


def secrets_of(server: Server) -> tuple[frozenset[str], frozenset[str]]:
    """One server's secrets, and those among them that may be common words."""
    return _long(_of_server(server))


def _long(values: Iterable[tuple[str, bool]]) -> tuple[frozenset[str], frozenset[str]]:
    sure, doubted = set[str](), set[str]()
    for value, doubt in values:
        if len(value) >= SHORTEST:
            (doubted if doubt else sure).add(value)
    return frozenset(sure | doubted), frozenset(doubted - sure)


def _of_daemon(config: Config) -> Iterator[tuple[str, bool]]:
    yield from _in_urls(config.summaries.base_url if config.summaries else None)
    yield from _judged([config.summaries.kept_key or ""] if config.summaries else [], named=True)
    yield from _judged(passwords(config.state.url or ""), named=True)
    for value in config.telemetry.headers.values():
        yield from _judged(_in_header(value), named=True)
    tokens = config.listen.http.tokens if config.listen.http else None
    # However it looks: it opens the daemon, and is too long to be in a text by chance.
    yield from [(tokens, False)] if isinstance(tokens, str) else ((each.value, False) for each in tokens or ())


def _of_server(server: Server) -> Iterator[tuple[str, bool]]:
    # A reference is no secret, and no text holds a NUL.
    server = server.rewritten(lambda text: LATE.sub("\0", text))
    yield from _in_variables(server)
    yield from _in_headers(server)
    yield from _in_command(server)
    if isinstance(server.oauth, OAuth) and server.oauth.client_secret:
        yield from _judged(_spellings(server.oauth.client_secret), named=True)
    for value in server.auth.secrets if server.auth is not None else ():
        yield from _judged(_spellings(value), named=True)
    for value in server.credentials:
        yield from _whole(value, named=True)
    for text in (server.url, *server.args, *server.credentials, *server.env.values(), *server.substituted):
        yield from _in_urls(text)


def _judged(values: Iterable[str], *, named: bool) -> Iterator[tuple[str, bool]]:
    for value in values:
        yield value, may_be_common(value, named=named)


def _whole(value: str, *, named: bool) -> Iterator[tuple[str, bool]]:
    """A value named like a credential; in JSON, each text counts by its own name and looks."""
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
    if not is_setting(value):
        yield from _judged(_spellings(value), named=False)
    for item in _LIST.split(value):
        if not is_setting(item):
            yield from ((word, False) for word in (item, *_BETWEEN.split(item)) if not is_setting(word))
    yield from ((part, False) for part in _random_parts(value))
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
    given = (value for _, written in in_arguments(server.args) for value in _around_workspaces(written))
    for value in given:
        if not _is_ordinary(value):
            yield from _judged(_in_header(value) if _SCHEME.match(value) else _spellings(value), named=True)
    yield from ((word[start:end], False) for word in server.args for start, end in tokens(word))


def _around_workspaces(written: str) -> Iterator[str]:
    first, *rest = written.split(WORKSPACE)
    yield first
    yield from (f"/workspace{each}" if each.startswith("/") else each for each in rest)


def _is_ordinary(value: str) -> bool:
    if value.lower() in _WORDS.ordinary:
        return True
    return _PATH.fullmatch(value) is not None and not any(_random_parts(value))


def _random_parts(value: str) -> Iterator[str]:
    """The parts of a path that look like credentials, except the hash in the name of an unpacked bundle."""
    return filter(looks_random, _BUNDLE.sub("", value).split("/") if _PATH.fullmatch(value) else ())


def _in_list(value: str) -> Iterator[str]:
    return (each for each in in_pairs(value) if not _is_ordinary(each))


def _in_header(value: str) -> Iterator[str]:
    yield from _spellings(value)
    # "Bearer abc": the word before the token is no secret, the token alone is.
    yield value.partition(" ")[2].strip()
    if match := _BASIC.fullmatch(value):
        yield from _in_basic(match[1])


def _in_basic(encoded: str) -> Iterator[str]:
    """Decode `user:password` from base64; either half may be the token."""
    padded = encoded + "=" * (-len(encoded) % 4)
    try:
        decoded = b64decode(padded, altchars=b"-_" if {"-", "_"} & set(padded) else None).decode()
    except ValueError:
        return
    user, _, password = decoded.partition(":")
    yield from (decoded, password)
    # Next to a password, a user name that is a word is no secret: `postgres` is in many logs.
    if not password or not user.isalpha():
        yield user


def _spellings(value: str) -> Iterator[str]:
    yield value
    for line in value.splitlines():
        yield line.strip()


def _in_urls(text: str | None) -> Iterator[tuple[str, bool]]:
    """User, password, query values and path credentials of each URL, as written and decoded."""
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
"""Fewest characters of a secret that appears in no text by chance."""


MAX_TOKENS = 12
"""Tokens of one server's logins that stay hidden: from the latest four renewals, at least some minutes."""

RUNS, MAX_OF_RUN = 4, 200
"""Latest runs of a server whose secrets stay hidden, and secrets of one run; log lines are searched for all."""


class Redactors:
    """A redactor for each server; calling the object redacts other texts."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._renewed = Redactor(())
        self._tokens: dict[str, list[str]] = {}
        self._unmistakable = Redactor(secrets, shared=self._renewed)
        self._all = Redactor((), shared=self._unmistakable)
        self._each: dict[str, Redactor] = {}

    def __call__(self, text: str, most: int = SHOWN) -> str:
        """Redact every secret."""
        return self._all(text, most)

    def of(self, server: str) -> Redactor:
        """The redactor for a server and its instances."""
        known = self._each.get(server) or self._each.get(server := server_of(server))
        if known is None:
            known = self._each[server] = Redactor((), shared=self._unmistakable)
        return known

    def text_of(self, server: str, text: str, most: int) -> str:
        """Redact and shorten a text of a server, or any text if the name is empty."""
        return self.of(server)(text, most) if server else self(text, most)

    def hide(self, values: Iterable[str]) -> None:
        """Hide secrets that are in no configuration. Thread-safe."""
        self._unmistakable.learn(values)

    def hide_login(self, server: str, values: Iterable[str]) -> None:
        """Hide a login's tokens, and the latest earlier ones, which the server may still repeat."""
        now = list(values)
        earlier = [each for each in self._tokens.get(server, ()) if each not in now]
        self._tokens[server] = [*earlier, *now][-max(MAX_TOKENS, RUNS * len(now)) :]
        self._renewed.replace(each for tokens in self._tokens.values() for each in tokens)

    def hide_run(self, server: str, found: Iterable[str], doubtful: frozenset[str]) -> None:
        """Hide the secrets of a run (`secrets_of`) and of the runs before; of very many, only the longest."""
        self.of(server).learn(sorted(doubtful, key=len)[-MAX_OF_RUN:], doubtful)
        self.hide_login(f"runs of {server}", sorted(set(found) - doubtful, key=len)[-MAX_OF_RUN:])

    def learn(self, config: Config) -> None:
        """Hide a configuration's secrets; earlier ones stay hidden. Thread-safe."""
        every, common = with_doubts(config)
        self._unmistakable.learn(value for value in every - common if len(value) >= UNMISTAKABLE)
        self._all.learn(every, common)
        for server in config.mcp_servers.values():
            self.of(server.name).learn(*secrets_of(server))
        # Names of servers, categories and profiles are public, so they stay readable.
        names = {*config.mcp_servers, *config.categories, *config.profiles}
        for each in (self._all, *self._each.values()):
            each.spare(names)
