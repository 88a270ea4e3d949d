"""What is known of words beforehand: how rare they are among public tools, and which are close in meaning.

Read from two files of this package (their origin: data/README.md), once, by whoever makes an index first.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING

import attrs

from daemon.search.text import stem
from daemon.search.words import SYNONYMS

if TYPE_CHECKING:
    from collections.abc import Mapping

CLOSE = 0.8
"""How close words of one hand-written group are held to be."""


@attrs.frozen(kw_only=True)
class Language:
    """Words."""

    tools: int
    """How many public tools were read."""
    frequencies: Mapping[str, int]
    """Stem to the number of those that have it."""
    neighbours: Mapping[str, tuple[tuple[str, float], ...]]
    """Stem to close stems with their closeness, 0 to 1, closest first."""


NOTHING = Language(tools=0, frequencies={}, neighbours={})
"""Before anything was read."""


@lru_cache(maxsize=1)
def language() -> Language:
    """All that is known. Reads files: not for the event loop."""
    data = files("daemon.search") / "data"
    count, *lines = (data / "frequencies.txt").read_text(encoding="utf-8").splitlines()
    frequencies = {term: int(number) for term, _, number in (line.partition(" ") for line in lines)}
    near: dict[str, dict[str, float]] = {}
    for line in (data / "neighbours.txt").read_text(encoding="utf-8").splitlines():
        term, *pairs = line.split(" ")
        near[term] = {other: int(closeness) / 100 for other, _, closeness in (p.partition(":") for p in pairs)}
    for group in SYNONYMS:
        stems = [found for word in group if (found := stem(word))]
        for one in stems:
            known = near.setdefault(one, {})
            known.update({other: CLOSE for other in stems if other != one})
    neighbours = {
        term: tuple(sorted(others.items(), key=lambda pair: -pair[1])) for term, others in near.items()
    }
    return Language(tools=int(count), frequencies=frequencies, neighbours=neighbours)
