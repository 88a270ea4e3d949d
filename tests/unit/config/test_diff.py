"""What leads from one configuration to another, and how little of it touches a server."""

from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.config.config_model import Config, Server
from daemon.config.lock_file import Lock
from daemon.config.parse import APPLIED, FIXED, Plan, in_force, plan, same
from tests.unit.cases import cases
from tests.unit.config.reading import config_of

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
CONFIGS = st.dictionaries(st.sampled_from("abcdef"), ENTRIES).map(
    lambda found: Config(mcp_servers={name: attrs.evolve(server, name=name) for name, server in found.items()})
)


@given(old=CONFIGS, new=CONFIGS)
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
