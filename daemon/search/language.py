"""Terms of texts, and prior knowledge about words, from data files (data/README.md)."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from enum import IntEnum
from functools import lru_cache
from importlib.resources import files

import msgspec
import Stemmer

_DATA = files("daemon.search") / "data"

STOP_WORDS = frozenset((_DATA / "stop_words.txt").read_text(encoding="utf-8").split())
"""English function words and words of asking."""

MAX_WORD = 40
"""Characters of a word: longer ones are hashes and base64."""

KEPT_STEMS = 1 << 16
"""Cached stems: 10,000 tools use 30,000 words."""

_SPELT = re.compile(r"[^\W_]+")
_PARTS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
"""Splits camelCase and digits: `getHTTPUrl2` is get, HTTP, Url, 2."""

_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff]+")

_stemmer = Stemmer.Stemmer("english", 0)


def terms(text: str) -> list[str]:
    """The terms of a text in order, but stop words: folded (NFKC), stemmed (Snowball English), or bigrams."""
    found: list[str] = []
    for word in _SPELT.findall(unicodedata.normalize("NFKC", text)):
        found += _of_word(word) if word.isascii() else _foreign(word)
    return found


@lru_cache(maxsize=KEPT_STEMS)
def stem(word: str) -> str:
    """The stem of a lower-case word; empty for stop words and those over `MAX_WORD`."""
    if word in STOP_WORDS or len(word) > MAX_WORD:
        return ""
    return stem_of(word)


def stem_of(word: str) -> str:
    """The stem of a lower-case word, stop word or not."""
    stemmed: str = _stemmer.stemWord(word)
    return stemmed


def parts(word: str) -> list[str]:
    """The lower-case parts of an ASCII word."""
    return [part.lower() for part in _PARTS.findall(word)]


def _of_word(word: str) -> list[str]:
    return [term for part in parts(word) if (term := stem(part))]


def _foreign(word: str) -> list[str]:
    found: list[str] = []
    end = 0
    for run in _CJK.finditer(word):
        found += _between(word[end : run.start()])
        characters = run.group()
        found += [characters[i : i + 2] for i in range(max(1, len(characters) - 1))]
        end = run.end()
    return found + _between(word[end:])


def _between(text: str) -> list[str]:
    if text.isascii():
        return _of_word(text)
    return [text.lower()] if len(text) <= MAX_WORD else []


def plain(name: str) -> str:
    """A name in its form for comparisons: lower case, words joined by underscores."""
    return "_".join(_SPELT.findall(unicodedata.normalize("NFKC", name).replace("_", " "))).lower()


CLOSE = 0.8
"""The closeness of words in one group of synonyms."""


class Language(msgspec.Struct, frozen=True, kw_only=True):
    """The rarity of words among public tools, and words of close meaning."""

    tools: int
    frequencies: Mapping[str, int]
    """The number of tools with a stem."""
    neighbours: Mapping[str, tuple[tuple[str, float], ...]]
    """Close stems with closeness 0 to 1, closest first."""

    def is_word(self, term: str) -> bool:
        """Whether a term is a known word, not a spelling mistake."""
        return term in self.frequencies or term in self.neighbours


NOTHING = Language(tools=0, frequencies={}, neighbours={})


class _Neighbours(Mapping[str, tuple[tuple[str, float], ...]]):
    def __init__(self, lines: Mapping[str, str], groups: Mapping[str, Mapping[str, float]]) -> None:
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


def _rows(name: str) -> list[tuple[str, str]]:
    lines = (line.partition(" ") for line in (_DATA / name).read_text(encoding="utf-8").splitlines())
    return [(first, rest) for first, _, rest in lines]


@lru_cache(maxsize=1)
def language() -> Language:
    """The language of this package. Reads files: not for the event loop."""
    (count, _), *frequencies = _rows("frequencies.txt")
    groups: dict[str, dict[str, float]] = {}
    for first, others in _rows("synonyms.txt"):
        stems = [found for word in (first, *others.split()) if (found := stem(word))]
        for one in stems:
            groups.setdefault(one, {}).update({other: CLOSE for other in stems if other != one})
    return Language(
        tools=int(count),
        frequencies={term: int(number) for term, number in frequencies},
        neighbours=_Neighbours(dict(_rows("neighbours.txt")), groups),
    )


OTHERWISE = 0.9
"""The factor for a tool of another action: names are not always clear."""

OPPOSED = 0.3
"""The factor if one side removes: that mistake cannot be undone."""


class ToolAction(IntEnum):
    """The action of a tool or of a query."""

    NONE = 0
    READ = 1
    MAKE = 2
    CHANGE = 3
    REMOVE = 4


_ACTIONS = {stem_of(verb): ToolAction[action] for action, verbs in _rows("verbs.txt") for verb in verbs.split()}
_NO_VERB_AFTER = frozenset((_DATA / "before_nouns.txt").read_text(encoding="utf-8").split())
"""Words after which a verb is a noun: "my schedule", "a list of"."""

_WORDS = re.compile(r"[a-z0-9]+")

Asked = frozenset[ToolAction]
"""The actions of a query; empty if it names none."""

ANY_ACTION: Asked = frozenset()


def actions_of(need: str) -> Asked:
    """The kinds of action in a query."""
    before = ""
    found = set()
    for word in _WORDS.findall(need.lower()):
        action = _ACTIONS.get(stem_of(word))
        if action is not None and before not in _NO_VERB_AFTER:
            found.add(action)
        before = word
    return frozenset(found)


def is_verb(term: str) -> bool:
    """Whether a term is one of the verbs of actions."""
    return term in _ACTIONS


def action_of(name: str) -> ToolAction:
    """The action of the first verb in a tool's name."""
    return next((action for part in parts(name) if (action := _ACTIONS.get(stem_of(part)))), ToolAction.NONE)


@lru_cache(maxsize=1 << len(ToolAction))
def worth(asked: Asked) -> tuple[float, ...]:
    """The factor of each action, in order: lower for unwanted ones."""
    return tuple(_worth(action, asked) for action in ToolAction)


def _worth(action: ToolAction, asked: Asked) -> float:
    if action is ToolAction.NONE or not asked or action in asked:
        return 1.0
    if action is ToolAction.REMOVE or asked == {ToolAction.REMOVE}:
        return OPPOSED
    return OTHERWISE if len(asked) == 1 else 1.0
