"""From a text or a file to a configuration, or to all of its faults."""

import json
import os
from pathlib import Path

import pytest

from daemon.config.config_model import Config, Override, Profile, TransportType
from daemon.config.listen import Listen
from daemon.config.parse import load, load_with_notes, parse
from daemon.errors import ConfigError
from tests.fuzz.mutation import CONFIGS, malformed
from tests.fuzz.oracles import a_config
from tests.unit.cases import cases
from tests.unit.config.reading import config_of, faults_in_text

SEED = Path(__file__).parent / "cases" / "serena_module.json"


def test_an_empty_object_is_a_configuration_with_all_defaults() -> None:
    config = config_of({})
    assert config == Config()
    assert config.profiles == {"default": Profile(name="default")}
    assert (config.limits.client_message_bytes, config.limits.starts) == (4 * 1024 * 1024, 4)


def test_the_example_of_the_specification_is_read() -> None:
    config = parse(SEED.read_text(), source="serena-module.json", environ={})
    server, category = config.mcp_servers["serena"], config.categories["fs"]
    assert (server.name, server.type, server.command) == ("serena", TransportType.STDIO, "npx")
    assert server.args == ("-y", "@org/serena-mcp@latest")
    assert (category.name, category.server) == ("fs", "serena")
    assert category.tools.overrides["mcp__serena__execute_shell_command"] == Override(enabled=False)


def test_every_section_arrives_in_the_model() -> None:
    config = config_of(
        {
            "lazy": False,
            "watch": True,
            "limits": {"starts": 2},
            "state": {"url": "sqlite:////x"},
            "profiles": {"default": {"surface": "load"}, "p": {}},
            "listen": {"controlSocket": "/c"},
            "summaries": {"baseUrl": "http://h/v1", "model": "m"},
            "mcpServers": {"a": {"command": "x", "timeouts": {"firstInitialize": 9}}},
        }
    )
    assert (config.lazy, config.watch, config.limits.starts) == (False, True, 2)
    assert (config.state.url, config.listen) == ("sqlite:////x", Listen(control_socket="/c"))
    assert (config.profiles["default"].surface, config.profiles["p"].name) == ("load", "p")
    assert config.summaries is not None
    assert (config.summaries.base_url, config.summaries.api_key_env) == ("http://h/v1", None)
    assert config.mcp_servers["a"].timeouts.first_initialize == 9


@cases("text", "faults")
def test_a_bad_text_is_refused_with_all_its_faults(text: str, faults: list[list[str]]) -> None:
    assert [list(fault) for fault in faults_in_text(text)] == faults


def test_referenced_files_are_read_through_the_port_from_the_directory_of_the_source() -> None:
    text = '{"mcpServers": {"s": {"command": "x", "env": {"A": "${file:key}", "B": "${file:/k}"}}}}'
    config = parse(text, source="/etc/mcpd/mcpd.json", environ={}, read_file=str)
    assert config.mcp_servers["s"].env == {"A": "/etc/mcpd/key", "B": "/k"}
    assert config.mcp_servers["s"].substituted == {"/etc/mcpd/key", "/k"}


def test_the_url_of_the_store_may_come_from_outside() -> None:
    url = "postgresql://mcpd:hunter2@db.example.org/mcpd"
    for reference in ("${STATE_URL}", "postgresql://mcpd:${PASSWORD}@db.example.org/mcpd"):
        found = config_of({"state": {"url": reference}}, {"STATE_URL": url, "PASSWORD": "hunter2"})
        assert found.state.url == url


def test_a_fault_within_an_entry_is_that_servers_alone_unless_it_is_read_strictly(tmp_path: Path) -> None:
    path = tmp_path / "mcpd.json"
    entries: dict[str, object] = {
        "sound": {"command": "~/bin/x", "args": ["~", "a~", "~/${DIR}"], "cwd": "~/src"},
        "unset": {"command": "x", "env": {"K": "${NOT_SET}"}, "share": "session"},
        "typed": {"command": "x", "enabled": "yes"},
        "number": 5,
        "address": {"url": "http://[x"},
        "off": {"command": 5, "enabled": False},
    }
    path.write_text(json.dumps({"servers": entries, "categories": {"c": {"server": "number"}}}))
    servers = load(path, {"HOME": "/home/me", "DIR": "d"}).mcp_servers
    sound = servers["sound"]
    assert (sound.command, *sound.args) == ("/home/me/bin/x", "/home/me", "a~", "/home/me/d")
    assert sound.cwd == "/home/me/src"
    assert list(servers) == list(entries)
    assert {name for name, server in servers.items() if server.faults} == entries.keys() - {"sound"}
    assert [str(fault).partition(" ")[0] for fault in servers["number"].faults] == ["$.servers.number:"]
    assert servers["unset"].awaits == ("NOT_SET",)
    assert [name for name, server in servers.items() if not server.enabled] == ["off"]
    with pytest.raises(ConfigError) as caught:
        load_with_notes(path, {"DIR": "d"})
    assert len(caught.value.faults) == 5
    # With a fault outside of entries all are told.
    path.write_text(json.dumps({"mcpServers": entries, "lazy": 1}))
    with pytest.raises(ConfigError) as caught:
        load(path, {})
    assert len(caught.value.faults) > 5


def test_a_missing_file_says_where_it_was_looked_for_and_how_to_make_one(tmp_path: Path) -> None:
    path = tmp_path / "mcpd.json"
    with pytest.raises(ConfigError) as caught:
        load(path, {})
    assert caught.value.source == str(path)
    text = str(caught.value)
    assert "$MCPD_CONFIG" in text
    assert "/etc/mcpd/mcpd.json" in text
    assert f'write {{"mcpServers": {{}}}} to {path}' in text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{}".encode("utf-16"), "this is UTF-16: save the file as UTF-8"),
        (b"{\n\xff}", "line 2 is not UTF-8: save the file as UTF-8"),
        (b" " * (4 * 1024 * 1024 + 1), "larger than 4096 KiB: this is not a configuration"),
    ],
    ids=["utf-16", "latin-1", "huge"],
)
def test_a_file_that_is_no_text_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "mcpd.json"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load(path, {})
    assert [fault.message for fault in caught.value.faults] == [message]
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        load(tmp_path, {})


def test_the_directory_of_a_server_begins_at_the_configurations() -> None:
    wanted = {"sub": "/etc/mcpd/sub", "..": "/etc/mcpd/..", "/srv": "/srv"}
    entries = {f"s{at}": {"command": "x", "cwd": cwd} for at, cwd in enumerate(wanted)} | {
        "s": {"command": "x"}
    }
    config = parse(json.dumps({"mcpServers": entries}), source="/etc/mcpd/mcpd.json", environ={})
    assert [server.cwd for server in config.mcp_servers.values()] == [*wanted.values(), None]


def test_a_pipe_that_nobody_writes_into_is_not_waited_for_and_one_with_a_writer_is_read(tmp_path: Path) -> None:
    os.mkfifo(path := tmp_path / "mcpd.json", 0o600)
    with pytest.raises(ConfigError):
        load(path, {})
    # As long as one end is open, what was written stays in it.
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    path.write_text('{"mcpServers": {}}')
    assert load(path, {}).mcp_servers == {}
    os.close(reader)


INPUTS = 300
MUTATIONS = 9


def test_any_file_ends_in_a_configuration_or_in_faults_with_a_place_and_without_a_secret() -> None:
    for each in malformed(MUTATIONS, CONFIGS, INPUTS):
        a_config(each.data)


@cases("text")
def test_what_is_said_of_half_a_character_can_be_written(text: str) -> None:
    faults = faults_in_text(text)
    assert faults
    for path, message in faults:
        assert (path + message).encode()
