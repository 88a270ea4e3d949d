"""`mcpd doctor`: a whole look around, with and without a daemon; 1 if there is a fault."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from daemon.checks.examination import examine
from daemon.cli.local_commands import DOCTOR
from daemon.safety.redact import HIDDEN
from tests.e2e.harness import Daemon, scripted
from tests.unit.checks.scenes import House, as_somebody_else
from tests.unit.cli.daemons import down
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

SECRET = "hunter2-hunter2"


@pytest.fixture
def house(sockets: Path, monkeypatch: pytest.MonkeyPatch) -> House:
    house = House(sockets)
    for name in [*os.environ]:
        if name.startswith(("MCPD_", "XDG_", "RUNTIME_", "STATE_")):
            monkeypatch.delenv(name)
    for name, value in house.environ.items():
        monkeypatch.setenv(name, value)
    house.program("tool")
    return house


def told(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


def everything(root: Path) -> dict[str, tuple[float, int]]:
    """All files with their times and modes."""
    return {str(path): (path.lstat().st_mtime_ns, path.lstat().st_mode) for path in sorted(root.rglob("*"))}


def test_a_house_in_order_is_zero_and_stays_as_it_is(house: House, capsys: pytest.CaptureFixture[str]) -> None:
    house.servers(git={"command": "tool"})
    before = everything(house.root)
    assert DOCTOR.main([]) == 0
    assert everything(house.root) == before
    shown = capsys.readouterr()
    assert shown.out.splitlines()[0] == "configuration"
    assert shown.out.endswith("0 faults, 0 warnings, 2 notes.\n")
    assert "\x1b" not in shown.out
    assert not shown.err


def test_a_fault_is_one_and_tells_what_to_do(house: House, capsys: pytest.CaptureFixture[str]) -> None:
    house.servers(git={"command": "no-such-program"})
    assert DOCTOR.main([]) == 1
    shown = capsys.readouterr().out
    assert "fault    git: no-such-program is not on the PATH." in shown
    assert "-> Install it" in shown
    assert "1 fault," in shown


def test_json_has_every_finding_with_its_check(house: House, capsys: pytest.CaptureFixture[str]) -> None:
    house.servers(git={"command": "no-such-program"})
    assert DOCTOR.main(["--json"]) == 1
    answer = told(capsys)
    assert answer["ok"] is False
    assert list(answer["counts"]) == ["ok", "note", "warning", "fault"]
    assert answer["counts"]["fault"] == 1
    fault = next(each for each in answer["findings"] if each["level"] == "fault")
    assert set(fault) == {"check", "level", "cause", "what", "why", "do"}
    assert (fault["check"], fault["cause"]) == ("servers", "program-not-on-path-of-shell")


def test_a_faulty_configuration_is_one_and_all_else_is_looked_at(
    house: House, capsys: pytest.CaptureFixture[str]
) -> None:
    house.write('{"mcpServers": {"git": {"comand": "x"}, "web": {"command": "no-such-program"}}}')
    assert DOCTOR.main(["--json"]) == 1
    findings = told(capsys)["findings"]
    assert {each["check"] for each in findings} >= {"configuration", "sockets", "state", "systemd"}
    assert any(each["check"] == "servers" and "no-such-program" in each["what"] for each in findings)


def test_a_configuration_can_be_named(house: House, capsys: pytest.CaptureFixture[str]) -> None:
    other = house.root / "other.json"
    other.write_text('{"mcpServers": {"x": {"command": "no-such-program"}}}')
    assert DOCTOR.main(["--config", str(other)]) == 1
    assert str(other) in capsys.readouterr().out
    assert DOCTOR.main(["--config", str(house.root / "none.json")]) == 1


@pytest.mark.process
def test_no_secret_is_printed(house: House, capsys: pytest.CaptureFixture[str]) -> None:
    house.servers(
        a={"command": f"/no/{SECRET}", "env": {"KEY": SECRET}, "cwd": f"/no/{SECRET}"},
        b={"command": "tool", "args": ["--token", SECRET], "env": {"PATH": SECRET}},
        c={"url": f"http://me:{SECRET}@127.0.0.1:1/{SECRET}?key={SECRET}", "headers": {"X-Key": SECRET}},
    )
    with house.daemon({"b": down(reason=f"cannot start {SECRET}: x", stderr=[f"{SECRET}: not found"])}):
        assert DOCTOR.main([]) == 1
        assert DOCTOR.main(["--json"]) == 1
    shown = capsys.readouterr()
    assert SECRET not in shown.out + shown.err
    assert HIDDEN in shown.out


def test_a_server_named_as_its_password_is_called_by_its_name(
    house: House, capsys: pytest.CaptureFixture[str]
) -> None:
    house.servers(
        postgres={"command": "tool", "env": {"DB_PASSWORD": "postgres"}},
        other={"command": "tool", "env": {"PGPASSWORD": "failure"}},
    )
    with house.daemon({"postgres": down(reason="a failure: exit 1")}):
        assert DOCTOR.main(["--json"]) == 1
    found = next(each for each in told(capsys)["findings"] if each["what"].startswith("postgres:"))
    assert "a failure" in found["what"]
    assert "mcpd logs postgres" in found["do"]


def test_a_check_that_may_not_look_does_not_end_the_others(house: House) -> None:
    house.servers(git={"command": "tool"})
    house.root.chmod(0o755)
    house.config.chmod(0o644)
    house.run.chmod(0o755)
    scene = house.look()
    house.state.chmod(0)
    (house.root / "run").chmod(0)
    with as_somebody_else():
        report = examine(scene)
    (house.root / "run").chmod(0o755)
    assert report["servers"]
    assert any("cannot be looked at" in each.what for each in report["sockets"])


def test_a_place_that_is_closed_to_this_user_is_said(house: House, capsys: pytest.CaptureFixture[str]) -> None:
    house.root.chmod(0)
    with as_somebody_else():
        code = DOCTOR.main([])
    house.root.chmod(0o755)
    assert code == 1
    shown = capsys.readouterr()
    assert "Permission denied" in shown.out + shown.err


@pytest.mark.process
def test_a_running_daemon_is_found_with_all_that_it_uses(
    house: House, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real one, with a server that runs and one that cannot, whose last words are in the log."""
    words = "echo 'Error: BAD_KEY is not set' >&2; exit 78"
    config = {"mcpServers": {"good": scripted(tools=["t"]), "bad": {"command": "sh", "args": ["-c", words]}}}
    daemon = Daemon(house.root, config, {"PATH": os.defpath})
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(house.root))
    daemon.start()
    try:
        daemon.ready("good")
        eventually(lambda: daemon.ask("status")["servers"]["bad"]["state"] == "failed", daemon.said)
        assert DOCTOR.main(["--json"]) == 1
        findings = told(capsys)["findings"]
        lines = daemon.run("logs", "bad", "--no-events").splitlines()
        status = daemon.status()["servers"]["bad"]
    finally:
        assert daemon.stop() == 0
    assert daemon.process is not None
    said = [each["what"] for each in findings]
    assert any(f"is running, pid {daemon.process.pid}" in what for what in said)
    assert any(str(daemon.state) in what for what in said)
    fault = next(each for each in findings if each["level"] == "fault")
    assert fault["what"].startswith("bad: failed: exited with status 78")
    assert (fault["why"], fault["do"]) == (status["happened"], status["helps"])
    assert lines[-1].endswith("Error: BAD_KEY is not set")


@pytest.mark.parametrize("words", [["x"], ["--config"], ["--control", "x"]])
def test_a_wrong_command_line_is_two(words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        DOCTOR.main(words)
    assert ended.value.code == 2
