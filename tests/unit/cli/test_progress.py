"""How a server's progress is shown: a bar on a terminal, lines elsewhere, and never too many."""

from __future__ import annotations

import io
from typing import Any

import pytest

from daemon.cli.asking.companion import LINE_SECONDS, REDRAW_SECONDS, Progress

CLEAR = "\r\x1b[K"


class Shown:
    """Progress on a stream, with a clock that stands still until it is moved."""

    def __init__(self, columns: int | None) -> None:
        self.stream, self.now = io.StringIO(), 0.0
        self.progress = Progress(self.stream, columns=columns, clock=lambda: self.now)

    def __call__(self, **report: Any) -> str:
        begun = len(self.stream.getvalue())
        self.progress.show(report)
        return self.stream.getvalue()[begun:]


@pytest.mark.parametrize(
    ("report", "drawn"),
    [
        ({"progress": 6, "total": 24}, "[######------------------]  25 %"),
        ({"progress": 2, "total": 1, "message": "done"}, "[########################] 100 %  done"),
        ({"progress": -1, "total": 8}, "[------------------------]   0 %"),
        ({"progress": 7, "message": "items"}, "7  items"),
        ({"progress": 7, "total": 0}, "7"),
        ({"progress": "x", "message": "a\x1b[2Jb\nc"}, "a\\x1b[2Jb\\x0ac"),
        ({"progress": 10**400, "total": True}, "..."),
        ({}, "..."),
    ],
)
def test_a_bar_is_drawn_over(report: dict[str, Any], drawn: str) -> None:
    assert Shown(80)(**report) == CLEAR + drawn


def test_a_bar_keeps_to_one_line() -> None:
    assert Shown(12)(message="a" * 40) == f"{CLEAR}{'a' * 10}…"
    assert Shown(12)(message="漢" * 40) == f"{CLEAR}{'漢' * 5}…"


def test_reports_that_come_too_soon_are_left_out_but_for_the_last() -> None:
    shown = Shown(80)
    assert shown(progress=1, total=3)
    assert not shown(progress=2, total=3)
    assert shown(progress=3, total=3)
    shown.now += REDRAW_SECONDS
    assert shown(progress=2, total=3)


def test_elsewhere_it_is_lines_and_few_of_them() -> None:
    shown = Shown(None)
    assert shown(progress=1, total=3, message="one") == "mcpd: 1 of 3  one\n"
    assert not shown(progress=2, total=3)
    shown.now += LINE_SECONDS
    assert shown(progress=2.5) == "mcpd: 2.5\n"
    shown.now += LINE_SECONDS
    assert shown() == ""


def test_a_bar_is_taken_away_and_lines_stay() -> None:
    bar, lines = Shown(80), Shown(None)
    for each in (bar, lines):
        each(progress=1)
        each.progress.clear()
        each.progress.clear()
    assert bar.stream.getvalue() == f"{CLEAR}1{CLEAR}"
    assert lines.stream.getvalue() == "mcpd: 1\n"
