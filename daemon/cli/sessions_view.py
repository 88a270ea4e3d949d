"""The sessions for people: a table of all, or of what one has loaded and why some of it is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.text import Text

from daemon.cli.terminal import draw, duration, grid, paragraph, safe

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType
    from rich.table import Table

    from daemon.cli.terminal import Screen

Json = dict[str, Any]

ADVICE = {
    "invalid_changed": "It counts again once it is loaded again, with the new schema.",
    "invalid_deleted": "If it comes back as it was, it counts again by itself.",
    "invalid_disabled": "Switch it on: `mcpd enable {server}/{name}`, or in the configuration.",
    "invalid_server_disabled": "Switch it on: `mcpd enable {server}`, or in the configuration.",
    "invalid_renamed": "Load it under its new name: {renamedTo}.",
}
"""What can be done, by status."""


def render(answer: Json, *, now: float, screen: Screen) -> str:
    """All sessions as text.

    Args:
        answer: of the control method `sessions`, without a key.
        now: seconds since the epoch, for ages.
        screen: where it is shown.
    """
    sessions: list[Json] = answer["sessions"]
    parts: list[RenderableType] = []
    if answer.get("incomplete"):
        parts += [safe(answer["incomplete"], "yellow"), Text("")]
    parts.append(_sessions(sessions, now, screen) if sessions else Text("There are no sessions."))
    if answer.get("more"):
        parts += [Text(""), Text("There are older ones; `mcpd sessions KEY` shows any.", style="dim")]
    return draw(parts, screen)


def render_one(answer: Json, *, now: float, screen: Screen) -> str:
    """One session and its tools as text; arguments as for `render`, the answer is that with a key."""
    loaded: list[Json] = answer["loaded"]
    parts: list[RenderableType] = [*_heading(answer, now), Text("")]
    parts.append(_tools(loaded, screen) if loaded else Text("It has not loaded any tools."))
    lost = [tool for tool in loaded if tool["status"] != "valid"]
    for tool in lost:
        parts += [Text(""), *_loss(tool)]
    return draw(parts, screen)


def render_moved(answer: Json, *, screen: Screen) -> str:
    """What became of a session that was given another profile, as text.

    Args:
        answer: of the control method `move`.
        screen: where it is shown.
    """
    count = answer["moved"]
    who = "nobody is connected; who comes next has" if not count else "its connection has"
    if count > 1:
        who = f"its {count} connections have"
    return draw([safe(f"session {_named(answer)}: {who} profile {answer['profile']} now")], screen)


def _sessions(sessions: list[Json], now: float, screen: Screen) -> Table:
    table = grid(screen)
    # A key is never cut: it could not be typed in again.
    table.add_column("session", overflow="fold", min_width=8)
    table.add_column("client", overflow="fold")
    for heading in ("connected", "begun", "used", "loaded", "invalid"):
        table.add_column(heading, justify="right", no_wrap=True)
    for session in sessions:
        table.add_row(
            safe(_named(session), "dim") if session["key"] is None else safe(session["key"]),
            safe(session["client"] or "-"),
            str(session["connections"] or "-"),
            duration(now - session["createdAt"]),
            "-" if session["seenAt"] is None else duration(now - session["seenAt"]),
            str(session["loaded"]),
            _invalid(session["invalid"]),
        )
    return table


def _named(session: Json) -> str:
    return f"#{session['number']}, no key" if session["key"] is None else str(session["key"])


def _invalid(count: int | None) -> Text:
    return Text("-" if count is None else str(count), style="yellow" if count else "")


def _heading(session: Json, now: float) -> Iterator[RenderableType]:
    yield safe(f"session {_named(session)}", "bold")
    begun = f"begun {duration(now - session['createdAt'])} ago"
    if session["seenAt"] is not None:
        begun += f", used {duration(now - session['seenAt'])} ago"
    connections = session["connections"]
    if connections:
        state = "connected" if connections == 1 else f"{connections} connections"
    else:
        state = f"nobody is connected; forgotten in {duration(session['forgottenInSeconds'])}"
    client = f" by {session['client']}" if session["client"] else ""
    profile = f"; profile {session['profile']}" if session.get("profile") else ""
    yield paragraph(f"{begun}{client}; {state}{profile}", indent=2)


def _tools(loaded: list[Json], screen: Screen) -> Table:
    table = grid(screen)
    table.add_column("tool", overflow="fold", min_width=8)
    table.add_column("status", no_wrap=True)
    table.add_column("source", no_wrap=True)
    table.add_column("age", justify="right", no_wrap=True)
    for tool in loaded:
        table.add_row(
            safe(f"{tool['server']}/{tool['name']}"),
            safe(tool["status"], "green" if tool["status"] == "valid" else "yellow"),
            safe(tool["source"]),
            duration(tool["age"]),
        )
    return table


def _loss(tool: Json) -> Iterator[RenderableType]:
    """Why a tool is not listed any more."""
    yield safe(f"{tool['server']}/{tool['name']}: {tool['status']}", "yellow")
    yield paragraph(tool["reason"], indent=2)
    if tool["status"] in ADVICE:
        yield paragraph(ADVICE[tool["status"]].format_map({"renamedTo": "unknown", **tool}), indent=2)
