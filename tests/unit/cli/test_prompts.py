"""`mcpd prompts`: one question, shown as data or as a table."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from daemon.cli import implementation

if TYPE_CHECKING:
    import pytest

    from tests.unit.cli.conftest import Controls

main = implementation("prompts").main

NOTHING: dict[str, Any] = {"prompts": [], "resources": [], "templates": [], "servers": {}}


def test_json_is_the_daemons_answer(control: Controls, capsys: pytest.CaptureFixture[str]) -> None:
    daemon = control({"prompts": NOTHING})
    assert main(["git", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == NOTHING
    assert daemon.asked == [("prompts", {"server": "git"})]


def test_people_get_a_table(control: Controls, capsys: pytest.CaptureFixture[str]) -> None:
    daemon = control({"prompts": NOTHING})
    assert main([]) == 0
    assert capsys.readouterr().out == "No server has listed a prompt.\n"
    assert daemon.asked == [("prompts", {})]


def test_an_unknown_server_is_one(control: Controls, capsys: pytest.CaptureFixture[str]) -> None:
    control({"prompts": {"error": {"code": -32602, "message": "no server is named 'x'"}}})
    assert main(["x"]) == 1
    assert capsys.readouterr().err == "mcpd: no server is named 'x'\n"
