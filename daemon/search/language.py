"""Splits texts into terms, knows which words are rare or alike (data/README.md), and makes a tool searchable.

A tool has nine fields, cleared of self-praise and folded into one weight per term (BM25F).
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping
from enum import IntEnum
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
import Stemmer

from daemon.kit.later import pattern
from daemon.model import Summary, Tool, ToolKey
from daemon.protocol import decoded

_DATA = Path(__file__).with_name("data")

STOP_WORDS = frozenset((_DATA / "stop_words.txt").read_text(encoding="utf-8").split())
"""English function words, and words used to ask."""

MAX_WORD = 40
"""Most characters of a word: longer ones are hashes and base64."""

KEPT_STEMS = 1 << 16
"""Most cached stems: 10,000 tools use 30,000 words."""

_SPELT = pattern(r"[^\W_]+")
_PARTS = pattern(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
"""Splits camelCase and digits: `getHTTPUrl2` is get, HTTP, Url, 2."""

_CJK = pattern(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff]+")

_stemmer = Stemmer.Stemmer("english", 0)


def terms(text: str) -> list[str]:
    """A text's terms in order, without stop words: normalised (NFKC), stemmed (Snowball); Chinese: bigrams."""
    found: list[str] = []
    for word in _SPELT.findall(unicodedata.normalize("NFKC", text)):
        found += _of_word(word) if word.isascii() else _foreign(word)
    return found


@lru_cache(maxsize=KEPT_STEMS)
def stem(word: str) -> str:
    """The stem of a lower-case word; empty for stop words and words over `MAX_WORD`."""
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
    """A name as it is compared: lower case, words joined by underscores."""
    return "_".join(_SPELT.findall(unicodedata.normalize("NFKC", name).replace("_", " "))).lower()


CLOSE = 0.8
"""The closeness of words in one group of synonyms."""


class Language(msgspec.Struct, frozen=True, kw_only=True):
    """The rarity of words among public tools, and the words of close meaning."""

    tools: int
    frequencies: Mapping[str, int]
    """The number of tools that contain each stem."""
    lines: Mapping[str, str]
    """For each stem, the close stems with their closeness in hundredths, as in the file."""
    synonyms: Mapping[str, Mapping[str, float]]

    def near(self, term: str) -> list[tuple[str, float]]:
        """Close stems with a closeness from 0 to 1, closest first."""
        pairs = (pair.partition(":") for pair in self.lines.get(term, "").split())
        near = {other: int(closeness) / 100 for other, _, closeness in pairs}
        near.update(self.synonyms.get(term, {}))
        return sorted(near.items(), key=lambda pair: -pair[1])

    def is_word(self, term: str) -> bool:
        """Whether a term is a known word rather than a spelling mistake."""
        return term in self.frequencies or bool(self.near(term))


NOTHING = Language(tools=0, frequencies={}, lines={}, synonyms={})


def _rows(name: str) -> list[tuple[str, str]]:
    lines = (line.partition(" ") for line in (_DATA / name).read_text(encoding="utf-8").splitlines())
    return [(first, rest) for first, _, rest in lines]


@lru_cache(maxsize=1)
def language() -> Language:
    """The language data of this package. Reads files: do not call it on the event loop."""
    (count, _), *frequencies = _rows("frequencies.txt")
    groups: dict[str, dict[str, float]] = {}
    for first, others in _rows("synonyms.txt"):
        stems = [found for word in (first, *others.split()) if (found := stem(word))]
        for one in stems:
            groups.setdefault(one, {}).update({other: CLOSE for other in stems if other != one})
    return Language(
        tools=int(count),
        frequencies={term: int(number) for term, number in frequencies},
        lines=dict(_rows("neighbours.txt")),
        synonyms=groups,
    )


OTHERWISE = 0.9
"""The factor for a tool with another action than the query's; not lower, as names are not always clear."""

OPPOSED = 0.3
"""The factor if the tool removes something and the query does not, or the reverse: a removal is final."""


class ToolAction(IntEnum):
    """An action of a tool, or of a query."""

    NONE = 0
    READ = 1
    MAKE = 2
    CHANGE = 3
    REMOVE = 4


_ACTIONS = {stem_of(verb): ToolAction[action] for action, verbs in _rows("verbs.txt") for verb in verbs.split()}
_NO_VERB_AFTER = frozenset((_DATA / "before_nouns.txt").read_text(encoding="utf-8").split())
"""Words after which a verb is a noun: "my schedule", "a list of"."""

_WORDS = pattern(r"[a-z0-9]+")

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
    """Whether a term is a verb that names an action."""
    return term in _ACTIONS


def action_of(name: str) -> ToolAction:
    """The action of the first verb in a tool's name."""
    return next((action for part in parts(name) if (action := _ACTIONS.get(stem_of(part)))), ToolAction.NONE)


@lru_cache(maxsize=1 << len(ToolAction))
def worth(asked: Asked) -> tuple[float, ...]:
    """The factor for each action, in order; lower for actions that were not asked for."""
    return tuple(_worth(action, asked) for action in ToolAction)


def _worth(action: ToolAction, asked: Asked) -> float:
    if action is ToolAction.NONE or not asked or action in asked:
        return 1.0
    if action is ToolAction.REMOVE or asked == {ToolAction.REMOVE}:
        return OPPOSED
    return OTHERWISE if len(asked) == 1 else 1.0


K1 = 1.4
B = 0.75
"""BM25's saturation and length normalisation, which measured best on public sets of tools."""

MAX_TEXT = 8192
"""Most characters of one field: the longest real description has slightly more."""

MAX_DEPTH = 4
"""Most levels of a schema that are read: deeper ones are details."""

MAX_VALUES = 50
"""Most values of one enum that are read."""


class _Field(msgspec.Struct, frozen=True, kw_only=True):
    weight: float
    length: float
    """The average number of terms over 9,400 public tools; constant, so that tools do not affect each other."""


FIELDS = {
    "name": _Field(weight=3.0, length=2.5),
    "server": _Field(weight=2.0, length=2.0),
    "description": _Field(weight=1.0, length=17.0),
    "parameters": _Field(weight=0.5, length=5.0),
    "parameter_descriptions": _Field(weight=0.3, length=22.0),
    "values": _Field(weight=0.2, length=4.0),
    "server_description": _Field(weight=0.2, length=20.0),
    # Written by a model, if at all. The description holds most of a sentence, but not a keyword.
    "sentence": _Field(weight=0.3, length=10.0),
    "keywords": _Field(weight=0.5, length=8.0),
}


class SearchDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A tool, ready for searching."""

    key: ToolKey
    weights: Mapping[str, float]
    """Saturated weight by term, between 0 and `K1` + 1, before the factor for rarity."""
    name_terms: frozenset[str]


def document(tool: Tool, server_description: str, by_model: Summary | None = None) -> SearchDocument:
    """Make a tool searchable, with its server's description and a model's summary."""
    fields = {
        "name": _earnest(tool.name),
        "server": terms(tool.server),
        "description": _earnest(tool.description[:MAX_TEXT]),
        "server_description": _earnest(server_description[:MAX_TEXT]),
        "sentence": terms(by_model.text) if by_model else [],
        "keywords": terms(" ".join(by_model.keywords)) if by_model else [],
        **_of_schema(tool.parts.get("inputSchema", b"")),
    }
    return SearchDocument(
        key=(tool.server, tool.name), weights=_weights(fields), name_terms=frozenset(fields["name"])
    )


def digest_of(tool: Tool, server_description: str, short: Summary | None = None) -> tuple[str, ...]:
    """The key of a tool's document: equal digests mean equal documents."""
    return tool.schema_hash, server_description, *((short.text, *short.keywords) if short else ())


def _earnest(text: str) -> list[str]:
    plain, praise = without_praise(text)
    return terms(plain) + [""] * praise


def _weights(fields: Mapping[str, list[str]]) -> dict[str, float]:
    folded: Counter[str] = Counter()
    for name, found in fields.items():
        field = FIELDS[name]
        norm = field.weight / (1 - B + B * len(found) / field.length) if found else 0.0
        for term in filter(None, found):
            folded[term] += norm  # type: ignore[assignment]  # a counter of fractions
    return {term: weight * (K1 + 1) / (K1 + weight) for term, weight in folded.items()}


def _of_schema(raw: bytes) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {"parameters": [], "parameter_descriptions": [], "values": []}
    for kind, text in _texts(msgspec.json.decode(raw or b"{}"), 0):
        found[kind] += terms(text[:MAX_TEXT])
    return found


def _texts(schema: Any, depth: int) -> Iterator[tuple[str, str]]:
    if not isinstance(schema, dict) or depth > MAX_DEPTH:
        return
    properties = schema.get("properties")
    for name, place in properties.items() if isinstance(properties, dict) else ():
        yield "parameters", name
        if isinstance(place, dict):
            if isinstance(place.get("description"), str):
                yield "parameter_descriptions", place["description"]
            values = place.get("enum")
            for value in values[:MAX_VALUES] if isinstance(values, list) else ():
                if isinstance(value, str):
                    yield "values", value
            yield from _texts(place, depth + 1)
            yield from _texts(place.get("items"), depth + 1)


DEPRECATED = 0.3
"""The factor for deprecated tools, which are found only if nothing else matches nearly as well."""

MAX_READ = 2000
"""Most characters of a description searched for a deprecation note."""

_PRAISE = pattern(
    r"(?<![A-Za-z])(?i:always|best|essential|important|mandatory|official(?:ly)?|preferred|prioriti[sz]ed"
    r"|recommended|superior|trusted|ultimate)(?![a-z])"
)
"""Words that advertise a tool; "recommendation" is not one."""

_MARKED = pattern(
    r"\A\W*(?i:deprecated|obsolete)\b"
    r"|(?<![A-Za-z])(?:DEPRECATED|OBSOLETE)(?![A-Za-z])"
    r"|[\[(](?i:deprecated|obsolete)[\])]"
    r"|\b(?i:(?:this|the) (?:tool|function|method|endpoint|api|call)(?: is| has been)?(?: now)?"
    r" (?:deprecated|obsolete))\b"
)
_NAMED = pattern(
    r"\A(?i:deprecated|obsolete)(?![a-z])|(?<![A-Za-z])(?i:deprecated|obsolete)\Z|(?:Deprecated|Obsolete)\Z"
)
"""Matches only at an end of the name: `list_deprecated_packages` is not deprecated."""


def without_praise(text: str) -> tuple[str, int]:
    """A text without words of praise, and how many it had."""
    return _PRAISE.subn(" ", text)


def deprecated(tool: Tool) -> bool:
    """Whether a tool's name, title, description or annotations mark it as deprecated."""
    if _NAMED.search(tool.name) or _MARKED.search(tool.description[:MAX_READ]):
        return True
    annotations = _decoded(tool.parts.get("annotations", b""))
    given = annotations if isinstance(annotations, dict) else {}
    titles = (_decoded(tool.parts.get("title", b"")), given.get("title"))
    return given.get("deprecated") is True or any(
        isinstance(title, str) and _MARKED.search(title[:MAX_READ]) for title in titles
    )


def _decoded(raw: bytes) -> Any:
    lowered = raw.lower()
    if b"deprecated" not in lowered and b"obsolete" not in lowered:
        return None
    return decoded(msgspec.json.decode, raw)
