"""An encoder for tests: words that mean the same are the same axis. And catalogs' servers, briefly written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from daemon.catalog.entry import KnownList
from daemon.catalog.snapshot import ServerEntry
from daemon.facts import ServerStatus
from daemon.model import Kind
from daemon.search.vectors import Encoder
from daemon.states import ServerState
from tests.unit.catalog.samples import tool

if TYPE_CHECKING:
    from collections.abc import Sequence

    from daemon.search.vectors import Passage, Vector

MOST_WORDS = 4096
_AXES: dict[str, int] = {}

SAME = {"erase": "delete", "remove": "delete", "forecast": "weather", "rain": "weather", "umbrella": "weather"}


class FakeEncoder(Encoder):
    """Counts words; remembers what it was asked for."""

    def __init__(self) -> None:
        self.encoded: list[str] = []
        """The first text of each passage."""
        self.largest_batch = 0

    def encode(self, passages: Sequence[Passage]) -> list[Vector]:
        self.encoded += [passage[0][1] for passage in passages]
        self.largest_batch = max(self.largest_batch, len(passages))
        return [_meaning(passage) for passage in passages]


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


def _meaning(passage: Passage) -> Vector:
    vector = np.zeros(MOST_WORDS, dtype=np.float32)
    for _, text in passage:
        for word in text.lower().split():
            axis = SAME.get(word.strip(".:"), word.strip(".:"))
            vector[_AXES.setdefault(axis, len(_AXES))] += 1
    return vector / np.float32(np.linalg.norm(vector))
