"""Servers that are added to the configuration, with their secrets beside it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from daemon.config.parse import load
from daemon.documents.files import DocumentError
from daemon.errors import ConfigError
from daemon.setup.clients.importing import drafted, find, plan
from daemon.setup.clients.programs import PROGRAMS
from daemon.setup.drafts import Draft, changed, read_present
from tests.unit.cases import cases
from tests.unit.setup.machines import machine

if TYPE_CHECKING:
    from pathlib import Path

KEY = "bk-7Qm2xV9bT4Zr8Lw1"
WRITTEN = """{
  // mine
  "mcpServers": {
    "own": {"command": "own", "args": ["--token", "own-Qx7Rm2Vb9"]}, // stays
  },
}
"""


def config(at: Path) -> Path:
    return at / "home" / ".config" / "mcpd" / "mcpd.json"


def draft_of(at: Path, *clients: str) -> Draft:
    here = machine(at, *clients)
    present = read_present(config(at))
    planned = plan(
        find(here, [PROGRAMS[name] for name in clients]),
        written=present.servers,
        kept=present.variables,
        environ=here.environ,
        source=config(at),
    )
    return drafted(present, planned, here.environ)


def put(path: Path, text: str, mode: int = 0o600) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


def test_a_new_configuration_is_one_that_mcpd_runs_with(tmp_path: Path) -> None:
    draft_of(tmp_path, "claude-code").write()
    made = load(config(tmp_path), {"HOME": str(tmp_path)})
    assert set(made.mcp_servers) == {"time", "notion", "brave-search", "files", "events", "git"}
    assert made.mcp_servers["brave-search"].env == {"BRAVE_API_KEY": KEY}
    assert made.mcp_servers["notion"].headers == {"Authorization": "Bearer nt-4hT8kQ2mZx9Vb1Rs"}
    env = config(tmp_path).with_name("env")
    assert env.stat().st_mode & 0o777 == 0o600
    assert KEY in env.read_text()
    assert KEY not in config(tmp_path).read_text()


def test_what_is_written_there_stays_as_it_is(tmp_path: Path) -> None:
    path = put(config(tmp_path), WRITTEN)
    env = put(path.with_name("env"), "# mine\nA=1\n", 0o644)
    draft_of(tmp_path, "codex").write()
    text = path.read_text()
    assert text.startswith("{\n  // mine\n")
    assert '"own": {"command": "own", "args": ["--token", "own-Qx7Rm2Vb9"]}, // stays\n' in text
    assert env.read_text() == f"# mine\nA=1\nBRAVE_SEARCH__BRAVE_API_KEY={KEY}\n"
    assert env.stat().st_mode & 0o777 == 0o600


def test_a_second_time_nothing_changes(tmp_path: Path) -> None:
    draft_of(tmp_path, *PROGRAMS).write()
    before = config(tmp_path).stat().st_ino
    draft = draft_of(tmp_path, *PROGRAMS)
    assert draft.diff() == ""
    draft.write()
    assert config(tmp_path).stat().st_ino == before


def test_the_diff_shows_no_secret(tmp_path: Path) -> None:
    put(config(tmp_path), WRITTEN)
    told = draft_of(tmp_path, "claude-code").diff()
    assert '+    "brave-search": {' in told
    assert "+BRAVE_SEARCH__BRAVE_API_KEY=(a secret)" in told
    assert KEY not in told
    assert "own-Qx7Rm2Vb9" not in told


def test_both_files_are_written_or_none(tmp_path: Path) -> None:
    path = put(config(tmp_path), WRITTEN)
    env = put(path.with_name("env"), "A=1\n")
    draft = draft_of(tmp_path, "codex")
    put(path, WRITTEN + "\n")
    with pytest.raises(DocumentError, match="nothing was changed"):
        draft.write()
    assert env.read_text() == "A=1\n"
    assert path.read_text() == WRITTEN + "\n"


def test_secrets_that_were_new_are_gone_again_if_the_configuration_cannot_be_written(tmp_path: Path) -> None:
    draft = draft_of(tmp_path, "codex")
    put(config(tmp_path), "{}")
    with pytest.raises(DocumentError):
        draft.write()
    assert not config(tmp_path).with_name("env").exists()


def test_more_secrets_than_the_daemon_reads_are_not_written(tmp_path: Path) -> None:
    put(config(tmp_path), WRITTEN)
    present = read_present(config(tmp_path))
    with pytest.raises(DocumentError, match=r"env would have more than 64 KiB"):
        changed(present, lambda _: None, {"A": "x" * 65_536}, {})


@pytest.mark.parametrize("text", ['{"mcpServers": {}, "lazy": 5}', '{"mcpServers": []}', "[", "[]"])
def test_a_configuration_with_faults_is_not_touched(text: str, tmp_path: Path) -> None:
    put(config(tmp_path), text)
    with pytest.raises(ConfigError):
        draft_of(tmp_path, "codex")
    assert config(tmp_path).read_text() == text


def test_a_file_of_secrets_that_makes_no_sense_is_not_touched(tmp_path: Path) -> None:
    put(config(tmp_path).with_name("env"), "A=1\nnonsense\n")
    with pytest.raises(DocumentError, match=r"env: line 2 .*: write one KEY=VALUE a line"):
        draft_of(tmp_path, "codex")


def test_an_empty_file_is_an_empty_configuration(tmp_path: Path) -> None:
    put(config(tmp_path), "\n")
    draft_of(tmp_path, "jetbrains").write()
    assert json.loads(config(tmp_path).read_text())["mcpServers"]["time"]["command"] == "uvx"


@pytest.mark.parametrize("before", [WRITTEN, None])
def test_what_was_written_is_taken_back_unless_somebody_else_has_written_since(
    before: str | None, tmp_path: Path
) -> None:
    path = tmp_path / "mcpd.json"
    if before is not None:
        path.write_text(before)
    adding_x(path).undo()
    assert (path.read_text() if path.exists() else None) == before
    assert not (tmp_path / "env").exists()
    draft = adding_x(path)
    path.write_text("theirs")
    with pytest.raises(DocumentError, match="somebody else"):
        draft.undo()
    assert path.read_text() == "theirs"


def adding_x(path: Path) -> Draft:
    """A draft that is written."""
    draft = changed(
        read_present(path), lambda text: text.put(["mcpServers", "x"], {"command": "x"}), {"A": "b"}, {}
    )
    draft.write()
    return draft


@cases("text", "place")
def test_a_server_is_found_where_it_is_written(text: str, place: list[str], tmp_path: Path) -> None:
    (tmp_path / "c").write_text(text)
    assert read_present(tmp_path / "c").places == {"brave-search": tuple(place)}


def test_what_stands_there_in_the_words_of_another_client_counts(tmp_path: Path) -> None:
    servers = {"My Time": {"type": "local", "command": ["uvx", "mcp-server-time", "--local-timezone=UTC"]}}
    put(config(tmp_path), json.dumps({"servers": servers}))
    assert json.loads(draft_of(tmp_path, "jetbrains").config)["mcpServers"].keys() == {"files"}
