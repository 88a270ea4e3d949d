"""Which clients are meant and are here, and what is said of changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from daemon.cli.install import chosen, installed_in_words, is_here
from daemon.cli.local_commands import INSTALL
from daemon.documents.files import FoundFile
from daemon.documents.formats import Format
from daemon.setup.clients.file_plans import FileChange
from daemon.setup.clients.programs import PROGRAMS
from tests.unit.setup.machines import machine

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("words", "names"),
    [(["claude", "codex", "claude-code"], ["claude-code", "codex"]), (["--all"], list(PROGRAMS))],
)
def test_clients_are_meant_by_any_of_their_names_and_once(words: list[str], names: list[str]) -> None:
    options = INSTALL.make_parser().parse_args(words)
    assert [program.name for program in chosen(options)] == names


def test_a_client_is_here_if_a_file_a_directory_or_a_program_of_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "claude").touch(mode=0o755)
    here = machine(tmp_path, "cursor")
    (here.home / ".lmstudio").mkdir()
    monkeypatch.setenv("PATH", str(programs))
    assert {name for name, program in PROGRAMS.items() if is_here(program, here)} == {
        "claude-code",
        "cursor",
        "lmstudio",
    }


def test_what_was_done_is_said_in_one_line_and_what_stays_in_another(tmp_path: Path) -> None:
    found = FoundFile(path=tmp_path / "mcp.json", target=tmp_path / "mcp.json", content=b"a")
    change = FileChange(found=found, form=Format.JSON, after="b", record=None, left=("mine",))
    (idle,) = installed_in_words(PROGRAMS["cursor"], [change])
    assert idle == "Cursor: nothing to do: mcpd has none of its servers (`mcpd import --write`)"
