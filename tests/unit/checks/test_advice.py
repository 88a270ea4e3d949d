"""Warnings: commands that will not be found, versions that move; what is left unsaid, or said once only."""

import json
from pathlib import Path
from typing import Any

import pytest

from daemon.checks.advice import advice, oversights
from daemon.config import command_lines
from daemon.config.parse import parse
from tests.unit.cases import cases
from tests.unit.config.reading import config_of


def warnings(entry: dict[str, Any], path: str | None = None) -> list[tuple[str, str]]:
    """Place and text of every warning about one server `s`."""
    environ = {} if path is None else {"PATH": path}
    return [
        (fault.path, fault.message)
        for fault in advice(config_of({"mcpServers": {"s": entry}}, environ), environ)
    ]


RUNNERS = {runner.words[0] for runner in command_lines.runners()}


@pytest.fixture
def programs(tmp_path: Path) -> str:
    """A PATH with all the package runners on it, and nothing else."""
    for name in (*RUNNERS, "node", "env", "sh", "bash", "docker", "podman"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    return str(tmp_path)


def moving(command: str, args: list[str], programs: str) -> list[str]:
    found = warnings({"command": command, "args": args}, programs)
    return [message for place, message in found if place == "$.mcpServers.s.args"]


@cases("command", "args", "pinned")
def test_a_version_that_moves_is_told_with_one_that_does_not(
    command: str, args: list[str], pinned: str, programs: str
) -> None:
    (message,) = moving(command, args, programs)
    assert "has no exact version" in message
    assert message.partition(". `mcpd pin s`")[0].endswith(f"as in '{pinned}'")


def test_what_mcpd_can_pin_is_told_with_the_command_that_does(programs: str) -> None:
    how = ". `mcpd pin s` writes the newest version"
    (message,) = moving("npx", ["-y", "some-mcp"], programs)
    assert message.endswith(how)
    (message,) = moving("npx", ["-y", "some-mcp@^1"], programs)
    assert how not in message
    image, privileged = moving("docker", ["run", "--privileged", "some/mcp"], programs)
    assert image.endswith(how)
    assert how not in privileged


@cases("line", "said")
def test_what_names_no_release_or_opens_the_machine_is_told(line: str, said: str, programs: str) -> None:
    command, *args = line.split()
    (message,) = moving(command, args, programs)
    assert said in message


@cases("command", "args")
def test_what_stands_still_needs_no_warning(command: str, args: list[str], programs: str) -> None:
    assert moving(command, args, programs) == []


def test_a_command_that_is_not_on_path_is_told(programs: str) -> None:
    ((place, message),) = warnings({"command": "nope"}, programs)
    assert place == "$.mcpServers.s.command"
    assert message.startswith("nope is not on the PATH. A daemon started in this shell has the PATH")
    assert message.endswith("Install it, or `mcpd set s command=PATH` with its absolute path")
    assert "there is no program /nope/nope" in warnings({"command": "/nope/nope"}, programs)[0][1]
    # The path is the server's own where it has one.
    assert not warnings({"command": "node", "env": {"PATH": programs}}, "/nowhere")
    assert warnings({"command": "node", "env": {"PATH": "/nowhere"}}, programs)


@pytest.fixture
def beside(tmp_path: Path) -> Path:
    """A configuration's directory with a server's files, beside an empty home."""
    for name in ("home", "project", "project/data"):
        (tmp_path / name).mkdir()
    for name in ("run.sh", "srv.py", "settings.json"):
        (tmp_path / "project" / name).touch(mode=0o755)
    return tmp_path / "project"


def astray(beside: Path, entry: dict[str, Any]) -> list[tuple[str, str]]:
    environ = {"PATH": "/bin", "HOME": str(beside.parent / "home")}
    text = json.dumps({"mcpServers": {"s": entry}})
    config = parse(text, source=str(beside / "mcpd.json"), environ=environ)
    return [(fault.path, fault.message) for fault in advice(config, environ, beside)]


@cases("entry", "place", "word")
def test_a_path_that_begins_at_home_where_the_file_is_not_is_told(
    beside: Path, entry: dict[str, Any], place: str, word: str
) -> None:
    ((path, message),) = astray(beside, entry)
    assert path == f"$.mcpServers.s.{place}"
    assert message.startswith(f"'{word}' does not exist in the home directory")
    assert "`mcpd set s cwd=.`" in message
    assert not astray(beside, {**entry, "enabled": False})
    assert not [message for _, message in astray(beside, {**entry, "cwd": "."}) if "home" in message]


@cases("command", "args")
def test_what_is_no_file_beside_the_configuration_is_no_path(
    beside: Path, command: str, args: list[str]
) -> None:
    assert not astray(beside, {"command": command, "args": args})


@cases("entry")
def test_what_is_not_started_by_name_is_not_looked_for(entry: dict[str, Any], programs: str) -> None:
    assert warnings(entry, programs) == []


def test_a_secret_is_not_repeated_in_a_warning(programs: str) -> None:
    environ = {"PATH": programs, "TOKEN": "hunter2-hunter2"}
    for entry in ({"command": "npx", "args": ["${TOKEN}"]}, {"command": f"{programs}/npx --key ${{TOKEN}}"}):
        (fault,) = advice(config_of({"mcpServers": {"s": entry}}, environ), environ)
        assert "hunter2" not in fault.message


@cases("entry", "place", "said")
def test_what_the_doctor_sees_without_asking_anybody_is_told(
    entry: dict[str, Any], place: str, said: str, programs: str
) -> None:
    ((path, message),) = warnings(entry, programs)
    assert path == f"$.mcpServers.s.{place}"
    assert message.startswith(said)


def test_arguments_within_a_command_are_told_with_what_to_write(programs: str) -> None:
    ((path, message),) = warnings({"command": f"{programs}/npx -y 'a b'", "args": ["c"]}, programs)
    assert path == "$.mcpServers.s.command"
    assert message.endswith(f'`mcpd set s command={programs}/npx \'args=["-y", "a b", "c"]\'`')


def test_a_key_for_summaries_that_is_not_in_the_environment_is_a_warning() -> None:
    entry: dict[str, Any] = {"summaries": {"baseUrl": "http://h/v1", "model": "m", "apiKeyEnv": "THE_KEY"}}
    (found,) = advice(config_of(entry), {})
    assert found.path == "$.summaries.apiKeyEnv"
    assert "THE_KEY (summaries.apiKeyEnv) is not set: no model is asked" in found.message
    assert advice(config_of(entry), {"THE_KEY": "k"}) == []
    assert advice(config_of({**entry, "lazy": False}), {}) == []


def test_a_limit_that_is_more_than_a_server_bears_is_told_with_the_key_to_set() -> None:
    entry = {"command": "/bin/sh", "args": ["-c", "exec mcp-server-memory"], "description": "Facts."}
    ((place, message),) = told(mcpServers={"s": entry})
    assert place == "$.mcpServers.s.limits.inFlight"
    assert message.startswith("s reads and rewrites its file for each call")
    assert message.endswith("`mcpd set s limits.inFlight=1` sets it")
    assert told(mcpServers={"s": {**entry, "limits": {"inFlight": 1}}}) == []


@cases("line", "place", "do")
def test_what_a_server_keeps_for_its_clients_is_told_with_what_to_write(line: str, place: str, do: str) -> None:
    command, *args = line.split()
    entry = {"command": command, "args": args, "description": "D."}
    ((path, message),) = told(mcpServers={"s": entry})
    assert path == f"$.mcpServers.s.{place}"
    assert message.endswith(do)
    assert told(mcpServers={"s": {**entry, "share": "all"}}) == []


def test_a_path_in_the_directory_of_a_client_is_not_looked_for(beside: Path, programs: str) -> None:
    environ = {"PATH": programs, "HOME": str(beside)}
    for entry in (
        {"command": "${workspace}/bin/serve", "workspacePrograms": True},
        {"command": "node", "args": ["${workspace}/serve.js", "--root=${workspace}"]},
        {"command": "node", "args": ["./serve.js"], "cwd": "${workspace}"},
    ):
        assert advice(config_of({"mcpServers": {"s": entry}}), environ, beside) == []


def test_no_warning_shows_what_stands_for_a_workspace(programs: str) -> None:
    ((_, message),) = warnings({"command": "npx", "args": ["${workspace}/pkg"]}, programs) or [("", "")]
    assert "\0" not in message
    ((_, message),) = warnings({"command": "docker", "args": ["run", "${workspace}/image"]}, programs)
    assert "'${workspace}/image' has no version" in message


SERVER = {"command": "x", "description": "Git."}
OFF = {"overrides": {"git_reset": {"enabled": False}}}


def told(**config: Any) -> list[tuple[str, str]]:
    return [(fault.path, fault.message) for fault in oversights(config_of(config))]


def test_servers_and_categories_without_a_description_are_told_unless_they_are_switched_off() -> None:
    bare, off = {"command": "x"}, {"command": "x", "enabled": False}
    ((place, message),) = told(mcpServers={"git": SERVER, "bare": bare, "off": off})
    assert place == "$.mcpServers.bare"
    assert "this server has no 'description'" in message
    assert "`mcpd set bare description='...'`" in message
    categories = {"reading": {"server": "git"}, "writing": {"server": "git"}}
    ((place, message),) = told(mcpServers={"git": SERVER}, categories=categories)
    assert place == "$.categories"
    assert "'reading' and 'writing' have no 'description'" in message
    assert "`mcpd set . categories.NAME.description='...'`" in message


@cases("other", "still_has")
def test_a_tool_that_another_category_still_has_is_told(other: dict[str, Any], still_has: bool) -> None:
    tools = {"write": OFF, "all": other}
    categories = {name: {"description": "C.", "server": "git", "tools": each} for name, each in tools.items()}
    found = told(mcpServers={"git": SERVER, "other": SERVER}, categories=categories)
    assert [place for place, _ in found] == ["$.categories.write.tools.overrides.git_reset.enabled"] * still_has
    assert all("'all' still has it" in message for _, message in found)
    off = {"git": {**SERVER, "enabled": False}, "other": SERVER}
    assert told(mcpServers=off, categories=categories) == []


def test_rules_of_permission_that_no_call_comes_to_are_told() -> None:
    rules = [
        {"match": "s/*", "then": "ask"},
        {"match": "s/push", "then": "deny"},
        {"match": "other/push", "then": "deny"},
    ]
    entry = {"command": "x", "description": "d"}
    config = config_of({"mcpServers": {"s": entry}, "profiles": {"p": {"permissions": rules}}})
    told = {fault.path: fault.message for fault in oversights(config)}
    assert told.keys() == {"$.profiles.p.permissions[1]", "$.profiles.p.permissions[2].match"}
    assert "first match wins" in told["$.profiles.p.permissions[1]"]
    assert "unknown server 'other'" in told["$.profiles.p.permissions[2].match"]


@pytest.mark.parametrize("profile", [{"surface": "code"}, {"runCode": True}])
def test_scripts_without_their_interpreter_are_warned_of(
    profile: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of({"mcpServers": {}, "profiles": {"default": profile}})
    assert not [fault for fault in advice(config, {}) if "interpreter" in fault.message]
    monkeypatch.setattr("daemon.checks.advice.find_spec", lambda _name: None)
    (fault,) = [fault for fault in advice(config, {}) if "interpreter" in fault.message]
    assert (fault.path, "mcpd-supervisor[code]" in fault.message) == ("$.profiles", True)
    assert not [fault for fault in advice(config_of({"mcpServers": {}}), {}) if "interpreter" in fault.message]


def test_a_secret_that_is_not_in_the_keyring_is_named_and_no_other_is(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    secrets = tmp_path / "mcpd" / "secrets"
    secrets.mkdir(parents=True, mode=0o700)
    (secrets / "there").write_text("s-83hd82hd8")
    (secrets / "there").chmod(0o600)
    headers = {"A": "${keyring:there}", "B": "Bearer ${keyring:gone}", "C": "${run:pass show gone}"}
    config = config_of({"mcpServers": {"s": {"url": "https://a.example", "headers": headers}}}, environ)
    told = [(each.path, each.message) for each in advice(config, environ) if "keyring" in each.message]
    why = "There is no secret gone in the keyring. The server cannot start without it."
    assert told == [("$.mcpServers.s", f"{why} `mcpd secret set gone` sets it")]
    (secrets / "gone").write_text("s-83hd82hd8")
    assert not [each for each in advice(config, environ) if "keyring" in each.message]
    secrets.chmod(0o777)  # nobody can tell
    assert not [each for each in advice(config, environ) if "keyring" in each.message]
