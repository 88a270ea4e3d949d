"""Search queries, parsed within bounds that keep searches quick, and the test for chance matches."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from math import log2

import msgspec

from daemon.search.language import ANY_ACTION, Asked, actions_of, plain, terms

MAX_PHRASINGS = 16
"""Phrasings of one need; a model writes three or four."""

MAX_CHARACTERS = 2000
"""Characters of one phrasing: the longest of 2,300 recorded queries has 1,300."""

MAX_TERMS = 64
"""Different terms of one phrasing."""

MAX_TERMS_IN_ALL = 256
"""Terms of all phrasings; each unknown one is compared with up to 500 words."""

MAX_CLAUSES = 8
"""Clauses looked up separately, each at the cost of a short query."""

CLAUSE_TERMS = 2
"""Terms of the shortest clause: fewer mean little alone."""

_CLAUSE_ENDS = re.compile(r"[.!?;:\n]+\s|,\s|\s(?:and|then|also|plus)\s|\s\+\s")

_LETTERS = re.compile(r"\s*[\w-]+\s*")
"""Texts without punctuation, in which a single letter can be part of a name."""

MAX_SUBSTRINGS = 4
"""Words searched for in all names, at up to 2 ms each among ten thousand."""


class Clause(msgspec.Struct, frozen=True, kw_only=True):
    """An independent part of a query: a sentence, or a part between commas and "and"."""

    terms: tuple[str, ...]
    text: str
    asked: Asked


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed search query."""

    phrases: tuple[tuple[str, ...], ...]
    clauses: tuple[Clause, ...]
    """The clauses of a query with several needs; else empty."""
    parts: tuple[tuple[str, ...], ...]
    """Terms of each independent unit: the clauses, or a phrasing without clauses."""
    asked: Asked
    names: tuple[str, ...]
    """Possible names of tools: whole phrasings, and words that look like names."""
    substrings: tuple[str, ...]
    """Single words, searched for within names."""


class Phrase(msgspec.Struct, frozen=True):
    """A phrasing or clause with its terms looked up."""

    terms: list[list[tuple[str, float]]]
    """Matching known terms with weights for each term of the query, closest first."""
    asked: Asked = ANY_ACTION


def read(phrasings: Sequence[str]) -> Query:
    """Parse a query of one or several phrasings."""
    texts = [text[:MAX_CHARACTERS] for text in phrasings[:MAX_PHRASINGS]]
    phrases = _bounded(tuple(dict.fromkeys(terms(text)))[:MAX_TERMS] for text in texts)
    names = [plain(text) or "_" * (text.strip() == "_") for text in texts]
    words = [word for text in texts for word in text.split()[:MAX_TERMS] if "_" in word or "/" in word]
    names += [plain(word) for word in words]
    split = [_clauses(text) for text in texts]
    clauses = tuple(clause for own in split if _are_several(own) for clause in own)[:MAX_CLAUSES]
    return Query(
        phrases=phrases,
        clauses=clauses,
        parts=_bounded(_parts(texts, split)),
        asked=ANY_ACTION if clauses else ANY_ACTION.union(*map(actions_of, texts)),
        names=tuple(dict.fromkeys(name for name in names if name)),
        substrings=tuple(
            name
            for text, name in zip(texts, names, strict=False)
            if len(text.split()) == 1 and (len(name) > 1 or (name and _LETTERS.fullmatch(text)))
        )[:MAX_SUBSTRINGS],
    )


def _clauses(text: str) -> list[Clause]:
    read = [(tuple(dict.fromkeys(terms(part))), part) for part in _CLAUSE_ENDS.split(text)]
    return [
        Clause(terms=those[:MAX_TERMS], text=part, asked=actions_of(part))
        for those, part in read
        if len(those) >= CLAUSE_TERMS
    ]


def _are_several(clauses: Iterable[Clause]) -> bool:
    """Whether a text asks for several things: more than one clause names an action."""
    return sum(1 for clause in clauses if clause.asked) > 1


def _parts(texts: Sequence[str], split: Sequence[Sequence[Clause]]) -> Iterator[tuple[str, ...]]:
    for text, clauses in zip(texts, split, strict=True):
        if len(clauses) > 1:
            yield from (clause.terms for clause in clauses[:MAX_CLAUSES])
        else:
            yield tuple(dict.fromkeys(terms(text)))[:MAX_TERMS]


def _bounded(phrases: Iterable[tuple[str, ...]]) -> tuple[tuple[str, ...], ...]:
    left = MAX_TERMS_IN_ALL
    kept = []
    for phrase in phrases:
        kept.append(phrase[:left])
        left -= len(kept[-1])
    return tuple(phrase for phrase in kept if phrase)


LEAST_SCORE = 8.3
"""Chance scores less in a catalog of up to `SMALL` tools; learned, like the numbers below, by `bench.search`.
metatool_single limits it and `LEAST_SHARE`: 9.0 and 0.33 lower its recall@5 from 0.708 to 0.699."""

LEAST_SHARE = 0.31
"""Chance also scores less per unit of the query's rarity: one word of many, in another context."""

SMALL = 200
"""In more tools, the best fits better by chance."""

SCORE_BY_DOUBLING, SHARE_BY_DOUBLING, MOST_SHARE = 1.75, 0.12, 0.6
"""Added to `LEAST_SCORE` and, up to the last, `LEAST_SHARE` per doubling of the catalog. Of sixty unserved
needs, 28 list something over 2,479 tools, instead of 43."""

BEYOND_CHANCE = 3 * LEAST_SCORE
"""No tool scores this by chance: it takes 100,000 tools."""


def is_chance(best: float, asked: float, tools: int) -> bool:
    """Whether the best score is due to chance, given the query's summed rarity and the number of tools."""
    doublings = max(0.0, log2(tools / SMALL)) if tools else 0.0
    share = min(MOST_SHARE, LEAST_SHARE + SHARE_BY_DOUBLING * doublings)
    return best < LEAST_SCORE + SCORE_BY_DOUBLING * doublings and best < share * asked
