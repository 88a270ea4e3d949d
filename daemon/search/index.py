"""The index of tools: which tools and servers fit a need.

BM25F over nine fields (Robertson and Zaragoza, The Probabilistic Relevance Framework, 2009), any-of, with
synonyms, spelling and exact names. A tool's weights depend on nothing but the tool, so that a change costs
what changed.
"""

from __future__ import annotations

import heapq
from copy import copy
from itertools import islice
from math import log
from typing import TYPE_CHECKING

import attrs

from daemon.closest import closest
from daemon.search.documents import Document, digest_of, document
from daemon.search.language import NOTHING, Language, language
from daemon.search.queries import Query, read
from daemon.search.semantic import fuse
from daemon.search.spelling import Speller
from daemon.search.text import plain, terms

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

    from daemon.catalog.snapshot import ServerEntry
    from daemon.model import Summary, Tool, ToolKey
    from daemon.search.vectors import Vectors

COVERAGE = 0.8
"""How much more a tool scores whose whole name is in the query, against one with none of it there."""

SYNONYM = 0.4
"""How much a synonym counts, against the word itself, on top of how close it is."""

CORRECTION = 0.7
"""How much a word counts that may have been meant, against one that was written right."""

FIT = 0.25
"""A tool fits if it scores this much of what the best one does; what is below shares a word by chance."""

FOLLOWED = 4000
"""Tools that a synonym may have to be followed: a word of nearly every tool tells nothing, and costs the
most."""

MOST_READ = 100_000
"""Entries of the index that one search reads, about 40 ms: a need of ten thousand tools reads 10,000. Beyond,
the commonest words are left out, which tell least."""

MAX_SUGGESTIONS = 3


_Variants = list[tuple[str, float]]
"""Known terms for one that was asked for, each with how closely it fits."""


@attrs.frozen
class Hit:
    """A tool that fits."""

    key: ToolKey
    """Which."""
    score: float
    """How well; comparable within one search only."""
    exact: bool
    """Whether the query names it."""


@attrs.frozen
class Ranking:
    """What a search found."""

    hits: tuple[Hit, ...]
    """Best first, at most as many as were asked for."""
    total: int
    """How many fit."""
    suggestions: tuple[str, ...]
    """Names that may have been meant when nothing fits."""


@attrs.frozen
class ServerHit:
    """A server that fits."""

    server: str
    """Which."""
    score: float
    """How well; comparable within one search only."""
    exact: bool
    """Whether the query names it."""


NAMED_SERVER = 1e6
"""More than any server scores that is not named."""

ABOUT_SERVER = 3.0
"""What a word counts that a server's own name or description has, as one in a tool's name does."""


@attrs.frozen
class _MadeOf:
    """What of a server is indexed."""

    tools: Mapping[str, Tool] | None
    description: str
    summary: Summary | None
    sentences: Mapping[str, Summary]

    @classmethod
    def of(cls, entry: ServerEntry) -> _MadeOf:
        return cls(entry.tools, entry.description, entry.summary, entry.sentences)

    def is_of(self, entry: ServerEntry) -> bool:
        # Tools and sentences are replaced as a whole, and too many to be compared one by one.
        return (
            self.tools is entry.tools
            and self.sentences is entry.sentences
            and (self.description, self.summary) == (entry.description, entry.summary)
        )


class Index:
    """All tools at one moment. Never changes once it is handed out."""

    def __init__(self) -> None:
        self._language: Language = NOTHING
        self._documents: dict[ToolKey, Document] = {}
        self._postings: dict[str, dict[ToolKey, float]] = {}
        self._names: dict[str, dict[ToolKey, float]] = {}
        self._spellings: dict[str, tuple[ToolKey, ...]] = {}
        self._bare: dict[str, tuple[ToolKey, ...]] = {}
        self._speller = Speller()
        self._servers: dict[str, frozenset[str]] = {}
        self._made_of: dict[str, _MadeOf] = {}
        self._vectors: Vectors | None = None

    @classmethod
    def empty(cls) -> Index:
        """An index that knows nothing."""
        return cls()

    def covers(self, servers: Mapping[str, ServerEntry]) -> bool:
        """Whether it was made of exactly these servers' tools, descriptions and summaries."""
        return self._made_of.keys() == servers.keys() and all(
            self._made_of[entry.name].is_of(entry) for entry in servers.values()
        )

    def updated(self, servers: Mapping[str, ServerEntry]) -> Index:
        """An index of these servers. Reads files and computes: call it in a worker thread.

        Only tools that changed are read anew. This index stays as it is; it is returned itself if it covers
        them.
        """
        if self.covers(servers):
            return self
        made = Index()
        made._language = language()
        made._vectors = self._vectors
        made._build_on(self, servers)
        return made

    def with_vectors(self, vectors: Vectors) -> Index:
        """The same index, which also finds by meaning. Tools without a vector yet are found by their words."""
        made = copy(self)
        made._vectors = vectors  # noqa: SLF001 - another object of this class
        return made

    def _build_on(self, old: Index, servers: Mapping[str, ServerEntry]) -> None:
        documents = {document.key: document for document in _documents(servers, old._documents)}
        gone = [each for key, each in old._documents.items() if documents.get(key) is not each]
        fresh = [each for key, each in documents.items() if old._documents.get(key) is not each]
        self._documents = documents
        self._postings = _changed_postings(old._postings, gone, fresh)
        self._spellings = _by_spelling((name, each) for each in documents.values() for name in each.spellings)
        self._bare = _by_spelling((each.spellings[0], each) for each in documents.values())
        self._names = _name_postings(documents.values())
        self._speller.learn(self._postings)
        self._servers = {entry.name: frozenset(terms(_words_of(entry))) for entry in servers.values()}
        self._made_of = {entry.name: _MadeOf.of(entry) for entry in servers.values()}

    def search(
        self, phrasings: Sequence[str], *, within: Container[ToolKey] | None = None, limit: int = 20
    ) -> Ranking:
        """The tools that fit, best first.

        Args:
            phrasings: a need, keywords or a name; of several the scores are added.
            within: only these; None is all.
            limit: most hits to return.
        """
        query = read(phrasings)
        scores = self.scores(query, within)
        if self._vectors is not None:
            near = self._vectors.similar(phrasings, within=within)
            scores = fuse(scores, {key: cosine for key, cosine in near.items() if key in self._documents})
        exact = self._named(query, within)
        top = max(scores.values(), default=1.0)
        least = FIT * top
        for key in self._containing(query, within):
            scores[key] = max(scores.get(key, 0.0), least)
        for key in exact:
            scores[key] = scores.get(key, 0.0) + top + 1.0
        fitting = {key: score for key, score in scores.items() if score >= least}
        if not fitting:
            return Ranking(hits=(), total=0, suggestions=self._suggestions(query, within))
        hits = tuple(Hit(key=key, score=score, exact=key in exact) for key, score in _best(fitting, limit))
        return Ranking(hits=hits, total=len(fitting), suggestions=())

    def search_servers(
        self, phrasings: Sequence[str], *, within: Container[str] | None = None, limit: int = 5
    ) -> tuple[ServerHit, ...]:
        """The servers that fit, best first, by their names, descriptions and tools."""
        query = read(phrasings)
        by_server: dict[str, list[float]] = {}
        for (server, _tool), score in self.scores(query, None).items():
            by_server.setdefault(server, []).append(score)
        hits = []
        for server, own in self._servers.items():
            if within is None or server in within:
                tools = sum(
                    score / rank for rank, score in enumerate(sorted(by_server.get(server, ()))[::-1], 1)
                )
                score = tools + sum(
                    self._rarity(term) * ABOUT_SERVER for phrase in query.phrases for term in set(phrase) & own
                )
                exact = plain(server) in query.names
                if score > 0 or exact:
                    hits.append(
                        ServerHit(server=server, score=score + (NAMED_SERVER if exact else 0), exact=exact)
                    )
        return tuple(sorted(hits, key=lambda hit: (-hit.score, hit.server))[:limit])

    def scores(self, query: Query, within: Container[ToolKey] | None) -> dict[ToolKey, float]:
        """The score of every tool that shares anything with a query."""
        total: dict[ToolKey, float] = {}
        for phrase in self._affordable(query.phrases):
            _add(total, self._phrase_scores(phrase))
        return total if within is None else {key: score for key, score in total.items() if key in within}

    def _affordable(self, phrases: Sequence[tuple[str, ...]]) -> list[list[_Variants]]:
        """What is looked up for the terms of each phrase: the rarest ones first, within the bound."""
        known = {term: self._variants(term) for phrase in phrases for term in phrase}
        entries = {
            term: sum(len(self._postings[variant]) for variant, _ in variants)
            for term, variants in known.items()
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

    def _phrase_scores(self, phrase: Sequence[_Variants]) -> dict[ToolKey, float]:
        total: dict[ToolKey, float] = {}
        asked: set[str] = set()
        for variants in phrase:
            best: dict[ToolKey, float] = {}
            for variant, closeness in reversed(variants):
                factor = closeness * self._rarity(variant)
                asked.add(variant)
                best.update({key: weight * factor for key, weight in self._postings[variant].items()})
            _add(total, best)
        covered: dict[ToolKey, float] = {}
        for variant in asked:
            _add(covered, self._names.get(variant, {}))
        for key, share in covered.items():
            total[key] *= 1 + COVERAGE * share
        return total

    def _variants(self, term: str) -> _Variants:
        """Known terms for one that was asked for: itself, synonyms, corrections."""
        known = [(term, 1.0)] if term in self._postings else []
        for other, closeness in self._language.neighbours.get(term, ()):
            if other in self._postings and len(self._postings[other]) <= FOLLOWED:
                known.append((other, closeness * SYNONYM))
        if not known:
            known = [
                (other, CORRECTION) for other in self._speller.corrections(term) if other in self._postings
            ]
        return known

    def _rarity(self, term: str) -> float:
        """Inverse document frequency, among these tools and public ones together."""
        count = len(self._documents) + self._language.tools
        having = len(self._postings.get(term, ())) + self._language.frequencies.get(term, 0)
        return log(1 + (count - having + 0.5) / (having + 0.5)) if count >= having else 0.0

    def _named(self, query: Query, within: Container[ToolKey] | None) -> set[ToolKey]:
        found = (key for name in query.names for key in self._spellings.get(name, ()))
        return {key for key in found if within is None or key in within}

    def _containing(self, query: Query, within: Container[ToolKey] | None) -> set[ToolKey]:
        """The tools whose names hold a single word that was asked for."""
        spelt = (keys for word in query.substrings for name, keys in self._bare.items() if word in name)
        return {key for keys in spelt for key in keys if within is None or key in within}

    def _suggestions(self, query: Query, within: Container[ToolKey] | None) -> tuple[str, ...]:
        keys = (key for key in self._documents if within is None or key in within)
        for name in islice(query.names, 1):
            names = {spelling: key[1] for key in keys for spelling in self._documents[key].spellings[:1]}
            return tuple(names[spelling] for spelling in closest(name, names, MAX_SUGGESTIONS))
        return ()


def _documents(servers: Mapping[str, ServerEntry], known: Mapping[ToolKey, Document]) -> Iterable[Document]:
    for entry in servers.values():
        about = entry.description or (entry.summary.text if entry.summary else "")
        for tool in (entry.tools or {}).values():
            said = entry.sentences.get(tool.schema_hash)
            old = known.get((entry.name, tool.name))
            same = old is not None and old.digest == digest_of(tool, about, said)
            yield old if old is not None and same else document(tool, about, said)


def _words_of(entry: ServerEntry) -> str:
    """What a server is found by, besides its tools."""
    said = entry.summary
    return " ".join([entry.name, entry.description, *((said.text, *said.keywords) if said else ())])


def _changed_postings(
    old: Mapping[str, dict[ToolKey, float]], gone: Sequence[Document], fresh: Sequence[Document]
) -> dict[str, dict[ToolKey, float]]:
    """The postings after a change; lists that did not change are shared with the old."""
    touched = {term for each in (*gone, *fresh) for term in each.weights}
    postings = dict(old)
    for term in touched:
        postings[term] = dict(old.get(term, ()))
    for each in gone:
        for term in each.weights:
            del postings[term][each.key]
    for each in fresh:
        for term, weight in each.weights.items():
            postings[term][each.key] = weight
    for term in touched:
        if not postings[term]:
            del postings[term]
    return postings


def _name_postings(documents: Iterable[Document]) -> dict[str, dict[ToolKey, float]]:
    """Term to the tools that have it in their names, with its share of the name."""
    postings: dict[str, dict[ToolKey, float]] = {}
    for each in documents:
        for term in each.name_terms:
            postings.setdefault(term, {})[each.key] = 1 / len(each.name_terms)
    return postings


def _add(total: dict[ToolKey, float], more: Mapping[ToolKey, float]) -> None:
    for key, score in more.items():
        total[key] = total.get(key, 0.0) + score


def _best(scores: Mapping[ToolKey, float], limit: int) -> list[tuple[ToolKey, float]]:
    """The highest scores, highest first, equal ones by name: numbers are compared first, which is quick."""
    least = heapq.nlargest(limit, scores.values())[-1] if limit > 0 else float("inf")
    best = [(key, score) for key, score in scores.items() if score >= least]
    return sorted(best, key=lambda pair: (-pair[1], pair[0]))[:limit]


def _by_spelling(spelt: Iterable[tuple[str, Document]]) -> dict[str, tuple[ToolKey, ...]]:
    spellings: dict[str, tuple[ToolKey, ...]] = {}
    for spelling, each in spelt:
        spellings[spelling] = (*spellings.get(spelling, ()), each.key)
    return spellings
