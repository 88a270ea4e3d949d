"""Which mcpd clients start, and how it is recognised in their files."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

from daemon.setup.clients.installing import NoProgram, is_own, own_command
from tests.unit.cases import cases
from tests.unit.setup.generated import PLACES

if TYPE_CHECKING:
    from pathlib import Path

    from daemon.setup.clients.programs import ClientPlace


def test_the_program_that_runs_is_named_by_its_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mcpd").symlink_to("/bin/true")
    monkeypatch.chdir(tmp_path)
    assert own_command("./mcpd") == str(tmp_path / "mcpd")


def test_run_as_a_module_it_is_the_one_beside_the_interpreter_or_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside, on_path = tmp_path / "venv", tmp_path / "bin"
    for directory in (beside, on_path):
        directory.mkdir()
        (directory / "mcpd").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(on_path))
    monkeypatch.setattr(sys, "executable", str(beside / "python"))
    assert own_command("/x/daemon/__main__.py") == str(beside / "mcpd")
    (beside / "mcpd").unlink()
    assert own_command("/x/daemon/__main__.py") == str(on_path / "mcpd")
    (on_path / "mcpd").unlink()
    with pytest.raises(NoProgram, match="install mcpd first"):
        own_command("/x/daemon/__main__.py")


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_what_is_written_is_recognised(place: ClientPlace) -> None:
    assert is_own(place.shape.write("/opt/my bin/mcpd", ["connect", "--profile", "x"]))
    assert not is_own(place.shape.write("/opt/mcpd", ["status"]))
    assert not is_own(place.shape.write("uvx", ["mcp-server-time"]))


@cases("entry", "own")
def test_other_ways_to_write_it(entry: Any, own: bool) -> None:
    assert is_own(entry) is own
