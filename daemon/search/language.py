"""What is known of words beforehand: how rare they are among public tools, and which are close in meaning.

Read from two files of this package (their origin: data/README.md), once, by whoever makes an index first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib.resources import files

import attrs

from daemon.search.text import stem
from daemon.search.words import SYNONYMS

CLOSE = 0.8
"""How close words of one hand-written group are held to be."""


@attrs.frozen(kw_only=True)
class Language:
    """How rare words are among public tools, and which words are close in meaning."""

    tools: int
    """How many public tools were read."""
    frequencies: Mapping[str, int]
    """Stem to the number of those that have it."""
    neighbours: Mapping[str, tuple[tuple[str, float], ...]]
    """Stem to close stems with their closeness, 0 to 1, closest first."""


NOTHING = Language(tools=0, frequencies={}, neighbours={})
"""A language of which nothing is known."""


class _Neighbours(Mapping[str, tuple[tuple[str, float], ...]]):
    """Terms with those near to them, read when they are looked up: few of the thousands ever are."""

    def __init__(self, lines: Mapping[str, str], groups: Mapping[str, Mapping[str, float]]) -> None:
        """Take what is known.

        Args:
            lines: for each term others as they are written, `other:80 another:60`.
            groups: for some, or for further terms, others that count more than what is written.
        """
        self._lines = lines
        self._groups = groups

    def __getitem__(self, term: str) -> tuple[tuple[str, float], ...]:
        pairs = (pair.partition(":") for pair in self._lines.get(term, "").split())
        near = {other: int(closeness) / 100 for other, _, closeness in pairs}
        near.update(self._groups.get(term, {}))
        if not near:
            raise KeyError(term)
        return tuple(sorted(near.items(), key=lambda pair: -pair[1]))

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self._lines, *self._groups]))

    def __len__(self) -> int:
        return len({*self._lines, *self._groups})


@lru_cache(maxsize=1)
def language() -> Language:
    """All that is known. Reads files: not for the event loop."""
    data = files("daemon.search") / "data"
    count, *lines = (data / "frequencies.txt").read_text(encoding="utf-8").splitlines()
    frequencies = {term: int(number) for term, _, number in (line.partition(" ") for line in lines)}
    near = (data / "neighbours.txt").read_text(encoding="utf-8").splitlines()
    groups: dict[str, dict[str, float]] = {}
    for group in SYNONYMS:
        stems = [found for word in group if (found := stem(word))]
        for one in stems:
            groups.setdefault(one, {}).update({other: CLOSE for other in stems if other != one})
    return Language(
        tools=int(count),
        frequencies=frequencies,
        neighbours=_Neighbours(
            {term: rest for term, _, rest in (line.partition(" ") for line in near)}, groups
        ),
    )
