"""The search index over tools and servers.

It ranks by BM25F over nine fields (Robertson and Zaragoza, The Probabilistic Relevance Framework, 2009), with
synonyms, spelling corrections and exact names. A word's weight is its rarity among these and public tools, so
that scores of different catalogs are comparable. With vectors, scores by meaning are blended in.
"""

from __future__ import annotations

import heapq
from collections.abc import Container, Iterable, Mapping, Sequence
from copy import copy
from itertools import islice
from math import fsum, log, sqrt
from typing import TYPE_CHECKING

import msgspec

from daemon.catalog.snapshot import ServerEntry
from daemon.kit.later import later
from daemon.kit.wording import closest
from daemon.model import ToolKey
from daemon.search.language import NOTHING, Language, is_verb, language, plain
from daemon.search.segment import BEYOND_CHANCE, Phrase, Query, Segment, is_chance, read
from daemon.search.vectors import Vectors

if TYPE_CHECKING:
    from rapidfuzz.distance import OSA as osa  # noqa: N811 - a module
else:
    osa = later("rapidfuzz.distance.OSA", due=True)

SHARED = 3
"""Characters at the beginning or end that a word and its misspelling must share."""

SHORTEST = 4
"""Characters of the shortest corrected word: shorter words have too many neighbours."""

LONG = 8
"""Characters from which two edits are allowed."""

MOST = 3
"""Most corrections tried for one word."""

MAX_COMPARED = 500
"""Most words compared with one word; the commonest beginnings have fewer."""


class Speller:
    """The known words, indexed by their beginnings and ends."""

    def __init__(self, words: Iterable[str]) -> None:
        self._by_end: dict[str, list[str]] = {}
        for word in words:
            if len(word) >= SHORTEST:
                for end in (word[:SHARED] + "-", "-" + word[-SHARED:]):
                    self._by_end.setdefault(end, []).append(word)

    def corrections(self, word: str) -> list[str]:
        """Known words close to a misspelled one, closest first."""
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
            if abs(len(other) - len(word)) <= allowed
            and (distance := osa.distance(word, other, score_cutoff=allowed)) <= allowed
        ]
        return [other for _, other in sorted(near)[:MOST]]


SYNONYM = 0.4
"""The weight of a synonym, multiplied by its closeness."""

CLOSE = 0.5
"""The closeness from which a synonym also counts for a known term; others only replace unknown terms."""

CORRECTION = 0.7
"""The weight of a spelling correction."""

FOLLOWED = 4000
"""Most tools that contain a synonym: a word in nearly every tool is no help and costs the most."""

COMMON = 5.35
"""The rarity below which a verb fits any tool (find, write); a rarer verb has a meaning (schedule, commit)."""

MOST_READ = 100_000
"""Most index entries read by one search, in 40 ms; beyond, the commonest words are dropped. Usual: 10,000."""

_Variants = list[tuple[str, float]]
"""The known terms that stand for one term of a query, with their closeness."""


class Vocabulary:
    """The terms of all tools with their counts; immutable."""

    def __init__(self, segments: Iterable[Segment] = (), language: Language = NOTHING) -> None:
        self._language = language
        self._counts: dict[str, int] = {}
        self.tools = 0
        for segment in segments:
            self.tools += len(segment)
            for term in segment.postings:
                self._counts[term] = self._counts.get(term, 0) + segment.postings.count(term)
        self._speller = Speller(self._counts)

    def look_up(self, query: Query) -> tuple[list[Phrase], list[Phrase]]:
        """The weighted terms of each phrasing, and of each clause."""
        asked = [query.asked] * len(query.phrases) + [clause.asked for clause in query.clauses]
        affordable = self._affordable([*query.phrases, *(clause.terms for clause in query.clauses)])
        phrases = [
            Phrase([self._weighed(variants) for variants in terms], actions)
            for terms, actions in zip(affordable, asked, strict=True)
        ]
        return phrases[: len(query.phrases)], phrases[len(query.phrases) :]

    def plainly(self, parts: Sequence[tuple[str, ...]]) -> list[Phrase]:
        """The weighted terms of each part, regardless of actions."""
        return [Phrase([self._weighed(variants) for variants in known]) for known in self._affordable(parts)]

    def rarity(self, term: str) -> float:
        """The inverse document frequency among these and public tools."""
        count = self.tools + self._language.tools
        having = self._counts.get(term, 0) + self._language.frequencies.get(term, 0)
        return log(1 + (count - having + 0.5) / (having + 0.5)) if count >= having else 0.0

    def objects(self, part: tuple[str, ...]) -> tuple[str, ...]:
        """A part's terms without common verbs; all terms if nothing else is left."""
        return tuple(term for term in part if not (is_verb(term) and self.rarity(term) < COMMON)) or part

    def rarity_of_all(self, part: tuple[str, ...]) -> float:
        """The summed rarity of a part; 0 for a single term, which a tool either has or lacks."""
        return sum(map(self.rarity, part)) if len(part) > 1 else 0.0

    def _weighed(self, variants: _Variants) -> _Variants:
        return [(term, closeness * self.rarity(term)) for term, closeness in variants]

    def _affordable(self, phrases: Sequence[tuple[str, ...]]) -> list[list[_Variants]]:
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
        near = [
            (other, closeness)
            for other, closeness in self._language.near(term)
            if 0 < self._counts.get(other, 0) <= FOLLOWED
        ]
        close = [pair for pair in near if pair[1] >= CLOSE]
        known = [(term, 1.0)] if term in self._counts else []
        known += [(other, closeness * SYNONYM) for other, closeness in (close if known or close else near)]
        if not known and not self._language.is_word(term):
            known = [(other, CORRECTION) for other in self._speller.corrections(term) if other in self._counts]
        return known


FIT = 0.25
"""The smallest share of the best score that counts as a match; below it, tools share a word by chance."""

MAX_SUGGESTIONS = 3


DENSE_WEIGHT = 0.6
"""The weight of meaning relative to words, best at 0.6 to 0.8 on five public sets; 1.0 misses rare things."""

DEPTH = 50
"""The best tools of each half (words, meaning) that are compared: as many as people read."""

UNAIDED_COSINE = 0.39
"""The cosine that finds a tool without a shared word: at 0.39, 12 of 60 unserved needs list something."""


class Hit(msgspec.Struct, frozen=True):
    """A matching tool."""

    key: ToolKey
    score: float
    exact: bool
    """Whether the query contains its name."""


class Ranking(msgspec.Struct, frozen=True):
    """The result of a search."""

    hits: tuple[Hit, ...]
    total: int
    suggestions: tuple[str, ...]
    """Similar names, if no tool matches."""


class ServerHit(msgspec.Struct, frozen=True):
    """A matching server."""

    server: str
    score: float
    exact: bool
    """Whether the query contains its name."""


NAMED_SERVER = 1e6
"""Added to a named server's score, so that it exceeds any other."""

ABOUT_SERVER = 3.0
"""The weight of a word in a server's name or description; the same as in a tool's name."""


class Index:
    """An immutable search index over all tools."""

    def __init__(self) -> None:
        self._segments: dict[str, Segment] = {}
        self._vocabulary = Vocabulary()
        self._vectors: Vectors | None = None

    def covers(self, servers: Mapping[str, ServerEntry]) -> bool:
        """Whether the index was built from exactly these tools, descriptions and summaries."""
        return self._segments.keys() == servers.keys() and all(
            self._segments[entry.name].is_of(entry) for entry in servers.values()
        )

    def updated(self, servers: Mapping[str, ServerEntry]) -> Index:
        """The index of these servers; this object if current. Reads files and computes: call it in a thread."""
        if self.covers(servers):
            return self
        made = Index()
        made._segments = {entry.name: self._segment(entry) for entry in servers.values()}
        made._vocabulary = Vocabulary(made._segments.values(), language())
        made._vectors = self._vectors
        return made

    def with_vectors(self, vectors: Vectors) -> Index:
        """A copy that also searches by meaning; tools without a vector are found by words."""
        made = copy(self)
        made._vectors = vectors  # noqa: SLF001 - another object of this class
        return made

    def _segment(self, entry: ServerEntry) -> Segment:
        known = self._segments.get(entry.name)
        return known if known is not None and known.is_of(entry) else Segment(entry, known)

    def search(
        self, phrasings: Sequence[str], *, within: Container[ToolKey] | None = None, limit: int = 20
    ) -> Ranking:
        """Find tools in `within`, best first, by a need, keywords or a name; the phrasings' scores add up."""
        query = read(phrasings)
        scores = self.scores(query, within, 0.0 if self._vectors else FIT)
        if self._is_chance(query, max(scores.values(), default=0.0), within):
            scores = {}
        if self._vectors is not None:
            near = self._vectors.similar(phrasings, [clause.text for clause in query.clauses], within=within)
            scores = fuse(scores, {key: cosine for key, cosine in near.items() if self._has(key)})
        exact = self._named(query, within)
        top = max(scores.values(), default=1.0)
        least = FIT * top
        for key in self._containing(query, within):
            scores[key] = max(scores.get(key, 0.0), least)
        for key in exact:
            scores[key] = scores.get(key, 0.0) + top + 1.0
        fitting = scores
        if min(scores.values(), default=least) < least:
            fitting = {key: score for key, score in scores.items() if score >= least}
        if not fitting:
            return Ranking(hits=(), total=0, suggestions=self._suggestions(query, within))
        hits = tuple(Hit(key=key, score=score, exact=key in exact) for key, score in _best(fitting, limit))
        return Ranking(hits=hits, total=len(fitting), suggestions=())

    def search_servers(
        self, phrasings: Sequence[str], *, within: Container[str] | None = None, limit: int = 5
    ) -> tuple[ServerHit, ...]:
        """Find servers by names, descriptions and tools, best first."""
        query = read(phrasings)
        phrases, clauses = self._vocabulary.look_up(query)
        hits = []
        for server, segment in self._segments.items():
            if within is None or server in within:
                own = sorted((score for score in segment.scores(phrases, clauses) if score), reverse=True)
                tools = sum(score / rank for rank, score in enumerate(own, 1))
                score = tools + sum(
                    self._vocabulary.rarity(term) * ABOUT_SERVER
                    for phrase in query.phrases
                    for term in set(phrase) & segment.words
                )
                exact = plain(server) in query.names
                if score > 0 or exact:
                    hits.append(
                        ServerHit(server=server, score=score + (NAMED_SERVER if exact else 0), exact=exact)
                    )
        return tuple(sorted(hits, key=lambda hit: (-hit.score, hit.server))[:limit])

    def scores(
        self, query: Query, within: Container[ToolKey] | None, share: float = 0.0
    ) -> dict[ToolKey, float]:
        """The scores of tools that share a word with a query; may omit those below `share` of the best."""
        phrases, clauses = self._vocabulary.look_up(query)
        rows = [
            (segment, scores)
            for segment in self._segments.values()
            if (scores := segment.scores(phrases, clauses))
        ]
        top = max((max(scores) for _, scores in rows), default=0.0)
        found = _above(rows, share * top, within)
        # If the best of all is not `within`, less than its share may be enough.
        return found if within is None or top in found.values() else _above(rows, 0.0, within)

    def _is_chance(self, query: Query, top: float, within: Container[ToolKey] | None) -> bool:
        """Whether all tools match every part of a query only by chance; `top` is the best score.

        Counts shared words only, without common verbs and without factors.
        """
        if len(query.parts) == 1 and top >= BEYOND_CHANCE:
            return False
        parts = [self._vocabulary.objects(part) for part in query.parts]
        for part, phrase in zip(parts, self._vocabulary.plainly(parts), strict=True):
            best = max((self._best_of(each, phrase, within) for each in self._segments.values()), default=0.0)
            if best and not is_chance(best, self._vocabulary.rarity_of_all(part), self._vocabulary.tools):
                return False
        return True

    @staticmethod
    def _best_of(segment: Segment, phrase: Phrase, within: Container[ToolKey] | None) -> float:
        scores = segment.plainly(phrase)
        if within is not None:
            scores = [score for number, score in enumerate(scores) if score and segment.key(number) in within]
        return max(scores, default=0.0)

    def _has(self, key: ToolKey) -> bool:
        return key[0] in self._segments and key[1] in self._segments[key[0]]

    def _named(self, query: Query, within: Container[ToolKey] | None) -> set[ToolKey]:
        found = (key for segment in self._segments.values() for key in segment.named(query.names))
        return {key for key in found if within is None or key in within}

    def _containing(self, query: Query, within: Container[ToolKey] | None) -> set[ToolKey]:
        segments = self._segments.values()
        found = (key for word in query.substrings for each in segments for key in each.containing(word))
        return {key for key in found if within is None or key in within}

    def _suggestions(self, query: Query, within: Container[ToolKey] | None) -> tuple[str, ...]:
        for name in islice(query.names, 1):
            spelt = (pair for segment in self._segments.values() for pair in segment.spelt())
            names = {spelling: key[1] for spelling, key in spelt if within is None or key in within}
            return tuple(names[spelling] for spelling in closest(name, names, MAX_SUGGESTIONS))
        return ()


def _above(
    rows: Iterable[tuple[Segment, Sequence[float]]], least: float, within: Container[ToolKey] | None
) -> dict[ToolKey, float]:
    found = {
        (segment.server, name): score
        for segment, scores in rows
        for name, score in zip(segment.names, scores, strict=True)
        if score and score >= least
    }
    return found if within is None else {key: score for key, score in found.items() if key in within}


def _best(scores: Mapping[ToolKey, float], limit: int) -> list[tuple[ToolKey, float]]:
    """The highest scores in order, equal scores by name; compares numbers first, which is faster."""
    least = heapq.nlargest(limit, scores.values())[-1] if limit > 0 else float("inf")
    best = [(key, score) for key, score in scores.items() if score >= least]
    return sorted(best, key=lambda pair: (-pair[1], pair[0]))[:limit]


def fuse(
    lexical: Mapping[ToolKey, float], dense: Mapping[ToolKey, float], *, weight: float = DENSE_WEIGHT
) -> dict[ToolKey, float]:
    """Blend scores by words with cosines; best first, equal scores in the order of `lexical`, then `dense`.

    Each half counts by the lead over the last of its `DEPTH` best, in their standard deviations: scores of two
    queries are not comparable. Without lexical scores, only tools above `UNAIDED_COSINE` are found.
    """
    if not lexical:
        near = {key: cosine for key, cosine in dense.items() if cosine >= UNAIDED_COSINE}
        return dict(heapq.nlargest(len(near), near.items(), key=_score))
    scores = _outstanding(lexical, DEPTH)
    for key, nearness in _outstanding(dense, min(DEPTH, len(dense))).items():
        scores[key] = scores.get(key, 0.0) + weight * nearness
    return dict(sorted(scores.items(), key=_score, reverse=True))


def _outstanding(half: Mapping[ToolKey, float], depth: int) -> dict[ToolKey, float]:
    """Each tool's lead over the last of the `depth` best, in standard deviations; zeros are omitted."""
    if not half:
        return {}
    best = heapq.nlargest(depth, half.values())
    best += [0.0] * (depth - len(best))
    floor, mean = best[-1], fsum(best) / depth
    spread = sqrt(fsum((value - mean) ** 2 for value in best) / depth)
    if not spread:
        return {key: 1.0 for key, value in half.items() if value >= floor}
    return {key: (value - floor) / spread for key, value in half.items() if value > floor}


def _score(item: tuple[ToolKey, float]) -> float:
    return item[1]
