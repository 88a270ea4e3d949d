"""`mcpd allow`: let a session call tools that its user is asked about, or say what it may."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from daemon.cli.control import ask_and_print
from daemon.cli.options import add_control, add_json, add_session, parser, seconds_of
from daemon.kit.wording import span
from daemon.safety.escape import visible

if TYPE_CHECKING:
    import argparse


def main(argv: list[str]) -> int:
    """Allow something, revoke it, or say what is allowed.

    Returns:
        0: done; 1: there is no such session or tool; 2: usage; 3: the daemon is not reachable.
    """
    made = _parser()
    options = made.parse_args(argv)
    if options.seconds is not None and (options.revoke or options.tool is None):
        made.error("--for says how long a tool is allowed: name the tool, without --revoke")
    params = {"session": options.session, "tool": options.tool, "seconds": options.seconds}
    return ask_and_print(options, "allow", {**params, "revoke": options.revoke}, in_words)


def _parser() -> argparse.ArgumentParser:
    made = parser(
        "allow",
        'Let a session call a tool that its user is asked about (`permissions`, "then": "ask"), for clients'
        " that cannot ask. It holds for the tool as it is now, in this session, as long as the session is in"
        " use or as long as --for says, and ends with the daemon: it is kept in memory only. Without"
        " SERVER/TOOL: what the session may call.",
        examples=(
            "mcpd allow 4",
            "mcpd allow 4 filesystem/write_file",
            "mcpd allow /home/me/project 'git/*' --for 1h",
            "mcpd allow 4 filesystem/write_file --revoke",
            "mcpd allow 4 --revoke",
        ),
        exits={0: "done", 1: "no such session, or no such tool that asks"},
    )
    add_session(made)
    made.add_argument(
        "tool",
        metavar="SERVER/TOOL",
        nargs="?",
        help="a tool, or a pattern as in the configuration; it must fit a tool that asks",
    )
    made.add_argument(
        "--for",
        dest="seconds",
        metavar="TIME",
        type=seconds_of,
        help="for so long: 90s, 30m, 1h, 2d (default: as long as the session is in use)",
    )
    made.add_argument("--revoke", action="store_true", help="ask again about TOOL, or about everything")
    add_json(made)
    add_control(made)
    return made


def in_words(answer: dict[str, Any]) -> str:
    """What the session may call, a line each."""
    if not answer["allowed"]:
        return visible(f"session {answer['session']}: nothing is allowed beyond its profile")
    lines = [f"session {answer['session']} may call, unasked:"]
    for each in answer["allowed"]:
        until = "as long as it is in use" if each["seconds"] is None else f"for {span(each['seconds'])}"
        lines.append(f"  {each['tool']}  {until}, says {each['by']}")
    return "\n".join(visible(line) for line in lines)
