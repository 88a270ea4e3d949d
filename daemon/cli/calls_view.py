"""Calls as text for people; what servers and clients have named is escaped."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from rich.text import Text

from daemon.cli.terminal import Screen, draw, grid, milliseconds, safe
from daemon.kit.wording import called, span

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType
    from rich.table import Table

Json = dict[str, Any]

AWAITED = {
    "server": "its server",
    "turn": "its turn",
    "answer": "the answer",
    "client": "its client",
    "store": "the store",
}
"""What a call waits for, in words."""


LEAST = 10
"""Columns that are left of a name at least."""

GAP = 2
"""Columns between two columns, at most (`cli.terminal.grid`)."""


def render_calls(answer: Json, *, errors_only: bool, screen: Screen) -> str:
    """Calls in flight, and those that have ended, as text.

    Args:
        answer: of the control method `calls`.
        errors_only: whether only errors were asked for.
        screen: where it is shown.
    """
    waiting: list[Json] = answer["inFlight"]
    ended: list[Json] = answer["recent"]
    parts: list[RenderableType] = []
    if not errors_only:
        parts += [in_flight(waiting, screen) if waiting else Text("No call is in flight.")]
        if more := answer["inFlightMore"]:
            parts.append(Text(f"and {more} more", style="dim"))
        parts.append(Text(""))
    nothing = "No call has ended with an error" if errors_only else "No call has ended"
    parts.append(_ended(ended, screen) if ended else Text(f"{nothing} since the daemon began."))
    return draw(parts, screen)


def in_flight(calls: list[Json], screen: Screen) -> Table:
    """Calls without an answer: the number that `mcpd cancel` takes, what each waits for, and whose it is."""
    rows = [
        (
            Text(str(call["id"])),
            Text(span(call["ageSeconds"], parts=1)),
            safe(AWAITED.get(call["waitsFor"], call["waitsFor"])),
            safe(_named(call)),
            safe(_caller(call)),
        )
        for call in calls
    ]
    return _table(("CALL", "AGE", "WAITS FOR", "TOOL", "CLIENT"), rows, right={0, 1}, screen=screen)


def _ended(calls: list[Json], screen: Screen) -> Table:
    rows = [
        (
            Text(time.strftime("%H:%M:%S", time.localtime(call["at"]))),
            Text(milliseconds(call["ms"])),
            safe(call["outcome"], "" if call["outcome"] == "ok" else "red"),
            safe(called(call)),
            safe(_caller(call)),
        )
        for call in calls
    ]
    return _table(("TIME", "MS", "OUTCOME", "TOOL", "CLIENT"), rows, right={1}, screen=screen)


def _table(
    heads: tuple[str, ...], rows: Sequence[tuple[Text, ...]], *, right: set[int], screen: Screen
) -> Table:
    """A table whose last two columns get what room the others leave, and are cut to it.

    Columns before them are never cut: a number is typed in again, and an outcome is searched for. Where
    there is no room for both, the last one is left out.
    """
    table, fixed = grid(screen), len(heads) - 2
    taken = sum(max(len(heads[place]), *(row[place].cell_len for row in rows)) for place in range(fixed))
    room = screen.width - taken - GAP * len(heads)
    caller = max(LEAST, min(room // 3, max(row[-1].cell_len for row in rows)))
    widths = [room - caller, caller]
    if room < 2 * LEAST:
        heads, rows, widths = heads[:-1], [row[:-1] for row in rows], [max(LEAST, room)]
    for place, head in enumerate(heads):
        table.add_column(head, justify="right" if place in right else "left", no_wrap=True)
    for row in rows:
        for cell, width in zip(row[fixed:], widths, strict=True):
            cell.truncate(width, overflow="ellipsis")
        table.add_row(*row)
    return table


def _named(call: Json) -> str:
    """As `called`, with the instance in place of its server."""
    return called({**call, "server": call["instance"] or call["server"]})


def _caller(call: Json) -> str:
    """Who has called: the client, and its session."""
    if call["session"] is None:
        return str(call["client"])
    return f"{call['client']} {call['key'] or '#' + str(call['session'])}".strip()
