"""Types are read strictly, times and sizes as people write them, and the JSON Schema says the same."""

import json
import math
import pwd
import re
from pathlib import Path
from typing import Any

import attrs
import jsonschema  # type: ignore[import-untyped]
import pytest

from daemon.config import client_keys, config_model, tuning
from daemon.config.config_model import Config, Instance, Server
from daemon.config.schema import json_schema, render
from daemon.config.structure import keys, read, unknown_key
from daemon.config.tuning import OrText, Rule
from daemon.errors import Fault
from daemon.kit.wording import camel
from daemon.surfaces.table import SURFACES
from tests.unit.cases import cases
from tests.unit.config.reading import config_of, faults_in, server_of


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
    assert (rule["match"], rule["then"]) == ("s/t", config_model.Permission.ASK)
    assert rule["annotations"]["destructive"] is True
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


SHIPPED = Path(__file__).parents[3] / "config" / "mcpd.schema.json"
NOT_IN_FILES = {OrText, Rule, Config, Fault, Instance}
CLASSES = [
    value
    for module in (config_model, tuning)
    for value in vars(module).values()
    if isinstance(value, type) and attrs.has(value) and value not in NOT_IN_FILES
]


SCHEMA = json_schema(list(SURFACES))
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def accepts(value: object) -> bool:
    return bool(VALIDATOR.is_valid(value))


def test_the_shipped_schema_is_current() -> None:
    assert SHIPPED.read_text(encoding="utf-8") == render(list(SURFACES)), "run: make reference"


def test_the_schema_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("cls", CLASSES)
def test_every_class_of_the_model_is_described_key_by_key(cls: type) -> None:
    definition = SCHEMA["$defs"][cls.__name__]
    of_clients = [key for meant in client_keys.table().server for key in meant.keys if key not in keys(cls)]
    assert list(definition["properties"]) == keys(cls) + (of_clients if cls is Server else [])
    assert all(entry["description"] for entry in definition["properties"].values())
    assert definition["additionalProperties"] is False
    assert definition["description"]


def test_defaults_and_bounds_are_those_of_the_model() -> None:
    definitions = SCHEMA["$defs"]
    call = definitions["Timeouts"]["properties"]["call"]
    number, text = call["anyOf"]
    assert (call["default"], number, text["type"]) == (60, {"type": "number", "exclusiveMinimum": 0}, "string")
    memory = definitions["ServerLimits"]["properties"]["memoryBytes"]
    assert memory["anyOf"][0] == {"type": "integer", "minimum": 1}
    assert (memory["anyOf"][2], memory["default"]) == ({"type": "null"}, None)
    assert definitions["Profile"]["properties"]["surface"]["default"] == "auto"
    assert definitions["Summaries"]["required"] == ["baseUrl", "model"]
    assert "default" not in definitions["Server"]["properties"]["type"]


@cases("config")
def test_what_the_schema_refuses_the_reader_refuses(config: dict[str, Any]) -> None:
    assert not accepts(config)
    assert faults_in(config)


@cases("config")
def test_what_the_reader_accepts_the_schema_accepts(config: dict[str, Any]) -> None:
    assert accepts(config)
    assert faults_in(config) == []


@cases("text", "seconds")
def test_a_time_has_a_unit(text: str, seconds: float) -> None:
    assert tuning.seconds(text) == seconds


def test_a_size_has_a_unit() -> None:
    sizes = {"16k": 16_384, "2GB": 2 * 10**9, "2GiB": 2**31, "512MiB": 2**29, "512 MB": 512 * 10**6}
    for text, size in {**sizes, "1.5m": 3 * 2**19, "999999T": 999_999 * 2**40}.items():
        assert re.fullmatch(tuning.SIZE, text)
        assert tuning.size(text) == size < 2**63


def test_all_of_them_are_understood_in_a_configuration() -> None:
    me = pwd.getpwuid(0)
    config = config_of({"listen": {"uids": [me.pw_name, 4711]}, "limits": {"clientMessageBytes": "1MiB"}})
    assert config.listen.uids == (0, 4711)
    assert config.limits.client_message_bytes == 2**20
    server = server_of(
        {
            "command": "x",
            "timeouts": {"call": "2m", "callMax": "off", "pingInterval": "off", "stopTerm": "500ms"},
            "restart": {"cap": "5m"},
            "limits": {"memoryBytes": "2GB"},
        }
    )
    assert (server.timeouts.call, server.timeouts.call_max) == (120, math.inf)
    assert (server.timeouts.stop_term, server.restart.cap, server.limits.memory_bytes) == (0.5, 300, 2 * 10**9)
