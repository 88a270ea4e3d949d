"""The servers of the clients of a machine, as they are found."""

from __future__ import annotations

import hashlib
import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from daemon.documents.files import FoundFile, look
from daemon.setup.clients import importing
from daemon.setup.clients.importing import find
from daemon.setup.clients.programs import PROGRAMS
from tests.unit.cases import cases
from tests.unit.setup.machines import machine

if TYPE_CHECKING:
    from pathlib import Path

    from daemon.setup.clients.importing import ClientServers


def found_of(client: str, at: Path) -> ClientServers:
    return find(machine(at, client), [PROGRAMS[client]])


def entries(findings: ClientServers, *keys: str) -> dict[str, dict[str, Any]]:
    """What was found, by scope and name; of each entry what says which server it is."""
    kept = keys or ("command", "args", "env", "url", "headers", "cwd")
    return {
        f"{each.origin.place.scope} {each.origin.name}": {
            key: value for key, value in each.entry.items() if key in kept and value
        }
        for each in findings.servers
    }


@cases("client", "expected")
def test_the_servers_of_a_client_are_found(client: str, expected: dict[str, Any], tmp_path: Path) -> None:
    home = str(tmp_path / "home")
    shown = json.dumps(entries(found_of(client, tmp_path)))
    assert json.loads(shown.replace(f'{home}/proj"', 'PROJECT"').replace(home, "HOME")) == expected


@pytest.mark.parametrize("client", PROGRAMS)
def test_every_client_has_something_to_find_and_nothing_of_it_is_changed(client: str, tmp_path: Path) -> None:
    before = digest(machine(tmp_path, client).home)
    findings = found_of(client, tmp_path)
    assert findings.servers
    assert not findings.unread
    assert digest(tmp_path / "home") == before


def digest(at: Path) -> dict[str, str]:
    files = sorted(path for path in at.rglob("*") if path.is_file())
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_what_cannot_be_taken_is_named(tmp_path: Path) -> None:
    left = {
        each.origin.name: each.why
        for name in ("goose", "zed", "continue")
        for each in found_of(name, tmp_path).left
    }
    assert left == {
        "developer": "is part of Goose itself, not an MCP server",
        "mcp-server-github": "is started by an extension of Zed's, which alone knows how",
        "anthropic/memory-mcp": "is a block of Continue's hub, which keeps its command",
    }


def test_a_switch_and_a_time_limit_keep_their_meaning(tmp_path: Path) -> None:
    goose = entries(found_of("goose", tmp_path), "enabled", "timeouts")
    assert goose["user notion"]["timeouts"]["call"] == 300
    assert not goose["user notion"].get("enabled")
    assert entries(found_of("gemini", tmp_path), "timeouts")["user time"]["timeouts"]["call"] == 30
    windsurf = [each.entry.get("enabled") for each in found_of("windsurf", tmp_path).servers]
    assert windsurf == [False, None]


def test_mcpd_itself_is_no_server_of_a_client(tmp_path: Path) -> None:
    here = machine(tmp_path)
    for path, command in ((".cursor/mcp.json", "/opt/bin/mcpd"), (".lmstudio/mcp.json", "mcpd")):
        at = here.home / path
        at.parent.mkdir()
        at.write_text(f'{{"mcpServers": {{"hub": {{"command": "{command}", "args": ["connect"]}}}}}}')
    findings = find(here, PROGRAMS.values())
    assert not findings.servers
    assert [(origin.program.name, origin.name) for origin in findings.own] == [
        ("cursor", "hub"),
        ("lmstudio", "hub"),
    ]


BROKEN = '{\n  "mcpServers": {\n    "a": nonsense\n  }\n}\n'


def test_a_broken_file_is_named_with_its_place_and_the_others_are_read(tmp_path: Path) -> None:
    here = machine(tmp_path, "gemini")
    (here.home / ".cursor").mkdir()
    (here.home / ".cursor" / "mcp.json").write_text(BROKEN)
    findings = find(here, PROGRAMS.values())
    assert len(findings.servers) == 4
    [unread] = findings.unread
    assert unread.program.name == "cursor"
    assert "mcp.json" in unread.message
    assert "line 3, column 10" in unread.message


def test_what_is_no_file_is_named(tmp_path: Path) -> None:
    here = machine(tmp_path)
    (here.home / ".cursor" / "mcp.json").mkdir(parents=True)
    (here.home / ".gemini").mkdir()
    os.mkfifo(here.home / ".gemini" / "settings.json")
    (here.home / ".lmstudio").mkdir()
    (here.home / ".lmstudio" / "mcp.json").symlink_to("mcp.json")
    (here.home / ".codex").mkdir()
    (here.home / ".codex" / "config.toml").write_bytes(b"a = '\xff'\n")
    (here.home / ".junie" / "mcp").mkdir(parents=True)
    (here.home / ".junie" / "mcp" / "mcp.json").write_text('{"mcpServers": ["a"]}')
    messages = [each.message for each in find(here, PROGRAMS.values()).unread]
    assert len(messages) == 5
    for message, words in zip(
        messages,
        ("a directory", "not UTF-8", "no regular file", "mcpServers is not an object", "a link"),
        strict=True,
    ):
        assert words in message


def test_a_file_that_is_being_written_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = machine(tmp_path)
    path = here.home / ".cursor" / "mcp.json"
    path.parent.mkdir()
    path.write_text(BROKEN)

    def look_then_write(at: Path) -> FoundFile:
        seen = look(at)
        path.write_text('{"mcpServers": {"time": {"command": "time"}}}')
        return seen

    monkeypatch.setattr(importing, "look", look_then_write)
    assert entries(find(here, [PROGRAMS["cursor"]])) == {"user time": {"command": "time"}}


@cases("entry")
def test_an_entry_of_another_shape_is_left_and_said(entry: str, tmp_path: Path) -> None:
    here = machine(tmp_path)
    (here.home / ".cursor").mkdir()
    (here.home / ".cursor" / "mcp.json").write_text(
        f'{{"mcpServers": {{"odd": {entry}, "b": {{"command": "b"}}}}}}'
    )
    findings = find(here, [PROGRAMS["cursor"]])
    assert "user b" in entries(findings)
    assert len(findings.left) + len(findings.servers) == 2


def test_a_client_that_is_not_here_was_looked_for(tmp_path: Path) -> None:
    findings = find(machine(tmp_path), [PROGRAMS["lmstudio"]])
    assert findings.looked == {"lmstudio": (tmp_path / "home" / ".lmstudio" / "mcp.json",)}
    assert not findings.there


@cases("entry", "found")
def test_what_claude_code_has_in_one_directory_is_found_from_anywhere_and_is_for_it_alone(
    tmp_path: Path, entry: dict[str, Any], found: dict[str, Any]
) -> None:
    here, at = machine(tmp_path), tmp_path / "home" / "src" / "app"
    (at / "logs").mkdir(parents=True)
    (at / "server.js").touch()

    def of(value: Any) -> Any:
        return json.loads(json.dumps(value).replace("DIR", str(at)))

    projects = {str(at): {"mcpServers": {"a": of(entry)}}, "/gone": {"mcpServers": {}}, "odd": 1}
    (here.home / ".claude.json").write_text(json.dumps({"projects": projects}))
    [server] = find(here, [PROGRAMS["claude-code"]]).servers
    assert {key: value for key, value in server.entry.items() if key != "type"} == {
        **of(found),
        "workspaces": [str(at)],
    }
    assert server.origin.scope == f"local {at}"


def test_at_home_nothing_is_divided(tmp_path: Path) -> None:
    here = machine(tmp_path)
    entry = {"command": "fs", "args": [str(here.home)]}
    (here.home / ".claude.json").write_text(
        json.dumps({"projects": {str(here.home): {"mcpServers": {"a": entry}}}})
    )
    [server] = find(here, [PROGRAMS["claude-code"]]).servers
    assert server.entry == {**entry, "workspaces": [str(here.home)]}


def test_a_directory_is_named_by_its_real_path_and_as_no_glob(tmp_path: Path) -> None:
    here, at = machine(tmp_path), tmp_path / "app [1]"
    at.mkdir()
    (here.home / "link").symlink_to(at)
    projects = {str(here.home / "link"): {"mcpServers": {"a": {"command": "a"}}}}
    (here.home / ".claude.json").write_text(json.dumps({"projects": projects}))
    [server] = find(here, [PROGRAMS["claude-code"]]).servers
    assert server.entry["workspaces"] == [f"{tmp_path}/app [[]1]"]
