"""How what was found is told."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from daemon.cli.import_servers import data, table
from daemon.cli.terminal import Screen
from tests.unit.setup.clients.test_importing import planned_and_found

if TYPE_CHECKING:
    from pathlib import Path

SCREEN = Screen(width=200, colour=False)


def shown(at: Path, servers: dict[str, Any]) -> str:
    planned, findings = planned_and_found(at, files={"cursor": servers})
    return table(planned, findings, SCREEN, str(at / "home"))


def test_what_is_to_be_known_of_a_server_is_said(tmp_path: Path) -> None:
    told = shown(
        tmp_path,
        {
            "pkg": {"command": "npx", "args": ["pkg@1.0.0"]},
            "Pkg": {"command": "npx", "args": ["pkg@2.0.0"], "disabled": True},
            "web": {"url": "https://h/mcp", "headers": {"Authorization": "Bearer ${env:WEB}"}},
            "net": {"url": "https://n/mcp", "headers": {"Authorization": "Bearer ${env:NET}"}},
            "browser": {"command": "npx", "args": ["@playwright/mcp@0.0.83"], "autoApprove": ["a"]},
        },
    )
    assert "pkg-2: another server than pkg" in told
    assert "pkg-2: switched off in every client that has it" in told
    assert "WEB (not set)" in told
    assert "web (WEB), net (NET): not started until these values, which are set nowhere, stand" in told
    assert "browser: autoApprove: " in told
    assert "has one browser" in told


def test_what_becomes_of_a_server_of_one_directory_is_said_in_a_line(tmp_path: Path) -> None:
    planned_and_found(tmp_path, files={"claude-code": {}})  # where they are
    (at := tmp_path / "app").mkdir()
    local = {"git": {"command": "mcp-git", "args": [str(at)]}, "web": {"url": "https://h/mcp"}}
    file = tmp_path / "home" / ".claude.json"
    file.write_text(json.dumps({"projects": {str(at): {"mcpServers": local}}}))
    told = table(*planned_and_found(tmp_path), Screen(width=1000, colour=False), str(tmp_path / "home"))
    said = f"Claude Code has it in {at} alone; from mcpd only clients that work there get it."
    assert f"git: {said}" in told
    assert f'web: {said} For all clients: remove "workspaces" from its entry' in told


def test_a_broken_file_is_told_in_a_line_and_the_others_are_read(tmp_path: Path) -> None:
    servers = {"a": {"command": "x"}}
    planned_and_found(tmp_path, files={"cursor": servers})  # where they are
    broken = tmp_path / "home" / ".claude.json"
    broken.write_text("{ broken")
    told = table(*planned_and_found(tmp_path, files={"cursor": servers}), SCREEN, str(tmp_path / "home"))
    assert f"  {broken}: 1 fault: line 1, column 3: expected a key" in told
    assert "a       Cursor" in told


def test_hidden_characters_of_a_client_are_shown(tmp_path: Path) -> None:
    told = shown(tmp_path, {"a": {"command": "x", "args": ["\u202e\x1b[31m"]}})
    assert "\x1b" not in told
    assert "\u202e" not in told


def test_programs_learn_where_a_server_is_from(tmp_path: Path) -> None:
    told = data(*planned_and_found(tmp_path, files={"cursor": {"a": {"command": "x"}}}))
    file = str(tmp_path / "home" / ".cursor" / "mcp.json")
    assert told["servers"][0]["from"] == [{"client": "cursor", "scope": "user", "file": file, "name": "a"}]
    assert told["looked"]["lmstudio"] == [str(tmp_path / "home" / ".lmstudio" / "mcp.json")]
