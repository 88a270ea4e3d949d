"""From a file to a configuration or to all of its faults, and from one configuration to the next."""

import json
import os
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.config.config_model import Config, Override, Server, TransportType
from daemon.config.lock_file import Lock
from daemon.config.parse import APPLIED, FIXED, Plan, in_force, load, load_with_notes, parse, plan, same
from daemon.errors import ConfigError
from tests.fuzz.mutation import CONFIGS, malformed
from tests.fuzz.oracles import a_config
from tests.unit.cases import cases
from tests.unit.config.reading import config_of, faults_in_text

SEED = Path(__file__).parent / "cases" / "serena_module.json"


def test_the_example_of_the_specification_is_read() -> None:
    config = parse(SEED.read_text(), source="serena-module.json", environ={})
    server, category = config.mcp_servers["serena"], config.categories["fs"]
    assert (server.name, server.type, server.command) == ("serena", TransportType.STDIO, "npx")
    assert server.args == ("-y", "@org/serena-mcp@latest")
    assert (category.name, category.server) == ("fs", "serena")
    assert category.tools.overrides["mcp__serena__execute_shell_command"] == Override(enabled=False)


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


SERVERS = ("added", "removed", "enabled", "disabled", "restarted", "changed", "kept")


def servers(**entries: Any) -> Config:
    return config_of({"mcpServers": entries})


def fates(old: Config, new: Config) -> dict[str, str]:
    """Each server's fate; that it has exactly one is part of what is tested."""
    made = plan(old, new)
    told = [(name, fate) for fate in SERVERS for name in getattr(made, fate)]
    assert len(dict(told)) == len(told)
    return dict(told)


GIT: dict[str, Any] = {"command": "git-server"}


@cases("before", "after", "fate")
def test_a_server_has_the_fate_that_its_change_asks_for(before: Any, after: Any, fate: str) -> None:
    old = servers(**({} if before is None else {"git": before}), other=GIT)
    new = servers(**({} if after is None else {"git": after}), other=GIT)
    assert fates(old, new) == {"git": fate, "other": "kept"}


def test_a_secret_that_is_another_restarts_the_server_and_the_same_from_another_place_does_not() -> None:
    entry = {"mcpServers": {"git": {**GIT, "env": {"T": "${TOKEN}"}}}}
    old, same, new = (config_of(entry, {"TOKEN": token}) for token in ("one-111", "one-111", "two-222"))
    assert fates(old, same) == {"git": "kept"}
    assert fates(old, new) == {"git": "restarted"}
    assert fates(servers(git={**GIT, "env": {"T": "one-111"}}), old) == {"git": "changed"}


@cases("value")
def test_what_the_daemon_was_built_with_is_named_and_stays(value: object) -> None:
    new = config_of(value)
    assert plan(Config(), new) == Plan(needs_restart_of_daemon=FIXED)
    assert in_force(Config(), new) == Config()


@cases("value")
def test_what_is_read_from_the_catalog_counts_at_once(value: object) -> None:
    new = attrs.evolve(config_of(value), lock=Lock())
    assert plan(servers(s=GIT), new) == Plan(sections=APPLIED, kept=("s",))
    assert in_force(servers(s=GIT), new) == new


def test_a_lock_that_cannot_be_used_is_told_at_each_reload() -> None:
    sound, broken = (attrs.evolve(servers(s=GIT), lock=Lock(problem=each)) for each in ("", "it is no lock"))
    told = ("mcpd.lock: it is no lock",)
    assert plan(sound, broken) == Plan(kept=("s",), sections=("lock",), faults=told)
    assert plan(broken, broken) == Plan(kept=("s",), faults=told)
    assert plan(sound, sound) == Plan(kept=("s",))


def test_every_key_of_a_configuration_is_either_applied_or_named() -> None:
    """A key of tomorrow must not be forgotten here."""
    assert {*FIXED, *APPLIED, "mcp_servers", "lock", "script_faults"} == {
        field.name for field in attrs.fields(Config)
    }


def test_a_default_of_sandboxes_restarts_the_servers_that_it_counts_for() -> None:
    old = servers(a=GIT, b={**GIT, "sandbox": "off"})
    new = config_of({"sandbox": "home", "mcpServers": {"a": GIT, "b": {**GIT, "sandbox": "off"}}})
    assert plan(old, new) == Plan(restarted=("a",), kept=("b",), sections=("sandbox",))


ENTRIES = st.builds(
    Server,
    name=st.just(""),
    command=st.sampled_from(["one", "two"]),
    description=st.sampled_from(["", "d"]),
    enabled=st.booleans(),
)
MODELS = st.dictionaries(st.sampled_from("abcdef"), ENTRIES).map(
    lambda found: Config(mcp_servers={name: attrs.evolve(server, name=name) for name, server in found.items()})
)


@given(old=MODELS, new=MODELS)
def test_applying_a_plan_leads_from_any_configuration_to_any_other(old: Config, new: Config) -> None:
    """A model of the tree: what runs, by name, each with what it was built with."""
    made = plan(old, new)
    running = {name: server for name, server in old.mcp_servers.items() if server.enabled}
    for name in (*made.removed, *made.disabled):
        running.pop(name, None)
    started = [*made.enabled, *made.restarted, *(n for n in made.added if new.mcp_servers[n].enabled)]
    running |= {name: new.mcp_servers[name] for name in started}
    wanted = {name: server for name, server in new.mcp_servers.items() if server.enabled}
    assert running.keys() == wanted.keys()
    assert all(running[name].command == server.command for name, server in wanted.items())
    assert set(fates(old, new)) == {*old.mcp_servers, *new.mcp_servers}
    for name in made.kept:
        assert old.mcp_servers[name] == new.mcp_servers[name]
    for name in made.changed:
        assert old.mcp_servers[name].command == new.mcp_servers[name].command or not wanted.get(name)


CONFIG: dict[str, Any] = {
    "mcpServers": {
        "a": {"command": "a", "args": ["-v"], "env": {"X": "1", "Y": "2"}},
        "b": {"url": "https://example.com/mcp", "timeouts": {"call": 5}},
    },
    "categories": {
        "one": {"server": "a", "tools": {"overrides": {"a/t": {"enabled": False}, "a/u": {"enabled": False}}}},
        "two": {"server": "b"},
    },
    "profiles": {"reader": {"categories": ["one"]}},
}


def backwards(value: dict[str, Any], *path: str) -> dict[str, Any]:
    """With the members at a path in the other order."""
    if not path:
        return dict(reversed(value.items()))
    return {**value, path[0]: backwards(value[path[0]], *path[1:])}


@pytest.mark.parametrize(
    "path",
    [("mcpServers",), ("categories",), ("mcpServers", "a", "env"), ("categories", "one", "tools", "overrides")],
)
def test_another_order_is_not_the_same(path: tuple[str, ...]) -> None:
    one, other = config_of(CONFIG), config_of(backwards(CONFIG, *path))
    assert one == other
    assert not same(one, other)


def test_what_was_read_twice_is_the_same_and_with_another_value_anywhere_is_not() -> None:
    one, server = config_of(CONFIG), CONFIG["mcpServers"]["a"]
    assert same(one, config_of(CONFIG))
    for more in ({"description": "other"}, {"args": ["-q"]}, {"env": {"X": "1", "Y": "3"}}, {"enabled": False}):
        servers = {**CONFIG["mcpServers"], "a": {**server, **more}}
        assert not same(one, config_of({**CONFIG, "mcpServers": servers}))
    assert not same(one, config_of({**CONFIG, "lazy": False}))
    assert not same(one, None)
