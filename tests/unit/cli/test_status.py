"""`mcpd status`: its exit status is a health check, its output one question to the daemon."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from daemon.cli.status import STATUS, exit_status
from daemon.states import WELL, ServerState
from tests.unit.cli.daemons import SILENCE, down, environment, fake_control, mcpd, server, status_of
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from tests.unit.cli.conftest import Controls

FINE = {ServerState.READY, ServerState.DORMANT, ServerState.DISABLED}


def persistence(*, state: str = "ok", **changed: Any) -> dict[str, Any]:
    """How keeping goes, as `status` answers it."""
    reason = "" if state == "ok" else "the disk is full"
    known = {"state": state, "reason": reason, "since": 1000.0, "where": "/var/lib/mcpd/mcpd.db", "waiting": 0}
    return {**known, **changed}


@pytest.mark.parametrize("state", ServerState)
def test_only_ready_dormant_and_disabled_are_well(state: ServerState) -> None:
    answer = status_of({"a": server(), "b": server(state=str(state))})
    assert exit_status(answer["servers"]) == (0 if state in FINE else 1)


def test_the_states_that_are_well_exist() -> None:
    assert set(ServerState) > WELL


def test_no_servers_is_well() -> None:
    assert exit_status({}) == 0


@pytest.mark.parametrize(("state", "code"), [("ok", 0), ("degraded", 1)])
def test_what_is_not_kept_is_not_well(
    control: Controls, capsys: pytest.CaptureFixture[str], state: str, code: int
) -> None:
    answer = status_of({"git": server()})
    answer["daemon"]["persistence"] = persistence(state=state)
    control({"status": answer})
    assert STATUS.main([]) == code
    assert ("persistence: degraded: the disk is full" in capsys.readouterr().out) is bool(code)


def test_json_is_the_daemons_answer(control: Controls, capsys: pytest.CaptureFixture[str]) -> None:
    answer = status_of({"git": server(), "time": down(None, reason="")})
    daemon = control({"status": answer})
    assert STATUS.main(["--json"]) == 1
    assert json.loads(capsys.readouterr().out) == answer
    assert daemon.asked == [("status", {})]


def test_what_the_daemon_has_found_out_is_told(control: Controls, capsys: pytest.CaptureFixture[str]) -> None:
    found = {"happened": "A Python module is missing: pg.", "helps": "Install it."}
    daemon = control({"status": status_of({"time": down(**found)})})
    assert STATUS.main([]) == 1
    shown = capsys.readouterr().out
    assert "A Python module is missing: pg." in shown
    assert "What helps: Install it." in shown
    assert daemon.asked == [("status", {})]


def test_people_get_a_table(control: Controls, capsys: pytest.CaptureFixture[str]) -> None:
    control({"status": status_of({"git": server()})})
    assert STATUS.main([]) == 0
    shown = capsys.readouterr().out
    assert "git" in shown
    assert "\x1b" not in shown


def test_no_daemon_is_three(sockets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert STATUS.main(["--control", str(sockets / "none")]) == 3
    assert "mcpd run" in capsys.readouterr().err


def test_a_daemon_that_hangs_is_three(control: Controls) -> None:
    control({"status": SILENCE})
    assert STATUS.main(["--timeout", "0.1"]) == 3


def test_a_method_that_an_older_daemon_lacks_is_one(control: Controls) -> None:
    control({})
    assert STATUS.main([]) == 1


@pytest.mark.process
def test_watch_looks_again_until_ctrl_c_and_ends_with_the_last_exit_status(sockets: Path) -> None:
    path = sockets / "control.sock"
    with (
        fake_control(path, {"status": status_of({"git": down()})}) as daemon,
        subprocess.Popen(
            [sys.executable, "-m", "daemon", "status", "--watch", "0.01"],
            env=environment(MCPD_CONTROL=str(path)),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as child,
    ):
        assert child.stdout is not None
        heads = (line for line in child.stdout if line.startswith("server"))
        assert next(heads) == next(heads)
        child.send_signal(signal.SIGINT)
        _, said = child.communicate(timeout=PATIENCE)
    assert (child.returncode, said) == (1, "")
    assert len(daemon.asked) >= 2


@pytest.mark.process
def test_watch_without_a_number_and_with_a_bad_one() -> None:
    assert mcpd("status", "--watch", "0").returncode == 2


def test_a_server_in_the_place_of_seconds_is_refused_with_what_to_type(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        STATUS.main(["--watch", "notes"])
    assert "mcpd status NAME --watch" in capsys.readouterr().err


@pytest.mark.parametrize("lost", ["offeredBytes", "pid", "uptimeSeconds"])
@pytest.mark.parametrize("words", [[], ["--json"]])
def test_an_older_daemon_is_told_as_such_whatever_its_answer_lacks(
    control: Controls, capsys: pytest.CaptureFixture[str], lost: str, words: list[str]
) -> None:
    answer = status_of({"git": server()})
    del answer["daemon"][lost]
    control({"status": answer})
    code, said = STATUS.main(words), capsys.readouterr()
    if words:
        assert code == 0
    else:
        assert (code, said.out) == (1, "")
        assert f"lacks '{lost}': it is of another version than this `mcpd`. Restart it: `mcpd stop`" in said.err


@pytest.mark.parametrize("lost", ["state", "since", "tools", "stderr", "calls"])
def test_an_older_daemons_server_is_told_as_such(
    control: Controls, capsys: pytest.CaptureFixture[str], lost: str
) -> None:
    seen = down()
    del seen[lost]
    control({"status": {"name": "git", "server": seen}, "logs": {"lines": []}})
    assert STATUS.main(["git"]) == 1
    assert f"lacks '{lost}'" in capsys.readouterr().err
