"""`mcpd rename`: a server's name changes wherever files say it, and nothing else does."""

import json
from pathlib import Path
from typing import Any

import pytest

from daemon.cli import implementation
from daemon.config.parse import load, load_with_notes
from daemon.documents.files import DocumentError
from daemon.setup import settings
from daemon.setup.locking import written
from daemon.surfaces.table import SURFACES
from tests.printing import err_of
from tests.unit.cases import cases
from tests.unit.cli.conftest import Captured, Controls
from tests.unit.cli.daemons import server, status_of

KEY = "k-83hd82hd8xQ2"
# The name stands nowhere but where it has to change.
CONFIG = """{
  // mine
  "mcpServers": {
    "other": {"command": "uvx", "args": ["other"]},
    "tick" /* kept */: {"command": "uvx", "env": {"API_TOKEN": "KEY"}}, // kept, too
  },
  "categories": {
    "work": {
      "server": "tick", // whose
      "tools": {
        "includeNames": ["now", /* one */ "tick/then", "mcp__tick__at"],
        "exclude_patterns": ["tick/x*", "other/tic*"],
        "overrides": {"tick/then": {"enabled": true}, "other/y": {"enabled": false}},
      },
    },
    "rest": {"server": "other"},
  },
  "profiles": {
    "reader": {
      "categories": ["work"],
      "coreTools": ["tick/then"],
      "excludedTools": ["tick/x"],
      "toolDescriptionOverrides": {"mcp__tick__at": "tells"},
      "permissions": [{"match": "tick/*", "then": "ask"}, {"match": "other/*", "then": "deny"}],
    },
  },
  "listen": {"servers": ["other", "tick"]},
}
""".replace("KEY", KEY)
PROFILE = '{"preload": ["tick/then"], /* c */ "includedOptionalTools": ["other/y", "tick/z"]}\n'
PLAIN = """{
  "servers": {"My Tick": {"command": "uvx"}},
  "profiles": {"reader": {"categories": ["My Tick"], "preload": ["my-tick/a", "My Tick/b", "mcp__My_Tick__c"]}}
}"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (own := tmp_path / "profiles.d").mkdir(mode=0o700)
    (own / "own.json").write_text(PROFILE)
    (config := tmp_path / "mcpd.json").write_text(CONFIG)
    line = {"identity": load(config, {}).mcp_servers["tick"].identity, "tools": {}}
    lock = {"lockfileVersion": 1, "servers": {"other": line, "tick": line}}
    (tmp_path / "mcpd.lock").write_text(written(lock))
    for file in (config, own / "own.json", tmp_path / "mcpd.lock"):
        file.chmod(0o600)
    return config


def texts(config: Path) -> dict[str, str]:
    return {each.name: each.read_text() for each in config.parent.rglob("*.*") if each.is_file()}


def told(config: Path, *words: str) -> int:
    status: int = implementation("rename").main([*words, "--config", str(config)])
    return status


def test_the_name_changes_in_all_files_and_nothing_else_does(config: Path, capsys: Captured) -> None:
    before, meant = texts(config), repr(load(config, {}, SURFACES))
    notes = [each.message for each in load_with_notes(config, {}, SURFACES).notes]
    assert told(config, "tick", "tock", "--dry-run") == 0
    assert (texts(config) == before, KEY in (said := capsys.readouterr().out)) == (True, False)
    assert said.count('+    "tock"') == 2
    assert told(config, "tick", "tock", "--no-reload") == 0
    after = texts(config)
    lock = before.pop("mcpd.lock")
    assert json.loads(after.pop("mcpd.lock")) == json.loads(lock.replace("tick", "tock"))
    assert after == {name: text.replace("tick", "tock") for name, text in before.items()}
    assert repr(load(config, {}, SURFACES)) == meant.replace("tick", "tock")
    assert [each.message for each in load_with_notes(config, {}, SURFACES).notes] == notes
    assert told(config, "tock", "tick", "--no-reload") == 0
    assert texts(config) == {**before, "mcpd.lock": lock}
    assert f"stay behind; undo: `mcpd rename tick tock --config {config}`" in capsys.readouterr().err


def test_without_categories_profiles_name_servers_and_a_title_is_a_name_too(config: Path) -> None:
    config.write_text(PLAIN)
    (config.parent / "profiles.d" / "own.json").unlink()
    assert told(config, "my-tick", "tock", "--no-reload") == 0
    changed = PLAIN.replace("mcp__My_Tick", "mcp__tock").replace("My Tick", "tock").replace("my-tick", "tock")
    assert config.read_text() == changed


@cases("words", "status", "said")
def test_a_name_that_cannot_be_is_refused_and_nothing_changes(
    words: str, status: int, said: str, config: Path, capsys: Captured
) -> None:
    before = texts(config)
    assert said in err_of(capsys, told(config, *words.split()), status)
    assert texts(config) == before


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory with a directory for each sandboxed server; `tick` has one."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    (file := tmp_path / "mcpd" / "servers" / "tick" / "data" / "notes").parent.mkdir(parents=True)
    file.write_text("mine")
    return tmp_path / "mcpd" / "servers"


def test_what_a_server_keeps_in_its_sandbox_moves_to_its_new_name_and_back(
    config: Path, data: Path, capsys: Captured
) -> None:
    assert told(config, "tick", "tock", "--dry-run") == 0
    assert (data / "tick").is_dir()
    for old, new in (("tick", "tock"), ("tock", "tick")):
        assert f"its data has moved to {data / new}\n" in err_of(capsys, told(config, old, new, "--no-reload"))
        assert [str(each.relative_to(data)) for each in data.rglob("notes")] == [f"{new}/data/notes"]
    # It replaces nothing.
    (data / "tock").mkdir()
    said = err_of(capsys, told(config, "tick", "tock", "--no-reload"))
    assert f"its data stays in {data / 'tick'}: {data / 'tock'} exists already\n" in said
    assert (data / "tick" / "data" / "notes").read_text() == "mine"


def test_what_a_server_of_a_systems_unit_keeps_moves_too(
    config: Path, tmp_path: Path, control: Controls
) -> None:
    status: Any = status_of({"tick": server(), "tock": server()})
    status["daemon"]["stateDirectory"] = str(tmp_path / "state")
    (tmp_path / "state" / "servers" / "tick").mkdir(parents=True)
    control({"reload": {"config": str(config)}, "status": status, "tools": {"categories": {}}})
    assert told(config, "tick", "tock") == 0
    assert [each.name for each in (tmp_path / "state" / "servers").iterdir()] == ["tock"]


def test_a_server_that_does_not_come_up_gets_its_name_and_what_it_keeps_back(
    config: Path, data: Path, control: Controls, capsys: Captured
) -> None:
    before = texts(config)
    servers = {"tick": server(), "tock": server(state="failed", reason="no")}
    answer: Any = {"config": str(config)}
    control({"reload": answer, "status": status_of(servers), "tools": {"categories": {}}})
    assert "taken back: the files are restored" in err_of(capsys, told(config, "tick", "tock"), 1)
    assert texts(config) == before
    assert [each.name for each in data.iterdir()] == ["tick"]


def test_what_could_not_be_written_names_no_way_back_and_moves_nothing(
    config: Path, data: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_edits: object) -> None:
        raise DocumentError("somebody else wrote it")

    monkeypatch.setattr(settings, "write_all", refuse)
    assert "undo" not in err_of(capsys, told(config, "tick", "tock", "--no-reload"), 1)
    assert [each.name for each in data.iterdir()] == ["tick"]
