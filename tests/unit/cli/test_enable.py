"""`mcpd enable`, and what it shares with `mcpd disable`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from daemon.cli.enable import in_words, main

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.cli.conftest import Controls

ON: dict[str, Any] = {
    "server": "git",
    "tool": None,
    "off": False,
    "already": False,
    "note": "",
    "state": "ready",
    "reason": "",
}


def test_a_server_is_switched_on(control: Controls, capsys: pytest.CaptureFixture[str]) -> None:
    daemon = control({"switch": ON})
    assert main(["git"]) == 0
    assert capsys.readouterr().out == "git: switched on, now ready\n"
    assert daemon.asked == [("switch", {"name": "git", "off": False})]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"already": True}, "git: was switched on already, now ready"),
        ({"state": "failed", "reason": "no such command"}, "git: switched on, now failed (no such command)"),
        ({"off": True, "state": "disabled", "reason": "by an operator"}, "git: switched off, now disabled"),
        ({"tool": "push", "off": True}, "git/push: switched off"),
        ({"tool": "push", "note": "stays off"}, "git/push: switched on; stays off"),
        ({"state": "", "note": "not in the configuration"}, "git: switched on; not in the configuration"),
    ],
)
def test_the_words_say_what_became_of_it(changed: dict[str, Any], words: str) -> None:
    assert in_words({**ON, **changed}) == words


def test_json_is_the_daemons_answer(control: Controls, capsys: pytest.CaptureFixture[str]) -> None:
    control({"switch": ON})
    assert main(["git", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == ON


def test_what_the_configuration_switches_off_is_one(
    control: Controls, capsys: pytest.CaptureFixture[str]
) -> None:
    text = 'the configuration switches server git off: write "enabled": true'
    control({"switch": {"error": {"code": -32602, "message": text}}})
    assert main(["git"]) == 1
    assert capsys.readouterr().err == f"mcpd: {text}\n"


def test_no_daemon_is_three(sockets: Path) -> None:
    assert main(["git", "--control", str(sockets / "none")]) == 3


def test_no_name_is_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([])
    assert "SERVER[/TOOL]" in capsys.readouterr().err
