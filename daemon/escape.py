"""Making text from servers safe to show: nothing in it may move a cursor, hide itself or reorder a line.

Escaped are control characters (ANSI sequences begin with one), bidirectional controls, zero-width and other
invisible characters, tags, private use, lone surrogates, and runs of variation selectors, which can carry a
hidden text; one alone is how an emoji gets its colours. Sources: Unicode's Default_Ignorable_Code_Point,
CVE-2021-42574 ("Trojan Source"), and the ASCII smuggling through U+E0000 tags that models are steered with.
"""

from __future__ import annotations

import json
import re
import sys

HIDDEN = (
    (0x00, 0x1F),  # C0 controls
    (0x7F, 0x9F),  # DEL and C1 controls
    (0xAD, 0xAD),  # soft hyphen
    (0x34F, 0x34F),  # combining grapheme joiner
    (0x61C, 0x61C),  # Arabic letter mark
    (0x115F, 0x1160),  # Hangul fillers
    (0x17B4, 0x17B5),  # Khmer inherent vowels
    (0x180B, 0x180F),  # Mongolian selectors and vowel separator
    (0x200B, 0x200F),  # zero width, directional marks
    (0x2028, 0x202E),  # line and paragraph separator, directional embeddings and overrides
    (0x2060, 0x206F),  # word joiner, invisible operators, directional isolates
    (0x3164, 0x3164),  # Hangul filler
    (0xD800, 0xDFFF),  # lone surrogates: JSON can spell them, no terminal can show them
    (0xE000, 0xF8FF),  # private use
    (0xFEFF, 0xFEFF),  # byte order mark
    (0xFFA0, 0xFFA0),  # halfwidth Hangul filler
    (0xFFF0, 0xFFFB),  # interlinear annotations and unassigned ignorables
    (0x1BCA0, 0x1BCA3),  # shorthand format controls
    (0x1D173, 0x1D17A),  # musical format controls
    (0xE0000, 0xE0FFF),  # tags, variation selectors supplement
    (0xF0000, 0x10FFFF),  # private use planes
)
"""First and last code point of what is never shown raw."""

SELECTORS = (0xFE00, 0xFE0F)
"""Variation selectors: shown raw alone, escaped in a run."""


def _class(*ranges: tuple[int, int]) -> str:
    return "[" + "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in ranges) + "]"


_SELECTOR_RUN = _class(SELECTORS) + "{2,}"
_HIDDEN = re.compile(f"{_class(*HIDDEN)}|{_SELECTOR_RUN}")
# Line feeds, and tabs where lines are kept, are the layout and not an attack on it.
_HIDDEN_IN_LINES = re.compile(rf"(?![\n\t])(?:{_class(*HIDDEN)}|{_SELECTOR_RUN})")


def visible(text: str, *, lines: bool = False) -> str:
    r"""`text` with everything hidden spelt out: `\x1b`, `\u202e`, `\U000e0041`.

    Args:
        text: anything a server has said.
        lines: leave line feeds and tabs as they are.
    """
    pattern = _HIDDEN_IN_LINES if lines else _HIDDEN
    return pattern.sub(lambda found: "".join(map(_spelt, found[0])), text)


def _spelt(character: str) -> str:
    point = ord(character)
    if point < 1 << 8:
        return f"\\x{point:02x}"
    return f"\\u{point:04x}" if point < 1 << 16 else f"\\U{point:08x}"


def document(value: object) -> str:
    r"""`value` as indented JSON, readable and safe to show: hidden characters are JSON's own `\uXXXX`."""
    text = json.dumps(value, indent=2, ensure_ascii=not _speaks_unicode())
    return _HIDDEN_IN_LINES.sub(lambda found: json.dumps(found[0])[1:-1].replace("\x7f", "\\u007f"), text)


def _speaks_unicode() -> bool:
    """Whether stdout takes every character; to others JSON goes out as ASCII."""
    return (getattr(sys.stdout, "encoding", None) or "").lower().replace("-", "").startswith("utf")
