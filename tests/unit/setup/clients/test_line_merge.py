"""Two sets of changes to one text: both, or neither where they meet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon.setup.clients import file_plans
from daemon.setup.clients.file_plans import merged_lines
from tests.unit.cases import cases

if TYPE_CHECKING:
    import pytest


def lines(letters: str) -> str:
    return "".join(f"{letter}\n" for letter in letters)


@cases("common", "one", "other", "merged")
def test_changes_of_different_places_come_together(
    common: str, one: str, other: str, merged: str | None
) -> None:
    expected = None if merged is None else lines(merged)
    assert merged_lines(lines(common), lines(one), lines(other)) == expected
    assert merged_lines(lines(common), lines(other), lines(one)) == expected


def test_a_text_that_would_take_too_long_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_plans, "MOST_LINES", 3)
    assert merged_lines(lines("abcd"), lines("abcd"), lines("abcd")) is None
