"""Where tables for people are drawn: how wide, in colour or not; and how numbers read there.

Everything a server has said goes through `safety.escape.visible` and into a `rich` Text, never into markup.
"""

from __future__ import annotations

import io
import shutil
from typing import TYPE_CHECKING, NamedTuple, TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from daemon.kit.wording import KIB
from daemon.safety.escape import visible

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import RenderableType

UNBOUNDED = 10_000
"""Columns of what is no terminal: a program that reads lines must find each whole."""

ROOMY = 100
"""From so many columns on, there is room for two spaces between two columns."""

TWO_DIGITS = 10
"""From here on a number says enough without decimals."""


class Screen(NamedTuple):
    """What can be shown."""

    width: int
    """Columns."""
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
    """The parts one below the other, without the blanks that rich pads lines with."""
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


def grid(screen: Screen, *, head: bool = True) -> Table:
    """A table without lines, tight where the screen is narrow."""
    gap = 2 if screen.width >= ROOMY else 1
    return Table(box=None, padding=(0, gap, 0, 0), pad_edge=False, show_header=head, header_style="bold")


def safe(text: object, style: str = "") -> Text:
    """Somebody else's words in one line."""
    return Text(visible(str(text)), style=style)


def paragraph(text: str, *, indent: int, style: str = "") -> Table:
    """Somebody else's words, broken where the screen ends, every line indented."""
    block = Table(box=None, padding=0, pad_edge=False, show_header=False)
    block.add_column(width=indent, no_wrap=True)
    block.add_column(overflow="fold")
    block.add_row("", safe(text, style))
    return block


def duration(seconds: float) -> str:
    """`42s`, `3m`, `2h05m`, `9d`."""
    whole = max(0, int(seconds))
    if whole < 60:  # noqa: PLR2004 - seconds in a minute, minutes in an hour, hours in a day
        return f"{whole}s"
    minutes, hours = whole // 60, whole // 3600
    if hours == 0:
        return f"{minutes}m"
    return f"{hours}h{minutes % 60:02d}m" if hours < 48 else f"{hours // 24}d"  # noqa: PLR2004 - "1d" says too little


def size(count: int | None) -> str:
    """Bytes as `512B`, `96K`, `1.5G`; `-` when unknown."""
    if count is None:
        return "-"
    value, units = float(count), iter("BKMGT")
    unit = next(units)
    while value >= KIB and (larger := next(units, None)) is not None:
        value, unit = value / KIB, larger
    return f"{value:.0f}{unit}" if unit in "BK" or value >= TWO_DIGITS else f"{value:.1f}{unit}"


def milliseconds(value: float | None) -> str:
    """`0.4`, `12`; `-` when unknown."""
    if value is None:
        return "-"
    return f"{value:.1f}" if value < TWO_DIGITS else f"{value:.0f}"
