r"""Spells out characters in servers' texts that move a cursor, hide text or reorder it.

Sources: Default_Ignorable_Code_Point, emoji-variation-sequences.txt, CVE-2021-42574, and ASCII smuggling by
U+E0000 tags. Models get `\u{202e}`, which no JSON reader decodes when a model copies it into arguments.
"""

from __future__ import annotations

import json
import re
import sys
from functools import cache

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
    (0x2800, 0x2800),  # Braille blank
    (0x3164, 0x3164),  # Hangul filler
    (0xD800, 0xDFFF),  # lone surrogates: JSON can spell them, no terminal can show them
    (0xE000, 0xF8FF),  # private use
    (0xFDD0, 0xFDEF),  # noncharacters
    (0xFEFF, 0xFEFF),  # byte order mark
    (0xFFA0, 0xFFA0),  # halfwidth Hangul filler
    (0xFFF0, 0xFFFB),  # interlinear annotations and unassigned ignorables
    (0xFFFE, 0xFFFF),  # noncharacters, as are the last two of every plane
    (0x13430, 0x13442),  # Egyptian format controls and blanks
    (0x16FE4, 0x16FE4),  # Khitan filler
    (0x1BCA0, 0x1BCA3),  # shorthand format controls
    (0x1D159, 0x1D159),  # musical note without a head
    (0x1D173, 0x1D17A),  # musical format controls
    *((plane | 0xFFFE, plane | 0xFFFF) for plane in range(0x10000, 0xE0000, 0x10000)),
    (0xE0000, 0xE0FFF),  # tags, variation selectors supplement
    (0xEFFFE, 0x10FFFF),  # private use planes
)
"""Inclusive ranges of code points that are never shown raw."""

SELECTORS = (0xFE00, 0xFE0F)
"""Variation selectors; shown raw only one at a time, after a character that has variants."""

JOINERS = (0x200C, 0x200D)
"""Joiners; shown raw only between letters that join, and U+200D also within an emoji."""

BLANK = 0x2800
"""Braille blank; shown raw only between two cells, as a space."""

PICTURES = (
    (0xA9, 0xA9), (0xAE, 0xAE), (0x203C, 0x203C), (0x2049, 0x2049), (0x2122, 0x2122), (0x2139, 0x2139),
    (0x2194, 0x21AA), (0x231A, 0x23FF), (0x24C2, 0x24C2), (0x25AA, 0x27BF), (0x2934, 0x2935), (0x2B05, 0x2B55),
    (0x3030, 0x3030), (0x303D, 0x303D), (0x3297, 0x3297), (0x3299, 0x3299), (0x1F000, 0x1FAFF),
)  # fmt: skip
"""Emoji blocks, whose characters may be followed by U+FE0E, U+FE0F and joiners."""

JOINING = (
    (0x600, 0x61B),  # Arabic
    (0x61D, 0x8FF),  # Arabic, Syriac, Thaana, N'Ko, Samaritan, Mandaic
    (0x900, 0xDFF),  # the scripts of India and Sri Lanka
    (0x1000, 0x109F),  # Myanmar
    (0x1780, 0x17B3),  # Khmer
    (0x17B6, 0x17D3),  # the same
    (0x1820, 0x18AA),  # Mongolian
    (0xFB50, 0xFDCF),  # Arabic presentation forms
    (0xFDF0, 0xFDFF),  # the same
    (0xFE70, 0xFEFC),  # the same
    (0x11000, 0x114FF),  # Brahmic scripts beyond the basic plane
)
"""Scripts whose words contain joiners (Unicode, sections 9.2 and 12)."""

VARIED = ((0x2200, 0x22FF), (0x2A00, 0x2AFF), (0x3400, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x323AF))
"""Operators and ideographs whose glyph U+FE00 to U+FE02 choose (StandardizedVariants.txt)."""


def _class(*ranges: tuple[int, int]) -> str:
    return "[" + "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in ranges) + "]"


def _without(ranges: tuple[tuple[int, int], ...], *points: int) -> list[tuple[int, int]]:
    left = list(ranges)
    for point in points:
        left = [
            part
            for first, last in left
            for part in (
                ((first, point - 1), (point + 1, last)) if first <= point <= last else ((first, last),)
            )
            if part[0] <= part[1]
        ]
    return left


# For a character that may be needed, the class comes first and the lookaround after it, so that the search can
# skip ordinary text with one table of first characters.
_JOINER, _PICTURE, _LETTER = _class(JOINERS), _class(*PICTURES), _class(*JOINING)
_IDLE_JOINER = (
    f"{_JOINER}(?!(?<={_LETTER}{_JOINER})(?={_LETTER}))"
    f"(?!(?:(?<={_PICTURE}\\u200d)|(?<={_PICTURE}\\ufe0f\\u200d))(?={_PICTURE}))"
)
_IDLE_SELECTOR = (
    f"{_class(SELECTORS)}{{2,}}|[\\ufe03-\\ufe0d]"
    f"|[\\ufe00-\\ufe02](?<!{_class(*VARIED)}[\\ufe00-\\ufe02])"
    f"|[\\ufe0e\\ufe0f](?<!{_PICTURE}[\\ufe0e\\ufe0f])(?!(?<=[0-9#*].)\\u20e3)"
)


_IDLE_BLANK = "\\u2800(?!(?<=[\\u2801-\\u28ff]\\u2800)(?=[\\u2801-\\u28ff]))"


# Compiled on first use, which plain text never reaches: each would add milliseconds to every start.
@cache
def _hidden(*kept: int, more: str = "") -> re.Pattern[str]:
    plain = _class(*_without(HIDDEN, *range(JOINERS[0], JOINERS[1] + 1), BLANK, *kept))
    return re.compile(f"{plain}|{_IDLE_JOINER}|{_IDLE_SELECTOR}|{_IDLE_BLANK}{more}")


# Line feeds, and tabs where lines are kept, are layout and no attack on it.
_TAB, _LINE_FEED, _RETURN = map(ord, "\t\n\r")


def _hidden_in_lines() -> re.Pattern[str]:
    return _hidden(_TAB, _LINE_FEED)


def _hidden_in_prose() -> re.Pattern[str]:
    return _hidden(_TAB, _LINE_FEED, _RETURN, more="|\r(?!\n)")


def visible(text: str, *, lines: bool = False) -> str:
    r"""Spell out hidden characters for terminals and logs: `\x1b`, `\u202e`. With `lines`, LF and tabs stay."""
    if text.isascii() and text.isprintable():
        return text
    pattern = _hidden_in_lines() if lines else _hidden()
    return pattern.sub(lambda found: "".join(map(_spelt, found[0])), text)


def legible(text: str) -> str:
    r"""Spell out hidden characters for models: `\u{202e}`. Tabs and line ends, including CRLF, stay."""
    if text.isascii() and text.isprintable():
        return text
    return _hidden_in_prose().sub(lambda found: "".join(f"\\u{{{ord(each):x}}}" for each in found[0]), text)


def hidden_in(text: str) -> str:
    """The characters that `legible` spells out, in order."""
    return "".join(found[0] for found in _hidden_in_prose().finditer(text))


def _spelt(character: str) -> str:
    point = ord(character)
    if point < 1 << 8:
        return f"\\x{point:02x}"
    return f"\\u{point:04x}" if point < 1 << 16 else f"\\U{point:08x}"


def document(value: object) -> str:
    r"""Indented JSON with hidden characters as `\uXXXX`."""
    text = json.dumps(value, indent=2, ensure_ascii=not speaks_unicode())
    return _hidden_in_lines().sub(_in_json, text)


def json_line(value: object) -> str:
    r"""JSON on one line with hidden characters as `\uXXXX`."""
    text = json.dumps(value, ensure_ascii=False)
    return text if text.isascii() and text.isprintable() else _hidden().sub(_in_json, text)


def _in_json(found: re.Match[str]) -> str:
    return json.dumps(found[0])[1:-1].replace("\x7f", "\\u007f")


def speaks_unicode() -> bool:
    """Whether stdout can encode any character."""
    return (getattr(sys.stdout, "encoding", None) or "").lower().replace("-", "").startswith("utf")
