"""Words with a typing error: which known words are one edit away, or two in long ones.

A word and its misspelling share their beginning or their end, so that only words which do are compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

SHARED = 3
"""Characters that a word and its misspelling share, at one end or the other."""

SHORTEST = 4
"""Words shorter than this are not mended: too many others are one edit away."""

LONG = 8
"""From this length on two edits are forgiven."""

MOST = 3
"""The most corrections that are tried for one word."""

MAX_COMPARED = 500
"""Words that one is compared with; the commonest beginnings have fewer."""


class Speller:
    """Known words by their ends. Words can be added, never taken away: one that nobody uses finds nothing."""

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._by_end: dict[str, list[str]] = {}

    def learn(self, words: Iterable[str]) -> None:
        """Add words that corrections may lead to."""
        for word in words:
            if word not in self._known and len(word) >= SHORTEST:
                self._known.add(word)
                for end in (word[:SHARED] + "-", "-" + word[-SHARED:]):
                    self._by_end.setdefault(end, []).append(word)

    def corrections(self, word: str) -> list[str]:
        """Known words that this one may be meant for, closest first."""
        if len(word) < SHORTEST or not word.isalpha():
            return []
        candidates = [
            *self._by_end.get(word[:SHARED] + "-", ()),
            *self._by_end.get("-" + word[-SHARED:], ()),
        ][:MAX_COMPARED]
        allowed = 2 if len(word) >= LONG else 1
        near = [
            (distance, other)
            for other in dict.fromkeys(candidates)
            if abs(len(other) - len(word)) <= allowed and (distance := _edits(word, other, allowed)) <= allowed
        ]
        return [other for _, other in sorted(near)[:MOST]]


def _edits(one: str, other: str, most: int) -> int:
    """Edits between two words, swaps of neighbours among them; a number over `most` if there are more.

    Restricted Damerau-Levenshtein distance ("optimal string alignment").
    """
    before: list[int] = []
    previous = list(range(len(other) + 1))
    for row, character in enumerate(one, 1):
        current = [row]
        for column, opposite in enumerate(other, 1):
            cost = min(previous[column] + 1, current[-1] + 1, previous[column - 1] + (character != opposite))
            if row > 1 and column > 1 and character == other[column - 2] and one[row - 2] == opposite:
                cost = min(cost, before[column - 2] + 1)
            current.append(cost)
        if min(current) > most:
            return most + 1
        before, previous = previous, current
    return previous[-1]
