"""The table of servers in a status, what they list besides tools, and what is to be said of them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from daemon.cli.terminal import ROOMY, grid, milliseconds, paragraph, safe
from daemon.kit.wording import short_size, span
from daemon.safety.escape import visible
from daemon.states import COMING, WELL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType
    from rich.table import Table

    from daemon.cli.terminal import Screen


Json = dict[str, Any]

KINDS = ("prompts", "resources", "templates")
"""What servers list beside tools, as `status` answers it."""

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
"""Colour by state; the state's name is shown as well, so nothing is said by colour alone."""

MINUTES = 5
"""Minutes of `recent`, as the headings have them."""

LEGEND = f"open: calls in flight. calls, err and p50/p95 (ms): the last {MINUTES} minutes."
"""What the short headings of a narrow table mean."""

NAME_LEAST = 16
"""Columns that a name gets before other columns are left out."""

_ELLIPSIS = "…"

_LEFT = 2
"""The first columns, name and state, are aligned at the left."""

_DROPPED = ("pid", "idle", "restarts", "memory", *KINDS, "tools", "p50/p95", "err", "calls", "open", "for")
"""Columns that a narrow screen does without, the least important first."""

WIDE = 120
"""From this width on there is room for headings that need no legend."""

_LONG_HEADINGS = {
    "for": "since",
    "open": "in flight",
    "calls": f"calls {MINUTES}m",
    "err": f"errors {MINUTES}m",
    "p50/p95": "p50/p95 ms",
}
"""The headings there."""


def table(servers: Json, now: float, screen: Screen) -> Table:
    """A row for each server, and beneath it one for each of its instances, where clients do not share one.

    Args:
        servers: by name, as `status` answers them.
        now: seconds since the epoch, for ages.
        screen: where it is shown; columns that do not fit are left out, long names shortened in the middle.
    """
    rows = [row for name, server in servers.items() for row in _rows(name, server, now, screen)]
    headings = _headings(servers, screen)
    told = {each: _LONG_HEADINGS.get(each, each) if screen.width >= WIDE else each for each in headings[1:]}
    widths = {each: max((len(word), *(len(row[each]) for row in rows))) for each, word in told.items()}
    gap = 2 if screen.width >= ROOMY else 1
    longest = max((len("server"), *(cell_len(visible(row["server"])) for row in rows)))
    for unwanted in _DROPPED:
        room = screen.width - sum(widths.values()) - gap * len(widths)
        if room >= min(longest, NAME_LEAST):
            break
        widths.pop(unwanted, None)
    room = max(1, screen.width - sum(widths.values()) - gap * len(widths))
    names = _shortened([visible(row["server"]) for row in rows], room)
    drawn = grid(screen)
    drawn.add_column("server", overflow="fold", min_width=min(longest, len("server")))
    for place, each in enumerate(widths, 1):
        drawn.add_column(told[each], justify="left" if place < _LEFT else "right", no_wrap=True)
    for row, name in zip(rows, names, strict=True):
        cells = (safe(row[each], STYLES.get(row["style"], "") if each == "state" else "") for each in widths)
        drawn.add_row(safe(name), *cells)
    return drawn


def legend(servers: Json, screen: Screen) -> Iterator[RenderableType]:
    """What the headings of a narrow table mean, as they are too short to say it themselves."""
    if servers and screen.width < WIDE:
        yield Text(LEGEND, style="dim")


def _headings(servers: Json, screen: Screen) -> list[str]:
    is_divided = any(server["instances"] for server in servers.values())
    idle = ["idle"] if is_divided and screen.width >= ROOMY else []
    beside = columns(servers, screen)
    numbers = ("open", "calls", "err", "p50/p95", "restarts", "memory", "pid")
    return ["server", "state", "for", "tools", *beside, *numbers, *idle]


def _rows(name: str, server: Json, now: float, screen: Screen) -> Iterator[dict[str, str]]:
    instances = server["instances"]
    state = f"{server['state']}{_number(len(instances), screen)}"
    yield {"server": name, **_cells(server, now), "state": state}
    for each in instances:
        where = each["workspace"] if "#" in each["name"] else None
        yield {"server": f"  {each['name']}{f' in {where}' if where else ''}", **_cells(each, now)}


def _cells(server: Json, now: float) -> dict[str, str]:
    """What the columns show of a server or an instance."""
    recent, idle = server["recent"], server.get("idleMs")
    return {
        "state": server["state"],
        "style": server["state"],
        "for": span(now - server["since"], parts=1),
        "tools": str(server["tools"]),
        **{kind: "" if "name" in server else str(server[kind]) for kind in KINDS},
        "open": str(server["inFlight"] or "-"),
        "calls": str(recent["calls"]),
        "err": str(recent["errors"] or "-"),
        "p50/p95": _latency(recent),
        "restarts": str(server["restarts"] or "-"),
        "memory": short_size(server["rssBytes"]),
        "pid": "-" if server["pid"] is None else str(server["pid"]),
        "idle": "" if idle is None else span(idle / 1000, parts=1),
    }


def _latency(recent: Json) -> str:
    if recent["p50Ms"] is None:
        return "-"
    return f"{milliseconds(recent['p50Ms'])}/{milliseconds(recent['p95Ms'])}"


def _shortened(names: list[str], room: int) -> list[str]:
    """Names that fit, shortened in the middle; whole if that would make two of them alike."""
    short = [shorten(name, room) for name in names]
    return short if len(set(short)) == len(set(names)) else names


def shorten(text: str, room: int) -> str:
    """The text in so many columns, its middle left out: what names differ in stands at their ends."""
    if cell_len(text) <= room:
        return text
    head, tail = room // 2, (room - 1) // 2
    return f"{set_cell_size(text, head).rstrip()}{_ELLIPSIS}{_tail(text, tail)}"


def _tail(text: str, room: int) -> str:
    kept = text[-room:] if room else ""
    while cell_len(kept) > room:
        kept = kept[1:]
    return kept


def _number(instances: int, screen: Screen) -> str:
    """How many instances there are, after the state of their server."""
    if not instances:
        return ""
    if screen.width < ROOMY:
        return f" ({instances})"
    return f", {instances} instance{'s' if instances > 1 else ''}"


def remarks(servers: Json, starts: int) -> Iterator[RenderableType]:
    """What there is to say about servers and their instances beside their rows; nothing if all is well.

    Args:
        servers: by name, as `status` answers them.
        starts: how many are started at a time.
    """
    seen = list(_each(servers))
    coming = [name for name, server in seen if _is_coming(server)]
    if coming:
        yield Text("")
        yield safe(_coming(coming, starts), "cyan")
    groups: dict[object, list[tuple[str, Json]]] = {}
    for name, server in seen:
        alike = (server["state"], server["cause"], server["reason"], _told_of(name, server))
        is_ill = server["state"] not in WELL and not _is_coming(server) and server["reason"]
        groups.setdefault(alike if is_ill else name, []).append((name, server))
    for group in groups.values():
        yield from _remarks(group)


def _each(servers: Json) -> Iterator[tuple[str, Json]]:
    for name, server in servers.items():
        instances = server["instances"]
        yield name, {**server, **_OF_INSTANCES} if instances else server
        yield from ((each["name"], each) for each in instances)


_OF_INSTANCES: Json = {"stderr": [], "noise": {"count": 0}, "oneClientAtATime": False}
"""What is said of each instance, and not of its server again."""


def _is_coming(server: Json) -> bool:
    """Whether it is on its way and has not failed: that needs no reason."""
    return server["state"] in COMING and not server["cause"]


def _coming(names: list[str], starts: int) -> str:
    which = ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
    if len(names) == 1:
        return f"{which} is starting."
    return f"{len(names)} servers are starting, {starts} at a time: {which}."


def _told_of(name: str, server: Json) -> tuple[str, str]:
    """What happened and what helps, with a word in place of the server's name in commands."""
    return _generic(name, server["happened"]), _generic(name, server["helps"])


def _generic(name: str, text: str) -> str:
    return re.sub(
        r"`[^`]*`", lambda found: re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", "SERVER", found[0]), text
    )


def _remarks(group: list[tuple[str, Json]]) -> Iterator[RenderableType]:
    """The remarks about a server, or about several that are down for one reason."""
    server = group[0][1]
    lines = list(remark_lines(server)) if len(group) == 1 else list(_shared_lines(group))
    if not lines:
        return
    state, names = server["state"], ", ".join(each for each, _ in group)
    yield Text("")
    yield safe(f"{names}: {state}", STYLES.get(state, ""))
    for text, style in lines:
        yield paragraph(text, indent=2, style=style)


def _shared_lines(group: list[tuple[str, Json]]) -> Iterator[tuple[str, str]]:
    name, server = group[0]
    happened, helps = _told_of(name, server)
    yield server["reason"], ""
    if happened:
        yield happened, ""
        yield f"What helps: {helps}", "bold"
    due = [each["nextRetryInMs"] / 1000 for _, each in group if each["nextRetryInMs"] is not None]
    if due:
        first, last = span(min(due), parts=1), span(max(due), parts=1)
        yield f"next retries in {first if first == last else f'{first} to {last}'}", ""
    for each, of_one in group:
        # What was diagnosed for all may have other words of each behind it.
        yield from ((f"{each}: stderr| {line.expandtabs()}", "dim") for line in of_one["stderr"][-1:])
        yield from ((f"{each}: {text}", style) for text, style in _oddities(of_one))


NAMED = 10
"""Servers that are named in a sentence about several."""


def remark_lines(server: Json) -> Iterator[tuple[str, str]]:
    """The remarks about a server, each line with its style."""
    if server["state"] not in WELL and not _is_coming(server):
        yield server["reason"] or "no reason is known", ""
        if server["happened"]:
            yield server["happened"], ""
            yield f"What helps: {server['helps']}", "bold"
        if outlook := _outlook(server):
            yield outlook, ""
        for line in server["stderr"]:
            yield f"stderr| {line.expandtabs()}", "dim"
    yield from _oddities(server)


def _oddities(server: Json) -> Iterator[tuple[str, str]]:
    """What is unusual about a server whatever its state, each line with its style."""
    if server["state"] == "ready" and server["tools"] == 0 and server["others"]:
        yield f"it has no tools, only {' and '.join(server['others'])}", "dim"
    if server.get("listingError"):
        yield f"its tools could not be listed: {server['listingError']}", "yellow"
    for tool, reason in (server.get("quarantined") or {}).items():
        yield f"tool {tool} is not offered: {reason}", "yellow"
    if completed := server.get("completed"):
        lacking = f"{len(completed)} of its tools lack" if len(completed) > 1 else f"tool {completed[0]} lacks"
        yield f'{lacking} "type": "object" in the inputSchema, which MCP requires: added for clients', "dim"
    for tool, found in (server.get("hidden") or {}).items():
        yield f"tool {tool} has {found}: spelt out for models", "yellow"
    yield from faults(server)
    if server.get("differs"):
        yield (
            "it lists something else than the other instances: calls to it are judged by its own list",
            "yellow",
        )
    noise = server["noise"]
    if noise["count"]:
        yield f"{noise['count']} lines on its stdout were not MCP; the first: {noise['first']}", "yellow"
    if server["oneClientAtATime"]:
        yield "it serves one client at a time: what it asks clients could be for any of them", "dim"


def _outlook(server: Json) -> str:
    if server["state"] in COMING:
        return f"failed runs before this one: {server['attempt']}"
    due = server["nextRetryInMs"]
    if server["state"] == "degraded":
        # It runs; what is retried is listing its tools, if that is what failed.
        times = "once" if server["attempt"] == 1 else f"{server['attempt']} times"
        return (
            "" if due is None else f"asked for its tools {times} so far, again in {span(due / 1000, parts=1)}"
        )
    retry = "no retry is scheduled" if due is None else f"next retry in {span(due / 1000, parts=1)}"
    return f"attempt {server['attempt']}, {retry}"


MAX_NAMED = 10
"""Most prompts, or URIs, of one server that are named as faulty: `mcpd status --json` has all."""


def columns(servers: Json, screen: Screen) -> list[str]:
    """The kinds that have a column in the table of servers: those that any server has, if there is room."""
    if screen.width < ROOMY:
        return []
    return [kind for kind in KINDS if any(server[kind] for server in servers.values())]


def below(servers: Json, screen: Screen) -> Iterator[RenderableType]:
    """The same numbers in words, where the table has no room for them."""
    if screen.width >= ROOMY:
        return
    parts = [f"{name} {had}" for name, server in servers.items() if (had := _numbers(server))]
    if parts:
        yield paragraph(f"Beside tools: {'; '.join(parts)}.", indent=0)


def faults(server: Json) -> Iterator[tuple[str, str]]:
    """What is wrong with a server's lists beside its tools, each line with its style."""
    for kind, known in (server.get("lists") or {}).items():
        if known["listingError"]:
            yield f"its {kind} could not be listed: {known['listingError']}", "yellow"
        yield from _names_of(kind, "is not offered: {}", "are not offered", known["quarantined"])
        yield from _names_of(kind, "has {}: spelt out for models", "have hidden characters", known["hidden"])


def _numbers(server: Json) -> str:
    return ", ".join(f"{count} {kind if count > 1 else kind[:-1]}" for kind in KINDS if (count := server[kind]))


def _names_of(kind: str, one: str, more: str, found: Json) -> Iterator[tuple[str, str]]:
    for name, why in list(found.items())[:MAX_NAMED]:
        yield f"{kind[:-1]} {name} {one.format(why)}", "yellow"
    if len(found) > MAX_NAMED:
        yield f"{len(found) - MAX_NAMED} more of its {kind} {more}: `mcpd status --json` has them", "yellow"
