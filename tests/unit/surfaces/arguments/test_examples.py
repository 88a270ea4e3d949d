"""Examples made up from schemas: they fit, and making one never fails."""

from typing import Any

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from daemon.config.jsonc import resolve
from daemon.surfaces import explaining
from daemon.surfaces.explaining import example_of, refusal
from daemon.surfaces.validators import Validator
from tests.unit.cases import cases
from tests.unit.json_values import json_values


def required(**properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


@cases("schema")
def test_an_example_fits_its_schema(schema: dict[str, Any]) -> None:
    assert Validator(schema).accepts(example_of(schema)), example_of(schema)


def test_long_things_are_kept_short() -> None:
    example = example_of(required(a={"type": "string", "minLength": 10**9}, b={"items": {}, "minItems": 10**9}))
    assert isinstance(example, dict)
    assert len(example["a"]) == explaining.MAX_TEXT
    assert len(example["b"]) == explaining.MAX_ITEMS
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(2 * explaining.MAX_DEPTH):
        deep = required(a=deep)
    assert msgspec.json.encode(example_of(deep)).count(b"{") == explaining.MAX_DEPTH + 1
    many = required(**{f"p{n}": {"type": "boolean"} for n in range(2 * explaining.MAX_VALUES)})
    assert msgspec.json.encode(example_of(many)).count(b"false") == explaining.MAX_VALUES - 1


KEYWORDS = (
    *("type", "properties", "required", "anyOf", "allOf", "items"),
    *("$ref", "enum", "minItems", "minLength", "x"),
)
JSON = json_values(keys=st.sampled_from(KEYWORDS), leaves=12)


@given(JSON)
@example({"type": "string", "minLength": -(2**63) - 1})
def test_whatever_stands_in_a_schema_an_example_is_made(schema: object) -> None:
    example_of(schema)


# --- faults of arguments in words ----------------------------------------------------------------------------


CANARY = "canary-of-a-client-5f2c"

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "description": "where"},
        "mode": {"enum": ["read", "write"]},
        "where": {"$ref": "#/$defs/place"},
        "tag": {"type": "string", "pattern": "^[a-z]$"},
    },
    "required": ["path"],
    "additionalProperties": False,
    "$defs": {
        "place": {"type": "object", "properties": {"line": {"type": "integer"}}, "additionalProperties": False}
    },
}


def told(literal: object, schema: dict[str, Any] | None = None, *, beside: tuple[str, ...] = ()) -> Any:
    validator = Validator(SCHEMA if schema is None else schema)
    return refusal("read", validator, literal, list(beside), lambda args: {"name": "read", "args": args})


@cases("literal", "path", "message")
def test_each_fault_is_told_with_its_place(literal: object, path: str, message: str) -> None:
    error = told(literal)
    assert {"path": path, "message": message} in error.details["faults"]
    assert f"at {path}: {message}" in error.message


def test_the_text_ends_with_a_call_that_fits_and_keeps_what_was_right() -> None:
    error = told({"path": "kept", "mode": "wrong"})
    assert error.details["example"] == {"name": "read", "args": {"path": "kept"}}
    assert error.message.endswith('Call it like this: {"name":"read","args":{"path":"kept"}}')


def test_without_a_schema_the_example_is_empty() -> None:
    error = refusal("read", None, [1], [], None)
    assert error.details["example"] == {}
    assert "schema" not in error.details


@cases("literal")
def test_what_was_wrong_is_never_repeated(literal: object) -> None:
    error = told(literal)
    assert CANARY not in error.message
    assert CANARY not in msgspec.json.encode(error.details).decode()


def test_faults_and_texts_are_bounded() -> None:
    error = told({"path": 1, **{f"{'x' * 1000}{number}": 1 for number in range(100)}})
    assert len(error.details["faults"]) == explaining.MAX_FAULTS
    assert all(len(fault["message"]) <= explaining.MAX_MESSAGE for fault in error.details["faults"])
    assert len(error.message) < 2000


def test_only_the_part_of_the_schema_that_matters_is_shown_references_followed() -> None:
    part = told({"path": "x", "where": {"line": "1"}}).details["schema"]
    shown = msgspec.json.decode(msgspec.json.encode(part))
    assert list(shown["properties"]) == ["where", "path"]
    assert shown["properties"]["where"]["properties"] == {"line": {"type": "integer"}}
    assert shown["required"] == ["path"]


# --- references within a schema (RFC 6901) -------------------------------------------------------------------


ROOT: dict[str, Any] = {
    "$defs": {"a": {"type": "string"}, "b/c": {"x": 1}, "d~e": {"y": 2}, "hop": {"$ref": "#/$defs/a"}},
    "circle": {"$ref": "#/circle"},
    "list": [{"z": 3}],
}


@cases("reference", "found")
def test_a_reference_leads_to_its_place_or_nowhere(reference: object, found: object) -> None:
    assert resolve(ROOT, reference) == found
