"""`mcpd restart`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from daemon.cli.restart import main

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from tests.unit.cli.conftest import Controls

STARTING = {"server": "git", "state": "starting"}


def test_the_new_state_is_shown(control: Controls, capsys: pytest.CaptureFixture[str]) -> None:
    daemon = control({"restart": STARTING})
    assert main(["git"]) == 0
    assert capsys.readouterr().out == "git: restarted, now starting\n"
    assert daemon.asked == [("restart", {"server": "git"})]


def test_json_is_the_daemons_answer(control: Controls, capsys: pytest.CaptureFixture[str]) -> None:
    control({"restart": STARTING})
    assert main(["git", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == STARTING


def test_an_unknown_server_is_one_with_the_daemons_words(
    control: Controls, capsys: pytest.CaptureFixture[str]
) -> None:
    control({"restart": {"error": {"code": -32602, "message": "no server 'gti': did you mean 'git'?"}}})
    assert main(["gti"]) == 1
    assert capsys.readouterr().err == "mcpd: no server 'gti': did you mean 'git'?\n"


def test_no_daemon_is_three(sockets: Path) -> None:
    assert main(["git", "--control", str(sockets / "none")]) == 3
