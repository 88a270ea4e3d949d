"""What the tables of remedies are made of, and how one is searched."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

LINE = 400
"""Characters of a line that are read: patterns take the longer for it, and servers write what they like."""

SHOWN = 120
"""Characters of somebody else's words that a remedy repeats."""


class Remedy(NamedTuple):
    """One sentence each."""

    happened: str
    """What happened."""
    helps: str
    """What to do about it."""


class Row(NamedTuple):
    """A pattern, and what it means."""

    pattern: str
    """A regular expression, searched for in one line."""
    happened: str
    """What happened; `{0}` is the first group of the pattern, `{server}` the server's name."""
    helps: str
    """What helps; likewise."""


def search(rows: Iterable[Row], lines: Sequence[str], server: str) -> Remedy | None:
    """What the first row says that fits a line, about the first line that it fits; None if none does."""
    readable = [line[:LINE] for line in lines]
    for row in rows:
        pattern = re.compile(row.pattern)
        for line in readable:
            if match := pattern.search(line):
                return _filled(row, match, server)
    return None


def _filled(row: Row, match: re.Match[str], server: str) -> Remedy:
    said = tuple((group or "").strip()[:SHOWN] for group in match.groups())
    return Remedy(*(_sentence(text.format(*said, server=server)) for text in (row.happened, row.helps)))


def _sentence(text: str) -> str:
    """With a full stop, also where a group at its end matched nothing."""
    whole = text.rstrip(" :")
    return whole if whole.endswith((".", "!", "?")) else f"{whole}."
