"""`mcpd status`: its exit status is a health check, its output one question to the daemon."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from daemon.cli.status import STATUS, exit_status
from daemon.states import ServerState
from tests.unit.cli.daemons import SILENCE, down, environment, fake_control, server, status_of
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


def test_a_daemon_that_hangs_is_three(control: Controls) -> None:
    control({"status": SILENCE})
    assert STATUS.main(["--timeout", "0.1"]) == 3


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
