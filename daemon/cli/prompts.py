"""`mcpd prompts`: the prompts that servers offer, with their arguments."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from daemon.cli.control import ask_with, guarded
from daemon.cli.options import add_control, add_json, parser
from daemon.safety.escape import document

if TYPE_CHECKING:
    import argparse


def main(argv: list[str]) -> int:
    """List the prompts.

    Returns:
        0: shown; 1: no such server; 2: usage; 3: the daemon is not reachable.
    """
    options = _parser().parse_args(argv)
    return guarded(lambda: show(options, "prompts"))


def _parser() -> argparse.ArgumentParser:
    made = parser(
        "prompts",
        "Show the prompts that servers offer: each with its arguments and what it is for. What is switched off,"
        " or cannot be used now because its server is down, is marked.",
        examples=("mcpd prompts", "mcpd prompts git", "mcpd prompts --json"),
        exits={0: "shown", 1: "no such server"},
    )
    made.add_argument("server", metavar="SERVER", nargs="?", help="only this server's")
    add_json(made)
    add_control(made)
    return made


def show(options: argparse.Namespace, kind: str) -> int:
    """Print what servers list of one kind: `prompts` or `resources`."""
    answer = ask_with(options, kind, {} if options.server is None else {"server": options.server})
    if options.json:
        print(document(answer))
    else:
        from daemon.cli import definition_views  # noqa: PLC0415 - imports rich
        from daemon.cli.terminal import Screen  # noqa: PLC0415

        render = {"prompts": definition_views.render_prompts, "resources": definition_views.render_resources}
        print(render[kind](answer, Screen.of(sys.stdout, os.environ)))
    return 0
