"""`mcpd import`, from the outside."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import pytest

from daemon.cli.local_commands import IMPORT
from tests.unit.cli.users import Terminal, config_of
from tests.unit.setup.clients.test_found import BROKEN, digest

if TYPE_CHECKING:
    from collections.abc import Callable

    from daemon.setup.clients.programs import Machine
    from tests.unit.cli.conftest import Controls

SECRETS = ("bk-7Qm2xV9bT4Zr8Lw1", "nt-4hT8kQ2mZx9Vb1Rs", "ghx-9Kd3mP7wQ2vT5zXb")


def test_one_table_shows_all(user: Callable[..., Machine], capsys: pytest.CaptureFixture[str]) -> None:
    here = user("claude-code", "codex", "gemini", "goose")
    before = digest(here.home)
    assert IMPORT.main([]) == 0
    out, err = capsys.readouterr()
    assert not err
    lines = {line.split()[0]: line for line in out.splitlines() if line[:1].strip()}
    assert lines["SERVER"].split() == ["SERVER", "FROM", "RUNS", "SECRETS"]
    assert "Claude Code, Codex, Gemini CLI" in lines["time"]
    assert "uvx mcp-server-time --local-timezone=UTC" in lines["time"]
    assert lines["brave-search"].rstrip().endswith("BRAVE_API_KEY")
    assert "Claude Code (project), Gemini CLI (project)" in lines["files"]
    assert "developer (Goose) is part of Goose itself" in out
    assert not [secret for secret in SECRETS if secret in out]
    assert digest(here.home) == before


def test_servers_are_added_once_with_their_secrets_apart(
    user: Callable[..., Machine], capsys: pytest.CaptureFixture[str]
) -> None:
    here = user("claude-code")
    clients = digest(here.home)
    assert IMPORT.main(["--write", "--yes"]) == 0
    out = capsys.readouterr().out
    assert "added 6 servers to ~/.config/mcpd/mcpd.json, 2 secrets to ~/.config/mcpd/env" in out
    assert "no daemon runs" in out
    after = digest(here.home)
    assert {path: after[path] for path in clients} == clients
    written = config_of(here).read_bytes()
    assert IMPORT.main(["--write", "--yes"]) == 0
    assert "mcpd has these already:" in capsys.readouterr().out
    assert config_of(here).read_bytes() == written


def test_a_daemon_that_runs_is_told(
    user: Callable[..., Machine],
    control: Controls,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    user("jetbrains")
    monkeypatch.delenv("MCPD_CONTROL")
    daemon = control({"reload": {}})
    monkeypatch.setenv("MCPD_CONTROL", str(daemon.path))
    assert IMPORT.main(["--write", "--yes"]) == 0
    assert daemon.asked == [("reload", {})]
    assert "the daemon starts them now" in capsys.readouterr().out


def test_an_agreement_to_nothing_is_told_what_writes(
    user: Callable[..., Machine], capsys: pytest.CaptureFixture[str]
) -> None:
    here = user("claude-code")
    IMPORT.main(["--yes"])
    assert "nothing was written: --yes agrees to what --write does" in capsys.readouterr().err
    assert not (here.home / ".config").exists()


def test_a_dry_run_shows_the_diff_and_writes_nothing(
    user: Callable[..., Machine], capsys: pytest.CaptureFixture[str]
) -> None:
    here = user("claude-code")
    before = digest(here.home)
    assert IMPORT.main(["--dry-run"]) == 0
    out = capsys.readouterr().out
    assert '+    "brave-search": {' in out
    assert "+BRAVE_SEARCH__BRAVE_API_KEY=(a secret)" in out
    assert not [secret for secret in SECRETS if secret in out]
    assert digest(here.home) == before


@pytest.mark.parametrize(("answer", "status"), [("\n", 0), ("y\n", 0), ("n\n", 1), ("", 1)])
def test_a_terminal_is_asked_first(
    answer: str, status: int, user: Callable[..., Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    here = user("jetbrains")
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    assert IMPORT.main(["--write"]) == status
    assert config_of(here).exists() == (status == 0)


def test_without_a_terminal_nothing_is_written_unasked(
    user: Callable[..., Machine], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    here = user("jetbrains")
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    assert IMPORT.main(["--write"]) == 1
    assert "--yes agrees" in capsys.readouterr().err
    assert not config_of(here).exists()


def test_programs_are_told_the_same(user: Callable[..., Machine], capsys: pytest.CaptureFixture[str]) -> None:
    user("codex", "zed")
    assert IMPORT.main(["--json"]) == 0
    out = capsys.readouterr().out
    told: dict[str, Any] = json.loads(out)
    servers = {each["name"]: each for each in told["servers"]}
    assert servers["notion"]["missing"] == ["NOTION_TOKEN"]
    assert servers["notion"]["enabled"]
    assert [origin["client"] for origin in servers["brave-search"]["from"]] == ["codex"]
    assert {each["name"] for each in told["left"]} == {"mcp-server-github"}
    assert told["written"] is False
    assert not [secret for secret in SECRETS if secret in out]


def test_where_there_is_nothing_it_is_said_where_was_looked(
    user: Callable[..., Machine], capsys: pytest.CaptureFixture[str]
) -> None:
    user()
    assert IMPORT.main(["--from", "lmstudio", "claude"]) == 1
    out = capsys.readouterr().out
    assert "No servers were found." in out
    assert "lmstudio: no file of it here: looked at ~/.lmstudio/mcp.json" in out
    assert "claude-code: no file of it here: looked at ~/.claude.json, ~/proj/.mcp.json" in out


def test_a_file_that_cannot_be_read_is_said_and_counts(
    user: Callable[..., Machine], capsys: pytest.CaptureFixture[str]
) -> None:
    here = user("jetbrains")
    (here.home / ".cursor").mkdir()
    (here.home / ".cursor" / "mcp.json").write_text(BROKEN)
    assert IMPORT.main([]) == 1
    out = capsys.readouterr().out
    assert "time" in out
    assert "Could not be read:" in out
    assert "line 3, column 10" in out


def test_a_faulty_configuration_of_mcpd_is_not_written_to(
    user: Callable[..., Machine], capsys: pytest.CaptureFixture[str]
) -> None:
    here = user("jetbrains")
    config_of(here).parent.mkdir(parents=True)
    config_of(here).write_text('{"mcpServers": {"a": {}}, "lazy": 1}')
    assert IMPORT.main(["--write", "--yes"]) == 78
    assert "nothing was changed" in capsys.readouterr().err
    assert config_of(here).read_text() == '{"mcpServers": {"a": {}}, "lazy": 1}'
    # A fault within an entry concerns that server alone.
    config_of(here).write_text('{"mcpServers": {"a": {}}}')
    assert IMPORT.main(["--write", "--yes"]) == 0
