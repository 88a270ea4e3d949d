"""Two sets of changes to one text: both, or neither where they meet."""

from __future__ import annotations

import pytest

from daemon.setup.clients import file_plans
from daemon.setup.clients.file_plans import merged_lines


def lines(letters: str) -> str:
    return "".join(f"{letter}\n" for letter in letters)


@pytest.mark.parametrize(
    ("common", "one", "other", "merged"),
    [
        ("abcdef", "abcdef", "abcdef", "abcdef"),
        ("abcdef", "aXcdef", "abcdef", "aXcdef"),
        ("abcdef", "Xabcdef", "abcdY", "XabcdY"),
        ("abcdef", "abXdef", "abcdefY", "abXdefY"),
        ("abcdef", "acdef", "abcdf", "acdf"),
        ("abcdef", "aXcdef", "aYcdef", None),
        ("abcdef", "abXcdef", "abYcdef", None),
        ("abcdef", "aXcdef", "abYdef", None),
        ("", "a", "b", None),
    ],
)
def test_changes_of_different_places_come_together(
    common: str, one: str, other: str, merged: str | None
) -> None:
    expected = None if merged is None else lines(merged)
    assert merged_lines(lines(common), lines(one), lines(other)) == expected
    assert merged_lines(lines(common), lines(other), lines(one)) == expected


def test_a_text_that_would_take_too_long_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_plans, "MOST_LINES", 3)
    assert merged_lines(lines("abcd"), lines("abcd"), lines("abcd")) is None
