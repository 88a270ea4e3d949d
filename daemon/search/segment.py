"""The searchable tools of one server, which is the unit that an index reuses; and the parser of queries.

Two arrays hold all rows, at twelve bytes per word and tool, where dictionaries take a hundred. A query is
parsed within bounds that keep searches quick.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import compress
from math import log2
from operator import add, mul

import msgspec

from daemon.catalog.snapshot import ServerEntry
from daemon.model import Tool, ToolKey
from daemon.search.language import (
    ANY_ACTION,
    DEPRECATED,
    Asked,
    SearchDocument,
    action_of,
    actions_of,
    deprecated,
    digest_of,
    document,
    plain,
    terms,
    worth,
)

MAX_PHRASINGS = 16
"""Most phrasings of one need; a model writes three or four."""

MAX_CHARACTERS = 2000
"""Most characters of one phrasing: the longest of 2,300 recorded queries has 1,300."""

MAX_TERMS = 64
"""Most different terms of one phrasing."""

MAX_TERMS_IN_ALL = 256
"""Most terms of all phrasings; each unknown one is compared with up to 500 words."""

MAX_CLAUSES = 8
"""Most clauses looked up separately, each at the cost of a short query."""

CLAUSE_TERMS = 2
"""Terms of the shortest clause: fewer mean little without context."""

_CLAUSE_ENDS = re.compile(r"[.!?;:\n]+\s|,\s|\s(?:and|then|also|plus)\s|\s\+\s")

_LETTERS = re.compile(r"\s*[\w-]+\s*")
"""Matches a text without punctuation, where a single letter can be part of a name."""

MAX_SUBSTRINGS = 4
"""Most words searched for in all names, at up to 2 ms each among ten thousand."""


class Clause(msgspec.Struct, frozen=True, kw_only=True):
    """An independent part of a query: a sentence, or a part between commas or "and"."""

    terms: tuple[str, ...]
    text: str
    asked: Asked


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed search query."""

    phrases: tuple[tuple[str, ...], ...]
    clauses: tuple[Clause, ...]
    """The clauses of a query that asks for several things; else empty."""
    parts: tuple[tuple[str, ...], ...]
    """The terms of each independent unit: each clause, or a phrasing that has none."""
    asked: Asked
    names: tuple[str, ...]
    """Possible names of tools: whole phrasings, and words that look like names."""
    substrings: tuple[str, ...]
    """Single words, searched for within names."""


class Phrase(msgspec.Struct, frozen=True):
    """A phrasing or clause whose terms were looked up."""

    terms: list[list[tuple[str, float]]]
    """For each term of the query, the known terms that match it with weights, closest first."""
    asked: Asked = ANY_ACTION


def read(phrasings: Sequence[str]) -> Query:
    """Parse a query of one or more phrasings."""
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
"""Chance stays below this in a catalog of up to `SMALL` tools. `bench.search` learned this and the numbers
below. metatool_single limits it and `LEAST_SHARE`: 9.0 and 0.33 lower its recall@5 from 0.708 to 0.699."""

LEAST_SHARE = 0.31
"""Chance (one word of many, in another context) scores less per unit of the query's rarity."""

SMALL = 200
"""Tools in a catalog above which chance reaches higher scores."""

SCORE_BY_DOUBLING, SHARE_BY_DOUBLING, MOST_SHARE = 1.75, 0.12, 0.6
"""Added to `LEAST_SCORE` and, up to the last, `LEAST_SHARE` per doubling of the catalog. Of 60 needs that no
tool serves, 28 list something over 2,479 tools, instead of 43."""

BEYOND_CHANCE = 3 * LEAST_SCORE
"""A score that chance does not reach with fewer than 100,000 tools."""


def is_chance(best: float, asked: float, tools: int) -> bool:
    """Whether the best score is due to chance, given the query's summed rarity and the number of tools."""
    doublings = max(0.0, log2(tools / SMALL)) if tools else 0.0
    share = min(MOST_SHARE, LEAST_SHARE + SHARE_BY_DOUBLING * doublings)
    return best < LEAST_SCORE + SCORE_BY_DOUBLING * doublings and best < share * asked


COVERAGE = 0.8
"""The gain of a tool whose whole name is in the query."""

CLAUSE = 0.5
"""The weight of the best clause relative to the whole query."""

SERVER = 0.2
"""In a query of several parts, the share of a server's best score that is added to its other tools."""


Digest = tuple[str, ...]


class Postings:
    """An immutable inverted index: for each term the numbers of tools and their weights."""

    __slots__ = ("_bounds", "_numbers", "_places", "_weights")

    def __init__(self, rows: Mapping[str, tuple[Sequence[int], Sequence[float]]]) -> None:
        self._places = {term: place for place, term in enumerate(rows)}
        self._bounds = array("I", (0,))
        self._numbers = array("I")
        self._weights = array("d")
        for numbers, weights in rows.values():
            self._numbers.extend(numbers)
            self._weights.extend(weights)
            self._bounds.append(len(self._numbers))

    def __contains__(self, term: str) -> bool:
        return term in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def count(self, term: str) -> int:
        """The number of tools with a term."""
        place = self._places.get(term)
        return 0 if place is None else self._bounds[place + 1] - self._bounds[place]

    def row(self, term: str) -> tuple[array[int], array[float]]:
        """The numbers of the tools with a term, and the term's weight in each."""
        place = self._places.get(term)
        if place is None:
            return array("I"), array("d")
        here = slice(self._bounds[place], self._bounds[place + 1])
        return self._numbers[here], self._weights[here]


_NONE = Postings({})


class Segment:
    """The searchable tools of one server; immutable."""

    def __init__(self, entry: ServerEntry, old: Segment | None = None) -> None:
        """Index a server, reusing unchanged tools of `old`. Computes: call it in a worker thread."""
        self.server = entry.name
        self.words = frozenset(terms(_words_of(entry)))
        self.names = tuple(entry.for_models)
        self.digests: Mapping[str, Digest] = _digests(entry, {} if old is None else old.digests)
        """Each document's digest; the same object while unchanged."""
        kept, fresh = self._sorted_out(entry, old)
        self.postings: Postings = _merged(_NONE if old is None else old.postings, kept, fresh, _weights)
        self.name_words: Postings = _merged(_NONE if old is None else old.name_words, kept, fresh, _shares)
        """Terms of tools' names, each with its share of the name."""
        self._entry = entry
        self._bare = _by_name(self.names)
        self._actions = bytes(map(action_of, self.names))
        self._standing = _standing(entry.for_models.values())
        plainly = plain(entry.name)
        self._prefixes = (f"{plainly}_", f"mcp_{plainly}_")

    def is_of(self, entry: ServerEntry) -> bool:
        """Whether the segment was built from exactly this entry; cheap."""
        ours = self._entry
        # Compared by identity: tools and sentences are replaced as a whole.
        return (
            ours.tools is entry.tools
            and ours.sentences is entry.sentences
            and (ours.description, ours.summary) == (entry.description, entry.summary)
        )

    def __len__(self) -> int:
        return len(self.names)

    def __contains__(self, tool: str) -> bool:
        return tool in (self._entry.tools or ())

    def key(self, number: int) -> ToolKey:
        """The key of a tool by its number."""
        return self.server, self.names[number]

    def scores(self, phrases: Iterable[Phrase], clauses: Iterable[Phrase] = ()) -> list[float]:
        """The score of each tool by number, 0.0 without a match: phrasings add up, the best clause is added."""
        total = self._folded(phrases, add)
        best = self._folded(clauses, max)
        if total and best:
            total = [one + CLAUSE * other for one, other in zip(total, best, strict=True)]
            gain = SERVER * max(total)
            total = [score and score + gain for score in total]
        return list(map(mul, total, self._standing)) if total and self._standing else total

    def plainly(self, phrase: Phrase) -> list[float]:
        """The score of each tool by number, regardless of actions and deprecation."""
        return self._phrase_scores(msgspec.structs.replace(phrase, asked=ANY_ACTION))

    def named(self, names: Collection[str]) -> Iterator[ToolKey]:
        """The tools with one of these plain names, with or without the server's prefix."""
        wanted = set(names)
        for prefix in self._prefixes:
            wanted |= {name[len(prefix) :] for name in names if name.startswith(prefix)}
        for name in self._bare.keys() & wanted:
            yield from map(self.key, self._bare[name])

    def containing(self, word: str) -> Iterator[ToolKey]:
        """The tools with a word in their names."""
        for name, numbers in self._bare.items():
            if word in name:
                yield from map(self.key, numbers)

    def spelt(self) -> Iterator[tuple[str, ToolKey]]:
        """All pairs of a plain name and a tool."""
        return ((name, self.key(number)) for name, numbers in self._bare.items() for number in numbers)

    def _folded(self, phrases: Iterable[Phrase], both: Callable[[float, float], float]) -> list[float]:
        total: list[float] = []
        for phrase in phrases:
            own = self._phrase_scores(phrase)
            total = list(map(both, total, own)) if total and own else total or own
        return total

    def _phrase_scores(self, phrase: Phrase) -> list[float]:
        postings = self.postings
        found = [
            present
            for variants in phrase.terms
            if (present := [each for each in variants if each[0] in postings])
        ]
        if not found:
            return []
        own = [0.0] * len(self.names)
        for (term, factor), *others in found:
            if others:
                for number, score in self._closest([(term, factor), *others]).items():
                    own[number] += score
            else:
                for number, weight in zip(*postings.row(term), strict=True):
                    own[number] += weight * factor
        for number, share in self._covered({term for variants in found for term, _ in variants}).items():
            own[number] *= 1 + COVERAGE * share
        counts = worth(phrase.asked)
        return (
            [score * counts[action] for score, action in zip(own, self._actions, strict=True)]
            if phrase.asked
            else own
        )

    def _closest(self, variants: list[tuple[str, float]]) -> dict[int, float]:
        best: dict[int, float] = {}
        for term, factor in reversed(variants):
            numbers, weights = self.postings.row(term)
            best.update(zip(numbers, [weight * factor for weight in weights], strict=True))
        return best

    def _covered(self, asked: Iterable[str]) -> dict[int, float]:
        covered: dict[int, float] = {}
        for term in asked:
            for number, share in zip(*self.name_words.row(term), strict=True):
                covered[number] = covered.get(number, 0.0) + share
        return covered

    def _sorted_out(
        self, entry: ServerEntry, old: Segment | None
    ) -> tuple[dict[int, int], dict[int, SearchDocument]]:
        were = {} if old is None else {name: number for number, name in enumerate(old.names)}
        about = _about(entry)
        kept: dict[int, int] = {}
        fresh: dict[int, SearchDocument] = {}
        for number, (name, tool) in enumerate(entry.for_models.items()):
            if old is not None and old.digests.get(name) is self.digests[name]:
                kept[were[name]] = number
            else:
                fresh[number] = document(tool, about, entry.sentences.get(tool.schema_hash))
        return kept, fresh


def _about(entry: ServerEntry) -> str:
    return entry.description or (entry.summary.text if entry.summary else "")


def _words_of(entry: ServerEntry) -> str:
    about = entry.summary
    return " ".join([entry.name, entry.description, *((about.text, *about.keywords) if about else ())])


def _digests(entry: ServerEntry, old: Mapping[str, Digest]) -> dict[str, Digest]:
    about = _about(entry)
    digests = {}
    for name, tool in entry.for_models.items():
        made = digest_of(tool, about, entry.sentences.get(tool.schema_hash))
        known = old.get(name)
        digests[name] = known if known is not None and known == made else made
    return digests


def _weights(each: SearchDocument) -> Mapping[str, float]:
    return each.weights


def _shares(each: SearchDocument) -> Mapping[str, float]:
    return dict.fromkeys(filter(None, each.name_terms), 1 / max(1, len(each.name_terms)))


def _standing(tools: Iterable[Tool]) -> list[float]:
    """Each tool's factor, lower if deprecated; empty if all are 1."""
    standing = [DEPRECATED if deprecated(tool) else 1.0 for tool in tools]
    return standing if DEPRECATED in standing else []


def _merged(
    old: Postings,
    kept: Mapping[int, int],
    fresh: Mapping[int, SearchDocument],
    weights_of: Callable[[SearchDocument], Mapping[str, float]],
) -> Postings:
    # Arrays, since a hundred thousand pairs would trigger full garbage collections.
    rows: dict[str, tuple[array[int], array[float]]] = {}
    for term in old if kept else ():
        numbers, weights = old.row(term)
        stay = [number in kept for number in numbers]
        if any(stay):
            moved = array("I", [kept[number] for number in compress(numbers, stay)])
            rows[term] = moved, weights if all(stay) else array("d", compress(weights, stay))
    for number, each in fresh.items():
        for term, weight in weights_of(each).items():
            row = rows.get(term)
            if row is None:
                row = rows[term] = array("I"), array("d")
            row[0].append(number)
            row[1].append(weight)
    return Postings(rows)


def _by_name(names: Iterable[str]) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    for number, name in enumerate(names):
        spelt = plain(name)
        found[spelt] = (*found.get(spelt, ()), number)
    return found
