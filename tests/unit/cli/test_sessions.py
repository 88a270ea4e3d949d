"""`mcpd sessions`: one question to the daemon, shown as data or as a table."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from daemon.cli import implementation

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Controls

main = implementation("sessions").main


def loaded(**changed: Any) -> Any:
    """A loaded tool as the daemon answers it."""
    known = {"server": "git", "name": "git_log", "status": "valid", "reason": "", "source": "manual"}
    return {**known, "loadedAt": 900.0, "age": 100, "schemaHash": "ab", "epoch": 3, **changed}


def session(**changed: Any) -> Any:
    """A session with a key as the daemon answers it."""
    known = {"key": "project", "number": None, "client": "agent 1", "connections": 1, "createdAt": 100.0}
    more = {"profile": None, "surface": None, "surfaceWhy": None, "seenAt": 950.0, "forgottenInSeconds": None}
    return {**known, **more, **changed}


ALL: Any = {"sessions": [session(loaded=2, invalid=1)]}
ONE: Any = session(loaded=[loaded(), loaded(name="gone", status="invalid_deleted", reason="no more")])


def test_json_of_one_is_the_list_of_its_tools(control: Controls, capsys: pytest.CaptureFixture[str]) -> None:
    daemon = control({"sessions": ONE})
    assert main(["project", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == ONE["loaded"]
    assert daemon.asked == [("sessions", {"key": "project"})]


def test_people_get_a_table_of_tools(control: Controls, capsys: pytest.CaptureFixture[str]) -> None:
    control({"sessions": ONE})
    assert main(["project"]) == 0
    shown = capsys.readouterr().out
    assert "git/git_log" in shown
    assert "no more" in shown


def test_a_key_may_look_like_an_option(control: Controls) -> None:
    daemon = control({"sessions": ONE})
    assert main(["--", "--json"]) == 0
    assert daemon.asked == [("sessions", {"key": "--json"})]


@pytest.mark.parametrize("words", [[], ["--json"]])
def test_a_list_that_is_not_whole_says_so_and_is_one(
    control: Controls, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    control({"sessions": {**ALL, "incomplete": "what is kept cannot be read now"}})
    assert main(words) == 1
    shown = capsys.readouterr().out
    assert "cannot be read now" in shown
    assert "project" in shown
