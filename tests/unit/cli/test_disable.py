"""`mcpd disable`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon.cli import implementation

if TYPE_CHECKING:
    import pytest

    from tests.unit.cli.conftest import Controls

main = implementation("disable").main


def test_a_tool_is_switched_off(control: Controls, capsys: pytest.CaptureFixture[str]) -> None:
    answer = {"server": "git", "tool": "push", "off": True, "already": False, "note": "", "state": "ready"}
    daemon = control({"switch": answer})
    assert main(["git/push"]) == 0
    assert capsys.readouterr().out == "git/push: switched off\n"
    assert daemon.asked == [("switch", {"name": "git/push", "off": True})]
