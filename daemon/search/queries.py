"""What was asked for, within bounds: whatever is sent, a search takes little time.

When nothing fits: what the best tool scores shows whether it was found by chance.

A tool's weights depend on nothing but the tool, and how rare a word is is known from public tools as well, so
scores mean the same in small catalogs and large ones.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import attrs

from daemon.search.language import NOTHING_ASKED, Asked, deeds_of
from daemon.search.text import plain, terms

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

MAX_PHRASINGS = 16
"""Phrasings of one need; a model writes three or four."""

MAX_CHARACTERS = 2000
"""Characters of one phrasing that are read: the longest of 2,300 recorded queries has 1,300."""

MAX_TERMS = 64
"""Different terms of one phrasing that are looked up."""

MAX_TERMS_IN_ALL = 256
"""Terms of all phrasings together; each one that is unknown is compared with up to 500 words."""

MAX_CLAUSES = 8
"""Clauses of all phrasings that are looked up by themselves: each costs what a short need does."""

CLAUSE_TERMS = 2
"""Terms that a clause has: fewer say little without the others."""

_CLAUSE_ENDS = re.compile(r"[.!?;:\n]+\s|,\s|\s(?:and|then|also|plus)\s|\s\+\s")

_LETTERS = re.compile(r"\s*[\w-]+\s*")
"""What a single letter must stand in to be a fragment of a name: not among punctuation."""

MAX_SUBSTRINGS = 4
"""Words that are looked for within all names, at up to 2 ms each among ten thousand."""


@attrs.frozen(kw_only=True)
class Clause:
    """A part of a need that stands for itself: a sentence, or what stands between commas and ands."""

    terms: tuple[str, ...]
    """Its different terms."""
    text: str
    """As it was written."""
    asked: Asked
    """What it asks to have done."""


@attrs.frozen(kw_only=True)
class Query:
    """A search query, read: its terms, its parts, and what it asks to have done."""

    phrases: tuple[tuple[str, ...], ...]
    """The different terms of each phrasing."""
    clauses: tuple[Clause, ...]
    """What a need asks for that asks for several things; none of one that asks for one, however it is put."""
    parts: tuple[tuple[str, ...], ...]
    """What a tool may fit by itself, as terms: the clauses of phrasings that have several, the others whole."""
    asked: Asked
    """What a need without parts asks to have done."""
    names: tuple[str, ...]
    """What may be the name of a tool: each phrasing as a whole, and words in it that look like names."""
    substrings: tuple[str, ...]
    """Single words, also looked for within names."""


@attrs.frozen
class Phrase:
    """A phrasing of a need, or a clause of one, looked up: what a segment is searched with."""

    terms: list[list[tuple[str, float]]]
    """For each term that was asked for the known terms that fit it, each with what it counts; closest first."""
    asked: Asked = NOTHING_ASKED
    """What it asks to have done."""


def read(phrasings: Sequence[str]) -> Query:
    """Read what was asked for."""
    texts = [text[:MAX_CHARACTERS] for text in phrasings[:MAX_PHRASINGS]]
    phrases = _bounded(tuple(dict.fromkeys(terms(text)))[:MAX_TERMS] for text in texts)
    names = [plain(text) for text in texts]
    words = [word for text in texts for word in text.split()[:MAX_TERMS] if "_" in word or "/" in word]
    names += [plain(word) for word in words]
    split = [_clauses(text) for text in texts]
    clauses = tuple(clause for own in split if _are_several(own) for clause in own)[:MAX_CLAUSES]
    return Query(
        phrases=phrases,
        clauses=clauses,
        parts=_bounded(_parts(texts, split)),
        asked=NOTHING_ASKED if clauses else NOTHING_ASKED.union(*map(deeds_of, texts)),
        names=tuple(dict.fromkeys(name for name in names if name)),
        substrings=tuple(
            name
            for text, name in zip(texts, names, strict=False)
            if len(text.split()) == 1 and (len(name) > 1 or (name and _LETTERS.fullmatch(text)))
        )[:MAX_SUBSTRINGS],
    )


def _clauses(text: str) -> list[Clause]:
    """The clauses of a text."""
    read = [(tuple(dict.fromkeys(terms(part))), part) for part in _CLAUSE_ENDS.split(text)]
    return [
        Clause(terms=those[:MAX_TERMS], text=part, asked=deeds_of(part))
        for those, part in read
        if len(those) >= CLAUSE_TERMS
    ]


def _are_several(clauses: Iterable[Clause]) -> bool:
    """Whether a text with these clauses asks for several things: more than one of them says what to do."""
    return sum(1 for clause in clauses if clause.asked) > 1


def _parts(texts: Sequence[str], split: Sequence[Sequence[Clause]]) -> Iterator[tuple[str, ...]]:
    for text, clauses in zip(texts, split, strict=True):
        if len(clauses) > 1:
            yield from (clause.terms for clause in clauses[:MAX_CLAUSES])
        else:
            yield tuple(dict.fromkeys(terms(text)))[:MAX_TERMS]


def _bounded(phrases: Iterable[tuple[str, ...]]) -> tuple[tuple[str, ...], ...]:
    """The phrases with any terms, the last ones cut short where they are too many."""
    left = MAX_TERMS_IN_ALL
    kept = []
    for phrase in phrases:
        kept.append(phrase[:left])
        left -= len(kept[-1])
    return tuple(phrase for phrase in kept if phrase)


LEAST_SCORE = 6.0
"""What is found by chance scores less. This and `LEAST_SHARE` refuse 2 of 1,150 public queries whose tool is
among the first five, and 5 of 275 that are asked of the one server that serves them; of 32 needs that none of
29 recorded servers serves 15, of those joined in threes 2. At 7 it would be 7, 6, 19 and 6."""

LEAST_SHARE = 0.30
"""And less than this for each unit of rarity that was asked for: a single word that a tool's description has
scores little, and all that it can. One word of many, in a description of something else, scores less. At 0.35
seven of the 275 are refused, and no more of the 32."""


def is_chance(best: float, asked: float) -> bool:
    """Whether even the best tool shares no more with a query than anything would.

    Args:
        best: its score.
        asked: how rare the words of the query are, added up.
    """
    return best < LEAST_SCORE and best < LEAST_SHARE * asked
