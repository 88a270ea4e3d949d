"""How wide, in colour or not, and how numbers read."""

from __future__ import annotations

import io

import pytest
from rich.text import Text

from daemon.cli.terminal import UNBOUNDED, Screen, draw, grid, paragraph, safe
from daemon.operators.report_columns import milliseconds


class Tty(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("environ", "colour"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True), ({"TERM": "dumb"}, False)],
)
def test_colour_is_for_terminals_that_want_it(environ: dict[str, str], colour: bool) -> None:
    assert Screen.of(Tty(), environ).colour is colour
    assert not Screen.of(io.StringIO(), environ).colour


def test_a_pipe_has_no_width_unless_columns_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert Screen.of(io.StringIO(), {}).width in {UNBOUNDED, *range(1, 1000)}
    monkeypatch.setenv("COLUMNS", "72")
    assert Screen.of(io.StringIO(), {}).width == 72


@pytest.mark.parametrize(("value", "text"), [(None, "-"), (0.04, "0.0"), (9.94, "9.9"), (12.6, "13")])
def test_milliseconds(value: float | None, text: str) -> None:
    assert milliseconds(value) == text


def test_safe_spells_out_and_reads_no_markup() -> None:
    assert safe("[bold]\x1b\n").plain == "[bold]\\x1b\\x0a"


def test_a_paragraph_keeps_its_indent_on_every_line() -> None:
    lines = draw([paragraph("word " * 12, indent=2)], Screen(20, colour=False)).splitlines()
    assert len(lines) > 1
    assert all(line.startswith("  word") and len(line) <= 20 for line in lines)


def test_a_word_longer_than_the_screen_is_broken_and_not_cut() -> None:
    text = draw([paragraph("x" * 50, indent=2)], Screen(20, colour=False))
    assert text.count("x") == 50


def test_a_grid_is_tight_on_a_narrow_screen() -> None:
    drawn = []
    for width in (80, 120):
        screen = Screen(width, colour=False)
        table = grid(screen, head=False)
        table.add_row("a", Text("b"))
        drawn.append(draw([table], screen))
    assert drawn == ["a b", "a  b"]
