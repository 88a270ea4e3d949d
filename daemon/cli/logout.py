"""`mcpd logout`: end the login at a server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from daemon.cli.control import EX_FAULT, guarded, print_answer
from daemon.cli.options import add_control, add_json, parser
from daemon.safety.escape import visible

if TYPE_CHECKING:
    import argparse

LOGOUT_SECONDS = 75.0
"""Seconds to wait: an authorization server has thirty for each of two tokens, and the server starts again."""


def main(argv: list[str]) -> int:
    """Log out.

    Returns:
        0: there is no login any more; 1: no such server, or the login could not be ended everywhere; 2: usage;
        3: the daemon is not reachable.
    """
    options = _parser().parse_args(argv)

    def act() -> int:
        answer = print_answer(options, "logout", {"server": options.server}, in_words)
        return EX_FAULT if answer["problem"] else 0

    return guarded(act)


def _parser() -> argparse.ArgumentParser:
    made = parser(
        "logout",
        "End the login at a server: it is forgotten here, its authorization server is told to end it, too, and"
        " the server is started again without it.",
        examples=("mcpd logout github",),
        exits={
            0: "there is no login any more",
            1: "no such server, or its authorization server could not be told: it is said why",
        },
    )
    made.add_argument("server", metavar="SERVER", help="its name, as `mcpd status` shows it")
    add_json(made)
    add_control(made, LOGOUT_SECONDS)
    return made


def in_words(answer: dict[str, Any]) -> str:
    """What became of the login, in one line."""
    server, problem = answer["server"], answer["problem"]
    if not answer["existed"]:
        return visible(f"there was no login at {server}")
    if problem:
        return visible(
            f"the login at {server} is forgotten here, but not ended at its authorization server: {problem}."
            " End it there if somebody may have it."
        )
    return visible(
        f"logged out of {server}: the login is forgotten here, and ended at its authorization server"
    )
