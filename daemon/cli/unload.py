"""`mcpd unload`: take a loaded tool, or all, away from a session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from daemon.cli.control import ask_and_print
from daemon.cli.options import add_control, add_json, add_session, parser
from daemon.safety.escape import visible

if TYPE_CHECKING:
    import argparse


def main(argv: list[str]) -> int:
    """Take a tool, or all, away from a session.

    Returns:
        0: done; 1: no such session, or it has not loaded that; 2: usage; 3: the daemon is not reachable.
    """
    options = _parser().parse_args(argv)
    return ask_and_print(options, "unload", {"session": options.session, "tool": options.tool}, in_words)


def _parser() -> argparse.ArgumentParser:
    made = parser(
        "unload",
        "Take a tool that a session has loaded away from it, or all of them: its client is told that its list"
        " of tools has changed, and a call to the tool is answered with how to load it. Remembered as what is"
        " loaded is, also by other daemons on the same store. The model may load the tool again; what its"
        " profile preloads comes back when a server's tools change. `mcpd disable` keeps it from everybody.",
        examples=(
            "mcpd unload 4 git/git_push",
            "mcpd unload /home/me/project git/git_push",
            "mcpd unload /home/me/project",
        ),
        exits={0: "unloaded", 1: "no such session, or it has not loaded that"},
    )
    add_session(made)
    made.add_argument(
        "tool",
        metavar="SERVER/TOOL",
        nargs="?",
        help="the tool, as `mcpd sessions SESSION` has it (default: all)",
    )
    add_json(made)
    add_control(made)
    return made


def in_words(answer: dict[str, Any]) -> str:
    """What has left the session."""
    names, session = answer["unloaded"], answer["session"]
    lines = [f"session {session}: {name} is not loaded any more" for name in names]
    lines = lines or [f"session {session} has loaded no tools"]
    return "\n".join(visible(line) for line in [*lines, *filter(None, [answer["note"]])])
