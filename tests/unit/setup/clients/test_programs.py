"""Where clients keep their servers."""

from __future__ import annotations

from pathlib import Path

import pytest

from daemon.setup.clients.programs import PROGRAMS, Machine, named
from tests.unit.setup.machines import CLIENTS, ORIGINS, machine

NOWHERE = Machine(home=Path("/home/ada"), directory=Path("/home/ada/proj"), environ={})


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_file_that_a_client_has_is_looked_into(name: str, tmp_path: Path) -> None:
    looked = {place.path for place in PROGRAMS[name].places(machine(tmp_path, name))}
    files = {path for path in (tmp_path / "home").rglob("*") if path.is_file()}
    assert files
    assert files <= looked


def test_each_client_has_files_here_and_it_is_said_who_wrote_them() -> None:
    there = {path.name for path in CLIENTS.iterdir() if path.is_dir()} - {"cases", "__pycache__"}
    assert there == set(PROGRAMS) == set(ORIGINS)


def test_variables_move_what_they_move() -> None:
    environ = {"CODEX_HOME": "/opt/codex", "CLAUDE_CONFIG_DIR": "/opt/claude", "XDG_CONFIG_HOME": "/opt/config"}
    moved = Machine(home=NOWHERE.home, directory=NOWHERE.directory, environ=environ)
    first = {name: str(PROGRAMS[name].places(moved)[0].path) for name in ("codex", "claude-code", "zed")}
    assert first == {
        "codex": "/opt/codex/config.toml",
        "claude-code": "/opt/claude/.claude.json",
        "zed": "/opt/config/zed/settings.json",
    }
    assert str(PROGRAMS["claude-code"].places(NOWHERE)[0].path) == "/home/ada/.claude.json"


def test_the_home_directory_is_no_project() -> None:
    at_home = Machine(home=NOWHERE.home, directory=NOWHERE.home, environ={})
    for program in PROGRAMS.values():
        places = [(place.path, place.trail) for place in program.places(at_home)]
        assert len(places) == len(set(places))
        assert not [place for place in program.places(at_home) if place.scope in {"project", "workspace"}]


def test_opencode_is_read_and_changed_where_it_writes_itself(tmp_path: Path) -> None:
    here = machine(tmp_path)
    folder = here.home / ".config" / "opencode"
    assert PROGRAMS["opencode"].places(here)[0].path == folder / "opencode.jsonc"
    folder.mkdir(parents=True)
    (folder / "opencode.json").write_text("{}")
    assert PROGRAMS["opencode"].places(here)[0].path == folder / "opencode.json"


def test_a_client_is_found_by_its_other_names_and_a_typo_is_understood() -> None:
    assert named("claude") is named("Claude Code") is PROGRAMS["claude-code"]
    with pytest.raises(LookupError, match="did you mean 'cursor'"):
        named("cursr")
    with pytest.raises(LookupError, match="known are claude-code, "):
        named("xyzzy")
