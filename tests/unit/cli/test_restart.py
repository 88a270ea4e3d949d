"""`mcpd restart`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from daemon.cli import implementation
from daemon.cli.servers import restarted

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Controls

main = implementation("restart").main

STARTING = {"server": "git", "state": "starting", "reason": ""}


def test_the_new_state_is_shown(control: Controls, capsys: pytest.CaptureFixture[str]) -> None:
    daemon = control({"restart": STARTING})
    assert main(["git"]) == 0
    assert capsys.readouterr().out == "git: restarted, now starting\n"
    assert daemon.asked == [("restart", {"server": "git"})]


def test_the_instances_of_a_server_are_a_line_each() -> None:
    answer: Any = {"server": "web", "state": "ready", "reason": "", "instances": {}}
    assert restarted(answer) == "web: no instance of it runs; each is started at its first use"
    answer["instances"] = {
        "web#3": {"state": "ready", "reason": ""},
        "web#7": {"state": "backoff", "reason": "exited"},
        "web#8": {"state": "", "reason": ""},
    }
    assert restarted(answer).splitlines() == [
        "web#3: restarted, now ready",
        "web#7: restarted, now backoff, exited",
        "web#8: has ended meanwhile",
    ]


def test_several_and_all_that_are_switched_on_are_restarted(
    control: Controls, capsys: pytest.CaptureFixture[str]
) -> None:
    off = {"git": {"state": "ready"}, "web": {"state": "failed"}, "old": {"state": "disabled"}}
    daemon = control({"restart": STARTING, "status": {"servers": off}})
    assert main(["git", "time"]) == 0
    assert main(["--all", "--json"]) == 0
    asked = [params["server"] for method, params in daemon.asked if method == "restart"]
    assert asked == ["git", "time", "git", "web"]
    assert len(capsys.readouterr().out.splitlines()) == 4


def test_one_that_is_not_there_keeps_no_other_from_it(control: Controls) -> None:
    daemon = control({"restart": {"error": {"code": 1, "message": "no server is named so"}}})
    assert main(["a", "b"]) == 1
    assert len(daemon.asked) == 2


@pytest.mark.parametrize("words", [[], ["git", "--all"]])
def test_what_to_restart_is_said_in_one_way(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(words)
    assert "name the servers to restart, or write --all" in capsys.readouterr().err
