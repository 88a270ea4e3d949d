"""`mcpd disable`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon.cli.disable import main

if TYPE_CHECKING:
    import pytest

    from tests.unit.cli.conftest import Controls


def test_a_tool_is_switched_off(control: Controls, capsys: pytest.CaptureFixture[str]) -> None:
    answer = {"server": "git", "tool": "push", "off": True, "already": False, "note": "", "state": "ready"}
    daemon = control({"switch": answer})
    assert main(["git/push"]) == 0
    assert capsys.readouterr().out == "git/push: switched off\n"
    assert daemon.asked == [("switch", {"name": "git/push", "off": True})]


def test_an_unknown_name_is_one_with_the_daemons_words(
    control: Controls, capsys: pytest.CaptureFixture[str]
) -> None:
    control({"switch": {"error": {"code": -32602, "message": "no server is named 'gti'. Did you mean git?"}}})
    assert main(["gti"]) == 1
    assert capsys.readouterr().err == "mcpd: no server is named 'gti'. Did you mean git?\n"
