"""`mcpd restart`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon.cli.restart import main

if TYPE_CHECKING:
    import pytest

    from tests.unit.cli.conftest import Controls

STARTING = {"server": "git", "state": "starting"}


def test_the_new_state_is_shown(control: Controls, capsys: pytest.CaptureFixture[str]) -> None:
    daemon = control({"restart": STARTING})
    assert main(["git"]) == 0
    assert capsys.readouterr().out == "git: restarted, now starting\n"
    assert daemon.asked == [("restart", {"server": "git"})]
