"""`mcpd describe`: what models are told of a tool, in place of what its server says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from daemon.cli import EX_CONFIG
from daemon.cli.options import add_control, add_json, parser
from daemon.cli.own_settings import PATIENCE, asked
from daemon.cli.tool_name import tool_name
from daemon.safety.escape import visible

if TYPE_CHECKING:
    import argparse


def main(argv: list[str]) -> int:
    """Write a tool's description into the configuration, or take it out.

    Returns:
        0: done; 1: no such tool, or the file cannot be written; 2: usage; 3: no daemon is reachable; 78: the
        configuration is faulty.
    """
    made = _parser()
    options = made.parse_args(argv)
    if (options.text is None) is not options.reset:
        made.error("write the description, or --reset to take it out")
    return asked(options, "describe", {"tool": options.tool, "text": options.text}, in_words)


def _parser() -> argparse.ArgumentParser:
    made = parser(
        "describe",
        "Give a tool another description than its server does: models choose tools by it. It is written into"
        " the configuration, with its comments and its layout kept: into each category that holds the tool"
        ' ("overrides"), or, where none is configured that does, into each profile'
        ' ("toolDescriptionOverrides"). The daemon reads it at once, and clients are told.',
        examples=(
            "mcpd describe git/git_log 'Shows the last commits; ask for at most 20.'",
            "mcpd describe git/git_log --reset",
        ),
        exits={
            0: "done",
            1: "there is no such tool, or the configuration cannot be written",
            EX_CONFIG: "the configuration is faulty: nothing was changed",
        },
    )
    made.add_argument("tool", metavar="SERVER/TOOL", type=tool_name, help="the tool, as `mcpd tools` shows it")
    made.add_argument("text", metavar="TEXT", nargs="?", help="what models are shown")
    made.add_argument("--reset", action="store_true", help="show what the server itself says again")
    add_json(made)
    add_control(made, PATIENCE)
    return made


def in_words(answer: dict[str, Any]) -> str:
    """What was changed where."""
    tool, places = answer["tool"], answer["places"]
    what = "its server's own description" if answer["description"] is None else "that description"
    lines = [f"{tool} has {what} {'already' if answer['already'] else 'now'}"]
    lines += [f"  {each['place']} in {each['file']}" for each in places]
    return "\n".join(map(visible, lines))
