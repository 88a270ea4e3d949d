"""No character that a terminal or a reader would act on without seeing it gets through."""

import json
import unicodedata
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daemon.safety import escape
from tests.unit.cases import cases

MUST = [
    *range(0x20), *range(0x7F, 0xA0), 0xAD, 0x61C, 0x180E, *range(0x200B, 0x2010), *range(0x202A, 0x202F),
    *range(0x2060, 0x206A), 0xFEFF, *range(0xFFF9, 0xFFFC), *range(0xE0000, 0xE0080), 0xE000, 0xF8FF, 0xF0000,
    0x10FFFD, 0xD800, 0xDFFF, 0x2800, *range(0x13430, 0x13443), 0x16FE4, 0x1D159,
]  # fmt: skip
"""Controls, bidi, zero-width, tags, private use, surrogates, blanks: the bar that mcpd sets itself."""

NONCHARACTERS = [
    *range(0xFDD0, 0xFDF0),
    *(plane + last for plane in range(0, 0x110000, 0x10000) for last in (0xFFFE, 0xFFFF)),
]
"""What will never be a character (Unicode, section 23.7): nothing shows it, and it can carry a text."""


def test_a_hidden_character_is_spelt_out_and_for_a_model_in_a_way_that_json_does_not_undo() -> None:
    for point in MUST:
        text, spelt = f"a{chr(point)}b", f"a\\u{{{point:x}}}b"
        shown = escape.visible(text)
        assert (shown.isprintable(), shown.isascii(), shown[:2]) == (True, True, "a\\"), hex(point)
        assert int(shown[3:-1], 16) == point
        if point not in {9, 10}:
            assert (escape.legible(text), escape.hidden_in(text)) == (spelt, chr(point)), hex(point)
            assert json.loads(json.dumps(escape.legible(text))) == spelt


def test_every_control_format_private_and_surrogate_character_of_unicode_is_spelt_out() -> None:
    kept = {
        hex(point)
        for point in range(0x110000)
        if unicodedata.category(chr(point)) in {"Cc", "Cf", "Co", "Cs", "Zl", "Zp"}
        and escape.visible(chr(point)) == chr(point)
    }
    # Arabic and Kaithi number signs are visible characters despite their category.
    visible_formats = {*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD}
    assert kept <= {*map(hex, visible_formats)}


def test_every_noncharacter_is_spelt_out() -> None:
    assert len(NONCHARACTERS) == 66
    for show in (escape.visible, escape.legible):
        assert not [hex(point) for point in NONCHARACTERS if show(chr(point)) == chr(point)]


@cases("name", "text")
def test_what_people_write_in_any_script_stays_as_it_is(name: str, text: str) -> None:
    assert escape.visible(text) == text
    assert escape.legible(text) == text
    assert not escape.hidden_in(text)


@cases("name", "text")
def test_what_changes_nothing_that_is_seen_is_spelt_out(name: str, text: str) -> None:
    found = escape.hidden_in(text)
    assert found
    assert not set(found) & set(escape.visible(text))
    assert not set(found) & set(escape.legible(text))
    assert escape.legible(escape.legible(text)) == escape.legible(text)


def test_of_a_run_of_selectors_every_one_is_spelt_out() -> None:
    first, last = map(chr, escape.SELECTORS)
    assert escape.visible(f"x{first}{last}{first}") == "x\\ufe00\\ufe0f\\ufe00"
    assert escape.legible(f"x{first}{last}{first}") == "x\\u{fe00}\\u{fe0f}\\u{fe00}"


def test_for_a_model_line_ends_and_tabs_stay_and_for_people_they_can_be_kept() -> None:
    text = "a\tb\nc\r\nd\r\n"
    assert escape.legible(text) == text
    assert escape.legible("progress 1\rprogress 2") == "progress 1\\u{d}progress 2"
    assert escape.visible("a\tb\nc\r\x1b\u2028", lines=True) == "a\tb\nc\\x0d\\x1b\\u2028"


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=()), max_size=40))
def test_whatever_is_made_legible_hides_nothing_and_stays_what_it_is(text: str) -> None:
    shown = escape.legible(text)
    assert not escape.hidden_in(shown)
    assert escape.legible(shown) == shown
    assert (shown == text) is (not escape.hidden_in(text))
    assert not set(escape.visible(text)) & {chr(0x202E), "\x1b", "\n"}


@cases("text", "shown")
def test_the_spelling_is_pythons(text: str, shown: str) -> None:
    assert escape.visible(text) == shown


@pytest.mark.parametrize(
    "table", [escape.HIDDEN, escape.PICTURES, escape.JOINING, escape.VARIED, (escape.JOINERS, escape.SELECTORS)]
)
def test_the_ranges_are_in_order_and_apart(table: tuple[tuple[int, int], ...]) -> None:
    flat = [point for first, last in table for point in (first, last)]
    assert flat == sorted(flat)


@pytest.mark.parametrize(("write", "lines"), [(escape.document, True), (escape.json_line, False)])
def test_json_means_the_same_and_hides_nothing(write: Callable[[object], str], lines: bool) -> None:
    odd = ["a\u202eb\n", "\x7f", "\x9b", "\U000e0041", "\ud800", "größer", "x\ufe00\ufe01", 'q"\\']
    text = write({"t\x1b": odd, "n": 1.5})
    assert json.loads(text) == {"t\x1b": odd, "n": 1.5}
    assert "größer" in text
    assert escape.visible(text, lines=lines) == text
    assert text.startswith('{\n  "t') is lines
