"""What a search found, for people: best first, with the score that put it there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.text import Text

from daemon.cli.terminal import Screen, draw, grid, safe
from daemon.escape import visible

if TYPE_CHECKING:
    from rich.console import RenderableType

Json = dict[str, Any]

_MARGIN = 20
"""Columns that the score and the gaps take, at most."""


def render(answer: Json, screen: Screen) -> str:
    """A table of tools, and how many more fit."""
    tools: list[Json] = answer["tools"]
    table = grid(screen)
    names = min(max(cell_len(visible(tool["name"])) for tool in tools), screen.width // 3)
    places = min(max(cell_len(visible(_place(tool))) for tool in tools), screen.width // 4)
    table.add_column("score", justify="right", no_wrap=True)
    table.add_column("tool", overflow="fold", width=max(names, len("tool")))
    table.add_column("server", overflow="fold", width=max(places, len("server")))
    table.add_column("", no_wrap=True, overflow="ellipsis", max_width=screen.width - names - places - _MARGIN)
    for tool in tools:
        table.add_row(
            f"{tool['score']:.1f}", safe(tool["name"], "bold"), safe(_place(tool)), safe(tool["description"])
        )
    parts: list[RenderableType] = [table]
    more = answer["total"] - len(tools)
    if more > 0:
        parts.append(Text(f"{more} more fit: see them with --limit {answer['total']}"))
    return draw(parts, screen)


def _place(tool: Json) -> str:
    """The server, and the category where it is another name."""
    category = tool["category"]
    return tool["server"] if category in {None, tool["server"]} else f"{tool['server']} ({category})"
