"""Types are read strictly, and reading goes on after a fault."""

import json
from typing import Any

import attrs
import pytest

from daemon.config import config_model
from daemon.config.structure import keys, read, unknown_key
from daemon.errors import Fault
from daemon.kit.wording import camel
from tests.unit.cases import cases


def read_in(section: str, raw: object) -> tuple[Any, dict[str, str]]:
    """The entry `s` of a section, or None, and its faults by path."""
    faults: list[Fault] = []
    config = read(config_model.Config, {camel(section): {"s": raw}}, "$", faults)
    found = {fault.path.replace(f"$.{camel(section)}", "$"): fault.message for fault in faults}
    return getattr(config, section).get("s"), found


def read_server(**entry: Any) -> tuple[config_model.Server | None, dict[str, str]]:
    return read_in("mcp_servers", entry)


@cases("entry", "path", "message")
def test_a_value_that_does_not_fit_is_refused_with_its_path(
    entry: dict[str, Any], path: str, message: str
) -> None:
    assert read_server(**entry)[1] == {path: message}


def test_all_faults_are_found_at_once() -> None:
    entry = {
        "comand": 1,
        "x": 1,
        "args": [1, "a", 2],
        "env": {"A": 1, "B": "b"},
        "timeouts": {"call": 0, "ping": "x"},
    }
    places = ("comand", "x", "args[0]", "args[2]", "env.A", "timeouts.call", "timeouts.ping")
    assert set(read_server(**entry)[1]) == {f"$.s.{each}" for each in places}


def test_what_is_sound_is_read_in_spite_of_faults_beside_it() -> None:
    server, faults = read_server(command="x", args=["a", 1], bogus=1, timeouts={"call": 5, "ping": "x"})
    assert len(faults) == 3
    assert server is not None
    assert (server.name, server.command, server.args) == ("s", "x", ())
    assert (server.timeouts.call, server.timeouts.ping) == (5, 10)


def test_nothing_is_converted() -> None:
    server, faults = read_server(command="3", timeouts={"call": 7, "ping": 7.5}, type="ws", start="lazy")
    assert faults == {}
    assert server is not None
    assert (server.command, server.timeouts.call, server.timeouts.ping) == ("3", 7, 7.5)
    assert server.type is config_model.TransportType.WS
    assert server.start is config_model.StartMode.LAZY


@cases("entry")
def test_every_key_of_a_profile_is_read(entry: dict[str, Any]) -> None:
    profile, faults = read_in("profiles", entry)
    assert (faults, set(entry)) == ({}, set(keys(config_model.Profile)))
    made = {camel(key): value for key, value in attrs.asdict(profile).items() if key != "name"}
    rule, limits = made.pop("permissions")[0], made.pop("limits")
    assert made.pop("scriptLimits")["code_bytes"] == entry["scriptLimits"]["codeBytes"]
    assert made.pop("results")["max_tokens"] == entry["results"]["maxTokens"]
    assert json.loads(json.dumps(made)) == {key: entry[key] for key in made}
    assert (rule["match"], rule["then"], rule["annotations"]["destructive"]) == (
        "s/t",
        config_model.Permission.ASK,
        True,
    )
    assert limits == {"calls_per_minute": 60}


@pytest.mark.parametrize(
    ("raw", "kind"), [([], "a list"), ("x", "text"), (None, "null"), (True, "true or false")]
)
def test_an_entry_that_is_no_object_is_one_fault_and_nothing_to_go_on_with(raw: object, kind: str) -> None:
    made, faults = read_in("categories", raw)
    assert (made, list(faults)) == (None, ["$.s"])
    assert f"expected an object, {{...}}, found {kind}" in faults["$.s"]


def test_no_fault_repeats_a_value_that_could_be_a_secret() -> None:
    _, faults = read_server(env={"T": ["hunter2"]}, headers={"A": {"hunter2": 1}}, url=["hunter2"])
    assert len(faults) == 3
    assert "hunter2" not in str(faults)


@pytest.mark.parametrize(
    ("cls", "key", "text"),
    [
        (config_model.Server, "disabled", "cannot be understood. Understood as `enabled`, the opposite."),
        (config_model.ToolSelection, "exclude", "unknown key 'exclude': write \"excludePatterns\""),
        (config_model.Category, "sever", "unknown key 'sever': did you mean 'server'?"),
    ],
)
def test_an_unknown_key_is_answered_with_ours(cls: type, key: str, text: str) -> None:
    assert unknown_key(cls, key, keys(cls)).endswith(text)
