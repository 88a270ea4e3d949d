"""The parsers of all commands."""

from __future__ import annotations

import importlib

import pytest

from daemon.cli import COMMANDS, module_of
from daemon.cli.parsers import parser_of, whole_parser


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_shows_its_parser_with_examples_and_exit_statuses(command: str) -> None:
    assert "_parser" in vars(importlib.import_module(module_of(command)))
    parser = parser_of(command)
    assert parser.prog == f"mcpd {command}"
    assert parser.description
    assert parser.epilog
    assert parser.epilog.startswith("examples:\n  ")
    assert "\n\nexit status:" in parser.epilog


def test_a_command_without_a_parser_is_known_by_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("daemon.cli.schema._parser")
    assert COMMANDS["schema"][1] in str(parser_of("schema").epilog)


def test_a_whole_line_is_understood_where_its_command_is_named() -> None:
    options = whole_parser("restart").parse_args(["restart", "git", "--json"])
    assert (options.servers, options.json) == (["git"], True)
    with pytest.raises(SystemExit):
        whole_parser(None).parse_args(["restart", "git"])
