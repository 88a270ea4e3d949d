"""Servers that are down, and why, for models that are given servers' own tools (`full`, `itself`).

Elsewhere a meta-tool's answer says so (`meta.unavailableServers`). Here a model has only the list, in which
such a server may have nothing: the instructions name it, with its cause and what helps, and so does the tool
`mcpd_status`. It is listed only while a server is down, and found by the names of those that are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon.safety.escape import legible
from daemon.states import WAITING, ServerState
from daemon.surfaces.answers import (
    MAX_NAMED,
    MAX_REASON,
    fitting,
    index_lines,
    result,
    room_of,
    unavailable_entry,
    what_helps,
)
from daemon.surfaces.base import Reply
from daemon.surfaces.describing import meta_tool

if TYPE_CHECKING:
    from daemon.catalog.snapshot import ServerEntry
    from daemon.surfaces.base import View

STATUS = "mcpd_status"
"""The name of the tool; that of the bridge, where no daemon runs, is the same (`bridge.stand_in`)."""

LINES_CHARACTERS = 1000
"""Characters of the lines about all servers: Claude Code shows its model 2 KB of instructions, in which the
lines about the others are to have room."""

LINE_CHARACTERS = 400
"""Characters of the line about one server: what happened and what helps take some 200."""


def is_down(entry: ServerEntry) -> bool:
    """Whether a server has failed and nobody knows that it will be back in a moment.

    It counts until it serves, also while it is tried again, or the list would change with each attempt. One
    with known tools that has ended once is most often back before a model reads that it is gone.
    """
    status = entry.status
    if entry.disabled or entry.of_use or status.cause is None:
        return False
    if status.state is ServerState.DEGRADED:
        return True
    parked = status.state in WAITING - {ServerState.BACKOFF}
    return status.attempt > (1 if entry.tools is not None and not parked else 0)


def words(entry: ServerEntry) -> str:
    """Why a server is down and what helps, in whole sentences."""
    why = entry.status.why
    happened = why.remedy.happened if why.remedy else f"{why.text or entry.status.state}."
    return legible(f"{happened} {what_helps(entry.name, why)}".rstrip())


def down_lines(view: View) -> str:
    """A line for each server that is down, after all their names; empty if none is."""
    down = _down(view)
    if not down:
        return ""
    names = ", ".join(entry.name for entry in down[:MAX_NAMED])
    more = f" and {len(down) - MAX_NAMED} more" if len(down) > MAX_NAMED else ""
    said = [(entry.name, words(entry)) for entry in down]
    lines = index_lines(said, LINES_CHARACTERS, f"{STATUS} tells", LINE_CHARACTERS)
    return f"Down now: {names}{more}.\n{lines}"


def status_tool(view: View) -> tuple[bytes, ...]:
    """The definition of the tool; none while every server is up, or if a server has a tool of that name."""
    lines = "" if STATUS in view.catalog.names.owners else down_lines(view)
    if not lines:
        return ()
    described = f"Tell which MCP servers are down now, why, and what the user can do about it. {lines}"
    return (meta_tool(STATUS, described, {}),)


def report(view: View) -> Reply:
    """The answer of the tool: every server that cannot be called now; it may have been listed earlier."""
    absent = [entry for entry in view.servers.values() if not entry.usable or is_down(entry)]
    entries = ((entry.name, unavailable_entry(entry, view.now())) for entry in absent)
    text = "Every MCP server is up, or is started by the next call to it."
    if absent:
        said = [(f"{entry.name} ({entry.status.state})", words(entry)) for entry in absent]
        text = index_lines(said, room_of(view), "`mcpd status` tells the user", MAX_REASON)
    return Reply(result({"unavailableServers": fitting(entries, room_of(view))}, text))


def _down(view: View) -> list[ServerEntry]:
    return [entry for entry in view.servers.values() if is_down(entry)]
