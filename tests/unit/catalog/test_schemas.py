"""Short schemas mean what the long ones do."""

from __future__ import annotations

from typing import Any

import jsonschema  # type: ignore[import-untyped]
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.catalog.schemas import compact


def shortened(schema: Any) -> Any:
    return msgspec.json.decode(compact(msgspec.json.encode(schema)))


@pytest.mark.parametrize(
    ("schema", "short"),
    [
        ({"$schema": "x", "type": "object"}, {"type": "object"}),
        ({"type": "object", "properties": {}, "required": []}, {"type": "object"}),
        ({"properties": {"a": {"default": None, "title": ""}}}, {"properties": {"a": {}}}),
        ({"properties": {"$schema": {}, "title": {}}}, {"properties": {"$schema": {}, "title": {}}}),
        ({"$defs": {"d": {"description": ""}}}, {"$defs": {"d": {}}}),
        ({"items": {"$schema": "x", "type": "string"}}, {"items": {"type": "string"}}),
        ({"anyOf": [{"type": "null"}, {"title": ""}]}, {"anyOf": [{"type": "null"}, {}]}),
    ],
)
def test_what_says_nothing_is_left_out(schema: object, short: object) -> None:
    assert shortened(schema) == short


@pytest.mark.parametrize(
    "schema",
    [
        {"const": None},
        {"enum": [None, ""]},
        {"default": {}},
        {"default": ""},
        {"items": {}},
        {"not": {}},
        {"additionalProperties": False},
        {"additionalProperties": {}},
        {"properties": {"required": {"type": "array"}}},
        {"default": {"$schema": None, "title": ""}},
        {"examples": [{"title": ""}]},
        {"type": ["string", "null"]},
        True,
        [],
    ],
)
def test_what_means_something_stays(schema: object) -> None:
    assert shortened(schema) == schema


def test_white_space_goes_and_the_order_stays() -> None:
    assert compact(b'{ "b" : 1,\n "a": [ 1 ] }') == b'{"b":1,"a":[1]}'


def test_a_schema_that_is_nested_too_deeply_comes_back_as_it_is() -> None:
    bomb = b'{"items":' * 5000 + b"{}" + b"}" * 5000
    assert compact(bomb) == bomb


KEYS = st.sampled_from(["a", "b", "title"])
SCHEMAS: st.SearchStrategy[Any] = st.recursive(
    st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["string", "integer", "null", "object", "array"]),
            "title": st.sampled_from(["", "t"]),
            "default": st.none() | st.just({}),
            "required": st.lists(KEYS, unique=True),
        },
    ),
    lambda schemas: st.fixed_dictionaries(
        {},
        optional={
            "properties": st.dictionaries(KEYS, schemas, max_size=3),
            "anyOf": st.lists(schemas, min_size=1, max_size=2),
            "items": schemas,
            "not": schemas,
            "additionalProperties": schemas | st.booleans(),
        },
    ),
    max_leaves=8,
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(["", "x"]),
    lambda values: st.lists(values, max_size=2) | st.dictionaries(KEYS, values, max_size=3),
    max_leaves=6,
)


@given(SCHEMAS, st.lists(VALUES, min_size=3, max_size=3))
def test_a_short_schema_accepts_and_refuses_the_same_values(schema: Any, values: list[Any]) -> None:
    long, short = (jsonschema.Draft202012Validator(each) for each in (schema, shortened(schema)))
    for value in values:
        assert long.is_valid(value) is short.is_valid(value)
