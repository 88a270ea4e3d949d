"""The parsers of all commands."""

from __future__ import annotations

import pytest

from daemon.cli.completing import parser_of, whole_parser
from daemon.cli.table import COMMANDS


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_shows_its_parser_with_examples_and_exit_statuses(command: str) -> None:
    parser = parser_of(command)
    assert parser.prog == f"mcpd {command}"
    assert parser.description
    assert parser.epilog
    assert parser.epilog.startswith("examples:\n  ")
    assert "\n\nexit status:" in parser.epilog


def test_a_whole_line_is_understood_where_its_command_is_named() -> None:
    options = whole_parser("restart").parse_args(["restart", "git", "--json"])
    assert (options.servers, options.json) == (["git"], True)
    with pytest.raises(SystemExit):
        whole_parser(None).parse_args(["restart", "git"])
