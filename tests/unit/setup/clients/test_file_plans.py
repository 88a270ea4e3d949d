"""Which files of a client are changed, and how; nothing is written."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import attrs
import pytest

from daemon.documents.files import DocumentError, FoundFile
from daemon.setup.clients.file_plans import install_plans, preview, uninstall_plans
from daemon.setup.clients.installing import Records
from daemon.setup.clients.programs import PROGRAMS
from tests.unit.setup.installs import EVERYTHING, MCPD, Installs, knows
from tests.unit.setup.machines import machine

if TYPE_CHECKING:
    from pathlib import Path


def test_local_servers_give_way_with_the_users_and_a_projects_stay(tmp_path: Path) -> None:
    here = machine(tmp_path, "claude-code")
    plans = install_plans(PROGRAMS["claude-code"], here, MCPD, "user", knows(EVERYTHING), Records(tmp_path))
    assert [plan.path for plan in plans] == [here.home / ".claude.json"]
    (change,) = preview(plans)
    assert "git" in change.taken
    plans = install_plans(PROGRAMS["claude-code"], here, MCPD, "project", knows(EVERYTHING), Records(tmp_path))
    assert [plan.path for plan in plans] == [here.directory / ".mcp.json"]


def test_servers_of_a_directory_stay_taken_out_when_mcpd_is_installed_from_another(tmp_path: Path) -> None:
    installs = Installs(machine(tmp_path, "claude-code"))
    path = installs.machine.home / ".claude.json"
    before = path.read_bytes()
    installs.install("claude-code")
    after = path.read_bytes()
    elsewhere = Installs(attrs.evolve(installs.machine, directory=tmp_path))
    elsewhere.install("claude-code")
    assert path.read_bytes() == after
    elsewhere.uninstall("claude-code")
    assert path.read_bytes() == before


def test_a_broken_file_without_mcpd_is_none_of_uninstalls_business(tmp_path: Path) -> None:
    here = machine(tmp_path, "vscode")
    path = here.home / ".config" / "Code" / "User" / "settings.json"
    path.write_text("{ broken")
    changes = preview(uninstall_plans(PROGRAMS["vscode"], here, Records(tmp_path)))
    assert not any(change.writes for change in changes)


def test_what_is_not_utf8_is_left_alone(tmp_path: Path) -> None:
    here = machine(tmp_path)
    (plan,) = install_plans(PROGRAMS["lmstudio"], here, MCPD, "user", knows(()), Records(tmp_path))
    found = FoundFile(path=plan.path, target=plan.path, content=b"\xff", identity=(1,))
    with pytest.raises(DocumentError, match="UTF-8"):
        plan.change(found)


def test_a_file_that_is_there_without_servers_gets_mcpd_as_it_is_written(tmp_path: Path) -> None:
    here = machine(tmp_path)
    (plan,) = install_plans(PROGRAMS["lmstudio"], here, MCPD, "user", knows(()), Records(tmp_path))
    found = FoundFile(
        path=plan.path, target=plan.path, content=b'\xef\xbb\xbf{\r\n\t"a": 1\r\n}', identity=(1,)
    )
    change = plan.change(found)
    assert change.after is not None
    assert change.after.startswith('\ufeff{\r\n\t"a": 1,\r\n\t"mcpServers": {\r\n')
    assert "\n" not in change.after.replace("\r\n", "")
    assert "mcpd" in json.loads(change.after.removeprefix("\ufeff"))["mcpServers"]
