"""`mcpd start`, `mcpd stop` and `mcpd service`."""

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import attrs
import pytest

from daemon.cli.table import implementation
from tests.printing import err_of, out_of
from tests.process.setup.systemd import RUNS, STOPPED, FakeSystemd
from tests.process.setup.users import FAULTY, GOOD, User, Window, ended, user
from tests.scripted_server import command
from tests.unit.cli.conftest import Captured
from tests.unit.cli.daemons import ROOT
from tests.unit.host.test_private_files import place
from tests.waiting import WAIT, eventually, run_to_end

__all__ = ["user"]

Ended = subprocess.CompletedProcess[str]


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
    assert "Umask:\t0077\n" in Path(f"/proc/{pid}/status").read_text()
    assert user.start() == {**first, "how": "other", "started": False}


def test_a_window_does_not_wait_for_the_end_of_the_interpreter_that_starts_its_daemon(user: User) -> None:
    program = "import atexit; from daemon.cli import main; atexit.register(print, 'the end'); main()"
    command = [sys.executable, "-P", "-c", program, "start"]
    for words, ends in (["--window", "new"], False), ([], True):
        said = subprocess.check_output([*command, *words], env=user.environ, text=True, timeout=WAIT)
        assert ("the end" in said) == ends
    assert user.start()["how"] == "other"


def test_a_console_without_a_configuration_begins_with_an_empty_one(user: User) -> None:
    config = user.home / ".config" / "mcpd" / "mcpd.json"
    config.unlink()
    assert user.mcpd("ui", "--end").returncode == 3
    assert not config.exists(), "there was nothing to end"
    done = user.mcpd("ui", "--print")
    assert done.returncode == 0, done.stderr
    assert "/ui/enter?once=" in done.stdout
    assert json.loads(config.read_text()) == {"mcpServers": {}}
    assert user.mcpd("stop").returncode == 0
    again = user.mcpd("ui", "--print")
    assert again.returncode == 3, "a daemon that somebody has stopped stays so"


def test_options_name_another_place(user: User, tmp_path: Path) -> None:
    (tmp_path / "own.json").write_text(json.dumps({}))
    # Relative to where the command is given, which is not where the daemon works.
    named = ("--config", "own.json", "--socket", f"{user.home}/own.sock", "--state-dir", "state")
    done = user.mcpd("start", *named, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "state" / "daemon.log").exists()
    assert not user.front.exists()
    stopped = user.mcpd("stop", "--socket", f"{user.home}/own.sock")
    again = f"`mcpd start --config {tmp_path}/own.json --socket {user.home}/own.sock` starts it again."
    assert (stopped.returncode, again in stopped.stdout) == (0, True), stopped.stdout


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
    assert (done.returncode, f"{path} is not a regular file: remove it" in done.stderr) == (1, True)
    assert not path.with_name("else").exists()


# --- `mcpd stop` ---------------------------------------------------------------------------------------------


def test_the_daemon_has_ended_when_it_returns_unless_a_server_was_named(user: User) -> None:
    pid = user.start()["pid"]
    stopped = user.mcpd("stop", "git")
    assert (stopped.returncode, "`mcpd disable git`" in stopped.stderr, ended(pid)) == (2, True, False)
    stopped = user.mcpd("stop")
    assert stopped.returncode == 0
    assert stopped.stdout == f"mcpd: stopped (pid {pid}). `mcpd start` starts it again.\n"
    assert ended(pid)
    again = user.mcpd("stop")
    assert (again.returncode, "no daemon runs" in again.stdout) == (0, True)


# --- `mcpd start --restart` -----------------------------------------------------------------------------


@attrs.frozen
class Upgrading(User):
    """A user whose mcpd is a copy that a test can replace."""

    program: Path

    @property
    def environ(self) -> dict[str, str]:
        return {**super().environ, "PYTHONPATH": str(self.program)}

    def mcpd(self, *words: str, cwd: Path | None = None, path: Path | None = None) -> Ended:
        """Run a command of the copy, which no fork of a process of this test's program is."""
        command, where = self.command(*words), cwd or self.home
        return run_to_end(command, env=self.environ, cwd=where)

    def upgrade(self, version: str) -> None:
        module = self.program / "daemon" / "__init__.py"
        module.write_text(re.sub(r'__version__ = ".*"', f'__version__ = "{version}"', module.read_text()))


@pytest.fixture
def upgrading(user: User, tmp_path: Path) -> Upgrading:
    shutil.copytree(ROOT / "daemon", tmp_path / "daemon")
    return Upgrading(user.home, tmp_path)


def test_an_upgraded_program_takes_the_daemons_place_and_no_call_is_lost(upgrading: Upgrading) -> None:
    old = upgrading.start()["pid"]
    assert "--restart" not in upgrading.mcpd("status").stdout
    with upgrading.window() as window:
        window.greet()
        assert window.tools() == ["echo"]
        upgrading.upgrade("99.1.0")
        status = " ".join(upgrading.mcpd("status").stdout.split())
        assert "This `mcpd` is 99.1.0: `mcpd start --restart` restarts the daemon with it" in status
        assert "`mcpd start --restart` restarts" in " ".join(upgrading.mcpd("doctor").stdout.split())
        new = upgrading.start("--restart")
        assert new["started"]
        assert new["pid"] != old
        assert ended(old)
        told = window.ask("tools/call", name="echo", arguments={"text": "again"})
        assert "again" in json.dumps(told["result"])
    status = upgrading.mcpd("status").stdout
    assert "mcpd 99.1.0" in status
    assert "--restart" not in status


def test_a_daemon_that_a_restart_started_is_restarted_with_the_same_configuration(
    user: User, tmp_path: Path
) -> None:
    own = tmp_path / "own.json"
    own.write_text(json.dumps(GOOD | {"lazy": True}))
    assert user.start("--restart", "--config", str(own))["started"]
    assert user.start("--restart")["started"]
    assert json.loads(user.mcpd("status", "--json").stdout)["daemon"]["config"] == str(own)


@pytest.fixture
def window(user: User) -> Iterator[Window]:
    """A client of a daemon whose only server sleeps when it is called."""
    program, *args = command(tools=["sleep"])
    user.configure({**GOOD, "mcpServers": {"one": {"command": program, "args": args}}})
    user.start()
    with user.window() as window:
        window.greet()
        assert window.tools() == ["sleep"]
        yield window


def test_a_restart_waits_for_calls_in_flight(user: User, window: Window) -> None:
    call = window.send("tools/call", name="sleep", arguments={"seconds": 2})
    eventually(lambda: json.loads(user.mcpd("calls", "--json").stdout)["inFlight"])
    assert user.start("--restart")["started"]
    assert "awake" in json.dumps(window.receive(call)["result"])


def test_a_restart_loses_no_call_of_a_client_that_makes_one_after_the_other(user: User, window: Window) -> None:
    over, answers, lost = threading.Event(), list[str](), list[str]()

    def calls() -> None:
        while not over.is_set():
            call = window.send("tools/call", name="sleep", arguments={"seconds": 0.001})
            answer = json.dumps(window.receive(call))
            (answers if "awake" in answer else lost).append(answer)

    with ThreadPoolExecutor(1) as pool:
        calling = pool.submit(calls)
        try:
            for _ in range(3):
                answers.clear()
                eventually(lambda: len(answers) > 5)
                assert user.start("--restart")["started"]
        finally:
            over.set()
        calling.result(WAIT)
    assert not lost


# --- `mcpd service` ------------------------------------------------------------------------------------------


main = implementation("service").main


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSystemd:
    found = FakeSystemd(tmp_path / "home")
    found.says(STOPPED)
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    for name, value in {**found.environ, "SHELL": "/bin/false"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("daemon.setup.running.service.LINGER", tmp_path)
    return found


def test_a_dry_run_shows_the_files_and_writes_none(systemd: FakeSystemd, capsys: Captured) -> None:
    shown = out_of(capsys, main(["install", "--dry-run"]))
    assert "+ExecStart=" in shown
    assert "4 files would be written" in shown
    with pytest.raises(SystemExit, match="2"):
        main(["install"])
    assert "--no-linger" in capsys.readouterr().err, "who would be asked at a terminal must say"
    assert not (systemd.folder / ".config").exists()


def test_it_is_installed_shown_and_removed_and_without_systemd_it_says_what_happens_instead(
    systemd: FakeSystemd, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    assert "not installed" in out_of(capsys, main(["status"]), 1)
    assert "mcpd.service is enabled and runs" in out_of(capsys, main(["install", "--no-linger"]))
    systemd.says(RUNS)
    assert json.loads(out_of(capsys, main(["status", "--json"])))["pid"] == 4711
    said = "mcpd.service is enabled; it runs, pid 4711.\nIt ends with the last"
    assert said in out_of(capsys, main(["status"]))
    assert "stopped and removed" in out_of(capsys, main(["uninstall"]))
    monkeypatch.setenv("PATH", "/nowhere")
    assert "`mcpd connect` and `mcpd start` start the daemon" in err_of(capsys, main(["install", "--yes"]), 1)
    assert main(["status"]) == 1
