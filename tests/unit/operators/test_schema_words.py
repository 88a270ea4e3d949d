"""Schemas in words: each keyword that servers use, references, and schemas that hold themselves."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.operators.schema_words import MAX_DEPTH, MAX_LINES, arguments_of
from tests.unit.cases import cases


@cases("schema", "words")
def test_a_schema_is_told_in_words(schema: object, words: str) -> None:
    root = {"$defs": {"x": {"type": "integer"}, "self": {"$ref": "#/$defs/self"}}}
    assert arguments_of({**root, "properties": {"it": schema}})[0].kind == words


def test_required_arguments_come_first_and_members_below_their_object() -> None:
    point = {"type": "object", "properties": {"x": {"type": "number"}, "y": {}}, "required": ["y"]}
    schema = {
        "type": "object",
        "properties": {
            "note": {"type": "string", "description": "What\n it is", "default": "-"},
            "points": {"type": "array", "items": {"$ref": "#/$defs/point"}},
        },
        "required": ["points"],
        "$defs": {"point": point},
    }
    found = [(each.depth, each.name, each.kind, each.required, each.about) for each in arguments_of(schema)]
    assert found == [
        (0, "points", "list of objects", True, ""),
        (1, "y", "anything", True, ""),
        (1, "x", "number", False, ""),
        (0, "note", 'text; default "-"', False, "What it is"),
    ]


def test_members_are_told_to_a_bounded_depth() -> None:
    nested: dict[str, Any] = {}
    for _ in range(2 * MAX_DEPTH):
        nested = {"properties": {"it": nested}}
    assert [each.depth for each in arguments_of(nested)] == [*range(MAX_DEPTH + 1)]


def test_a_schema_that_holds_itself_ends() -> None:
    node: dict[str, Any] = {"properties": {str(n): {"$ref": "#"} for n in range(9)}}
    assert len(arguments_of(node)) == MAX_LINES


@pytest.mark.parametrize("key", ["allOf", "anyOf", "oneOf"])
def test_alternatives_that_hold_themselves_end(key: str) -> None:
    schema: dict[str, Any] = {key: [{"$ref": "#"}] * 100, "properties": {"a": {"$ref": "#"}}}
    assert 0 < len(arguments_of(schema)) <= MAX_LINES
    assert arguments_of({key: [{"$ref": "#"}] * 100}) == []
    assert arguments_of({"properties": {"it": schema}})[0].kind


def test_alternatives_are_all_told() -> None:
    schema = {"oneOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}], "properties": {"c": {}}}
    assert [each.name for each in arguments_of(schema)] == ["c", "a", "b"]


KEYS = st.sampled_from(
    ["type", "properties", "items", "anyOf", "allOf", "enum", "required", "$ref", "default", "minimum"]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.sampled_from(["object", "array", "#"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=15,
)


@given(schema=VALUES)
def test_whatever_a_server_calls_a_schema_is_told_somehow(schema: object) -> None:
    assert arguments_of({"properties": {"it": schema}})[0].kind
    assert all(each.kind for each in arguments_of(schema))
