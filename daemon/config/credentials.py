"""What in a configuration is a credential although nothing says so but its name, its place or its look."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from daemon.shapes import tokens

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_CREDENTIAL = re.compile(
    r".*(?:password|passwd|passphrase|pwd|token|secret|credential|authorization|cookie)s?"
    r"|(?:api|access|auth|account|private|secret|shared)?keys?|(?:db|user)?pass|passcode|pat|bearer|dsn"
)
"""Words that say of a name that its value is one, written together with what stands before them or alone."""

_LAST = frozenset({"auth", "session"})
"""Words that say so only at the end of a name: `AUTH_MODE` and `session-name` are none."""

_OF_ONE = frozenset({
    "budget", "count", "dir", "endpoint", "expiry", "file", "format", "length", "limit", "limits", "name",
    "path", "policy", "prefix", "size", "timeout", "ttl", "type", "uri", "url", "window",
})  # fmt: skip
"""Words at the end of a name that say that its value tells something of a credential, or counts tokens."""

_COUNTED = frozenset({"max", "maximum", "min", "minimum", "num", "total"})
"""Words at the beginning of a name that say that its value is a number of them."""

_OF_DATA = frozenset({"composite", "foreign", "partition", "primary", "public", "row", "sort", "unique"})
"""Words before `key` that say that it is one of a table, or everybody's."""

RANDOM_CHARACTERS = 16
"""The least that a part of a path has if it is a credential; an identifier of 128 bits has 32."""

MIXED_CHARACTERS = 12
"""The least that a value has if it is a credential by having small and capital letters and digits."""

_MIXED = re.compile(r"(?=.*[a-z])(?=.*[A-Z])(?=.*[0-9])", re.DOTALL)
_HOST = re.compile(r"(?:[a-z0-9-]{1,63}\.)+[a-z]{2,24}")
_BASE64 = re.compile(r"(?=[^/])(?:[A-Za-z0-9+/]{32,}|[A-Za-z0-9+/]{14,}==?)")
_PRIVATE_KEY = "PRIVATE KEY-----"

_WORDS_OF_NAME = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_NAMED_VALUE = re.compile(r"(?P<name>-{0,2}[A-Za-z][\w.-]*)(?:=|:\s*)(?P<value>.*)", re.ASCII | re.DOTALL)
_PAIR = re.compile(
    r"(?:^|(?<=\s))(?P<name>-{0,2}[A-Za-z][\w.-]*)\s*=\s*(?P<value>.*?)(?=\s-{0,2}[A-Za-z][\w.-]*\s*=|$)",
    re.ASCII | re.DOTALL,
)
_CHARACTERS = re.compile(r"[\w.~+=-]+", re.ASCII)
_WORD = re.compile(r"[A-Z]?[a-z]*|[A-Z]+|[A-Za-z]+[0-9]{1,4}|v?[0-9]+|[0-9]{1,3}[a-z]", re.ASCII)
_CAMEL = re.compile(r"(?<![A-Za-z])[A-Z]?[a-z]{2,}+(?:[A-Z][a-z]++)++")
_PLAIN = re.compile(r"(?:[A-Z]?[a-z]+|[A-Z]+)(?:[_.-](?:[A-Z]?[a-z]+|[A-Z]+))*")
_BETWEEN_WORDS = re.compile(r"[\W_]+")


def names_credential(name: str) -> bool:
    """Whether the value of a variable, header, option or parameter of this name is one.

    `api_key`, `githubToken` and `PGPASSWORD` say so, `keyspace`, `max-tokens` and `primary-key` do not.
    """
    words = [word.lower() for word in _WORDS_OF_NAME.findall(name)]
    if not words or words[-1] in _OF_ONE or words[0] in _COUNTED:
        return False
    before = ["", *words]
    return words[-1] in _LAST or any(
        _CREDENTIAL.fullmatch(word) and not (word.startswith("key") and before[index] in _OF_DATA)
        for index, word in enumerate(words)
    )


def is_anybodys(value: str, *, named: bool) -> bool:
    """Whether a value may as well be words of anybody, so that they tell nothing where else they stand.

    Args:
        value: what a configuration holds.
        named: whether its name or its place says that it is a credential. Then it must be a short word without
            digits, as `postgres` and `customer_id` are: a passphrase is several, or long.
    """
    if named:
        return len(value) < RANDOM_CHARACTERS and bool(
            _PLAIN.fullmatch(value) or (value.isalpha() and not value.isascii())
        )
    return is_wordy(_CAMEL.sub("word", value))


def looks_random(text: str) -> bool:
    """Whether a part of a path is a credential by its look: long, of letters and digits, and of no words.

    `0b1f6a2c-5d3e-4f70-8a91-b2c3d4e5f607` does, `mcp-server-2025-11-25` does not.
    """
    if len(text) < RANDOM_CHARACTERS or not _CHARACTERS.fullmatch(text):
        return False
    if not re.search(r"[0-9]", text) or not re.search(r"[A-Za-z]", text):
        return False
    return not is_wordy(text)


def looks_secret(value: str) -> bool:
    """Whether a value is a credential by its look, whatever its name: one long word that nobody would say.

    `ghp_…`, a JWT, a private key and `7fK2mQ9xVb4Z` do; levels, numbers, paths, hosts, urls, models and
    locales do not.
    """
    if any(start == 0 for start, _ in tokens(value)) or _PRIVATE_KEY in value:
        return True
    if _HOST.fullmatch(value):
        return False
    if looks_random(value.replace("/", "") if _BASE64.fullmatch(value) else value):
        return True
    is_one = len(value) >= MIXED_CHARACTERS and _CHARACTERS.fullmatch(value)
    return bool(is_one and _MIXED.match(value)) and not is_wordy(_CAMEL.sub("word", value))


def is_wordy(text: str) -> bool:
    """Whether a text is words and numbers, as `us-east-1`, `gpt-4o` and `repos,issues` are."""
    parts = _BETWEEN_WORDS.split(text)
    return all(_WORD.fullmatch(part) if part.isascii() else part.isalpha() for part in parts)


def in_arguments(args: Sequence[str]) -> Iterator[tuple[int, str]]:
    """The credentials among the arguments of a command, each with its position.

    They are given as `--api-key VALUE`, `--token=VALUE`, `API_KEY=VALUE`, or as a header, `Authorization: X`.
    """
    for index, word in enumerate(args):
        if word.startswith("-") and names_credential(word) and "=" not in word:
            place, values = index + 1, args[index + 1 : index + 2]
        else:
            place, values = index, list(dict.fromkeys((*_named_value(word), *told_by_name(word))))
        # `--token-file PATH` and a switch without a value give nothing away.
        yield from ((place, value) for value in values if value and not value.startswith(("-", "/", "./")))


def _named_value(word: str) -> Iterator[str]:
    """What follows a name of a credential in an argument, `--header=Authorization: VALUE` among them."""
    while (match := _NAMED_VALUE.fullmatch(word)) is not None:
        word = match["value"]
        if names_credential(match["name"]):
            yield word
            return


def told_by_name(text: str) -> Iterator[str]:
    """The credentials in what lists names and values: `Server=h;Password=X;`, `host=h password=X`."""
    for part in text.split(";"):
        for pair in _PAIR.finditer(part.strip()):
            value = pair["value"].strip().strip("'\"")
            if not value or not names_credential(pair["name"]):
                continue
            yield value
            # A command may follow.
            first, *more = value.split(maxsplit=1)
            if more and not is_wordy(first):
                yield first
