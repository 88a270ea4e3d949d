"""What of a tool is searched: nine fields, folded into one weight for each term (BM25F).

What tools say of themselves: praise, which counts nothing, and that they are deprecated, which counts.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import attrs
import msgspec

from daemon.search.text import terms

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from daemon.model import Summary, Tool, ToolKey

K1 = 1.4
B = 0.75
"""BM25's saturation and length normalisation, as measured best on public sets of tools."""

MAX_TEXT = 8192
"""Characters of one field that are read: the longest real description has a little more."""

MAX_DEPTH = 4
"""Levels of a schema that are looked into: below are details."""

MAX_VALUES = 50
"""Values of one enum that are read."""


@attrs.frozen(kw_only=True)
class _Field:
    weight: float
    length: float
    """Terms that such a field has on average, over 9,400 public tools: a constant, so that one tool's weights
    do not depend on what else is there."""


FIELDS = {
    "name": _Field(weight=3.0, length=2.5),
    "server": _Field(weight=2.0, length=2.0),
    "description": _Field(weight=1.0, length=17.0),
    "parameters": _Field(weight=0.5, length=5.0),
    "parameter_descriptions": _Field(weight=0.3, length=22.0),
    "values": _Field(weight=0.2, length=4.0),
    "server_description": _Field(weight=0.2, length=20.0),
    # A model's words, where there are any. Most of a sentence is in the description already; a keyword is not.
    "sentence": _Field(weight=0.3, length=10.0),
    "keywords": _Field(weight=0.5, length=8.0),
}


@attrs.frozen(kw_only=True)
class Document:
    """One tool, ready to be searched."""

    key: ToolKey
    """The tool, by server and name."""
    weights: Mapping[str, float]
    """Term to its saturated weight, between 0 and `K1` + 1, not yet multiplied by how rare the term is."""
    name_terms: frozenset[str]
    """The terms of its name; an empty one for all praise in it."""


def document(tool: Tool, server_description: str, said: Summary | None = None) -> Document:
    """Read a tool.

    Args:
        tool: which.
        server_description: what is said of its server.
        said: what a model says of it.
    """
    fields = {
        "name": _earnest(tool.name),
        "server": terms(tool.server),
        "description": _earnest(tool.description[:MAX_TEXT]),
        "server_description": _earnest(server_description[:MAX_TEXT]),
        "sentence": terms(said.text) if said else [],
        "keywords": terms(" ".join(said.keywords)) if said else [],
        **_of_schema(tool.parts.get("inputSchema", b"")),
    }
    return Document(
        key=(tool.server, tool.name),
        weights=_weights(fields),
        name_terms=frozenset(fields["name"]),
    )


def digest_of(tool: Tool, server_description: str, said: Summary | None = None) -> tuple[str, ...]:
    """What the document of a tool is made of: equal for equal documents."""
    return tool.schema_hash, server_description, *((said.text, *said.keywords) if said else ())


def _earnest(text: str) -> list[str]:
    """The terms of a text; each word of praise an empty one, which nobody asks for but which has its length."""
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
    """(field, text) of every parameter in a schema."""
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
"""What a deprecated tool counts against its like: found where nothing else fits nearly as well."""

MAX_READ = 2000
"""Characters of a description in which a tool may say that it is deprecated."""

_PRAISE = re.compile(
    r"(?<![A-Za-z])(?i:always|best|essential|important|mandatory|official(?:ly)?|preferred|prioriti[sz]ed"
    r"|recommended|superior|trusted|ultimate)(?![a-z])"
)
"""Words by which a tool is to be chosen rather than found. "recommendation" says what it does."""

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
"""At an end of a name: `list_deprecated_packages` is none."""


def without_praise(text: str) -> tuple[str, int]:
    """A text without its words of praise, and how many they were."""
    return _PRAISE.subn(" ", text)


def deprecated(tool: Tool) -> bool:
    """Whether a tool's name, title, description or annotations say that it should not be used any more."""
    if _NAMED.search(tool.name) or _MARKED.search(tool.description[:MAX_READ]):
        return True
    annotations = _decoded(tool.parts.get("annotations", b""))
    said = annotations if isinstance(annotations, dict) else {}
    titles = (_decoded(tool.parts.get("title", b"")), said.get("title"))
    return said.get("deprecated") is True or any(
        isinstance(title, str) and _MARKED.search(title[:MAX_READ]) for title in titles
    )


def _decoded(raw: bytes) -> Any:
    """A member of a tool; None where it says nothing of the kind, which costs nothing."""
    lowered = raw.lower()
    if b"deprecated" not in lowered and b"obsolete" not in lowered:
        return None
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return None
