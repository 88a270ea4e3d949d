"""The status's table of servers, their other lists, and the remarks below it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from daemon.cli.terminal import ROOMY, SEVERITIES, Screen, grid, paragraph, safe
from daemon.kit.wording import counted, some, span
from daemon.operators.report_words import MINUTES, SERVERS, is_coming, oddities, remark_lines
from daemon.safety.escape import visible
from daemon.states import WELL

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from daemon.operators.reports import ServerReport


STYLES = {
    "queued": "cyan",
    "starting": "cyan",
    "ready": "green",
    "degraded": "yellow",
    "backoff": "yellow",
    "crashloop": "red",
    "needs_auth": "magenta",
    "failed": "bold red",
    "dormant": "dim",
    "disabled": "dim",
    "stopping": "dim",
    "stopped": "dim",
}
"""Colours of states; the state's name is shown as well, so colour is never the only sign."""


LEGEND = f"open: calls in flight. calls, err and p50/p95 (ms): the last {MINUTES} minutes."

NAME_LEAST = 16
"""Columns that a name keeps; other columns are dropped before it gets fewer."""

_ELLIPSIS = "…"

WIDE = 120
"""Columns of a screen from which the headings need no legend."""


MARK = ">"
"""Marks the rows of the selected server; colour would not be enough."""


def table(
    servers: Mapping[str, ServerReport], now: float, screen: Screen, *, selected: str | None = None
) -> Table:
    """A row for each server and instance, cut to the screen; `selected` gets a mark, `now` is epoch seconds."""
    rows = [row for name, server in servers.items() for row in _rows(name, server)]
    owners = [name for name, server in servers.items() for _ in _rows(name, server)]
    since = SERVERS["since"]._replace(words=lambda server: span(now - server["since"], parts=1))
    _, state, *others = {**SERVERS, "since": since}.values()
    columns = {}
    for each in (state, *others):
        cells = [each.words(server) for _name, server in rows]
        if not each.if_any or (screen.width >= ROOMY and any(cell not in {"", "0"} for cell in cells)):
            columns[each] = [each.short if each.short and screen.width < WIDE else each.heading, *cells]
    for place, (_name, server) in enumerate(rows, 1):
        if many := len(server.get("instances", ())):
            counts = f", {counted(many, 'instance')}" if screen.width >= ROOMY else f" ({many})"
            columns[state][place] += counts
    gap = 2 if screen.width >= ROOMY else 1
    room = screen.width if selected is None else screen.width - gap - len(MARK)
    widths = {each: gap + max(map(len, cells)) for each, cells in columns.items()}
    longest = max((len("server"), *(cell_len(visible(name)) for name, _server in rows)))
    for unwanted in sorted(columns, key=lambda each: each.worth)[:-1]:
        if room - sum(widths.values()) >= min(longest, NAME_LEAST):
            break
        del widths[unwanted]
    names = _shortened([visible(name) for name, _ in rows], max(1, room - sum(widths.values())))
    drawn = grid(screen)
    if selected is not None:
        drawn.add_column(width=len(MARK))
    drawn.add_column("server", overflow="fold", min_width=min(longest, len("server")))
    for each in widths:
        drawn.add_column(columns[each][0], justify="left" if each is state else "right", no_wrap=True)
    for place, (name, owner, (label, server)) in enumerate(zip(names, owners, rows, strict=True), 1):
        styles = {each: SEVERITIES[each.severity(server)] for each in widths}
        styles[state] = STYLES.get(server["state"], "")
        mark = [] if selected is None else [MARK if owner == selected else ""]
        words = (safe(columns[each][place], styles[each]) for each in widths)
        drawn.add_row(*mark, safe(name), *words, style="reverse" if label == selected else "")
    return drawn


def legend(servers: Mapping[str, ServerReport], screen: Screen) -> Iterator[RenderableType]:
    """Explain the headings of a narrow table."""
    if servers and screen.width < WIDE:
        yield Text(LEGEND, style="dim")


def _rows(name: str, server: ServerReport) -> Iterator[tuple[str, ServerReport]]:
    yield name, server
    for each in server.get("instances", ()):
        where = each["workspace"] if "#" in each["name"] else None
        yield f"  {each['name']}{f' in {where}' if where else ''}", each


def _shortened(names: list[str], room: int) -> list[str]:
    """Shorten names to fit, or return them whole if two would look alike."""
    short = [shorten(name, room) for name in names]
    return short if len(set(short)) == len(set(names)) else names


def shorten(text: str, room: int) -> str:
    """Shorten a text to `room` columns by cutting out its middle, since names differ at their ends."""
    if cell_len(text) <= room:
        return text
    head, tail = room // 2, (room - 1) // 2
    return f"{set_cell_size(text, head).rstrip()}{_ELLIPSIS}{_tail(text, tail)}"


def _tail(text: str, room: int) -> str:
    kept = text[-room:] if room else ""
    while cell_len(kept) > room:
        kept = kept[1:]
    return kept


def remarks(servers: Mapping[str, ServerReport], starts: int) -> Iterator[RenderableType]:
    """Remarks on servers and instances that are not well; `starts` is the number that may start at a time."""
    seen = list(_each(servers))
    coming = [name for name, server in seen if is_coming(server)]
    if coming:
        yield Text("")
        yield safe(_coming(coming, starts), "cyan")
    groups: dict[object, list[tuple[str, ServerReport]]] = {}
    for name, server in seen:
        alike = (server["state"], server["cause"], server["reason"], _told_of(name, server))
        is_ill = server["state"] not in WELL and not is_coming(server) and server["reason"]
        groups.setdefault(alike if is_ill else name, []).append((name, server))
    for group in groups.values():
        yield from _remarks(group)


def _each(servers: Mapping[str, ServerReport]) -> Iterator[tuple[str, ServerReport]]:
    for name, server in servers.items():
        instances = server.get("instances", [])
        # Remarks on instances are not repeated for their server.
        own: ServerReport = {**server, "stderr": [], "noise": {"count": 0}, "oneClientAtATime": False}
        yield name, own if instances else server
        yield from ((each["name"], each) for each in instances)


def _coming(names: list[str], starts: int) -> str:
    if len(names) == 1:
        return f"{names[0]} is starting."
    return f"{len(names)} servers are starting, {starts} at a time: {some(names, NAMED)}."


def _told_of(name: str, server: ServerReport) -> tuple[str, str]:
    """A server's last event and its remedy, with a placeholder for the server's name."""
    return _generic(name, server["happened"]), _generic(name, server["helps"])


def _generic(name: str, text: str) -> str:
    return re.sub(
        r"`[^`]*`", lambda found: re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", "SERVER", found[0]), text
    )


def _remarks(group: list[tuple[str, ServerReport]]) -> Iterator[RenderableType]:
    server = group[0][1]
    lines = list(remark_lines(server)) if len(group) == 1 else list(_shared_lines(group))
    if not lines:
        return
    state, names = server["state"], ", ".join(each for each, _ in group)
    yield Text("")
    yield safe(f"{names}: {state}", STYLES.get(state, ""))
    yield from remark_paragraphs(lines)


def remark_paragraphs(lines: Iterable[tuple[str, str]]) -> Iterator[RenderableType]:
    """Remarks as paragraphs."""
    for text, severity in lines:
        yield paragraph(text, indent=2, style=SEVERITIES[severity])


def _shared_lines(group: list[tuple[str, ServerReport]]) -> Iterator[tuple[str, str]]:
    name, server = group[0]
    happened, helps = _told_of(name, server)
    yield server["reason"], ""
    if happened:
        yield happened, ""
        yield f"What helps: {helps}", "helps"
    due = [each["nextRetryInMs"] / 1000 for _, each in group if each["nextRetryInMs"] is not None]
    if due:
        first, last = span(min(due), parts=1), span(max(due), parts=1)
        yield f"next retries in {first if first == last else f'{first} to {last}'}", ""
    for each, of_one in group:
        # A shared diagnosis may rest on different last words.
        yield from ((f"{each}: stderr| {line.expandtabs()}", "quiet") for line in of_one["stderr"][-1:])
        yield from ((f"{each}: {text}", style) for text, style in oddities(of_one))


NAMED = 10
"""Servers named in a sentence about several."""


def below(servers: Mapping[str, ServerReport], screen: Screen) -> Iterator[RenderableType]:
    """A sentence about prompts, resources and skills, if the table has no room for them."""
    if screen.width >= ROOMY:
        return
    parts = [f"{name} {had}" for name, server in servers.items() if (had := _other_lists(server))]
    if parts:
        yield paragraph(f"Besides tools: {'; '.join(parts)}.", indent=0)


def _other_lists(server: ServerReport) -> str:
    kinds = (
        ("prompt", server["prompts"]),
        ("resource", server["resources"]),
        ("template", server["templates"]),
        ("skill", server["skills"]),
    )
    return ", ".join(counted(count, kind) for kind, count in kinds if count)
