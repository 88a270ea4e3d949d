"""What in a configuration is a credential although nothing says so but its name, its place or its look."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

NAMED = re.compile(
    r"(?i)key|token|secret|passw|(?<![a-z])pass(?![a-z])|credential|authorization|cookie|\bpat\b"
)
"""Names of variables, headers, options and parameters whose value is one."""

RANDOM_CHARACTERS = 16
"""The least that a part of a path has if it is a credential; an identifier of 128 bits has 32."""

_NAMED_VALUE = re.compile(r"(?P<name>-{0,2}[A-Za-z][\w.-]*)(?:=|:\s*)(?P<value>.*)", re.ASCII | re.DOTALL)
_CHARACTERS = re.compile(r"[\w.~+=-]+", re.ASCII)
_WORD = re.compile(r"[A-Z]?[a-z]*|[A-Z]+|[A-Za-z]+[0-9]{1,4}|v?[0-9]+|[0-9]{1,3}[a-z]", re.ASCII)
_BETWEEN_WORDS = re.compile(r"[\W_]+")


def looks_random(text: str) -> bool:
    """Whether a part of a path is a credential by its look: long, of letters and digits, and of no words.

    `0b1f6a2c-5d3e-4f70-8a91-b2c3d4e5f607` does, `mcp-server-2025-11-25` does not.
    """
    if len(text) < RANDOM_CHARACTERS or not _CHARACTERS.fullmatch(text):
        return False
    if not re.search(r"[0-9]", text) or not re.search(r"[A-Za-z]", text):
        return False
    return not is_wordy(text)


def is_wordy(text: str) -> bool:
    """Whether a text is words and numbers, as `us-east-1`, `gpt-4o` and `repos,issues` are."""
    parts = _BETWEEN_WORDS.split(text)
    return all(_WORD.fullmatch(part) if part.isascii() else part.isalpha() for part in parts)


def in_arguments(args: Sequence[str]) -> Iterator[tuple[int, str]]:
    """The credentials among the arguments of a command, each with its position.

    They are given as `--api-key VALUE`, `--token=VALUE`, `API_KEY=VALUE`, or as a header, `Authorization: X`.
    """
    for index, word in enumerate(args):
        if word.startswith("-") and NAMED.search(word) and "=" not in word:
            place, value = index + 1, next(iter(args[index + 1 : index + 2]), "")
        else:
            place, value = index, _named_value(word)
        # `--token-file PATH` and a switch without a value give nothing away.
        if value and not value.startswith(("-", "/", "./")):
            yield place, value


def _named_value(word: str) -> str:
    """What follows a name of a credential in an argument, `--header=Authorization: VALUE` among them."""
    while (match := _NAMED_VALUE.fullmatch(word)) is not None:
        word = match["value"]
        if NAMED.search(match["name"]):
            return word
    return ""
