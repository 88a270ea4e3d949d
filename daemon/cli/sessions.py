"""`mcpd sessions`: the sessions, and the state of the tools that each has loaded; asking starts nothing."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Any

from daemon.cli.control import ask_with, guarded, print_answer
from daemon.cli.options import add_control, add_json, parser
from daemon.safety.escape import document

if TYPE_CHECKING:
    import argparse

EX_INCOMPLETE = 1
"""Not all sessions could be shown."""


def main(argv: list[str]) -> int:
    """Show all sessions, or what one of them has loaded; or give one another profile.

    Returns:
        0: done; 1: no such session or profile, or not all could be read; 2: usage; 3: no daemon is reachable.
    """
    made = _parser()
    options = made.parse_args(argv)
    if options.profile is not None and options.key is None:
        made.error("--profile says which profile a session gets: name the session, too")
    return guarded(lambda: _show(options) if options.profile is None else _move(options))


def _parser() -> argparse.ArgumentParser:
    made = parser(
        "sessions",
        "Show the sessions, those with a key also while nobody is connected; with KEY, or the number of"
        " a connection, the tools that this one has loaded: whether each can still be used, why not, who loaded"
        " it and when. Changes nothing, except with --profile: that gives the session another profile while its"
        " client is connected.",
        examples=(
            "mcpd sessions",
            "mcpd sessions /home/me/project",
            "mcpd sessions 4",
            "mcpd sessions KEY --profile review",
            "mcpd sessions KEY --json | jq '.[] | select(.status != \"valid\")'",
        ),
        exits={
            0: "shown, or given the profile",
            1: "no such session or profile, or not all sessions could be read",
        },
    )
    made.add_argument(
        "key",
        metavar="KEY",
        nargs="?",
        help="the session's key, as in `mcpd connect --session`; 4 is connection 4, which need not have one",
    )
    made.add_argument(
        "--profile",
        metavar="NAME",
        help="give the session this profile, and its surface, until it is given another or the daemon ends",
    )
    add_json(made)
    add_control(made)
    return made


def _move(options: argparse.Namespace) -> int:
    print_answer(options, "move", {"key": options.key, "profile": options.profile}, _moved)
    return 0


def _moved(answer: dict[str, Any]) -> str:
    from daemon.cli.terminal import Screen  # noqa: PLC0415
    from daemon.cli.views import render_moved  # noqa: PLC0415 - imports rich

    return render_moved(answer, screen=Screen.of(sys.stdout, os.environ))


def _show(options: argparse.Namespace) -> int:
    answer = ask_with(options, "sessions", {"key": options.key})
    if options.json:
        print(document(answer if options.key is None else answer["loaded"]))
    else:
        from daemon.cli.terminal import Screen  # noqa: PLC0415
        from daemon.cli.views import render_session, render_sessions  # noqa: PLC0415 - imports rich

        draw = render_sessions if options.key is None else render_session
        print(draw(answer, now=time.time(), screen=Screen.of(sys.stdout, os.environ)))
    return EX_INCOMPLETE if answer.get("incomplete") else 0
