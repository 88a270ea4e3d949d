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


LONG_WORD = 10
"""Letters from which a word must be one that can be said: shorter names are abbreviated as anybody likes."""

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
"""Which letter follows which in words of English and of programs. Letters that were drawn by lot break it soon:
of 12, 98 in 100 do."""

_ROOTS = frozenset({
    "app", "bin", "data", "dev", "etc", "home", "lib", "media", "mnt", "nix", "opt", "proc", "projects", "root",
    "run", "snap", "srv", "sys", "tmp", "usr", "users", "var", "volumes", "workspace", "workspaces",
})  # fmt: skip
"""Where paths begin. Base64 may begin with a slash, too."""

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
"""`v2`, `30B`, `A3B`, `4o`, `512MiB`, `22T10`."""

MOST_JOINERS = 4
"""Different signs that join the words of a setting without a blank: `en_US.UTF-8` has three."""


def is_setting(value: str) -> bool:
    """Whether a value is clearly a setting: words, numbers, versions, paths, hosts, urls, models, or several.

    `us-east-1`, `gpt-4o-mini` and `/srv/data` are; `7fK2mQ9xVb4Z`, `Xk9$mQ2!vL7#pR` and `xkqzvbwmtrpl` are not.
    What is secret within a url or a path is to be looked for besides.
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
    """Whether one of a list is a setting."""
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
    # Among short mixtures there is a word: nobody's setting is `k9-Q2-z3-aB`.
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
        return len(part) < LONG_WORD or _can_be_said(part)
    if not _CAMEL.fullmatch(part):
        return False
    pieces = _PIECE.findall(part)
    return len(part) >= (3 if len(pieces) == len(("Git", "Hub")) else 4) * len(pieces) and all(
        piece.isupper() or _can_be_said(piece) for piece in pieces
    )


def _can_be_said(word: str) -> bool:
    lower = word.lower()
    return all(pair in PAIRS for pair in pairwise(lower))
