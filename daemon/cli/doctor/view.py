"""The doctor's findings for people: by what was looked at, each with its reason and what to do below it."""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from daemon.cli.terminal import draw, safe

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rich.console import RenderableType

    from daemon.cli.terminal import Screen

STYLES = {"ok": "green", "note": "cyan", "warning": "yellow", "fault": "bold red"}
"""Colour by level; the level's name stands there as well."""


def render(told: Sequence[Mapping[str, str]], counts: Mapping[str, int], screen: Screen) -> str:
    """All findings as text.

    Args:
        told: each with its `check`, `level`, `what`, `why` and `do`; those of one check stand together.
        counts: how many there are of each level.
        screen: where it is shown.
    """
    parts: list[RenderableType] = []
    for title, findings in groupby(told, itemgetter("check")):
        parts += [Text(title, style="bold"), _table(findings), Text("")]
    return draw([*parts, Text(_sum(counts))], screen)


def _table(findings: Iterable[Mapping[str, str]]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False)
    table.add_column(width=2, no_wrap=True)
    table.add_column(no_wrap=True, min_width=7)
    table.add_column(overflow="fold")
    for each in findings:
        table.add_row("", Text(each["level"], style=STYLES[each["level"]]), safe(each["what"]))
        if each["why"]:
            table.add_row("", "", safe(each["why"], "dim"))
        if each["do"]:
            table.add_row("", "", safe(f"-> {each['do']}"))
    return table


def _sum(counts: Mapping[str, int]) -> str:
    told = [
        f"{count} {level if count == 1 else level + 's'}" for level, count in counts.items() if level != "ok"
    ]
    return f"{', '.join(reversed(told))}."
