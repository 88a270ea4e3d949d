"""Names of tools in words: `browser_take_screenshot` becomes "take screenshot".

A model reads words more easily than names. And a client's own search finds them: in that of Codex, for one, a
name with underscores is a single word that nobody looks for.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING

from daemon.search.text import stem_of
from daemon.surfaces.answers import MAX_LINE, MAX_NAME

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

MAX_PHRASES = 300
"""Names that are looked at: a line has room for some thirty of them."""

ROOM = MAX_LINE - MAX_NAME
"""Characters of all phrases on a line: the name of what they describe comes before them."""

KEPT = 512
"""Lines that are kept: clients are shown the same ones again and again. Twice as many as large configurations
have servers."""

_TOLD = 1000
"""Characters of each description that are looked at: what a tool is about stands at the beginning."""

_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[^\W\d_A-Z]+|[A-Z]+|\d+")
_SMALL = frozenset({"a", "an", "and", "by", "for", "from", "in", "of", "on", "or", "the", "to", "with"})

Phrase = tuple[str, ...]


def in_words(tools: Iterable[tuple[str, str]], server: str, room: int = ROOM) -> str:
    """Names of tools as phrases, as many as fit: `navigate, take screenshot, click, fill form`.

    A common prefix of all names is left out, and so is their server's name. If not all phrases fit, no word is
    repeated, and those are taken whose words most of the server's tools are described with.

    Args:
        tools: the tools' names and descriptions, in their server's order.
        server: the name of their server.
        room: characters of all phrases.
    """
    return _in_words(tuple(islice(tools, MAX_PHRASES)), server, room)


@lru_cache(maxsize=KEPT)
def _in_words(tools: tuple[tuple[str, str], ...], server: str, room: int) -> str:
    phrases = _without_prefix([_words(name) for name, _description in tools])
    own = set(_words(server))
    phrases = [_without_own(phrase, own) for phrase in phrases]
    whole = ", ".join(dict.fromkeys(" ".join(phrase) for phrase in phrases if phrase))
    if len(whole) <= room:
        return whole
    once = ", ".join(_each_once(phrases))
    if len(once) <= room:
        return once
    some = ", ".join(_each_once([phrases[place] for place in _central(phrases, _uses(tools), room)]))
    return f"{some or once[:room]}…"


def _central(phrases: Sequence[Phrase], uses: Mapping[str, int], room: int) -> list[int]:
    """The places of the phrases that fit, those first of whose new words one is of the most worth."""
    said = set(_SMALL)
    left, found = dict(enumerate(phrases)), list[int]()
    while left:
        new = {place: [word for word in phrase if word not in said] for place, phrase in left.items()}
        left = {
            place: left[place] for place, words in new.items() if words and len(" ".join(words)) + 2 <= room
        }
        if left:
            best = max(left, key=lambda place: _worth(new[place], uses))
            said.update(new[best])
            room -= len(" ".join(new[best])) + 2
            found.append(best)
            del left[best]
    return sorted(found)


def _worth(words: Sequence[str], uses: Mapping[str, int]) -> tuple[int, int]:
    """What is to be said for a phrase: that tools are described with its words, and then that it is telling.

    A long word (`screenshot`) says more than a short one (`find`), which might mean anything.
    """
    return max(uses[stem_of(word)] for word in words), max(map(len, words))


def _uses(tools: Iterable[tuple[str, str]]) -> Mapping[str, int]:
    """How many of the tools have a word in their names or descriptions, by its stem."""
    return Counter(
        stem
        for name, description in tools
        for stem in {stem_of(word) for word in _words(f"{name} {description[:_TOLD]}")}
    )


def _each_once(phrases: Iterable[Phrase]) -> Iterable[str]:
    """The phrases without the words that were in those before."""
    said = set(_SMALL)
    for phrase in phrases:
        if new := " ".join(word for word in phrase if word not in said):
            yield new
        said.update(phrase)


def _words(name: str) -> Phrase:
    return tuple(word.lower() for word in _WORD.findall(name))


def _without_prefix(phrases: Sequence[Phrase]) -> Sequence[Phrase]:
    """Phrases without the first words that they all share, as long as each keeps one."""
    while len(phrases) > 1 and all(len(phrase) > 1 for phrase in phrases):
        if len({phrase[0] for phrase in phrases}) > 1:
            break
        phrases = [phrase[1:] for phrase in phrases]
    return phrases


def _without_own(phrase: Phrase, own: set[str]) -> Phrase:
    """A phrase without the server's own name at its beginning."""
    start = next((at for at, word in enumerate(phrase) if word not in own), len(phrase) - 1)
    return phrase[max(0, start) :]
