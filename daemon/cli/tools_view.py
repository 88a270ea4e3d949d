"""The tools for people: every category with its tools, and why one cannot be called."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.text import Text

from daemon.cli.terminal import draw, grid, paragraph, safe
from daemon.escape import visible

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType
    from rich.table import Table

from daemon.cli.terminal import Screen

Json = dict[str, Any]

_MARGIN = 6
"""Columns that the indent and the gaps take, at most."""


def render(categories: Json, screen: Screen) -> str:
    """Categories with their tools as text: a heading and a table each."""
    parts: list[RenderableType] = []
    for name, category in categories.items():
        parts += [*_heading(name, category), _table(category["tools"], screen), Text("")]
    if not categories:
        parts.append(Text("There are no categories: no server is configured."))
    return draw(parts, screen)


def _heading(name: str, category: Json) -> Iterator[RenderableType]:
    servers = ", ".join(category["servers"])
    origin = "" if servers == name else f" (from {servers})"
    yield safe(f"{name}{origin}, {len(category['tools'])} tools", "bold")
    if not category["tools"]:
        yield paragraph("none known yet: `mcpd status` says how its server is", indent=2)
    if category["description"]:
        yield paragraph(category["description"], indent=2)


def _table(tools: Json, screen: Screen) -> Table:
    table = grid(screen, head=False)
    names = min(max(map(cell_len, map(visible, tools)), default=0), screen.width // 2)
    table.add_column(width=1)
    # Names are never cut, descriptions are: each needs its width told, or rich takes it from the names.
    table.add_column(overflow="fold", width=names)
    table.add_column(no_wrap=True, overflow="ellipsis", max_width=screen.width - names - _MARGIN)
    for name, tool in tools.items():
        mark = _mark(tool)
        described = " ".join(tool["description"].split())
        # The mark comes first: a description is cut where the screen ends.
        words = safe(f"[{mark}] {described}" if mark else described, "yellow" if mark else "")
        table.add_row("", safe(name), words)
    return table


def _mark(tool: Json) -> str:
    """Why a tool cannot be called now; empty if it can."""
    if not tool["enabled"]:
        return "disabled"
    if not tool["listed"]:
        return f"not offered by {tool['server']}"
    return "" if tool["available"] else f"unavailable: {tool['server']} is down"
