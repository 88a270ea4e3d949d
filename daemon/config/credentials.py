"""What in a configuration is a credential although nothing says so but its name, its place or its look."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from daemon.config.settings import is_setting

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_CREDENTIAL = re.compile(
    r".*(?:password|passwd|passphrase|pwd|token|secret|credential|authorization|cookie|mnemonic)s?"
    r"|(?:access|account|api|app|auth|encryption|license|licence|master|private|secret|shared|signing|ssh)?keys?"
    r"|(?:admin|app|db|mail|master|my|pg|root|smtp|sql|user)?(?:pass|pw)|passcode|pat|bearer|dsn|creds?|jwt|psk"
)
"""Words that say of a name that its value is one, written together with what stands before them or alone."""

_LAST = frozenset({"auth", "otp", "pin", "seed", "session", "sid", "sig", "signature"})
"""Words that say so only at the end of a name: `AUTH_MODE` and `session-name` are none."""

_TOGETHER = frozenset({
    ("auth", "header"), ("conn", "string"), ("connection", "string"), ("seed", "phrase"), ("session", "id"),
})  # fmt: skip
"""Words that say so only together, at the end of a name."""

_OF_ONE = frozenset({
    "budget", "count", "dir", "endpoint", "expiry", "file", "format", "length", "limit", "limits", "name",
    "path", "policy", "prefix", "size", "timeout", "ttl", "type", "uri", "url", "window",
})  # fmt: skip
"""Words at the end of a name that say that its value tells something of a credential, or counts tokens."""

_COUNTED = frozenset({"max", "maximum", "min", "minimum", "num", "total"})
"""Words at the beginning of a name that say that its value is a number of them."""

_OF_DATA = frozenset({"composite", "foreign", "partition", "public", "row", "sort", "unique"})
"""Words before `key` that say that it is one of a table, or everybody's."""

_OF_TABLES = ("primary", "key")
"""A whole name that says so; `COSMOS_PRIMARY_KEY` is the first of two credentials."""

RANDOM_CHARACTERS = 16
"""The least that a part of a path has if it is a credential; an identifier of 128 bits has 32."""

_WORDS_OF_NAME = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_NAMED_VALUE = re.compile(r"(?P<name>-{0,2}[A-Za-z][\w.-]*)(?:=|:\s*)(?P<value>.*)", re.ASCII | re.DOTALL)
_PAIR = re.compile(
    r"(?:^|(?<=\s))(?P<name>-{0,2}[A-Za-z][\w.-]*)\s*=\s*(?P<value>.*?)(?=\s-{0,2}[A-Za-z][\w.-]*\s*=|$)",
    re.ASCII | re.DOTALL,
)
_CHARACTERS = re.compile(r"[\w.~+=-]+", re.ASCII)
_PLAIN = re.compile(r"(?:[A-Z]?[a-z]+|[A-Z]+)(?:[_.-](?:[A-Z]?[a-z]+|[A-Z]+))*")


def names_credential(name: str) -> bool:
    """Whether the value of a variable, header, option or parameter of this name is one.

    `api_key`, `githubToken` and `PGPASSWORD` say so, `keyspace`, `max-tokens` and `primary-key` do not.
    """
    words = [word.lower() for word in _WORDS_OF_NAME.findall(name)]
    if not words or words[-1] in _OF_ONE or words[0] in _COUNTED or tuple(words) == _OF_TABLES:
        return False
    before = ["", *words]
    return (
        words[-1] in _LAST
        or tuple(words[-2:]) in _TOGETHER
        or any(
            _CREDENTIAL.fullmatch(word) and not (word.startswith("key") and before[index] in _OF_DATA)
            for index, word in enumerate(words)
        )
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
    return is_setting(value)


def looks_random(text: str) -> bool:
    """Whether a part of a path is a credential by its look: long, of letters and digits, and of no words.

    `0b1f6a2c-5d3e-4f70-8a91-b2c3d4e5f607` does, `mcp-server-2025-11-25` does not.
    """
    if len(text) < RANDOM_CHARACTERS or not _CHARACTERS.fullmatch(text):
        return False
    if not re.search(r"[0-9]", text) or not re.search(r"[A-Za-z]", text):
        return False
    return not is_setting(text)


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
            if more and not is_setting(first):
                yield first
