"""Between values and the cells of rows.

What is read may have been edited by hand: SQLite keeps any type in any column, so everything is looked at.
"""

from __future__ import annotations

from itertools import islice
from math import inf
from typing import TYPE_CHECKING, TypeVar

import msgspec

from daemon.model import Summary

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

T = TypeVar("T")

AT_ONCE = 500
"""Keys in one question: SQLite takes 32,766 parameters, PostgreSQL 65,535, and both plan long lists slowly."""

_decode_words = msgspec.json.Decoder(tuple[str, ...]).decode


class Unreadable(Exception):
    """A cell holds what nobody of ours wrote."""


def chunks(items: Iterable[T]) -> Iterator[list[T]]:
    """In lists of `AT_ONCE` at most."""
    rest = iter(items)
    while chunk := list(islice(rest, AT_ONCE)):
        yield chunk


def clean(text: str) -> str:
    """The text as both databases can keep it: no NUL, which PostgreSQL refuses, no half of a surrogate pair."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def words(keywords: Iterable[str]) -> str:
    """Keywords as they are kept, JSON."""
    return msgspec.json.encode([clean(word) for word in keywords]).decode()


def text(value: object, what: str) -> str:
    """A cell that holds text."""
    if isinstance(value, str):
        return value
    raise Unreadable(f"{what} is no text")


def some_text(value: object, what: str) -> str | None:
    """A cell that holds text, or nothing."""
    return None if value is None else text(value, what)


def number(value: object, what: str) -> float:
    """A cell that holds a number."""
    if isinstance(value, int | float):
        return float(value)
    raise Unreadable(f"{what} is no number")


def moment(value: object) -> float:
    """A cell that says since when something is so; one that says nothing of use means that nobody knows."""
    return float(value) if isinstance(value, int | float) else inf


def whole(value: object, what: str) -> int:
    """A cell that holds a whole number, not below zero."""
    if isinstance(value, int) and value >= 0:
        return value
    raise Unreadable(f"{what} is no whole number")


def summary(sentence: object, keywords: object, of: object, at: object) -> Summary | None:
    """The cells of a summary; None if there is none."""
    if sentence is None:
        return None
    try:
        read = _decode_words(text(keywords, "keywords"))
    except msgspec.MsgspecError:
        raise Unreadable("keywords is no JSON list of words") from None
    return Summary(
        text=text(sentence, "summary"),
        keywords=read,
        of=text(of, "summary_of"),
        at=number(at, "summary_generated_at"),
    )
