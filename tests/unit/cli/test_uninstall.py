"""`mcpd uninstall`, from the outside."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from daemon.cli.local_commands import IMPORT, INSTALL, UNINSTALL
from tests.unit.setup.clients.test_found import digest

if TYPE_CHECKING:
    from collections.abc import Callable

    from daemon.setup.clients.programs import Machine

main = UNINSTALL.main


@pytest.fixture
def here(user: Callable[..., Machine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A user of Claude Code and Codex who has taken their servers into mcpd."""
    (tmp_path / "mcpd").touch()
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "mcpd")])
    here = user("claude-code", "codex")
    IMPORT.main(["--write", "--yes"])
    return here


def test_imported_installed_and_uninstalled_every_byte_of_the_clients_is_as_it_was(
    user: Callable[..., Machine], here: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = (here.home / ".claude.json", here.home / ".codex" / "config.toml")
    before = {path: path.read_bytes() for path in paths}
    INSTALL.main(["claude-code", "codex"])
    capsys.readouterr()
    assert main(["--all"]) == 0
    kept = "mcpd keeps its configuration, secrets (the file 'env') and state in ~/.config/mcpd"
    assert capsys.readouterr()[0].splitlines() == [
        "Claude Code: ~/.claude.json is as it was, byte for byte",
        "Codex: ~/.codex/config.toml is as it was, byte for byte",
        f"{kept} and ~/.local/state/mcpd: yours to delete.",
    ]
    assert {path: path.read_bytes() for path in before} == before

    assert main(["claude-code"]) == 0
    assert "nothing to do" in capsys.readouterr()[0]
    assert main(["--all"]) == 0
    assert "nothing to do" in capsys.readouterr()[0]


def test_what_was_edited_since_stays_and_it_is_said_what_was_put_back(
    here: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    INSTALL.main(["claude-code"])
    path = here.home / ".claude.json"
    edited = json.loads(path.read_text())
    edited["mcpServers"]["time"] = {"command": "mine"}
    path.write_text(json.dumps(edited))
    capsys.readouterr()

    assert main(["claude-code"]) == 0

    out, _ = capsys.readouterr()
    assert "edited since: that stays; notion, brave-search" in out
    assert "time not put back" in out
    backup = Path(out.strip().rpartition(" ")[2].replace("~", str(here.home)))
    assert "uvx" in json.loads(backup.read_text())["mcpServers"]["time"]["command"]
    assert json.loads(path.read_text())["mcpServers"]["time"] == {"command": "mine"}


def test_a_dry_run_changes_nothing(here: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    INSTALL.main(["claude-code"])
    before = digest(here.home)
    capsys.readouterr()
    assert main(["claude-code", "--dry-run"]) == 0
    assert '+    "time": {' in capsys.readouterr()[0]
    assert digest(here.home) == before


def test_without_a_record_it_is_said_that_only_the_entry_is_removed(
    here: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    path = here.home / ".codex" / "config.toml"
    path.write_text('[mcp_servers.mcpd]\ncommand = "/old/mcpd"\nargs = ["connect"]\n\n[tui]\nx = 1\n')
    capsys.readouterr()
    assert main(["codex"]) == 0
    assert "There is no record" in capsys.readouterr()[0]
    assert path.read_text() == "[tui]\nx = 1\n"


def test_a_file_that_is_broken_by_now_is_left_alone(here: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    INSTALL.main(["codex"])
    path = here.home / ".codex" / "config.toml"
    path.write_text(path.read_text() + "= broken")
    before = path.read_bytes()
    assert main(["codex"]) == 1
    assert "config.toml" in capsys.readouterr()[1]
    assert path.read_bytes() == before
