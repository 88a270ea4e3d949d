"""Which values of a configuration are credentials, judged by their name, their place or their look.

Whatever is not clearly a setting (`is_setting`) may be a secret, and is treated as one.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

from daemon.safety.shapes import nested, tokens

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_CREDENTIAL = re.compile(
    r".*(?:password|passwd|passphrase|pwd|token|secret|credential|authorization|cookie|mnemonic)s?"
    r"|(?:access|account|api|app|auth|encryption|license|licence|master|private|secret|shared|signing|ssh)?keys?"
    r"|(?:admin|app|db|mail|master|my|pg|root|smtp|sql|user)?(?:pass|pw)|passcode|pat|bearer|dsn|creds?|jwt|psk"
)
"""Words that mark a name's value as a credential, alone or joined to the word before."""

_LAST = frozenset({"auth", "otp", "pin", "seed", "session", "sid", "sig", "signature"})
"""Words that do so only at the end of a name: `AUTH_MODE` and `session-name` are no credentials."""

_TOGETHER = frozenset({
    ("auth", "header"), ("conn", "string"), ("connection", "string"), ("seed", "phrase"), ("session", "id"),
})  # fmt: skip
"""Words that do so only together, at the end of a name."""

_OF_ONE = frozenset({
    "budget", "count", "dir", "endpoint", "expiry", "file", "format", "length", "limit", "limits", "name",
    "path", "policy", "prefix", "size", "timeout", "ttl", "type", "uri", "url", "window",
})  # fmt: skip
"""Words that, at the end of a name, mark its value as a property of a credential, or a count of tokens."""

_COUNTED = frozenset({"max", "maximum", "min", "minimum", "num", "total"})
"""Words that, at the start of a name, mark its value as a number."""

_OF_DATA = frozenset({"composite", "foreign", "partition", "public", "row", "sort", "unique"})
"""Words before `key` that mark it as a key of a table, or a public one."""

_OF_TABLES = ("primary", "key")
"""A whole name that is a key of a table; `COSMOS_PRIMARY_KEY` is the first of two credentials."""

RANDOM_CHARACTERS = 16
"""Fewest characters of a credential in a path; an identifier of 128 bits has 32."""

_WORDS_OF_NAME = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_NAMED_VALUE = re.compile(r"(?P<name>-{0,2}[A-Za-z][\w.-]*)(?:=|:\s*)(?P<value>.*)", re.ASCII | re.DOTALL)
_PAIR = re.compile(
    r"(?:^|(?<=\s))(?P<name>-{0,2}[A-Za-z][\w.-]*)\s*=\s*(?P<value>.*?)(?=\s-{0,2}[A-Za-z][\w.-]*\s*=|$)",
    re.ASCII | re.DOTALL,
)
_CHARACTERS = re.compile(r"[\w.~+=-]+", re.ASCII)
_PLAIN = re.compile(r"(?:[A-Z]?[a-z]+|[A-Z]+)(?:[_.-](?:[A-Z]?[a-z]+|[A-Z]+))*")


def names_credential(name: str) -> bool:
    """Whether a variable, header, option or parameter of this name holds a credential.

    `api_key`, `githubToken` and `PGPASSWORD` do, `keyspace`, `max-tokens` and `primary-key` do not.
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


def may_be_common(value: str, *, named: bool) -> bool:
    """Whether a value may just as well be common words, so that it reveals nothing where it appears elsewhere.

    Args:
        value: a value in a configuration.
        named: whether its name or its place marks it as a credential. Then only a short word without digits
            counts as common, such as `postgres` or `customer_id`: a passphrase is several words, or long.
    """
    if named:
        return len(value) < RANDOM_CHARACTERS and bool(
            _PLAIN.fullmatch(value) or (value.isalpha() and not value.isascii())
        )
    return is_setting(value)


def looks_random(text: str) -> bool:
    """Whether a part of a path looks like a credential: long, of letters and digits, and not made of words.

    `0b1f6a2c-5d3e-4f70-8a91-b2c3d4e5f607` does, `mcp-server-2025-11-25` does not.
    """
    if len(text) < RANDOM_CHARACTERS or not _CHARACTERS.fullmatch(text):
        return False
    if not re.search(r"[0-9]", text) or not re.search(r"[A-Za-z]", text):
        return False
    return not is_setting(text)


def in_arguments(args: Sequence[str]) -> Iterator[tuple[int, str]]:
    """The credentials among the arguments of a command, each with its position.

    They are written as `--api-key VALUE`, `--token=VALUE`, `API_KEY=VALUE`, or as a header, `Authorization: X`.
    """
    for index, word in enumerate(args):
        if word.startswith("-") and names_credential(word) and "=" not in word:
            place, values = index + 1, args[index + 1 : index + 2]
        else:
            place, values = index, list(dict.fromkeys((*_named_value(word), *in_pairs(word))))
        # `--token-file PATH` and a switch without a value reveal nothing.
        yield from ((place, value) for value in values if value and not value.startswith(("-", "/", "./")))


def _named_value(word: str) -> Iterator[str]:
    """The value after a credential's name in an argument, also in `--header=Authorization: VALUE`."""
    while (match := _NAMED_VALUE.fullmatch(word)) is not None:
        word = match["value"]
        if names_credential(match["name"]):
            yield word
            return


def in_pairs(text: str) -> Iterator[str]:
    """The credentials in a text of names and values: `Server=h;Password=X;`, `host=h password=X`."""
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
"""Letters from which a word must be pronounceable: shorter ones may be abbreviations."""

PAIRS = frozenset(
    (row[0], second)
    for row in (
        "aabcdfgiklmnprstuvwxyz", "babcdeijlmoprstuy", "cacdefhiklmnoprstuvyz", "dabcdefgijlnoprstuvy",
        "eabcdefghiklmnopqrstuvwxyz", "facdefgiloprstuy", "gaeghilmnoprsu", "hadeilmnorstuy",
        "iabcdefghklmnoprstvxz", "jaeou", "kadegilnostuwy", "labcdefgilmnoprstuvy", "mabcdeiklmnopstuy",
        "nabcdefghiklmnoprstuvwy", "oabcdefghiklmnoprstuvwx", "pacdefhiklmoprstuwy", "qu",
        "rabcdefgiklmnoprstuvwy", "sacdefghiklmnopqrstuwy", "tabcdefghilmnoprstuvwxyz",
        "uabcdefgilmnoprst", "vaeio", "wabdehilnors", "xabcdefhilmptxy", "yabceilmnopstwz", "zaeioz",
    )
    for second in row[1:]
)  # fmt: skip
"""Pairs of letters that occur in English words and in names of programs. Random letters soon break this rule:
of random words of 12 letters, 98 in 100 do."""

_ROOTS = frozenset({
    "app", "bin", "data", "dev", "etc", "home", "lib", "media", "mnt", "nix", "opt", "proc", "projects", "root",
    "run", "snap", "srv", "sys", "tmp", "usr", "users", "var", "volumes", "workspace", "workspaces",
})  # fmt: skip
"""Directories at which paths begin. Base64 may begin with a slash, too."""

_PRIVATE_KEY = "PRIVATE KEY-----"
_LIST = re.compile(r"[\s,;|]+")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,30}://\S+")
_HOST = re.compile(r"(?:[a-z0-9-]{1,63}\.)+[a-z]{2,24}(?::[0-9]{1,5})?")
_PATH = re.compile(r"(?:~|\.{1,2})?(?:/[\w.@+ -]+){2,}/?")
_NAMED = re.compile(r"-{0,2}(?P<name>[A-Za-z][\w.-]*)={1,2}(?P<value>.*)", re.DOTALL)
_AROUND = "\"'()[]{}.:!?"
_ITEM = re.compile(r"[\w./:@+~*\\-]*")
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]{5,15}Z?")
_JOINERS = re.compile(r"[\W_]")

_LETTERS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
_CAMEL = re.compile(r"(?:[A-Z]?[a-z]+|[A-Z]{2,5})(?:[A-Z][a-z]+|[A-Z]{2,5})+")
_PIECE = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_WITH_NUMBER = re.compile(r"([A-Za-z]{2,})[0-9]{1,4}")
_SHORT = re.compile(r"[A-Za-z]?[0-9]{1,3}[A-Za-z]?|[0-9]{1,3}[A-Za-z][0-9]{1,3}|[0-9]+(?:[kKMGT]i?[Bb]|ms|px)")
"""Short mixtures of letters and digits: `v2`, `30B`, `A3B`, `4o`, `512MiB`, `22T10`."""

MOST_JOINERS = 4
"""Most different characters that join the words of a setting: `en_US.UTF-8` has three."""


def is_setting(value: str) -> bool:
    """Whether a value is clearly a setting: words, numbers, versions, paths, hosts, URLs, models, or a list.

    `us-east-1`, `gpt-4o-mini` and `/srv/data` are; `7fK2mQ9xVb4Z`, `Xk9$mQ2!vL7#pR` and `xkqzvbwmtrpl` are not.
    A secret within a URL or a path has to be looked for separately.
    """
    if _PRIVATE_KEY in value or any(tokens(value)):
        return False
    if value.lstrip().startswith(("{", "[")) and (strings := nested(value)):
        return all(is_setting(text) for _, text in strings)
    return _is_path(value) or all(map(_is_item, _LIST.split(value)))


def _is_path(value: str) -> bool:
    if not _PATH.fullmatch(value):
        return False
    first, *rest = [each for each in value.split("/") if each]
    return first.lower() in _ROOTS or first in {"~", ".", ".."} or all(map(_is_item, (first, *rest)))


def _is_item(text: str) -> bool:
    """Whether one item of a list is a setting."""
    item = text.strip(_AROUND)
    if named := _NAMED.fullmatch(item):
        return _is_joined(named["name"]) and _is_item(named["value"])
    if _URL.fullmatch(item):
        return True
    return any(each.fullmatch(item) for each in (_HOST, _TIME)) or _is_path(item) or _is_joined(item)


def _is_joined(item: str) -> bool:
    """Whether an item is made of words and numbers."""
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
