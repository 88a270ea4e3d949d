"""`mcpd enable`, and what it shares with `mcpd disable`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from daemon.cli import implementation
from daemon.cli.servers import switched

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Controls

main = implementation("enable").main

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
    answer: Any = {**ON, **changed}
    assert switched(answer) == words


def test_no_name_is_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([])
    assert "SERVER[/TOOL]" in capsys.readouterr().err
