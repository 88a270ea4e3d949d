"""The words of one index: which of them are meant by what was asked for, and how much each of them counts.

A word counts by how rare it is (inverse document frequency), among the tools here and public ones together: so
scores mean the same in small catalogs and large ones.
"""

from __future__ import annotations

from math import log
from typing import TYPE_CHECKING

from daemon.search.language import NOTHING, Language
from daemon.search.queries import Phrase

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from daemon.search.queries import Query
    from daemon.search.segment import Segment

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


SYNONYM = 0.4
"""How much a synonym counts, against the word itself, on top of how close it is."""

CORRECTION = 0.7
"""How much a word counts that may have been meant, against one that was written right."""

FOLLOWED = 4000
"""Tools that a synonym may have to be followed: a word of nearly every tool tells nothing, and costs the
most."""

MOST_READ = 100_000
"""Entries of the index that one search reads, about 40 ms: a need of ten thousand tools reads 10,000. Beyond,
the commonest words are left out, which tell least."""

_Variants = list[tuple[str, float]]
"""Known terms for one that was asked for, each with how closely it fits."""


class Vocabulary:
    """The terms of all tools, with how many tools have each. Never changes once it is made."""

    def __init__(self, segments: Iterable[Segment] = (), language: Language = NOTHING) -> None:
        """Count the terms of these servers' tools; `language` is what is known of words beforehand."""
        self._language = language
        self._counts: dict[str, int] = {}
        self._tools = 0
        for segment in segments:
            self._tools += len(segment)
            for term in segment.postings:
                self._counts[term] = self._counts.get(term, 0) + segment.postings.count(term)
        self._speller = Speller()
        self._speller.learn(self._counts)

    def look_up(self, query: Query) -> tuple[list[Phrase], list[Phrase]]:
        """What to look up for each phrasing and for each clause, with what it counts."""
        asked = [query.asked] * len(query.phrases) + [clause.asked for clause in query.clauses]
        affordable = self._affordable([*query.phrases, *(clause.terms for clause in query.clauses)])
        phrases = [
            Phrase([self._weighed(variants) for variants in terms], deeds)
            for terms, deeds in zip(affordable, asked, strict=True)
        ]
        return phrases[: len(query.phrases)], phrases[len(query.phrases) :]

    def plainly(self, parts: Sequence[tuple[str, ...]]) -> list[Phrase]:
        """What to look up for each part, for its words alone."""
        return [Phrase([self._weighed(variants) for variants in known]) for known in self._affordable(parts)]

    def rarity(self, term: str) -> float:
        """Inverse document frequency, among these tools and public ones together."""
        count = self._tools + self._language.tools
        having = self._counts.get(term, 0) + self._language.frequencies.get(term, 0)
        return log(1 + (count - having + 0.5) / (having + 0.5)) if count >= having else 0.0

    def rarity_of_all(self, part: tuple[str, ...]) -> float:
        """How rare the terms of a part are, added up; 0 for a single one: a tool that has it has all of it."""
        return sum(map(self.rarity, part)) if len(part) > 1 else 0.0

    def _weighed(self, variants: _Variants) -> _Variants:
        return [(term, closeness * self.rarity(term)) for term, closeness in variants]

    def _affordable(self, phrases: Sequence[tuple[str, ...]]) -> list[list[_Variants]]:
        """What is looked up for the terms of each phrase: the rarest ones first, within the bound."""
        known = {term: self._variants(term) for phrase in phrases for term in phrase}
        entries = {
            term: sum(self._counts[variant] for variant, _ in variants) for term, variants in known.items()
        }
        left = MOST_READ
        kept: list[list[_Variants]] = [[] for _ in phrases]
        for term, phrase in sorted(
            ((term, i) for i, terms_of in enumerate(phrases) for term in terms_of),
            key=lambda each: entries[each[0]],
        ):
            left -= entries[term]
            if left >= 0:
                kept[phrase].append(known[term])
        return kept

    def _variants(self, term: str) -> _Variants:
        """Known terms for one that was asked for: itself, synonyms, corrections."""
        known = [(term, 1.0)] if term in self._counts else []
        for other, closeness in self._language.neighbours.get(term, ()):
            if 0 < self._counts.get(other, 0) <= FOLLOWED:
                known.append((other, closeness * SYNONYM))
        if not known:
            known = [(other, CORRECTION) for other in self._speller.corrections(term) if other in self._counts]
        return known
