"""Merging two sets of changes to one text, line by line, as version control does."""

from __future__ import annotations

from difflib import SequenceMatcher
from typing import NamedTuple

MOST_LINES = 20_000
"""Lines of a text that are compared: the comparison takes time with their square, and no client's file has more
unless it is a database."""


class _Hunk(NamedTuple):
    """Lines of the common text that one side has replaced."""

    first: int
    last: int
    lines: list[str]


def merged_lines(common: str, one: str, other: str) -> str | None:
    """`common` with what both texts have changed in it; None if they have changed the same place.

    Changes that touch are changes of the same place: which of them comes first nobody knows.
    """
    lines = common.splitlines(keepends=True)
    sides = [text.splitlines(keepends=True) for text in (one, other)]
    if max(map(len, (lines, *sides))) > MOST_LINES:
        return None
    hunks = sorted(hunk for side in sides for hunk in _hunks(lines, side))
    merged, at = list[str](), 0
    for number, hunk in enumerate(hunks):
        # Hunks of one side never touch: some line between them has stayed.
        if number and hunk.first <= hunks[number - 1].last:
            return None
        merged += [*lines[at : hunk.first], *hunk.lines]
        at = hunk.last
    return "".join([*merged, *lines[at:]])


def _hunks(lines: list[str], changed: list[str]) -> list[_Hunk]:
    matcher = SequenceMatcher(None, lines, changed, autojunk=False)
    return [
        _Hunk(first, last, changed[start:end])
        for tag, first, last, start, end in matcher.get_opcodes()
        if tag != "equal"
    ]
