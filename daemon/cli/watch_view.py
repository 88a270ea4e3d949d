"""The screen of `mcpd status --watch`, line by line: the title with the clock, the page, the line of keys."""

from __future__ import annotations

import io
import time
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Console, Group
from rich.segment import Segment
from rich.style import Style
from rich.text import Text

from daemon.cli.status_lately import lately_in_words
from daemon.cli.status_one import parts_of_one
from daemon.cli.status_servers import remarks, table
from daemon.cli.terminal import Screen, paragraph, safe
from daemon.cli.watch_keys import ORDERS, WatchPage
from daemon.kit.wording import counted, span
from daemon.safety.escape import visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rich.console import RenderableType

    from daemon.cli.watch_keys import WatchChoices
    from daemon.cli.watch_poll import Picture

Json = dict[str, Any]
Line = list[Segment]

SLOW_SECONDS = 3.0
"""After this long without an answer the daemon is said to be silent: it answers within milliseconds."""

LOW = 12
"""Screens of fewer lines have one for what is wrong with the daemon, others `MAX_PROBLEM`."""

MAX_PROBLEM = 4
"""Most lines that say why the daemon does not answer."""

_GUTTER = 2
"""Columns before the table, for the mark of the selected server: it is not marked by colour alone."""

_ROW = "row"
"""The member of a style's meta that tells to which row of the table a piece of text belongs."""

HELP = (
    ("up, down, j, k", "select a server, or scroll"),
    ("PgUp, PgDn, Home, End", "by pages, to the first and the last"),
    ("Enter", "all of the selected server"),
    ("Esc, Backspace", "back to the table"),
    ("s", f"sort by the next of: {', '.join(ORDERS)}"),
    ("/", "show only servers with this in their name or state: type, then Enter; Esc shows all again"),
    ("?", "these keys"),
    ("q, Ctrl-C; Esc on the table", "leave"),
    ("Ctrl-Z", "stop for now; `fg` goes on"),
)


class Size(NamedTuple):
    """The size of a terminal, in columns and lines."""

    width: int
    height: int


def frame(picture: Picture, choices: WatchChoices, *, now: float, size: Size) -> list[Line]:
    """The lines of the screen, each exactly as wide as it, and exactly as many as it has.

    Args:
        picture: what is known of the daemon.
        choices: what keys have chosen; what is scrolled to, and how much of it has room, is set here.
        now: seconds since the epoch.
        size: that of the screen.
    """
    head = [*_title(picture, now, size.width), *_problem(picture, now, size)]
    foot = _footer(picture, choices, size.width)
    room = max(0, size.height - len(head) - len(foot))
    if choices.page is WatchPage.HELP:
        body = _scrolled(_help(size.width), choices, room)
    elif picture.status is None:
        body = []
    elif choices.page is WatchPage.SERVER:
        body = _scrolled(_one(picture, choices, now, size.width), choices, room)
    else:
        body = _table(picture.status, choices, now, Size(size.width, room))
    blank = [Segment(" " * size.width)]
    lines = [*head, *body[:room], *([blank] * (room - len(body))), *foot]
    # Of a screen too low for all, the line of keys is the last to go.
    return lines[-size.height :] if len(lines) > size.height else lines


def _title(picture: Picture, now: float, width: int) -> list[Line]:
    clock = time.strftime("%H:%M:%S", time.localtime(now))
    left = "mcpd"
    if picture.status is not None:
        daemon = picture.status["daemon"]
        left += f" {visible(daemon['version'])}, up {span(daemon['uptimeSeconds'])}"
        left = f"{daemon['available']} of {counted(daemon['servers'], 'server')} available, {left}"
    return [_line(left, width, right=clock, style="reverse")]


def _problem(picture: Picture, now: float, size: Size) -> list[Line]:
    """Since when the daemon is away, and why; nothing while it answers."""
    if picture.problem:
        since = time.strftime("%H:%M:%S", time.localtime(picture.away))
        text = f"no answer since {since} ({span(now - picture.away, parts=1)}): {picture.problem}"
    elif picture.asked and now - picture.asked > SLOW_SECONDS:
        text = f"waiting for an answer for {span(now - picture.asked, parts=1)}"
    else:
        return []
    if picture.status is not None:
        shown = time.strftime("%H:%M:%S", time.localtime(picture.at))
        text = f"{text} [below: as of {shown}]" if size.height < LOW else f"{text}\nBelow: as of {shown}."
    told = [safe(each, "yellow") for each in text.split("\n")]
    return _lines(told, size.width)[: 1 if size.height < LOW else MAX_PROBLEM]


def _footer(picture: Picture, choices: WatchChoices, width: int) -> list[Line]:
    if choices.typing:
        return [_line(f"filter: {choices.text}_   Enter keeps it, Esc shows all", width, style="reverse")]
    if choices.page is not WatchPage.TABLE:
        return [_line("q leave  Esc back  up/down scroll", width, style="reverse")]
    parts = ["q leave", "? keys", f"s sort: {choices.order}", f"/ filter: {visible(choices.text) or 'none'}"]
    right = ""
    if picture.status is not None and choices.text:
        servers = picture.status["servers"]
        right = f"{len(choices.shown(servers))} of {len(servers)}"
    return [_line("  ".join([*parts, "Enter more"]), width, right=right, style="reverse")]


def _table(status: Json, choices: WatchChoices, now: float, size: Size) -> list[Line]:
    """The table of servers, scrolled to the selected one; below it, if all have room, what is unusual."""
    servers: Json = status["servers"]
    names = choices.shown(servers)
    if not names:
        told = "No server fits the filter." if servers else "No servers are configured."
        return _lines([Text(told)], size.width)
    screen = Screen(width=size.width - _GUTTER, colour=True)
    heading, rows = _rows({name: servers[name] for name in names}, now, screen)
    heading = heading[: max(0, size.height - 1)]
    choices.room = max(1, size.height - len(heading))
    current = choices.current(names)
    places = [at for at, (name, _) in enumerate(rows) if name == current]
    choices.top = _kept_in_sight(choices.top, places, len(rows), choices.room)
    shown = rows[choices.top : choices.top + choices.room]
    marked = [_marked(line, selected=name == current, first=at == 0) for at, name, line in _numbered(shown)]
    below: list[RenderableType] = [
        Text(line, style="cyan") for line in lately_in_words(status.get("lately"), size.width, lines=1)
    ]
    below += remarks({name: servers[name] for name in names})
    left = choices.room - len(rows)
    # Cut where the screen ends: all of a server is a key away.
    more = _lines(below, size.width)[:left] if left > 1 and below else []
    return [*(_marked(line, selected=False, first=False) for line in heading), *marked, *more]


def _rows(servers: Mapping[str, Json], now: float, screen: Screen) -> tuple[list[Line], list[tuple[str, Line]]]:
    """The lines of the table's heading, and those of its rows, each with the server that it is of."""
    drawn = table(dict(servers), now, screen)
    # A server has a row, and one for each of its instances: told by drawing it alone.
    owners = [name for name, each in servers.items() for _ in table({name: each}, now, screen).rows]
    for number, row in enumerate(drawn.rows):
        row.style = Style(meta={_ROW: number})
    heading: list[Line] = []
    rows: list[tuple[str, Line]] = []
    for line in _lines([drawn], screen.width):
        of = next((each.style.meta[_ROW] for each in line if each.style and _ROW in each.style.meta), None)
        if of is None:
            heading.append(line)
        else:
            rows.append((owners[of], line))
    return heading, rows


def _numbered(rows: Iterable[tuple[str, Line]]) -> Iterable[tuple[int, str, Line]]:
    """Each line with its number among those of its server, from 0."""
    before, at = "", 0
    for name, line in rows:
        at = at + 1 if name == before else 0
        before = name
        yield at, name, line


def _marked(line: Line, *, selected: bool, first: bool) -> Line:
    """A line of the table with the gutter before it."""
    mark = ">" if selected and first else " "
    whole = [Segment(mark.ljust(_GUTTER)), *line]
    return list(Segment.apply_style(whole, post_style=Style(reverse=True))) if selected and first else whole


def _kept_in_sight(top: int, places: list[int], count: int, room: int) -> int:
    """Where to begin so that these lines are shown, moving as little as possible."""
    if places:
        top = max(min(top, places[0]), min(places[0], places[-1] - room + 1))
    return max(0, min(top, count - room))


def _one(picture: Picture, choices: WatchChoices, now: float, width: int) -> list[Line]:
    """All of the selected server."""
    servers: Json = picture.status["servers"] if picture.status is not None else {}
    name = choices.current(choices.shown(servers))
    if not name:
        return _lines([Text("It is not configured any more.")], width)
    screen = Screen(width=width, colour=True)
    one = picture.one if picture.one is not None and picture.one["name"] == name else None
    return _lines(parts_of_one(one or {"name": name, "server": servers[name]}, now, screen), width)


def _help(width: int) -> list[Line]:
    parts: list[RenderableType] = []
    for keys, meaning in HELP:
        parts += [safe(keys, "bold"), paragraph(meaning, indent=4)]
    return _lines(parts, width)


def _scrolled(lines: list[Line], choices: WatchChoices, room: int) -> list[Line]:
    """The part of a page that is shown."""
    choices.room = max(1, room)
    choices.top = max(0, min(choices.top, len(lines) - choices.room))
    return lines[choices.top : choices.top + choices.room]


def _line(left: str, width: int, *, right: str = "", style: str = "") -> Line:
    """One line with something at its right end, which is kept where both have no room."""
    kept = right[:width]
    gap = " " if kept else ""
    room = max(0, width - len(kept) - len(gap))
    whole = Text(left, no_wrap=True, end="")
    whole.truncate(room, overflow="crop", pad=True)
    whole.append(gap + kept)
    whole.stylize(style)
    return _lines([whole], width)[0]


def _lines(parts: Iterable[RenderableType], width: int) -> list[Line]:
    """What rich makes of the parts: lines that are exactly so wide."""
    console = _console()
    return console.render_lines(Group(*parts), console.options.update(width=width), pad=True)


@cache
def _console() -> Console:
    return Console(
        file=io.StringIO(),
        force_terminal=True,
        color_system="standard",
        no_color=False,
        legacy_windows=False,
        markup=False,
        emoji=False,
        highlight=False,
    )
