"""Compiled schemas: every dialect that servers use, nothing fetched, nothing that takes long."""

from __future__ import annotations

from typing import Any

import pytest

from daemon.arguments.validators import MAX_COMPILED, MAX_ERRORS, Validator, Validators
from tests.catalog.samples import tool

DRAFT_7 = "http://json-schema.org/draft-07/schema#"
DRAFT_2020 = "https://json-schema.org/draft/2020-12/schema"


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"properties": {"a": {"type": "string"}}}, {"a": "x"}, {"a": 1}),
        (
            {
                "$schema": DRAFT_7,
                "properties": {"a": {"$ref": "#/$defs/d"}},
                "$defs": {"d": {"type": "string"}},
            },
            {"a": "x"},
            {"a": 1},
        ),
        (
            {"$schema": DRAFT_7, "properties": {"a": {"items": [{"type": "string"}]}}},
            {"a": ["x", 1]},
            {"a": [1]},
        ),
        (
            {"$schema": DRAFT_2020, "properties": {"a": {"prefixItems": [{"type": "string"}]}}},
            {"a": ["x", 1]},
            {"a": [1]},
        ),
        (
            {
                "$defs": {"n": {"properties": {"next": {"$ref": "#/$defs/n"}, "v": {"type": "integer"}}}},
                "$ref": "#/$defs/n",
            },
            {"next": {"next": {"v": 1}}},
            {"next": {"next": {"v": "x"}}},
        ),
        (
            {
                "properties": {
                    "a": {"properties": {"$and": {"type": "string"}}},
                    "b": {"$ref": "#/properties/a/properties/$and"},
                }
            },
            {"b": "x"},
            {"b": 1},
        ),
        ({"properties": {"a": {"type": ["string", "null"]}}}, {"a": None}, {"a": 1}),
        ({"properties": {"a": {"const": 1}, "b": {"enum": ["x"]}}}, {"a": 1, "b": "x"}, {"b": "y"}),
        ({"propertyNames": {"maxLength": 2}}, {"ab": 1}, {"abc": 1}),
        ({"properties": {"a": {"type": "string", "format": "email"}}}, {"a": "no address"}, {"a": 1}),
    ],
)
def test_each_dialect_and_keyword_is_understood(
    schema: dict[str, Any], good: dict[str, Any], bad: dict[str, Any]
) -> None:
    validator = Validator(schema)
    assert validator.accepts(good)
    assert not validator.accepts(bad)
    assert list(validator.errors(bad))


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": []},
        {"type": "object", "$ref": "http://127.0.0.1:9/x"},
        {"type": "object", "properties": {"a": {"$ref": "file:///etc/hostname"}}},
        {"type": "object", "$schema": "https://example.com/mine"},
        {"type": "object", "properties": {"a": {"$ref": "#/nowhere"}}},
        {"type": "object", "properties": {"a": {"pattern": "(?=lookahead)"}}},
    ],
)
def test_a_schema_that_is_broken_or_needs_others_is_none(schema: dict[str, Any]) -> None:
    assert Validators().of(tool("s", "t", inputSchema=schema)) is None


def test_a_hostile_pattern_takes_no_time() -> None:
    validator = Validator({"properties": {"a": {"pattern": "^(a+)+$"}}})
    assert not validator.accepts({"a": "a" * 50_000 + "!"})


@pytest.mark.parametrize("value", [{"a": 2**200}, {"a": "\ud800"}, {1: 2}])
def test_a_value_that_the_validator_cannot_take_is_left_to_the_server(value: Any) -> None:
    validator = Validator({"properties": {"a": {"type": ["integer", "number", "string"]}}})
    assert validator.accepts(value)
    assert list(validator.errors(value)) == []


def test_no_more_errors_are_looked_at_than_anybody_reads() -> None:
    validator = Validator({"properties": {"a": {"items": {"type": "string"}}}})
    assert len(list(validator.errors({"a": [1] * 10_000}))) == MAX_ERRORS


def test_what_was_used_last_is_kept() -> None:
    validators = Validators()
    first = tool("s", "t0")
    kept = validators.of(first)
    for number in range(1, MAX_COMPILED):
        validators.of(tool("s", f"t{number}"))
    assert validators.of(first) is kept
    validators.of(tool("s", "one_more"))
    assert validators.of(first) is kept
    assert len(validators._kept) == MAX_COMPILED
