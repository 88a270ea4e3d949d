"""Keeps account of summaries: existing ones, failed attempts (at most `GIVE_UP`), and the next question."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from daemon.catalog.definitions import tools_digest
from daemon.catalog.snapshot import Catalog, ServerEntry
from daemon.facts import Summarized
from daemon.kit.waiting import keep_latest
from daemon.model import Summary, Tool
from daemon.summaries.prompt import ModelAnswer, Question

GIVE_UP = 3
"""Useless answers after which mcpd stops asking about a tool: after three failures, a model fails again."""

SHRINK = 4
"""The factor by which the next question about unanswered tools shrinks. One tool of 20 may spoil the answer for
all; the third question asks about each tool separately."""

MAX_TRIED = 20_000
"""Most unanswered tools and servers remembered; the oldest are forgotten, and asked about again."""

Tried = tuple[str, str]
"""A server's name, with a tool's schema hash or with the digest of all its tools."""


class _Said(msgspec.Struct):
    summary: Summary | None = None
    sentences: dict[str, Summary] = msgspec.field(default_factory=dict)


class Ledger:
    """The summaries and failed attempts for all servers of a catalog. Uses no clock and no endpoint."""

    def __init__(self) -> None:
        self._said: dict[str, _Said] = {}
        self._tried: dict[Tried, int] = {}
        self._turns: dict[str, int] = {}
        self._turn = 0

    def next_question(self, catalog: Catalog, most: int) -> Question | None:
        """The next question, of at most `most` tools, about the server that has waited longest."""
        for entry in sorted(_asked_about(catalog), key=lambda entry: self._turns.get(entry.name, 0)):
            question = self._question(catalog, entry, most)
            if question is not None:
                self._turn += 1
                self._turns[entry.name] = self._turn
                return question
        return None

    def waiting(self, catalog: Catalog) -> int:
        """The number of servers and tools that wait for a summary."""
        return sum(
            len(self._missing(catalog, entry)) + self._wants_overview(entry) for entry in _asked_about(catalog)
        )

    @property
    def given_up(self) -> int:
        """The number of servers and tools about which mcpd stopped asking."""
        return sum(count >= GIVE_UP for count in self._tried.values())

    def learn(self, question: Question, answer: ModelAnswer, at: float) -> None:
        """Record an answer (`at`: seconds since the epoch); tools missing in it count as failed."""
        said = self._said.setdefault(question.server, _Said())
        for tool in question.tools:
            if (about := answer.tools.get(tool.name)) is None:
                self._count((question.server, tool.schema_hash))
            else:
                found = msgspec.structs.replace(about, of=tool.schema_hash, at=at)
                said.sentences[tool.schema_hash] = found
        if answer.server is not None:
            said.summary = msgspec.structs.replace(answer.server, of=question.digest, at=at)
        elif question.overview is not None:
            self._count((question.server, question.digest))

    def failed(self, question: Question) -> None:
        """Record that a question got no usable answer."""
        for key in _keys(question):
            self._count(key)

    def news(self, catalog: Catalog) -> Iterator[Summarized]:
        """A fact for each server whose summaries the catalog lacks; forgets those of removed servers."""
        for name in self._said.keys() - catalog.servers.keys():
            del self._said[name]
            self._turns.pop(name, None)
        for name, said in self._said.items():
            entry = catalog.servers[name]
            present = {tool.schema_hash for tool in entry.for_models.values()}
            said.sentences = {digest: each for digest, each in said.sentences.items() if digest in present}
            unknown = said.sentences.keys() - entry.sentences.keys()
            if unknown or self._is_newer(said.summary, entry):
                yield Summarized(
                    server=name,
                    summary=said.summary if self._is_newer(said.summary, entry) else None,
                    sentences=said.sentences.copy(),
                )

    def _question(self, catalog: Catalog, entry: ServerEntry, most: int) -> Question | None:
        missing = self._missing(catalog, entry)
        tries = min((self._tries(entry, tool.schema_hash) for tool in missing), default=0)
        size = max(1, most // SHRINK**tries)
        tools = [tool for tool in missing if self._tries(entry, tool.schema_hash) == tries][:size]
        digest = _digest(entry)
        overview = self._wants_overview(entry)
        if tools and (tries or self._tries(entry, digest)):
            # A question that failed before is asked without the overview.
            overview = False
        if not tools and not overview:
            return None
        return Question(
            server=entry.name,
            description=entry.description,
            overview=tuple(entry.for_models.values()) if overview else None,
            digest=digest,
            tools=tuple(tools),
        )

    def _missing(self, catalog: Catalog, entry: ServerEntry) -> list[Tool]:
        said = self._said.get(entry.name, _NOTHING).sentences
        return [
            tool
            for tool in entry.for_models.values()
            if tool.schema_hash not in entry.sentences
            and tool.schema_hash not in said
            and (entry.name, tool.name) not in catalog.switched_tools
            and self._tries(entry, tool.schema_hash) < GIVE_UP
        ]

    def _wants_overview(self, entry: ServerEntry) -> bool:
        if not entry.tools:
            return False
        digest = _digest(entry)
        known: Iterable[Summary | None] = (entry.summary, self._said.get(entry.name, _NOTHING).summary)
        return self._tries(entry, digest) < GIVE_UP and all(
            summary is None or summary.of != digest for summary in known
        )

    def _is_newer(self, summary: Summary | None, entry: ServerEntry) -> bool:
        if summary is None or summary == entry.summary:
            return False
        return entry.summary is None or (summary.of == _digest(entry) != entry.summary.of)

    def _tries(self, entry: ServerEntry, about: str) -> int:
        return self._tried.get((entry.name, about), 0)

    def _count(self, key: Tried) -> None:
        keep_latest(self._tried, key, self._tried.get(key, 0) + 1, MAX_TRIED)


_NOTHING = _Said()


def _asked_about(catalog: Catalog) -> list[ServerEntry]:
    """The servers that get summaries. mcpd sends no texts of disabled servers, which clients do not see."""
    return [entry for entry in catalog.servers.values() if entry.tools and not entry.disabled]


def _digest(entry: ServerEntry) -> str:
    return tools_digest(tool.schema_hash for tool in entry.for_models.values())


def _keys(question: Question) -> Iterator[Tried]:
    for tool in question.tools:
        yield question.server, tool.schema_hash
    if question.overview is not None:
        yield question.server, question.digest
