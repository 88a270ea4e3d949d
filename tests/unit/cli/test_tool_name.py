"""How commands read the name of a tool."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import pytest

from daemon.cli import implementation
from daemon.cli.tools import tool_name

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Controls

call = implementation("call").main

FOUND = {"server": "git", "tool": "git_log"}
DONE = {"content": [{"type": "text", "text": "done"}]}


def test_server_and_tool_are_taken_as_they_are(control: Controls, capsys: pytest.CaptureFixture[str]) -> None:
    daemon = control({"call": DONE})
    assert call(["git/git_log"]) == 0
    assert [method for method, _ in daemon.asked] == ["call"]
    assert capsys.readouterr() == ("done\n", "")


@pytest.mark.parametrize("name", ["git_log", "mcp__git__git_log"])
def test_another_spelling_is_looked_up_and_told(
    control: Controls, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    daemon = control({"tool": FOUND, "call": DONE})
    assert call([name]) == 0
    assert daemon.asked[0] == ("tool", {"tool": name})
    assert {key: daemon.asked[1][1][key] for key in FOUND} == FOUND
    assert capsys.readouterr() == ("done\n", f"mcpd: {name} is git/git_log\n")


def test_what_the_daemon_does_not_know_is_one(control: Controls, capsys: pytest.CaptureFixture[str]) -> None:
    control({"tool": {"error": {"code": -32602, "message": "no server has a tool 'x'"}}})
    assert call(["x"]) == 1
    assert capsys.readouterr().err == "mcpd: no server has a tool 'x'\n"


@pytest.mark.parametrize("word", ["", "/now", "time/"])
def test_half_a_name_is_no_name(word: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="write SERVER/TOOL"):
        tool_name(word)
