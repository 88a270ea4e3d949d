"""Draws tables for people; servers' words are escaped into a rich Text, never taken as markup."""

from __future__ import annotations

import io
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from getpass import getpass
from typing import Any, NamedTuple, TextIO

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from daemon.cli.options import is_coloured
from daemon.kit.wording import span
from daemon.operators.report_words import ReportColumn, chosen
from daemon.safety.escape import visible

UNBOUNDED = 10_000
"""Columns without a terminal: a program that reads lines must get whole lines."""

ROOMY = 100
"""Columns from which two blanks separate a table's columns."""


class Screen(NamedTuple):
    """An output's width, and whether it has colours."""

    width: int
    colour: bool

    @classmethod
    def of(cls, stream: TextIO, environ: Mapping[str, str]) -> Screen:
        """The screen behind `stream`; respects NO_COLOR (https://no-color.org), `TERM=dumb` and `COLUMNS`."""
        fallback = 80 if stream.isatty() else UNBOUNDED
        return cls(shutil.get_terminal_size((fallback, 24)).columns, is_coloured(stream, environ))


def console_of(screen: Screen) -> Console:
    """A console that renders into memory and leaves text alone: servers wrote much of it."""
    return Console(
        file=io.StringIO(),
        width=screen.width,
        force_terminal=screen.colour,
        color_system="standard" if screen.colour else None,
        no_color=False,
        legacy_windows=False,
        markup=False,
        emoji=False,
        highlight=False,
    )


def draw(parts: Sequence[RenderableType], screen: Screen) -> str:
    """Render parts one below another, without rich's trailing blanks."""
    console = console_of(screen)
    with console.capture() as captured:
        for part in parts:
            console.print(part)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def grid(screen: Screen, *, head: bool = True, folds: bool = False) -> Table:
    """Make an empty table; if cells have several lines (`folds`), two blanks separate its columns."""
    gap = 2 if folds or screen.width >= ROOMY else 1
    return Table(box=None, padding=(0, gap, 0, 0), pad_edge=False, show_header=head, header_style="bold")


SEVERITIES = {"good": "green", "warning": "yellow", "fault": "red", "helps": "bold", "quiet": "dim", "": ""}


def columns_of(
    reports: Mapping[str, ReportColumn],
    names: str,
    *,
    whole: str = "",
    cut: str = "",
    least: int | None = None,
    **cells: Callable[[Any], str],
) -> list[ReportColumn]:
    """The columns for a table of reports; the functions in `cells` replace the usual text of some columns."""
    return [
        each._replace(
            words=cells.get(name, each.words),
            whole=name in whole.split(),
            least=None if each.number else least,
            cut=name in cut.split(),
        )
        for name, each in chosen(reports, names).items()
    ]


def listing(
    columns: Iterable[ReportColumn], rows: Iterable[Any], screen: Screen, *, head: bool = True
) -> Table:
    """A table with a row for each item. Next to a cut column, names get at most half of the screen."""
    columns, drawn = tuple(columns), grid(screen, head=head)
    most = screen.width // 2 if any(each.cut for each in columns) else None
    for each in columns:
        drawn.add_column(
            each.heading,
            justify="right" if each.number else "left",
            no_wrap=each.whole or each.number,
            overflow="fold",
            min_width=each.least,
            max_width=None if each.cut or each.whole or each.number else most,
        )
    for row in rows:
        drawn.add_row(*(_cell(each, row) for each in columns))
    return drawn


def _cell(column: ReportColumn, row: Any) -> Text:
    words = column.words(row)
    cell = words if isinstance(words, Text) else safe(words, SEVERITIES[column.severity(row)])
    if column.cut:
        cell.no_wrap, cell.overflow = True, "ellipsis"
    return cell


def ago(now: float, at: float | None) -> str:
    """The age of a time, or `-` without one."""
    return "-" if at is None else span(now - at, parts=1)


def safe(text: object, style: str = "") -> Text:
    """Escape a text from outside into one line."""
    return Text(visible(str(text)), style=style)


def paragraph(text: str, *, indent: int, style: str = "") -> Table:
    """Escape, wrap and indent a text from outside."""
    block = Table(box=None, padding=0, pad_edge=False, show_header=False)
    block.add_column(width=indent, no_wrap=True)
    block.add_column(overflow="fold")
    block.add_row("", safe(text, style))
    return block


_SENTENCE = re.compile(r"(?<=[.!?])\s")


def first_sentence(text: object) -> str:
    """The first sentence of a server's text, as one line."""
    return _SENTENCE.split(" ".join(text.split()), maxsplit=1)[0] if isinstance(text, str) else ""


def typed(prompt: str, *, hidden: bool = False) -> str:
    """Ask a person for a line, unseen if `hidden`. Raises KeyboardInterrupt on Ctrl-C or Ctrl-D."""
    ask = getpass if hidden else input
    try:
        with redirect_stdout(sys.stderr):
            return ask(visible(prompt))
    except EOFError:
        raise KeyboardInterrupt from None
