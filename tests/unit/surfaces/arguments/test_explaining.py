"""What is said of arguments in no reading: enough to mend them, and nothing of what they hold."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from daemon.surfaces.explaining import MAX_FAULTS, MAX_MESSAGE, MAX_SCHEMA, refusal
from daemon.surfaces.validators import Validator

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


@pytest.mark.parametrize(
    ("literal", "path", "message"),
    [
        ({}, "$", '"path" is a required property'),
        ({"path": 5}, "$.path", 'this is not of type "string"'),
        ({"path": "x", "mode": "raed"}, "$.mode", 'this is not one of "read" or "write"'),
        ({"path": "x", "pth": 1}, "$", "there is no 'pth': did you mean 'path'?"),
        ({"path": "x", "zzz": 1}, "$", "there is no 'zzz': known are path, mode, where, tag"),
        ({"path": "x", "where": {"lin": 1}}, "$.where", "there is no 'lin': did you mean 'line'?"),
        ({"path": "x", "where": {"line": "1"}}, "$.where.line", 'this is not of type "integer"'),
        ([1], "$", "an object is expected, not an array"),
        ("x", "$", "an object is expected, not a string that holds no object"),
        (True, "$", "an object is expected, not a boolean"),
        (5, "$", "an object is expected, not a number"),
        (None, "$", "this cannot be read as JSON"),
    ],
)
def test_each_fault_is_told_with_its_place(literal: object, path: str, message: str) -> None:
    error = told(literal)
    assert {"path": path, "message": message} in error.details["faults"]
    assert f"at {path}: {message}" in error.message


def test_a_misspelt_member_is_found_where_the_schema_is_lenient() -> None:
    lenient = {"type": "object", "properties": {"repo_path": {"type": "string"}}, "required": ["repo_path"]}
    assert "there is no 'repopath': did you mean 'repo_path'?" in told({"repopath": "x"}, lenient).message


def test_what_stands_beside_is_named() -> None:
    assert "at $: 'extra' stands next to the arguments" in told({"path": "x"}, beside=("extra",)).message


def test_the_text_ends_with_a_call_that_fits_and_keeps_what_was_right() -> None:
    error = told({"path": "kept", "mode": "wrong"})
    assert error.details["example"] == {"name": "read", "args": {"path": "kept"}}
    assert error.message.endswith('Call it like this: {"name":"read","args":{"path":"kept"}}')


def test_without_a_schema_the_example_is_empty() -> None:
    error = refusal("read", None, [1], [], None)
    assert error.details["example"] == {}
    assert "schema" not in error.details


@pytest.mark.parametrize(
    "literal",
    [
        {"path": [CANARY]},
        {"path": "x", "mode": CANARY},
        {"path": "x", "tag": CANARY},
        {"path": "x", "other": CANARY},
        {"path": "x", "where": {"line": CANARY}},
        {"path": "x", "where": CANARY},
        [CANARY],
        CANARY,
    ],
)
def test_what_was_wrong_is_never_repeated(literal: object) -> None:
    error = told(literal)
    assert CANARY not in error.message
    assert CANARY not in msgspec.json.encode(error.details).decode()


def test_faults_and_texts_are_bounded() -> None:
    error = told({"path": 1, **{f"{'x' * 1000}{number}": 1 for number in range(100)}})
    assert len(error.details["faults"]) == MAX_FAULTS
    assert all(len(fault["message"]) <= MAX_MESSAGE for fault in error.details["faults"])
    assert len(error.message) < 2000


def test_only_the_part_of_the_schema_that_matters_is_shown_references_followed() -> None:
    part = told({"path": "x", "where": {"line": "1"}}).details["schema"]
    shown = msgspec.json.decode(msgspec.json.encode(part))
    assert list(shown["properties"]) == ["where", "path"]
    assert shown["properties"]["where"]["properties"] == {"line": {"type": "integer"}}
    assert shown["required"] == ["path"]


def test_a_long_part_of_a_schema_is_cut() -> None:
    long = {f"p{number}": {"type": "string", "description": "x" * 1000} for number in range(20)}
    error = told({}, {"type": "object", "properties": long, "required": list(long)})
    assert len(msgspec.json.encode(error.details["schema"])) < MAX_SCHEMA + 500
