"""`mcpd service`: what it shows, asks and prints. `tests/systemd` has the real one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from daemon.cli.local_commands import SERVICE
from tests.process.setup.systemd import RUNS, STOPPED, FakeSystemd

if TYPE_CHECKING:
    from pathlib import Path

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
