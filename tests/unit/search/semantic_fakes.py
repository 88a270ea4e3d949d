"""An encoder for tests: words that mean the same are the same axis. And catalogs' servers, briefly written."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any

from daemon.catalog.entry import KnownList
from daemon.catalog.snapshot import ServerEntry
from daemon.facts import ServerStatus
from daemon.model import Kind
from daemon.states import ServerState
from tests.unit.catalog.samples import tool

if TYPE_CHECKING:
    from collections.abc import Sequence

    from daemon.search.vectors import Passage

    Meaning = dict[str, float]

SAME = {"erase": "delete", "remove": "delete", "forecast": "weather", "rain": "weather", "umbrella": "weather"}


class FakeTable:
    """Meanings side by side."""

    def __init__(self, meanings: Sequence[Meaning]) -> None:
        self._meanings = tuple(meanings)

    def row(self, row: int) -> Meaning:
        return self._meanings[row]

    def closest(self, query: Meaning, count: int, rows: Sequence[int] | None) -> list[tuple[int, float]]:
        among = range(len(self._meanings)) if rows is None else rows
        cosines = [(row, _cosine(query, self._meanings[row])) for row in among]
        return sorted(cosines, key=lambda pair: -pair[1])[:count]


class FakeEncoder:
    """Counts words; remembers what it was asked for."""

    def __init__(self) -> None:
        self.encoded: list[str] = []
        """The first text of each passage."""
        self.largest_batch = 0

    def encode(self, passages: Sequence[Passage]) -> list[Meaning]:
        self.encoded += [passage[0][1] for passage in passages]
        self.largest_batch = max(self.largest_batch, len(passages))
        return [_meaning(passage) for passage in passages]

    def table(self, vectors: Sequence[Meaning]) -> FakeTable:
        return FakeTable(vectors)


def entry(server: str, tools: dict[str, str] | None, description: str = "") -> ServerEntry:
    """A server with these tools: descriptions by name; None if it has not listed any."""
    listed = (
        None if tools is None else {name: tool(server, name, description=text) for name, text in tools.items()}
    )
    status = ServerStatus(state=ServerState.READY)
    lists = {} if listed is None else {Kind.TOOL: KnownList(definitions=listed)}
    return ServerEntry(name=server, description=description, status=status, lists=lists)


def servers(**tools: dict[str, str] | None) -> dict[str, ServerEntry]:
    """Servers by name."""
    return {server: entry(server, listed) for server, listed in tools.items()}


def _meaning(passage: Passage) -> Meaning:
    counts: Counter[str] = Counter()
    for _, text in passage:
        counts.update(SAME.get(word.strip(".:"), word.strip(".:")) for word in text.lower().split())
    length = math.sqrt(sum(count * count for count in counts.values()))
    return {word: count / length for word, count in counts.items()}


def _cosine(one: dict[str, Any], other: dict[str, Any]) -> float:
    return float(sum(share * other.get(word, 0.0) for word, share in one.items()))
