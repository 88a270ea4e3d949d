"""What a server is for, told by the names of its tools: all that is known of one that nobody describes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from daemon.surfaces.answers import MAX_LINE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MAX_PHRASES = 300
"""Names that are read: a line has room for some thirty of them."""

ROOM = MAX_LINE - 20
"""Characters of the phrases: the name of what they describe stands before them on the same line."""

_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[^\W\d_A-Z]+|[A-Z]+|\d+")
_SMALL = frozenset({"a", "an", "and", "by", "for", "from", "in", "of", "on", "or", "the", "to", "with"})

Phrase = tuple[str, ...]


def in_words(names: Iterable[str], server: str) -> str:
    """Names of tools as phrases, as many as have room: `navigate, take screenshot, click, fill form`.

    What all names begin with is left out, and so is their server's name. Where not all have room, no word is
    said twice: whoever looks for one finds it.

    Args:
        names: the tools' names, in their server's order.
        server: what their server is called.
    """
    phrases = _without_prefix([_words(name) for name, _ in zip(names, range(MAX_PHRASES), strict=False)])
    own = set(_words(server))
    phrases = [_without_own(phrase, own) for phrase in phrases]
    whole = list(dict.fromkeys(" ".join(phrase) for phrase in phrases if phrase))
    if len(", ".join(whole)) <= ROOM:
        return ", ".join(whole)
    said: set[str] = set(_SMALL)
    line = ""
    for phrase in phrases:
        new = " ".join(word for word in phrase if word not in said)
        longer = f"{line}, {new}" if line and new else line or new
        if len(longer) > ROOM:
            return f"{line or longer[:ROOM]}…"
        said.update(phrase)
        line = longer
    return line


def _words(name: str) -> Phrase:
    return tuple(word.lower() for word in _WORD.findall(name))


def _without_prefix(phrases: Sequence[Phrase]) -> Sequence[Phrase]:
    """Without the first words that all of several have, as long as each keeps one."""
    while len(phrases) > 1 and all(len(phrase) > 1 for phrase in phrases):
        if len({phrase[0] for phrase in phrases}) > 1:
            break
        phrases = [phrase[1:] for phrase in phrases]
    return phrases


def _without_own(phrase: Phrase, own: set[str]) -> Phrase:
    """Without the server's own name at its beginning."""
    start = next((at for at, word in enumerate(phrase) if word not in own), len(phrase) - 1)
    return phrase[max(0, start) :]
