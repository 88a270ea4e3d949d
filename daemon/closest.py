"""Names that may have been meant where another was written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon.later import later

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rapidfuzz import fuzz, process
else:
    # 5 ms: it takes somebody who has written a wrong name.
    fuzz, process = later("rapidfuzz.fuzz", due=True), later("rapidfuzz.process", due=True)

ALIKE = 60
"""How much two names must have in common to be taken for one another, of 100 (indel similarity)."""

LONGEST = 200
"""Characters of a wrong name that are compared; real names have at most 128 bytes."""

MAX_COMPARED = 20_000
"""Names that a wrong one is compared with, 0.2 µs each: two servers' fill."""


def closest(wanted: str, names: Iterable[str], most: int = 3) -> list[str]:
    """The names that look most like a wrong one, closest first.

    Args:
        wanted: what was written.
        names: what there is.
        most: how many to return.
    """
    known = list(dict.fromkeys(names))[:MAX_COMPARED]
    found = process.extract(wanted[:LONGEST], known, scorer=fuzz.ratio, limit=most, score_cutoff=ALIKE)
    return [name for name, _score, _position in found]
