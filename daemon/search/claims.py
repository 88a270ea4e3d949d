"""What tools say of themselves: praise, which counts nothing, and that they are deprecated, which counts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from daemon.model import Tool

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
