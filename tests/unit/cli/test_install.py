"""`mcpd install`, from the outside."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from daemon.cli.local_commands import IMPORT, INSTALL, UNINSTALL
from daemon.setup.clients.programs import Machine
from tests.unit.cli.users import Terminal, config_of
from tests.unit.setup.clients.test_found import BROKEN

main = INSTALL.main


@pytest.fixture(autouse=True)
def mcpd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The program that runs, by a link that an upgrade moves."""
    program = tmp_path / "bin" / "mcpd"
    program.parent.mkdir()
    program.symlink_to("/bin/true")
    monkeypatch.setattr(sys, "argv", [str(program)])
    return str(program)


def servers(here: Machine, path: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((here.home / path).read_text())["mcpServers"]
    return found


def test_servers_that_mcpd_has_give_way_to_it(
    user: Callable[..., Machine], mcpd: str, capsys: pytest.CaptureFixture[str]
) -> None:
    here = user("claude-code")
    IMPORT.main(["--write", "--yes"])
    capsys.readouterr()
    assert main(["claude", "--profile", "reader", "--socket", "/s"]) == 0
    own = {"type": "stdio", "command": mcpd, "args": ["connect", "--socket", "/s", "--profile", "reader"]}
    assert servers(here, ".claude.json") == {"mcpd": own}
    out, _ = capsys.readouterr()
    assert "Claude Code: mcpd is in ~/.claude.json, and has time, notion, brave-search, git for it" in out
    assert "`mcpd uninstall CLIENT`" in out


def test_a_server_that_mcpd_has_switched_off_stays_and_import_says_why(
    user: Callable[..., Machine], capsys: pytest.CaptureFixture[str]
) -> None:
    here = user("claude-code")
    IMPORT.main(["--write", "--yes"])
    config = config_of(here)
    config.write_text(config.read_text().replace('"time": {', '"time": {"enabled": false,'))
    assert main(["claude-code"]) == 0
    assert list(servers(here, ".claude.json")) == ["time", "mcpd"]
    assert IMPORT.main([]) == 0
    assert "  time (Claude Code), switched off\n" in capsys.readouterr().out


def test_what_cannot_be_changed_is_said_and_the_others_are_changed(
    user: Callable[..., Machine], capsys: pytest.CaptureFixture[str]
) -> None:
    here = user("claude-code", "cursor", "lmstudio")
    (here.home / ".cursor" / "mcp.json").write_text(BROKEN)
    (here.home / ".lmstudio" / "mcp.json").chmod(0o444)
    assert main(["cursor", "lmstudio", "claude-code"]) == 1
    _, err = capsys.readouterr()
    assert "mcpd: Cursor: " in err
    assert "line 3, column 10" in err
    assert "mcpd: LM Studio: " in err
    assert "is read-only" in err
    assert (here.home / ".cursor" / "mcp.json").read_text() == BROKEN
    assert "mcpd" in servers(here, ".claude.json")


def test_a_faulty_configuration_of_mcpds_changes_nothing(
    user: Callable[..., Machine], capsys: pytest.CaptureFixture[str]
) -> None:
    here = user("claude-code")
    config_of(here).parent.mkdir(parents=True)
    config_of(here).write_text(r'{"mcpServers": {}, "\u001b[31m": 1}')
    before = (here.home / ".claude.json").read_bytes()
    assert main(["claude-code"]) == 78
    told = capsys.readouterr()[1]
    assert "nothing was changed: `mcpd check`" in told
    assert "\x1b" not in told
    assert (here.home / ".claude.json").read_bytes() == before


@pytest.mark.parametrize(("typed", "status"), [("y\n", 0), ("\n", 0), ("n\n", 1), ("", 1)])
def test_before_all_clients_are_changed_a_terminal_is_asked(
    user: Callable[..., Machine], monkeypatch: pytest.MonkeyPatch, typed: str, status: int
) -> None:
    here = user("claude-code", "cursor")
    monkeypatch.setattr("sys.stdin", Terminal(typed))
    assert main(["--all"]) == status
    assert ("mcpd" in servers(here, ".claude.json")) is (status == 0)
    assert ("mcpd" in servers(here, ".cursor/mcp.json")) is (status == 0)


def test_a_dry_run_shows_a_diff_without_secrets_and_changes_nothing(
    user: Callable[..., Machine], capsys: pytest.CaptureFixture[str]
) -> None:
    here = user("claude-code", "codex")
    IMPORT.main(["--write", "--yes"])
    before = (here.home / ".claude.json").read_bytes()
    capsys.readouterr()
    assert main(["claude-code", "codex", "--dry-run"]) == 0
    out, _ = capsys.readouterr()
    assert '-    "brave-search": {' in out
    assert '-        "BRAVE_API_KEY": "[redacted]"' in out
    assert "+[mcp_servers.mcpd]" in out
    assert "bk-7Qm2xV9bT4Zr8Lw1" not in out
    assert (here.home / ".claude.json").read_bytes() == before
    assert not (here.home / ".local").exists()


def test_without_a_configuration_of_mcpds_every_server_stays_and_is_named(
    user: Callable[..., Machine], capsys: pytest.CaptureFixture[str]
) -> None:
    here = user("claude-code")
    assert main(["claude-code"]) == 0
    assert list(servers(here, ".claude.json")) == ["time", "notion", "brave-search", "mcpd"]
    assert (
        "stay there as well: mcpd does not have them, or has them switched off (`mcpd import`"
        in capsys.readouterr()[0]
    )


def test_a_dry_run_of_uninstall_changes_nothing(
    user: Callable[..., Machine], capsys: pytest.CaptureFixture[str]
) -> None:
    here = user("claude-code")
    main(["claude-code"])
    before = (here.home / ".claude.json").read_bytes()
    capsys.readouterr()
    assert UNINSTALL.main(["claude-code", "--dry-run"]) == 0
    assert '-    "mcpd": {' in capsys.readouterr()[0]
    assert (here.home / ".claude.json").read_bytes() == before
