"""`mcpd resources`: the resources that servers offer, and the templates of their URIs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon.cli.control import guarded
from daemon.cli.options import add_control, add_json, parser
from daemon.cli.prompts import show

if TYPE_CHECKING:
    import argparse


def main(argv: list[str]) -> int:
    """List the resources and templates.

    Returns:
        0: shown; 1: no such server; 2: usage; 3: the daemon is not reachable.
    """
    options = _parser().parse_args(argv)
    return guarded(lambda: show(options, "resources"))


def _parser() -> argparse.ArgumentParser:
    made = parser(
        "resources",
        "Show the resources that servers offer, by URI, and the templates of further URIs (RFC 6570). What is"
        " switched off, or cannot be read now because its server is down, is marked.",
        examples=("mcpd resources", "mcpd resources everything", "mcpd resources --json"),
        exits={0: "shown", 1: "no such server"},
    )
    made.add_argument("server", metavar="SERVER", nargs="?", help="only this server's")
    add_json(made)
    add_control(made)
    return made
