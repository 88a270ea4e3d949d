"""A call without an answer names who owes it."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from daemon.cli import implementation
from daemon.cli.control import DaemonSilent, DaemonUnreachable, explained
from tests.unit.cli.daemons import SILENCE, server

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from tests.unit.cli.conftest import Controls

main = implementation("call").main

CALL = ["git/git_log", "--timeout", "0.2", "-q", "--no-input"]


def told(control: Controls, capsys: pytest.CaptureFixture[str], answer: Any, code: int) -> str:
    control({"call": SILENCE, "status": answer})
    assert main(CALL) == code
    return capsys.readouterr().err


def test_a_silent_server_is_named_with_its_state_and_pid(
    control: Controls, capsys: pytest.CaptureFixture[str]
) -> None:
    reason = "answers no pings (3 pings so far), and was last heard 9 s ago"
    text = told(control, capsys, {"server": server(state="degraded", reason=reason)}, 1)
    assert "mcpd: server git did not answer within 0.2 s (--timeout); the daemon did." in text
    assert f"It is degraded: {reason}, pid 4711. The call was given up" in text
    assert "`mcpd status git`" in text


def test_a_server_that_is_well_is_said_to_be(control: Controls, capsys: pytest.CaptureFixture[str]) -> None:
    text = told(control, capsys, {"server": server()}, 1)
    assert "It is ready, pid 4711, last heard " in text


def test_a_daemon_that_hangs_is_blamed_itself(control: Controls) -> None:
    daemon = control({"status": SILENCE})
    options = argparse.Namespace(control=str(daemon.path), timeout=1.0)
    silent = DaemonSilent("the daemon at /p did not answer `call` within 1 s")
    found = explained(options, "git", silent, 0.1)
    assert isinstance(found, DaemonSilent)
    assert "did not answer `call` within 1 s, nor `status` within 0.1 s: it is the daemon that hangs" in str(
        found
    )


def test_a_daemon_that_has_ended_meanwhile_is_said_to_have(tmp_path: Path) -> None:
    options = argparse.Namespace(control=str(tmp_path / "none"), timeout=1.0)
    found = explained(options, "git", DaemonSilent("it did not answer"))
    assert isinstance(found, DaemonUnreachable)
    assert "it did not answer; now cannot reach the daemon at " in str(found)


def test_a_server_that_is_gone_meanwhile_leaves_what_was_known(
    control: Controls, capsys: pytest.CaptureFixture[str]
) -> None:
    text = told(control, capsys, {"error": {"code": -32602, "message": "no server is named 'git'"}}, 3)
    assert "did not answer `call` within 0.2 s" in text
