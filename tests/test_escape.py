"""No character that a terminal or a reader would act on without seeing it gets through."""

from __future__ import annotations

import json
import unicodedata

import pytest

from daemon.escape import HIDDEN, SELECTORS, document, visible

MUST = [
    *range(0x20), *range(0x7F, 0xA0), 0xAD, 0x61C, 0x180E, *range(0x200B, 0x2010), *range(0x202A, 0x202F),
    *range(0x2060, 0x206A), 0xFEFF, *range(0xFFF9, 0xFFFC), *range(0xE0000, 0xE0080), 0xE000, 0xF8FF, 0xF0000,
    0x10FFFD, 0xD800, 0xDFFF,
]  # fmt: skip
"""Controls, bidi, zero-width, tags, private use, surrogates: the bar that mcpd sets itself."""


@pytest.mark.parametrize("point", MUST, ids=hex)
def test_a_hidden_character_is_spelt_out(point: int) -> None:
    shown = visible(f"a{chr(point)}b")
    assert shown.isprintable()
    assert shown.isascii()
    assert shown.startswith("a\\")
    assert int(shown[3:-1], 16) == point


def test_every_control_format_private_and_surrogate_character_of_unicode_is_spelt_out() -> None:
    kept = {
        hex(point)
        for point in range(0x110000)
        if unicodedata.category(chr(point)) in {"Cc", "Cf", "Co", "Cs", "Zl", "Zp"}
        and visible(chr(point)) == chr(point)
    }
    # Arabic and Kaithi number signs and Egyptian joiners are visible characters despite their category.
    visible_formats = {*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD}
    assert kept <= {*map(hex, visible_formats), *map(hex, range(0x13430, 0x13440))}


@pytest.mark.parametrize(
    "text", ["plain", "größer", "日本語", "🙂", "❤\ufe0f red", "a b\u00a0c", "\\x1b", "«»—…"]
)
def test_what_can_be_seen_stays(text: str) -> None:
    assert visible(text) == text


def test_one_variation_selector_stays_and_a_run_is_spelt_out() -> None:
    first, last = map(chr, SELECTORS)
    assert visible(f"x{first}") == f"x{first}"
    assert visible(f"x{first}{last}{first}") == "x\\ufe00\\ufe0f\\ufe00"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred", "\\x1b[31mred"),
        ("\x9b2J", "\\x9b2J"),
        ("a\u202egnp.exe", "a\\u202egnp.exe"),
        ("\U000e0041", "\\U000e0041"),
        ("a\r\nb", "a\\x0d\\x0ab"),
    ],
)
def test_the_spelling_is_pythons(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_lines_and_tabs_can_be_kept_and_nothing_else() -> None:
    assert visible("a\tb\nc\r\x1b\u2028", lines=True) == "a\tb\nc\\x0d\\x1b\\u2028"


def test_the_ranges_are_in_order_and_apart() -> None:
    flat = [point for first, last in HIDDEN for point in (first, last)]
    assert flat == sorted(flat)


def test_json_is_valid_means_the_same_and_hides_nothing() -> None:
    value = {
        "t\x1b": ["a\u202eb", "\x7f", "\x9b", "\U000e0041", "\ud800", "größer", "x\ufe00\ufe01", 'q"\\'],
        "n": None,
    }
    text = document(value)
    assert json.loads(text) == value
    assert "größer" in text
    assert visible(text, lines=True) == text
    assert text.startswith('{\n  "t')
