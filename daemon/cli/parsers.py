"""The parsers of all commands, for what goes through them: completions and man pages."""

from __future__ import annotations

import argparse
import importlib

from daemon.cli import COMMANDS, module_of
from daemon.cli.options import parser


def parser_of(command: str) -> argparse.ArgumentParser:
    """The parser of one command: what `_parser` of its module makes, else one of its line in COMMANDS."""
    make = vars(importlib.import_module(module_of(command))).get("_parser")
    if make is None:
        purpose, example = COMMANDS[command]
        return parser(command, f"{purpose}.", examples=(example,), exits={0: "done"}, reaches=False)
    made: argparse.ArgumentParser = make()
    return made


def whole_parser(command: str | None) -> argparse.ArgumentParser:
    """A parser of whole command lines, which knows the words of every command and the options of one.

    Args:
        command: the one whose module is imported; None or an unknown word: no module is.
    """
    made = argparse.ArgumentParser(
        prog="mcpd", description="The init system for MCP servers.", allow_abbrev=False
    )
    made.add_argument("-V", "--version", action="store_true", help="print the version")
    commands = made.add_subparsers(metavar="COMMAND")
    for name, (purpose, _example) in COMMANDS.items():
        own = [parser_of(name)] if name == command else []
        commands.add_parser(name, help=purpose, parents=own, add_help=not own)
    return made
