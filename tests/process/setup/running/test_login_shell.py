"""The PATH of a real login shell, whatever else it prints, and another one where it does not tell."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from daemon.setup.running.service import login_path

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def home(tmp_path: Path) -> Path:
    for name in ("nvm", "cargo"):
        (tmp_path / name).mkdir()
    return tmp_path


def at(home: Path, shell: str = "/bin/bash", **more: str) -> dict[str, str]:
    # pytest's directories are below /tmp, which no PATH keeps: the home is.
    return {"HOME": str(home), "SHELL": shell, "PATH": "/usr/bin:/opt", **more}


def test_what_profiles_add_is_taken_over_and_what_they_print_is_not(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("daemon.setup.running.service.FLEETING", ("/run/user/",))
    (home / ".bash_profile").write_text(
        'echo "Welcome: $PATH"; exit_trap() { echo bye; }; trap exit_trap EXIT\n'
        f'export PATH="{home}/nvm:{home}/gone:relative:{home}/cargo:{home}/nvm:/run/user/1/x:$PATH"\n'
    )
    path, source = login_path(at(home))
    # Between them stands what this machine's /etc/profile says.
    assert path.startswith(f"{home}/nvm:{home}/cargo:/usr/local/")
    assert path.endswith(f":/bin:{home}/.local/bin")
    assert source == "the login shell /bin/bash"


@pytest.mark.parametrize("shell", ["/bin/false", "/nonexistent", "bash"])
def test_a_shell_that_does_not_tell_is_replaced_by_this_one(home: Path, shell: str) -> None:
    path, source = login_path(at(home, shell))
    assert path.startswith("/usr/bin:")
    assert "did not tell" in source


def test_a_shell_that_waits_for_somebody_is_given_up(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("daemon.setup.running.service.SHELL_SECONDS", 0.2)
    # Its child has our pipe, too, and ends with it.
    (home / ".bash_profile").write_text("sleep 1000\n")
    assert "did not tell" in login_path(at(home))[1]
