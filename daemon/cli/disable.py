"""`mcpd disable`: switch a server, or what it lists, off until `mcpd enable`, over restarts of the daemon."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon.cli.enable import switch, switch_parser

if TYPE_CHECKING:
    import argparse


def main(argv: list[str]) -> int:
    """Switch a server, or what it lists, off.

    Returns:
        0: it is off, perhaps already; 1: there is nothing of that name; 2: usage; 3: the daemon is not
        reachable.
    """
    return switch(_parser().parse_args(argv), off=True)


def _parser() -> argparse.ArgumentParser:
    return switch_parser(
        "disable",
        "Switch a server off: it is stopped, and its tools are offered to nobody. Or one of its"
        " tools, prompts, resources or templates of resources: it can be neither seen nor used. Remembered"
        " until `mcpd enable`. Anything may be named before its server has listed any.",
        examples=(
            "mcpd disable git",
            "mcpd disable git/git_push",
            "mcpd disable mcp__git__git_push",
            "mcpd disable git/prompt:review",
            "mcpd disable docs/resource:file:///etc/motd",
            "mcpd disable docs/template:file:///{path}",
        ),
    )
