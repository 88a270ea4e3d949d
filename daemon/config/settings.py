"""What is clearly a setting: whatever else a server is given may be a secret, and is taken for one."""

from __future__ import annotations

import re
from itertools import pairwise

from daemon.safety.shapes import tokens
from daemon.safety.spellings import nested

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
