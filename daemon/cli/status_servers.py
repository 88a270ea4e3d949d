"""What the status shows people of servers and their instances: a table, and what is not as it should be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.text import Text

from daemon.cli.status_lists import columns, faults
from daemon.cli.terminal import ROOMY, duration, grid, milliseconds, paragraph, safe, size
from daemon.states import COMING, WELL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType
    from rich.table import Table

    from daemon.cli.terminal import Screen

Json = dict[str, Any]

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

USAGE = ("in flight", "idle")
"""Further headings where servers have instances, if there is room."""

_RIGHT = ("since", "tools", "calls", "p50/p95 ms", "restarts", "pid", "rss")


def table(servers: Json, now: float, screen: Screen) -> Table:
    """A row for each server, and beneath it one for each of its instances, where clients do not share one.

    Args:
        servers: by name, as `status` answers them.
        now: seconds since the epoch, for ages.
        screen: where it is shown.
    """
    drawn = grid(screen)
    # The name is the one thing that may take several lines: cut, it could not be typed in again.
    drawn.add_column("server", overflow="fold", min_width=8)
    drawn.add_column("state", no_wrap=True)
    beside = columns(servers, screen)
    has_instances = any(server.get("instances") for server in servers.values())
    usage = USAGE if has_instances and screen.width >= ROOMY else ()
    for heading in (*_RIGHT[:2], *beside, *_RIGHT[2:], *usage):
        drawn.add_column(heading, justify="right", no_wrap=True)
    for name, server in servers.items():
        instances = server.get("instances") or ()
        state = safe(f"{server['state']}{_number(len(instances), screen)}", STYLES.get(server["state"], ""))
        kinds = (str(server.get(kind, 0)) for kind in beside)
        shown = [str(server["tools"]), *kinds, *_numbers(server)]
        drawn.add_row(safe(name), state, duration(now - server["since"]), *shown, *_usage(usage, server))
        for each in instances:
            state = safe(each["state"], STYLES.get(each["state"], ""))
            shown = [str(each["tools"]), *("" for _ in beside), *_numbers(each)]
            drawn.add_row(_named(each), state, duration(now - each["since"]), *shown, *_usage(usage, each))
    return drawn


def _number(instances: int, screen: Screen) -> str:
    """How many instances there are, after the state of their server."""
    if not instances:
        return ""
    if screen.width < ROOMY:
        return f" ({instances})"
    return f", {instances} instance{'s' if instances > 1 else ''}"


def _named(instance: Json) -> Text:
    """The name of an instance, and its directory if that is not in the name."""
    where = instance.get("workspace") if "#" in instance["name"] else None
    return safe(f"  {instance['name']}{f' in {where}' if where else ''}")


def _numbers(server: Json) -> tuple[str, ...]:
    return (
        str(server["calls"]),
        f"{milliseconds(server['p50Ms'])}/{milliseconds(server['p95Ms'])}",
        str(server["restarts"]),
        "-" if server["pid"] is None else str(server["pid"]),
        size(server["rssBytes"]),
    )


def _usage(wanted: tuple[str, ...], server: Json) -> tuple[str, ...]:
    """Calls in flight, and for how long an instance has not been used."""
    if not wanted:
        return ()
    idle = server.get("idleMs")
    return str(server["inFlight"]), "" if idle is None else duration(idle / 1000)


def remarks(name: str, server: Json) -> Iterator[RenderableType]:
    """What there is to say about a server and its instances beside their rows; nothing if all is well."""
    instances = server.get("instances") or ()
    yield from _remarks(name, {**server, **_OF_INSTANCES} if instances else server)
    for each in instances:
        yield from _remarks(each["name"], each)


_OF_INSTANCES: Json = {"stderr": [], "noise": None, "oneClientAtATime": False}
"""What is said of each instance, and not of its server again."""


def _remarks(name: str, server: Json) -> Iterator[RenderableType]:
    lines = list(_remark_lines(server))
    if not lines:
        return
    state = server["state"]
    yield Text("")
    yield safe(f"{name}: {state}", STYLES.get(state, ""))
    for text, style in lines:
        yield paragraph(text, indent=2, style=style)


_UNTOLD = {"queued": "waits to be started", "starting": "is being started"}
"""What is said of states that need no reason."""


def _remark_lines(server: Json) -> Iterator[tuple[str, str]]:
    """The remarks about a server, each line with its style."""
    if server["state"] not in WELL:
        yield server["reason"] or _UNTOLD.get(server["state"], "no reason is known"), ""
        if server.get("happened"):
            yield server["happened"], ""
            yield f"What helps: {server['helps']}", "bold"
        if outlook := _outlook(server):
            yield outlook, ""
        for line in server["stderr"]:
            yield f"stderr| {line.expandtabs()}", "dim"
    yield from _oddities(server)


def _oddities(server: Json) -> Iterator[tuple[str, str]]:
    """What is unusual about a server whatever its state, each line with its style."""
    if server["state"] == "ready" and server.get("tools") == 0 and server.get("others"):
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
    noise = server.get("noise") or {}
    if noise.get("count"):
        yield f"{noise['count']} lines on its stdout were not MCP; the first: {noise['first']}", "yellow"
    if server.get("oneClientAtATime"):
        yield "it serves one client at a time: what it asks clients could be for any of them", "dim"


def _outlook(server: Json) -> str:
    if server["state"] in COMING:
        return f"failed runs before this one: {server['attempt']}"
    due = server["nextRetryInMs"]
    if server["state"] == "degraded":
        # It runs; what is retried is listing its tools, if that is what failed.
        times = "once" if server["attempt"] == 1 else f"{server['attempt']} times"
        return "" if due is None else f"asked for its tools {times} so far, again in {duration(due / 1000)}"
    retry = "no retry is scheduled" if due is None else f"next retry in {duration(due / 1000)}"
    return f"attempt {server['attempt']}, {retry}"
