"""Search queries, parsed within bounds so that any search is quick.

Whether anything fits at all is judged by the best score (`is_chance`). The rarity of words is known from public
tools, too, so scores are comparable between small catalogs and large ones.
"""

from __future__ import annotations

import re
from math import log2
from typing import TYPE_CHECKING

import msgspec

from daemon.search.language import ANY_ACTION, Asked, actions_of, plain, terms

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


MAX_PHRASINGS = 16
"""The most phrasings of one need; a model writes three or four."""

MAX_CHARACTERS = 2000
"""The most characters of one phrasing that are read: the longest of 2,300 recorded queries has 1,300."""

MAX_TERMS = 64
"""The most different terms of one phrasing that are looked up."""

MAX_TERMS_IN_ALL = 256
"""The most terms of all phrasings together; each unknown one is compared with up to 500 words."""

MAX_CLAUSES = 8
"""The most clauses of all phrasings that are looked up separately: each costs as much as a short query."""

CLAUSE_TERMS = 2
"""The fewest terms of a clause: fewer say little by themselves."""

_CLAUSE_ENDS = re.compile(r"[.!?;:\n]+\s|,\s|\s(?:and|then|also|plus)\s|\s\+\s")

_LETTERS = re.compile(r"\s*[\w-]+\s*")
"""Matches a text in which a single letter can be a fragment of a name: one without punctuation."""

MAX_SUBSTRINGS = 4
"""The most words that all names are searched for, at up to 2 ms each among ten thousand."""


class Clause(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a query that makes sense by itself: a sentence, or what commas and "and" separate."""

    terms: tuple[str, ...]
    """The different terms of the clause."""
    text: str
    """The clause as written."""
    asked: Asked
    """The actions that it asks for."""


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed search query: its terms, its parts, and the actions that it asks for."""

    phrases: tuple[tuple[str, ...], ...]
    """The different terms of each phrasing."""
    clauses: tuple[Clause, ...]
    """The clauses of a query that asks for several things; empty for one that asks for a single thing."""
    parts: tuple[tuple[str, ...], ...]
    """The units that a tool may fit by itself, as terms: the clauses of phrasings with several, the others
    whole."""
    asked: Asked
    """The actions that a query without clauses asks for."""
    names: tuple[str, ...]
    """Possible names of tools: each phrasing as a whole, and words in it that look like names."""
    substrings: tuple[str, ...]
    """Single words, also searched for within names."""


class Phrase(msgspec.Struct, frozen=True):
    """A phrasing or a clause after its terms were looked up: what a segment is searched with."""

    terms: list[list[tuple[str, float]]]
    """For each term of the query the known terms that match it, with their weights; closest first."""
    asked: Asked = ANY_ACTION
    """The actions that it asks for."""


def read(phrasings: Sequence[str]) -> Query:
    """Parse a query, given in one or several phrasings."""
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
    """The clauses of a text."""
    read = [(tuple(dict.fromkeys(terms(part))), part) for part in _CLAUSE_ENDS.split(text)]
    return [
        Clause(terms=those[:MAX_TERMS], text=part, asked=actions_of(part))
        for those, part in read
        if len(those) >= CLAUSE_TERMS
    ]


def _are_several(clauses: Iterable[Clause]) -> bool:
    """Whether a text with these clauses asks for several things: more than one of them names an action."""
    return sum(1 for clause in clauses if clause.asked) > 1


def _parts(texts: Sequence[str], split: Sequence[Sequence[Clause]]) -> Iterator[tuple[str, ...]]:
    for text, clauses in zip(texts, split, strict=True):
        if len(clauses) > 1:
            yield from (clause.terms for clause in clauses[:MAX_CLAUSES])
        else:
            yield tuple(dict.fromkeys(terms(text)))[:MAX_TERMS]


def _bounded(phrases: Iterable[tuple[str, ...]]) -> tuple[tuple[str, ...], ...]:
    """The phrases that have terms; beyond the bound the last ones are cut short."""
    left = MAX_TERMS_IN_ALL
    kept = []
    for phrase in phrases:
        kept.append(phrase[:left])
        left -= len(kept[-1])
    return tuple(phrase for phrase in kept if phrase)


LEAST_SCORE = 8.3
"""Tools found by chance score less, in a catalog of up to `SMALL` tools. This and the numbers below were
learned on public sets and needs that none of their tools serves (`python -m bench.search`). metatool_single,
whose needs name no word of their 199 tools, limits this and `LEAST_SHARE`: at 9.0 and 0.33 its recall@5 is
0.699, and not 0.708."""

LEAST_SHARE = 0.31
"""And they score less than this for each unit of rarity in the query: a single word that a description contains
scores little, but all that it can. One word of many, in a description of something else, scores less."""

SMALL = 200
"""Tools of a small catalog. The more tools there are, the better the best of them fits by chance."""

SCORE_BY_DOUBLING, SHARE_BY_DOUBLING, MOST_SHARE = 1.75, 0.12, 0.6
"""Added to `LEAST_SCORE` and, up to the last, to `LEAST_SHARE` each time that a catalog is twice as large. Of
sixty needs that nothing serves, 15 list something over 527 tools, 19 over 1,397 and 28 over 2,479, instead of
24, 36 and 43; recall@5 of the livemcp sets falls by 0.002."""

BEYOND_CHANCE = 3 * LEAST_SCORE
"""No tool scores this by chance: it takes 100,000 tools."""


def is_chance(best: float, asked: float, tools: int) -> bool:
    """Whether even the best tool matches a query by chance only.

    Args:
        best: the score of the best tool.
        asked: the sum of the rarities of the query's words.
        tools: how many tools there are.
    """
    doublings = max(0.0, log2(tools / SMALL)) if tools else 0.0
    share = min(MOST_SHARE, LEAST_SHARE + SHARE_BY_DOUBLING * doublings)
    return best < LEAST_SCORE + SCORE_BY_DOUBLING * doublings and best < share * asked
