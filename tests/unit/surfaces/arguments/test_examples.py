"""Examples made up from schemas: they fit, and making one never fails."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from daemon.surfaces.explaining import MAX_ITEMS, MAX_TEXT, example_of
from daemon.surfaces.validators import Validator


def required(**properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        required(a={"type": "string"}, b={"type": "integer"}, c={"type": "boolean"}, d={"type": "null"}),
        required(a={"enum": ["x", "y"]}, b={"const": 5}, c={"type": "string", "default": "z"}),
        required(a={"examples": ["one"], "type": "string"}),
        required(a={"type": "integer", "minimum": 10}, b={"type": "number", "exclusiveMinimum": 1}),
        required(a={"type": "integer", "maximum": -3}, b={"type": "integer", "exclusiveMaximum": 0}),
        required(
            a={"type": "string", "minLength": 20},
            b={"type": "array", "minItems": 2, "items": {"type": "integer"}},
        ),
        required(a={"anyOf": [{"type": "null"}, {"type": "integer"}]}, b={"oneOf": [{"type": "string"}]}),
        required(a={"allOf": [required(x={"type": "string"})]}),
        required(a=required(b=required(c={"type": "array", "items": {"type": "string"}}))),
        {**required(a={"$ref": "#/$defs/d"}), "$defs": {"d": required(e={"type": "string"})}},
        required(a={"type": ["null", "string"]}, b={"properties": {"x": {}}}, c={"items": {"type": "string"}}),
    ],
)
def test_an_example_fits_its_schema(schema: dict[str, Any]) -> None:
    assert Validator(schema).accepts(example_of(schema)), example_of(schema)


def test_only_what_is_required_is_shown() -> None:
    assert example_of(
        {"type": "object", "properties": {"a": {}, "b": {"type": "string"}}, "required": ["b"]}
    ) == {"b": "text"}


def test_a_schema_that_holds_itself_ends() -> None:
    node = required(next={"$ref": "#"})
    assert "next" in str(example_of(node))


def test_long_things_are_kept_short() -> None:
    example = example_of(required(a={"type": "string", "minLength": 10**9}, b={"items": {}, "minItems": 10**9}))
    assert isinstance(example, dict)
    assert len(example["a"]) == MAX_TEXT
    assert len(example["b"]) == MAX_ITEMS


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "type",
                    "properties",
                    "required",
                    "anyOf",
                    "allOf",
                    "items",
                    "$ref",
                    "enum",
                    "minItems",
                    "minLength",
                    "x",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(JSON)
@example({"type": "string", "minLength": -(2**63) - 1})
def test_whatever_stands_in_a_schema_an_example_is_made(schema: object) -> None:
    example_of(schema)
