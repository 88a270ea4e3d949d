"""`mcpd restart`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from daemon.cli.restart import in_words, main

if TYPE_CHECKING:
    import pytest

    from tests.unit.cli.conftest import Controls

STARTING = {"server": "git", "state": "starting"}


def test_the_new_state_is_shown(control: Controls, capsys: pytest.CaptureFixture[str]) -> None:
    daemon = control({"restart": STARTING})
    assert main(["git"]) == 0
    assert capsys.readouterr().out == "git: restarted, now starting\n"
    assert daemon.asked == [("restart", {"server": "git"})]


def test_the_instances_of_a_server_are_a_line_each() -> None:
    answer: dict[str, Any] = {"server": "web", "state": "ready", "reason": "", "instances": {}}
    assert in_words(answer) == "web: no instance of it runs; each is started at its first use"
    answer["instances"] = {
        "web#3": {"state": "ready", "reason": ""},
        "web#7": {"state": "backoff", "reason": "exited"},
        "web#8": {"state": "", "reason": ""},
    }
    assert in_words(answer).splitlines() == [
        "web#3: restarted, now ready",
        "web#7: restarted, now backoff, exited",
        "web#8: has ended meanwhile",
    ]
