"""Tables of numbers: for a terminal, and for a document with a place for them."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Table = tuple[str, list[str], list[list[str]]]
"""Title, column heads and cells."""


def machine() -> str:
    """Processor, kernel, interpreter."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "?")
    return (
        f"{model}, {os.cpu_count()} CPUs, Linux {platform.release()},"
        f" {platform.python_implementation()} {platform.python_version()}"
    )


def number(value: float | None) -> str:
    """A number with three significant digits."""
    if value is None:
        return "-"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Columns for a terminal, the heads in the first row: words to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(_line(cells, widths) for cells in rows)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *rest = zip(cells, widths, strict=True)
    left = [f"{first[0]:<{first[1]}}"]
    left += [f"{cell:>{width}}" if cell[:1] in "-0123456789" else f"{cell:<{width}}" for cell, width in rest]
    return "  ".join(left).rstrip()


def text(table: Table) -> str:
    """A table for a terminal."""
    title, heads, rows = table
    return f"{title}\n{aligned([heads, *rows])}"


def markdown(table: Table) -> str:
    """A table for a document."""
    title, heads, rows = table
    return "\n".join([f"### {title}\n", *map(_cells, [heads, ["---"] * len(heads), *rows])])


def _cells(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def place_in(path: Path, begin: str, end: str) -> tuple[str, str, str]:
    """The parts of a document before, between and after two marks.

    Raises:
        OSError: the file cannot be read.
        ValueError: a mark is missing.
    """
    before, begun, rest = path.read_text(encoding="utf-8").partition(begin)
    between, ended, after = rest.partition(end)
    if not begun or not ended:
        raise ValueError(f"{path} has no place for the numbers: they go between {begin} and {end}")
    return before, between, after


def put(path: Path, begin: str, end: str, said: str) -> None:
    """Replace the part of a document between two marks.

    Raises:
        OSError: the file cannot be read or written.
        ValueError: a mark is missing.
    """
    before, _, after = place_in(path, begin, end)
    path.write_text(f"{before}{begin}\n\n{said}\n\n{end}{after}", encoding="utf-8")
