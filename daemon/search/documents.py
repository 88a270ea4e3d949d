"""The searchable form of a tool: nine fields, without self-praise, folded into one weight per term (BM25F)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from daemon.model import Summary, Tool, ToolKey
from daemon.protocol import decoded
from daemon.search.language import terms

K1 = 1.4
B = 0.75
"""BM25's saturation and length normalisation, measured best on public sets of tools."""

MAX_TEXT = 8192
"""Characters of one field: the longest real description has slightly more."""

MAX_DEPTH = 4
"""Levels of a schema: deeper ones are details."""

MAX_VALUES = 50
"""Values of one enum."""


class _Field(msgspec.Struct, frozen=True, kw_only=True):
    weight: float
    length: float
    """The average number of terms over 9,400 public tools; constant, so that tools' weights are independent."""


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


def document(tool: Tool, server_description: str, said: Summary | None = None) -> SearchDocument:
    """Make a tool's searchable form, from its server's description and a model's summary, too."""
    fields = {
        "name": _earnest(tool.name),
        "server": terms(tool.server),
        "description": _earnest(tool.description[:MAX_TEXT]),
        "server_description": _earnest(server_description[:MAX_TEXT]),
        "sentence": terms(said.text) if said else [],
        "keywords": terms(" ".join(said.keywords)) if said else [],
        **_of_schema(tool.parts.get("inputSchema", b"")),
    }
    return SearchDocument(
        key=(tool.server, tool.name), weights=_weights(fields), name_terms=frozenset(fields["name"])
    )


def digest_of(tool: Tool, server_description: str, said: Summary | None = None) -> tuple[str, ...]:
    """The key of a tool's document: equal digests mean equal documents."""
    return tool.schema_hash, server_description, *((said.text, *said.keywords) if said else ())


def _earnest(text: str) -> list[str]:
    said, praise = without_praise(text)
    return terms(said) + [""] * praise


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
"""The factor for deprecated tools, which are found only if nothing else fits nearly as well."""

MAX_READ = 2000
"""Characters of a description searched for a deprecation note."""

_PRAISE = re.compile(
    r"(?<![A-Za-z])(?i:always|best|essential|important|mandatory|official(?:ly)?|preferred|prioriti[sz]ed"
    r"|recommended|superior|trusted|ultimate)(?![a-z])"
)
"""Words that advertise a tool; "recommendation" is not one."""

_MARKED = re.compile(
    r"\A\W*(?i:deprecated|obsolete)\b"
    r"|(?<![A-Za-z])(?:DEPRECATED|OBSOLETE)(?![A-Za-z])"
    r"|[\[(](?i:deprecated|obsolete)[\])]"
    r"|\b(?i:(?:this|the) (?:tool|function|method|endpoint|api|call)(?: is| has been)?(?: now)?"
    r" (?:deprecated|obsolete))\b"
)
_NAMED = re.compile(
    r"\A(?i:deprecated|obsolete)(?![a-z])|(?<![A-Za-z])(?i:deprecated|obsolete)\Z|(?:Deprecated|Obsolete)\Z"
)
"""Only at an end of the name: `list_deprecated_packages` is not deprecated."""


def without_praise(text: str) -> tuple[str, int]:
    """A text without words of praise, and their number."""
    return _PRAISE.subn(" ", text)


def deprecated(tool: Tool) -> bool:
    """Whether a tool's name, title, description or annotations mark it as deprecated."""
    if _NAMED.search(tool.name) or _MARKED.search(tool.description[:MAX_READ]):
        return True
    annotations = _decoded(tool.parts.get("annotations", b""))
    said = annotations if isinstance(annotations, dict) else {}
    titles = (_decoded(tool.parts.get("title", b"")), said.get("title"))
    return said.get("deprecated") is True or any(
        isinstance(title, str) and _MARKED.search(title[:MAX_READ]) for title in titles
    )


def _decoded(raw: bytes) -> Any:
    lowered = raw.lower()
    if b"deprecated" not in lowered and b"obsolete" not in lowered:
        return None
    return decoded(msgspec.json.decode, raw)
