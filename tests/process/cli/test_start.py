"""`mcpd start`, `mcpd stop` and `mcpd service`."""

import json
import os
from pathlib import Path

import pytest

from daemon.cli.local_commands import SERVICE
from tests.process.setup.systemd import RUNS, STOPPED, FakeSystemd
from tests.process.setup.users import FAULTY, User, ended, user
from tests.unit.host.test_private_files import place

__all__ = ["user"]


def test_it_runs_apart_from_who_started_it(user: User) -> None:
    first = user.start()
    pid = first["pid"]
    assert first == {
        "how": "detached",
        "started": True,
        "pid": pid,
        "socket": str(user.front),
        "log": "mcpd logs --daemon",
    }
    assert os.getsid(pid) == pid
    assert Path(f"/proc/{pid}/cwd").readlink() == user.home
    held = {Path(f"/proc/{pid}/fd/{number}").readlink() for number in (0, 1, 2)}
    assert held == {Path("/dev/null"), user.log}
    assert user.log.stat().st_mode & 0o777 == 0o600
    assert user.start() == {**first, "how": "other", "started": False}


def test_options_name_another_place(user: User, tmp_path: Path) -> None:
    (tmp_path / "own.json").write_text(json.dumps({}))
    # Relative to where the command is given, which is not where the daemon works.
    named = ("--config", "own.json", "--socket", f"{user.home}/own.sock", "--state-dir", "state")
    done = user.mcpd("start", *named, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "state" / "daemon.log").exists()
    assert not user.front.exists()
    assert user.mcpd("stop", "--socket", f"{user.home}/own.sock").returncode == 0


def test_a_faulty_configuration_is_78_with_its_faults(user: User) -> None:
    user.configure(FAULTY)
    done = user.mcpd("start")
    assert (done.returncode, done.stdout) == (78, "")
    assert "$.limits.starts" in done.stderr
    user.configure({"mcpServers": {"one": {"command": "x", "\x1b[31m": 1}}})
    assert "\x1b" not in user.mcpd("start").stderr


@pytest.mark.parametrize(
    ("name", "kind"), [("mcpd.sock.lock", "link"), ("mcpd.sock.start", "pipe"), ("daemon.log", "directory")]
)
def test_what_is_no_file_is_named_in_the_place_of_one_of_ours(user: User, name: str, kind: str) -> None:
    path = user.log if name == "daemon.log" else user.front.with_name(name)
    path.parent.mkdir(mode=0o700, parents=True)
    place(path, kind)
    done = user.mcpd("start")
    assert (done.returncode, f"{path} is no regular file: remove it" in done.stderr) == (1, True)
    assert not path.with_name("else").exists()


# --- `mcpd stop` ---------------------------------------------------------------------------------------------


def test_the_daemon_has_ended_when_it_returns(user: User) -> None:
    pid = user.start()["pid"]
    stopped = user.mcpd("stop")
    assert (stopped.returncode, stopped.stdout) == (0, f"mcpd: stopped (pid {pid}).\n")
    assert ended(pid)
    again = user.mcpd("stop")
    assert (again.returncode, "no daemon runs" in again.stdout) == (0, True)


def test_whoever_names_a_server_is_told_what_stops_one(user: User) -> None:
    pid = user.start()["pid"]
    stopped = user.mcpd("stop", "git")
    assert (stopped.returncode, "`mcpd disable git`" in stopped.stderr) == (2, True)
    assert not ended(pid)


# --- `mcpd service` ------------------------------------------------------------------------------------------


main = SERVICE.main


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSystemd:
    found = FakeSystemd(tmp_path / "home")
    found.says(STOPPED)
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    for name, value in {**found.environ, "SHELL": "/bin/false"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("daemon.setup.running.service.LINGER", tmp_path)
    return found


def test_a_dry_run_shows_the_files_and_writes_none(
    systemd: FakeSystemd, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["install", "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert "+ExecStart=" in shown
    assert "4 files would be written" in shown
    assert not (systemd.folder / ".config").exists()


def test_without_a_terminal_whoever_would_be_asked_must_say(
    systemd: FakeSystemd, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["install"])
    assert "--no-linger" in capsys.readouterr().err
    assert not (systemd.folder / ".config").exists()


def test_it_is_installed_shown_and_removed(systemd: FakeSystemd, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status"]) == 1
    assert "not installed" in capsys.readouterr().out
    assert main(["install", "--no-linger"]) == 0
    assert "mcpd.service is enabled and runs" in capsys.readouterr().out
    systemd.says(RUNS)
    assert main(["status", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["pid"] == 4711
    assert main(["status"]) == 0
    assert "mcpd.service is enabled; it runs, pid 4711." in capsys.readouterr().out
    assert main(["uninstall"]) == 0
    assert "stopped and removed" in capsys.readouterr().out


def test_without_systemd_it_says_what_happens_instead(
    systemd: FakeSystemd, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert main(["install", "--yes"]) == 1
    assert "`mcpd connect` starts the daemon where none runs" in capsys.readouterr().err
    assert main(["status"]) == 1
