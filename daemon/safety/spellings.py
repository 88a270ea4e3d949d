"""How a secret may be written: as it stands, in a form that was sent, in base64, and the strings of JSON."""

from __future__ import annotations

import json
from base64 import b64encode, urlsafe_b64encode
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SHORTEST = 6
"""Characters of a spelling of a secret: what is shorter stands in ordinary words, too."""

MAX_NESTED = 100
"""Strings that are taken out of a secret that is JSON: credentials files have a dozen."""


def all_spellings(secrets: Iterable[str]) -> frozenset[str]:
    """Every way in which these secrets may be written without an escape, themselves among them."""
    return frozenset(each for secret in secrets for each in _spellings(secret))


def _spellings(secret: str) -> Iterator[str]:
    """A secret as it may be written without an escape."""
    yield secret
    if len(secret) >= SHORTEST:
        yield from (each for each in _encoded(secret) if len(each) >= SHORTEST)


def nested(secret: str) -> list[tuple[str, str]]:
    """The strings in a secret that is JSON, a credentials file in a variable, each with its name there."""
    if not secret.lstrip().startswith(("{", "[")):
        return []
    try:
        waiting: list[tuple[str, object]] = [("", json.loads(secret))]
    except (ValueError, RecursionError):
        return []
    found: list[tuple[str, str]] = []
    while waiting and len(found) < MAX_NESTED:
        match waiting.pop():
            case name, str() as text:
                found.append((name, text))
            case name, list() as items:
                waiting += ((name, item) for item in items)
            case _, dict() as members:
                waiting += members.items()
    return found


def _encoded(text: str) -> Iterator[str]:
    """A text as it stands in anything, in a form that was sent, and within base64."""
    yield text
    yield text.replace(" ", "+")
    raw = text.encode(errors="surrogatepass")
    for before in range(3):
        for encode in (b64encode, urlsafe_b64encode):
            yield _within_base64(encode(bytes(before) + raw).decode(), before, len(raw))


def _within_base64(encoded: str, before: int, length: int) -> str:
    """The digits that stand for a text alone, wherever it begins in what was encoded.

    Args:
        encoded: base64 of so many bytes of something else and the text.
        before: bytes of something else, up to two.
        length: bytes of the text.
    """
    first, last = -(-8 * before // 6), 8 * (before + length) // 6
    return encoded[first:last]
