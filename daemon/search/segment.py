"""The searchable tools of one server, an index's reusable unit: two arrays, twelve bytes per word and tool."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import compress
from operator import add, mul

import msgspec

from daemon.catalog.snapshot import ServerEntry
from daemon.model import Summary, Tool, ToolKey
from daemon.search.documents import DEPRECATED, SearchDocument, deprecated, digest_of, document
from daemon.search.language import ANY_ACTION, action_of, plain, terms, worth
from daemon.search.queries import Phrase

COVERAGE = 0.8
"""The gain of a tool whose whole name is in the query."""

CLAUSE = 0.5
"""The weight of the best clause against the whole query."""

SERVER = 0.2
"""The share of the server's best score that its other tools gain in a query of several parts."""


Digest = tuple[str, ...]


class _MadeOf(msgspec.Struct, frozen=True):
    tools: Mapping[str, Tool] | None
    description: str
    summary: Summary | None
    sentences: Mapping[str, Summary]

    @classmethod
    def of(cls, entry: ServerEntry) -> _MadeOf:
        return cls(entry.tools, entry.description, entry.summary, entry.sentences)

    def is_of(self, entry: ServerEntry) -> bool:
        # Compared by identity: tools and sentences are replaced as a whole.
        return (
            self.tools is entry.tools
            and self.sentences is entry.sentences
            and (self.description, self.summary) == (entry.description, entry.summary)
        )


class Postings:
    """An immutable inverted index: each term's tool numbers and weights."""

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
        """The numbers of the tools with a term, and its weights."""
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
        self._made_of = _MadeOf.of(entry)
        self._bare = _by_name(self.names)
        self._actions = bytes(map(action_of, self.names))
        self._standing = _standing(entry.for_models.values())
        plainly = plain(entry.name)
        self._prefixes = (f"{plainly}_", f"mcp_{plainly}_")

    def is_of(self, entry: ServerEntry) -> bool:
        """Whether the segment was made of exactly this entry; cheap."""
        return self._made_of.is_of(entry)

    def __len__(self) -> int:
        return len(self.names)

    def __contains__(self, tool: str) -> bool:
        return tool in (self._made_of.tools or ())

    def key(self, number: int) -> ToolKey:
        """The key of a tool by its number."""
        return self.server, self.names[number]

    def scores(self, phrases: Iterable[Phrase], clauses: Iterable[Phrase] = ()) -> list[float]:
        """The score of each tool by number: phrasings add up, the best clause counts; 0.0 without a match."""
        total = self._folded(phrases, add)
        best = self._folded(clauses, max)
        if total and best:
            total = [one + CLAUSE * other for one, other in zip(total, best, strict=True)]
            gain = SERVER * max(total)
            total = [score and score + gain for score in total]
        return list(map(mul, total, self._standing)) if total and self._standing else total

    def plainly(self, phrase: Phrase) -> list[float]:
        """The score of each tool by number, without actions and deprecation."""
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
    said = entry.summary
    return " ".join([entry.name, entry.description, *((said.text, *said.keywords) if said else ())])


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
    """The tools' factors, lower for deprecated ones; empty if all are 1."""
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
