"""The servers of the clients of a machine, as they are found."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from daemon.config.translation import Translated
from daemon.setup.clients.importing import ClientServers, ConfiguredServers, find, identity
from daemon.setup.clients.programs import PROGRAMS, SHAPES, Machine, named
from tests.unit.cases import cases
from tests.unit.setup.generated import MACHINE
from tests.unit.setup.machines import CLIENTS, ORIGINS, machine, put


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
    clients = ("goose", "zed", "continue")
    left = {each.origin.name: each.why for name in clients for each in found_of(name, tmp_path).left}
    assert left == {
        "developer": "is part of Goose itself, not an MCP server",
        "mcp-server-github": "is started by an extension of Zed, and only that extension knows the command",
        "anthropic/memory-mcp": "is a block of Continue's hub, which keeps its command",
    }


def test_mcpd_itself_is_no_server_of_a_client(tmp_path: Path) -> None:
    here = machine(tmp_path)
    for path, command in ((".cursor/mcp.json", "/opt/bin/mcpd"), (".lmstudio/mcp.json", "mcpd")):
        put(here.home / path, {"mcpServers": {"hub": {"command": command, "args": ["connect"]}}})
    findings = find(here, PROGRAMS.values())
    assert not findings.servers
    found = [(origin.program.name, origin.name) for origin in findings.own]
    assert found == [("cursor", "hub"), ("lmstudio", "hub")]


BROKEN = '{\n  "mcpServers": {\n    "a": nonsense\n  }\n}\n'


def test_what_is_no_file_is_named(tmp_path: Path) -> None:
    here = machine(tmp_path)
    (here.home / ".cursor" / "mcp.json").mkdir(parents=True)
    (here.home / ".gemini").mkdir()
    os.mkfifo(here.home / ".gemini" / "settings.json")
    (here.home / ".lmstudio").mkdir()
    (here.home / ".lmstudio" / "mcp.json").symlink_to("mcp.json")
    put(here.home / ".codex" / "config.toml", "").write_bytes(b"a = '\xff'\n")
    put(here.home / ".junie" / "mcp" / "mcp.json", {"mcpServers": ["a"]})
    messages = [each.message for each in find(here, PROGRAMS.values()).unread]
    reasons = ("a directory", "not UTF-8", "not a regular file", "mcpServers is not an object", "a link")
    assert [why in said for why, said in zip(reasons, messages, strict=True)] == [True] * 5


@cases("entry")
def test_an_entry_of_another_shape_is_left_and_said(entry: str, tmp_path: Path) -> None:
    here = machine(tmp_path)
    put(here.home / ".cursor/mcp.json", f'{{"mcpServers": {{"odd": {entry}, "b": {{"command": "b"}}}}}}')
    findings = find(here, [PROGRAMS["cursor"]])
    assert "user b" in entries(findings)
    assert len(findings.left) + len(findings.servers) == 2


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
    put(here.home / ".claude.json", {"projects": projects})
    [server] = find(here, [PROGRAMS["claude-code"]]).servers
    said = {key: value for key, value in server.entry.items() if key != "type"}
    assert said == {**of(found), "workspaces": [str(at)]}
    assert server.origin.scope == f"local {at}"


def test_a_directory_is_named_by_its_real_path_and_as_no_glob(tmp_path: Path) -> None:
    here, at = machine(tmp_path), tmp_path / "app [1]"
    at.mkdir()
    (here.home / "link").symlink_to(at)
    projects = {str(here.home / "link"): {"mcpServers": {"a": {"command": "a"}}}}
    put(here.home / ".claude.json", {"projects": projects})
    [server] = find(here, [PROGRAMS["claude-code"]]).servers
    assert server.entry["workspaces"] == [f"{tmp_path}/app [[]1]"]


# --- entries of clients that write them in another way than `mcpServers`, as mcpd understands them -----------


@cases("shape", "entry", "read")
def test_what_only_the_client_means_so_is_read_as_it_means_it(
    shape: str, entry: dict[str, Any], read: dict[str, Any]
) -> None:
    before = repr(entry)
    assert SHAPES[shape].read(entry) == read
    assert repr(entry) == before


@cases("shape", "entry", "why")
def test_what_nobody_else_can_run_is_not_taken(shape: str, entry: dict[str, Any], why: str) -> None:
    answer = SHAPES[shape].read(entry)
    assert isinstance(answer, str)
    assert why in answer


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_written_for_a_client_reads_as_the_same_command(name: str, tmp_path: Path) -> None:
    for place in PROGRAMS[name].places(Machine(home=tmp_path, directory=tmp_path / "p", environ={})):
        read = place.shape.read(place.shape.write("/opt/bin/mcpd", ["connect"]))
        assert isinstance(read, dict)
        entry = Translated(read, milliseconds=place.shape.milliseconds).entry
        assert (entry["command"], entry["args"]) == ("/opt/bin/mcpd", ["connect"])


# --- where clients keep their servers ------------------------------------------------------------------------


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


def test_a_client_is_found_by_its_other_names_and_a_typo_is_understood() -> None:
    assert named("claude") is named("Claude Code") is PROGRAMS["claude-code"]
    with pytest.raises(LookupError, match="did you mean 'cursor'"):
        named("cursr")
    with pytest.raises(LookupError, match="known are claude-code, "):
        named("xyzzy")


# --- when two entries are the same server, and which servers of clients mcpd has -----------------------------


@cases("one", "other")
def test_who_wrote_it_makes_no_difference(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert identity(one, {"K": "secret"}) == identity(other, {"K": "secret"})


@cases("one", "other")
def test_other_versions_arguments_and_tokens_make_another_server(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    assert identity(one, {"K": "secret"}) != identity(other, {"K": "secret"})


NOTION = {"url": "https://x.example/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}}
OURS = ConfiguredServers(
    servers={
        "clock": {"command": "uvx", "args": ["mcp-server-time"]},
        "notion": NOTION,
        "off": {"command": "off", "enabled": False},
        "odd": 5,
    },
    variables={"TOKEN": "t0ken"},
)


@cases("client", "entry", "name")
def test_a_server_is_known_by_what_it_starts(client: str, entry: Any, name: str | None) -> None:
    program = PROGRAMS[client]
    place = program.places(MACHINE)[0]
    assert OURS.lookup(program, MACHINE)(place, "any", entry) == name
