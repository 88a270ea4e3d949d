"""The words of one index: which of them match the terms of a query, and with what weight.

The weight of a word is its rarity (inverse document frequency) among these tools and public ones together, so
scores are comparable between small catalogs and large ones. A term that no tool has stands for distant
neighbours, too; one that is no word at all is taken for a spelling mistake. A word and its misspelling share
their beginning or their end, so only words that do are compared.
"""

from __future__ import annotations

from math import log
from typing import TYPE_CHECKING

from daemon.search.language import NOTHING, Language, is_verb
from daemon.search.queries import Phrase

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from daemon.search.queries import Query
    from daemon.search.segment import Segment

SHARED = 3
"""Characters that a word and its misspelling share, at one end or the other."""

SHORTEST = 4
"""The shortest word that is corrected: for shorter ones too many others are one edit away."""

LONG = 8
"""The length from which two edits are allowed."""

MOST = 3
"""The most corrections that are tried for one word."""

MAX_COMPARED = 500
"""The most words that one word is compared with; the commonest beginnings have fewer."""


class Speller:
    """Known words, indexed by their beginnings and ends."""

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._by_end: dict[str, list[str]] = {}

    def learn(self, words: Iterable[str]) -> None:
        """Add words as possible corrections."""
        for word in words:
            if word not in self._known and len(word) >= SHORTEST:
                self._known.add(word)
                for end in (word[:SHARED] + "-", "-" + word[-SHARED:]):
                    self._by_end.setdefault(end, []).append(word)

    def corrections(self, word: str) -> list[str]:
        """Known words that a misspelled one may stand for, closest first."""
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
    """The edits between two words, swaps of neighbours included; a number over `most` if there are more.

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
"""The weight of a synonym against the word itself, multiplied by its closeness."""

CLOSE = 0.5
"""The closeness from which neighbours match even a term that tools have; distant ones only replace a term."""

CORRECTION = 0.7
"""The weight of a spelling correction, against a word that was spelled right."""

FOLLOWED = 4000
"""The most tools that a synonym may have: a word in nearly every tool says nothing, and costs the most."""

COMMON = 5.35
"""Verbs less rare than this fit anything: find, write. A rarer one says more: schedule, commit."""

MOST_READ = 100_000
"""The most index entries that one search reads, about 40 ms; a typical query on ten thousand tools reads
10,000. Beyond that the commonest words, which say the least, are left out."""

_Variants = list[tuple[str, float]]
"""Known terms that match one term of a query, each with its closeness."""


class Vocabulary:
    """The terms of all tools, with the number of tools that have each. Never changes once made."""

    def __init__(self, segments: Iterable[Segment] = (), language: Language = NOTHING) -> None:
        """Count the terms of these servers' tools; `language` is prior knowledge about words."""
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
        """The terms to look up for each phrasing and for each clause, with their weights."""
        asked = [query.asked] * len(query.phrases) + [clause.asked for clause in query.clauses]
        affordable = self._affordable([*query.phrases, *(clause.terms for clause in query.clauses)])
        phrases = [
            Phrase([self._weighed(variants) for variants in terms], actions)
            for terms, actions in zip(affordable, asked, strict=True)
        ]
        return phrases[: len(query.phrases)], phrases[len(query.phrases) :]

    def plainly(self, parts: Sequence[tuple[str, ...]]) -> list[Phrase]:
        """The terms to look up for each part, without regard to actions."""
        return [Phrase([self._weighed(variants) for variants in known]) for known in self._affordable(parts)]

    def rarity(self, term: str) -> float:
        """The inverse document frequency of a term, among these tools and public ones together."""
        count = self._tools + self._language.tools
        having = self._counts.get(term, 0) + self._language.frequencies.get(term, 0)
        return log(1 + (count - having + 0.5) / (having + 0.5)) if count >= having else 0.0

    def objects(self, part: tuple[str, ...]) -> tuple[str, ...]:
        """The terms of a part but for common verbs: with what something is to be done; else all."""
        return tuple(term for term in part if not (is_verb(term) and self.rarity(term) < COMMON)) or part

    def rarity_of_all(self, part: tuple[str, ...]) -> float:
        """The sum of the rarities of a part's terms; 0 for a single term: a tool that has it has all of it."""
        return sum(map(self.rarity, part)) if len(part) > 1 else 0.0

    def _weighed(self, variants: _Variants) -> _Variants:
        return [(term, closeness * self.rarity(term)) for term, closeness in variants]

    def _affordable(self, phrases: Sequence[tuple[str, ...]]) -> list[list[_Variants]]:
        """The variants to look up for the terms of each phrase: the rarest terms first, within the bound."""
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
        """Known terms that match one term of a query: the term itself, synonyms, corrections."""
        near = [
            (other, closeness)
            for other, closeness in self._language.neighbours.get(term, ())
            if 0 < self._counts.get(other, 0) <= FOLLOWED
        ]
        close = [pair for pair in near if pair[1] >= CLOSE]
        known = [(term, 1.0)] if term in self._counts else []
        known += [(other, closeness * SYNONYM) for other, closeness in (close if known or close else near)]
        if not known and not self._language.is_word(term):
            known = [(other, CORRECTION) for other in self._speller.corrections(term) if other in self._counts]
        return known
