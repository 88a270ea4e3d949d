"""Turns text into terms, in the same way for tools and for queries."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

import Stemmer

STOP_WORDS = frozenset(
    """
    a about above after again all also am an and any anyone are as at be because been before being below
    between both but by can could did do does doing down during each either etc every few for from
    further had has have having he her here hers him his how i if in into is it its itself just let like
    lot many may me might mine more most much must my myself near need no nor not of off on once one
    only or other our ours out over own per same shall she should so some such than that the their
    theirs them then there these they this those through to too under until up upon us use used uses
    using very via want was we were what when where whether which while who whom whose why will with
    within without would yes yet you your yours please help needs needed wanted wants show shows give
    gives given tell tells know able hello hi hey thanks thank kindly looking could specific
    specifically based provide provides provided providing related including include includes according
    various several different certain something anything everything tool tools function api server mcp
    """.split()  # noqa: SIM905 - a list of words is easier to read without quotes
)
"""English function words and words of asking, by which tools are never found."""

MAX_WORD = 40
"""Characters of the longest word: longer ones are hashes and base64."""

KEPT_STEMS = 1 << 16
"""Stems that are cached: the vocabulary of 10,000 tools has 30,000 words."""

_WORDS = re.compile(r"[^\W_]+")
_PARTS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
"""Splits camelCase and digits: `getHTTPUrl2` is get, HTTP, Url, 2."""

_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff]+")

_stemmer = Stemmer.Stemmer("english", 0)


def terms(text: str) -> list[str]:
    """The terms of a text, in order, repetitions kept; stop words are left out.

    Unicode is folded (NFKC), words are split at punctuation, underscores, camelCase and digits, and stemmed
    (Snowball English); runs of Chinese, Japanese or Korean characters become bigrams.
    """
    found: list[str] = []
    for word in _WORDS.findall(unicodedata.normalize("NFKC", text)):
        found += _of_word(word) if word.isascii() else _foreign(word)
    return found


@lru_cache(maxsize=KEPT_STEMS)
def stem(word: str) -> str:
    """The stem of a lower-case word; empty for a stop word and for one longer than `MAX_WORD`."""
    if word in STOP_WORDS or len(word) > MAX_WORD:
        return ""
    return stem_of(word)


def stem_of(word: str) -> str:
    """The stem of a lower-case word, even of a stop word."""
    stemmed: str = _stemmer.stemWord(word)
    return stemmed


def parts(word: str) -> list[str]:
    """The parts of an ASCII word, in lower case."""
    return [part.lower() for part in _PARTS.findall(word)]


def _of_word(word: str) -> list[str]:
    return [term for part in parts(word) if (term := stem(part))]


def _foreign(word: str) -> list[str]:
    """The terms of a word with characters that are not ASCII."""
    found: list[str] = []
    end = 0
    for run in _CJK.finditer(word):
        found += _between(word[end : run.start()])
        characters = run.group()
        found += [characters[i : i + 2] for i in range(max(1, len(characters) - 1))]
        end = run.end()
    return found + _between(word[end:])


def _between(text: str) -> list[str]:
    """The terms of text between runs of ideographs: words of other alphabets stay whole."""
    if text.isascii():
        return _of_word(text)
    return [text.lower()] if len(text) <= MAX_WORD else []


def plain(name: str) -> str:
    """A name in the form in which names are compared: lower case, words joined by underscores."""
    return "_".join(_WORDS.findall(unicodedata.normalize("NFKC", name).replace("_", " "))).lower()
