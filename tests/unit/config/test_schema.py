"""The JSON Schema says what the reader does."""

from pathlib import Path
from typing import Any

import attrs
import jsonschema  # type: ignore[import-untyped]
import pytest

from daemon.config import client_keys, config_model, tuning
from daemon.config.config_model import Config, Instance, Server
from daemon.config.schema import json_schema, render
from daemon.config.structure import keys
from daemon.config.tuning import OrText, Rule
from daemon.errors import Fault
from daemon.surfaces.table import SURFACES
from tests.unit.cases import cases
from tests.unit.config.reading import faults_in

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
