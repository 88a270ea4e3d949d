"""Drawing tables for people: how wide, in colour or not; and how numbers are written in them.

Everything that a server said goes through `safety.escape.visible` into a `rich` Text, never into markup.
"""

from __future__ import annotations

import io
import re
import shutil
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from daemon.kit.wording import TWO_DIGITS, span
from daemon.safety.escape import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from rich.console import RenderableType

UNBOUNDED = 10_000
"""Columns assumed when output is not a terminal: a program that reads lines must get each of them whole."""

ROOMY = 100
"""From this width on there is room for two spaces between columns."""


class Screen(NamedTuple):
    """The width of the output, and whether it has colours."""

    width: int
    """In columns."""
    colour: bool
    """Whether ANSI colours are wanted."""

    @classmethod
    def of(cls, stream: TextIO, environ: Mapping[str, str]) -> Screen:
        """The screen behind `stream`: https://no-color.org, `TERM=dumb` and `COLUMNS` are respected."""
        tty = stream.isatty()
        colour = tty and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"
        fallback = 80 if tty else UNBOUNDED
        return cls(width=shutil.get_terminal_size((fallback, 24)).columns, colour=colour)


def draw(parts: Sequence[RenderableType], screen: Screen) -> str:
    """The parts one below another, without the blanks that rich pads lines with."""
    console = Console(
        file=io.StringIO(),
        width=screen.width,
        force_terminal=screen.colour,
        color_system="standard" if screen.colour else None,
        legacy_windows=False,
        markup=False,
        emoji=False,
        highlight=False,
    )
    with console.capture() as captured:
        for part in parts:
            console.print(part)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def grid(screen: Screen, *, head: bool = True, folds: bool = False) -> Table:
    """An empty table without lines, with less space between columns on a narrow screen.

    Args:
        screen: where it is shown.
        head: whether its columns have headings.
        folds: whether several columns take more than one line: one blank would not tell them apart.
    """
    gap = 2 if folds or screen.width >= ROOMY else 1
    return Table(box=None, padding=(0, gap, 0, 0), pad_edge=False, show_header=head, header_style="bold")


class Column(NamedTuple):
    """A column of a table: its heading, and what it shows of a row; words from outside are made safe."""

    heading: str
    cell: Callable[[Any], object]
    right: bool = False
    """Whether it stands at the right, as numbers do."""
    whole: bool = False
    """Whether it is never wrapped, as numbers are not."""
    least: int | None = None
    """Columns that it has at least: words of several lines are hard to read."""
    cut: bool = False
    """Whether it has one line, cut where the room ends."""


def numbers(heading: str, cell: Callable[[Any], object]) -> Column:
    """A column of numbers."""
    return Column(heading, cell, right=True, whole=True)


def listing(columns: Iterable[Column], rows: Iterable[Any], screen: Screen, *, head: bool = True) -> Table:
    """A table with a row for each of some things.

    Where there is no room for all, rich takes it from the widest column that may be cut or wrapped; so a column
    of names beside one that is cut has half the screen at most.
    """
    columns, drawn = tuple(columns), grid(screen, head=head)
    most = screen.width // 2 if any(each.cut for each in columns) else None
    for each in columns:
        drawn.add_column(
            each.heading,
            justify="right" if each.right else "left",
            no_wrap=each.whole,
            overflow="fold",
            min_width=each.least,
            max_width=None if each.cut or each.whole else most,
        )
    for row in rows:
        cells = [cell if isinstance(cell := each.cell(row), Text) else safe(cell) for each in columns]
        for each, cell in zip(columns, cells, strict=True):
            if each.cut:
                cell.no_wrap, cell.overflow = True, "ellipsis"
        drawn.add_row(*cells)
    return drawn


def ago(now: float, at: float | None) -> str:
    """How long ago a time was; `-` if there was none."""
    return "-" if at is None else span(now - at, parts=1)


def safe(text: object, style: str = "") -> Text:
    """A text from outside, made safe to show, in one line."""
    return Text(visible(str(text)), style=style)


def paragraph(text: str, *, indent: int, style: str = "") -> Table:
    """A text from outside, made safe to show, wrapped at the screen's width with every line indented."""
    block = Table(box=None, padding=0, pad_edge=False, show_header=False)
    block.add_column(width=indent, no_wrap=True)
    block.add_column(overflow="fold")
    block.add_row("", safe(text, style))
    return block


def milliseconds(value: float | None) -> str:
    """Milliseconds as `0.4` or `12`; `-` when unknown."""
    if value is None:
        return "-"
    return f"{value:.1f}" if value < TWO_DIGITS else f"{value:.0f}"


_SENTENCE = re.compile(r"(?<=[.!?])\s")


def first_sentence(text: object) -> str:
    """The first sentence of what a server says, in one line."""
    return _SENTENCE.split(" ".join(text.split()), maxsplit=1)[0] if isinstance(text, str) else ""
