"""What has been said, what was tried in vain, and what is to be asked next.

Nothing is asked twice that was answered, and nothing more than `GIVE_UP` times that was not: what a model
cannot put into a sentence stays without one until it changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from daemon.catalog.digests import tools_digest
from daemon.facts import Summarized
from daemon.model import Summary
from daemon.summaries.prompt import Question

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from daemon.catalog.snapshot import Catalog, ServerEntry
    from daemon.model import Tool
    from daemon.summaries.prompt import ModelAnswer

GIVE_UP = 3
"""Answers that may be of no use before a tool is left alone: a model that failed thrice fails again."""

SHRINK = 4
"""By how much smaller the next question is about tools that got no answer. Of 20 tools one may spoil the
answer; the third question is about each alone, so that it spoils no other's."""

MAX_TRIED = 20_000
"""Tools and servers without an answer that are remembered; the oldest are forgotten, and asked about again."""

Tried = tuple[str, str]
"""A server, and what was asked about: a tool's schema hash, or the digest of all its tools."""


@attrs.define
class _Said:
    """What was said of one server, and of its tools by schema hash."""

    summary: Summary | None = None
    sentences: dict[str, Summary] = attrs.field(factory=dict)


class Ledger:
    """Keeps account, for all servers of a catalog. Knows no clock and no endpoint."""

    def __init__(self) -> None:
        self._said: dict[str, _Said] = {}
        self._tried: dict[Tried, int] = {}
        self._turns: dict[str, int] = {}
        self._turn = 0

    def next_question(self, catalog: Catalog, most: int) -> Question | None:
        """What to ask now, of the server whose last turn is longest ago; None if nothing is open.

        Args:
            catalog: the present one.
            most: tools in one question.
        """
        for entry in sorted(_asked_about(catalog), key=lambda entry: self._turns.get(entry.name, 0)):
            question = self._question(catalog, entry, most)
            if question is not None:
                self._turn += 1
                self._turns[entry.name] = self._turn
                return question
        return None

    def waiting(self, catalog: Catalog) -> int:
        """How many servers and tools have no sentence yet, those given up not among them."""
        return sum(
            len(self._missing(catalog, entry)) + self._wants_overview(entry) for entry in _asked_about(catalog)
        )

    @property
    def given_up(self) -> int:
        """How many servers and tools are left without a sentence."""
        return sum(count >= GIVE_UP for count in self._tried.values())

    def learn(self, question: Question, answer: ModelAnswer, at: float) -> None:
        """Take in what was answered; what was not counts as tried.

        Args:
            question: what was asked.
            answer: what was taken of the answer.
            at: seconds since the epoch.
        """
        said = self._said.setdefault(question.server, _Said())
        for tool in question.tools:
            if (about := answer.tools.get(tool.name)) is None:
                self._count((question.server, tool.schema_hash))
            else:
                said.sentences[tool.schema_hash] = Summary(
                    text=about.text, keywords=about.keywords, of=tool.schema_hash, at=at
                )
        if answer.server is not None:
            said.summary = Summary(
                text=answer.server.text, keywords=answer.server.keywords, of=question.digest, at=at
            )
        elif question.overview is not None:
            self._count((question.server, question.digest))

    def failed(self, question: Question) -> None:
        """Nothing could be made of the answer to a question."""
        for key in _keys(question):
            self._count(key)

    def news(self, catalog: Catalog) -> Iterator[Summarized]:
        """What the catalog does not know yet, each server's whole; forgets what is about nothing any more."""
        for name in self._said.keys() - catalog.servers.keys():
            del self._said[name]
            self._turns.pop(name, None)
        for name, said in self._said.items():
            entry = catalog.servers[name]
            present = {tool.schema_hash for tool in (entry.tools or {}).values()}
            said.sentences = {digest: each for digest, each in said.sentences.items() if digest in present}
            unknown = said.sentences.keys() - entry.sentences.keys()
            if unknown or self._is_newer(said.summary, entry):
                yield Summarized(
                    server=name,
                    summary=said.summary if self._is_newer(said.summary, entry) else None,
                    sentences={
                        digest: each
                        for digest, each in {**entry.sentences, **said.sentences}.items()
                        if digest in present
                    },
                )

    def _question(self, catalog: Catalog, entry: ServerEntry, most: int) -> Question | None:
        missing = self._missing(catalog, entry)
        tries = min((self._tries(entry, tool.schema_hash) for tool in missing), default=0)
        size = max(1, most // SHRINK**tries)
        tools = [tool for tool in missing if self._tries(entry, tool.schema_hash) == tries][:size]
        digest = _digest(entry)
        overview = self._wants_overview(entry)
        if tools and (tries or self._tries(entry, digest)):
            # What went wrong before is asked about by itself.
            overview = False
        if not tools and not overview:
            return None
        return Question(
            server=entry.name,
            description=entry.description,
            overview=tuple((entry.tools or {}).values()) if overview else None,
            digest=digest,
            tools=tuple(tools),
        )

    def _missing(self, catalog: Catalog, entry: ServerEntry) -> list[Tool]:
        said = self._said.get(entry.name, _NOTHING).sentences
        return [
            tool
            for tool in (entry.tools or {}).values()
            if tool.schema_hash not in entry.sentences
            and tool.schema_hash not in said
            and (entry.name, tool.name) not in catalog.switched
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
        self._tried[key] = self._tried.pop(key, 0) + 1
        if len(self._tried) > MAX_TRIED:
            del self._tried[next(iter(self._tried))]


_NOTHING = _Said()


def _asked_about(catalog: Catalog) -> list[ServerEntry]:
    """What is switched off is not shown, so nobody else need read about it."""
    return [entry for entry in catalog.servers.values() if entry.tools and not entry.disabled]


def _digest(entry: ServerEntry) -> str:
    return tools_digest(tool.schema_hash for tool in (entry.tools or {}).values())


def _keys(question: Question) -> Iterator[Tried]:
    for tool in question.tools:
        yield question.server, tool.schema_hash
    if question.overview is not None:
        yield question.server, question.digest
