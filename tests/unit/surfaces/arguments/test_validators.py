"""Compiled schemas: every dialect that servers use, nothing fetched, nothing that takes long."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.surfaces.validators import (
    MAX_COMPILED,
    MAX_COUNTED,
    MAX_DEPTH,
    MAX_ERRORS,
    MAX_WORK,
    PATTERN_VISITS,
    QUICK_DEPTH,
    TOO_MUCH,
    Extent,
    Validator,
    Validators,
    Work,
    extent,
)
from tests.unit.catalog.samples import tool

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


def nested(levels: int) -> dict[str, Any]:
    """An object that holds an object, and so on."""
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"c": value}
    return value


def laughs(levels: int, times: int, keyword: str = "allOf") -> dict[str, Any]:
    """Definitions of which each offers the next one several times."""
    chain = {f"d{n}": {keyword: [{"$ref": f"#/$defs/d{n + 1}"}] * times} for n in range(levels)}
    return {"$defs": {**chain, f"d{levels}": {"type": "object"}}, "$ref": "#/$defs/d0"}


@pytest.mark.parametrize(
    ("value", "size"),
    [
        (5, Extent(0, 1, 0)),
        ("text", Extent(0, 1, 4)),
        ({}, Extent(0, 1, 0)),
        ([1, [2, "ab"], {"a": "c"}], Extent(2, 7, 3)),
    ],
)
def test_a_value_is_measured(value: object, size: Extent) -> None:
    assert extent(value) == size


@pytest.mark.parametrize(
    ("schema", "value", "visits"),
    [
        ({}, 1, 1),
        ({"type": "string"}, 1, 1),
        ({"anyOf": [{}, {}]}, 1, 3),
        ({"not": {}, "if": {}, "then": {}, "else": {}}, 1, 5),
        ({"enum": [1, 2]}, 1, 3),
        ({"required": ["a", "b"]}, 1, 3),
        ({"pattern": "x"}, "abcd", (1 + PATTERN_VISITS) * 2),
        ({"pattern": "x"}, "abc", 1 + PATTERN_VISITS),
        # Of the properties only the one that takes longest: a value is one of them.
        ({"properties": {"a": {}, "b": {"anyOf": [{}, {}]}}}, {"a": 1}, (1 + 3) * 2),
        ({"patternProperties": {"x": {}, "y": {}}}, {"a": 1}, (1 + 2 * PATTERN_VISITS + 2) * 2),
        ({"items": {"anyOf": [{}, {}]}}, [1, 2], (1 + 3) * 3),
        ({"$defs": {"d": {"enum": [1, 2, 3]}}, "$ref": "#/$defs/d"}, 1, 1 + 4),
        ({"dependentSchemas": {"a": {}}, "dependencies": {"b": ["c"]}}, 1, 3),
    ],
)
def test_visits_are_counted(schema: dict[str, Any], value: object, visits: int) -> None:
    assert Work(schema).of(value) == visits


@pytest.mark.parametrize("keyword", ["allOf", "anyOf", "oneOf"])
def test_options_that_refer_to_each_other_twice_are_counted_as_often_as_they_are_tried(keyword: str) -> None:
    assert Work(laughs(3, 2, keyword)).of({}) >= 2**3
    assert Work(laughs(20, 2, keyword)).of({}) >= 2**20
    assert Work(laughs(20, 1, keyword)).of({}) < 200


def test_recursion_costs_what_it_costs_the_validator() -> None:
    twice = Work({"properties": {"c": {"anyOf": [{"$ref": "#"}, {"allOf": [{"$ref": "#"}]}]}}})
    assert twice.of(nested(20)) > 2**20
    assert twice.of(nested(2)) < 200
    plain = {
        "properties": {"and": {"items": {"$ref": "#"}}, "or": {"items": {"$ref": "#"}}, "c": {"$ref": "#"}}
    }
    assert Work(plain).of(nested(MAX_DEPTH)) < 10 * MAX_DEPTH * MAX_DEPTH
    assert Work({}).of(nested(MAX_DEPTH)) < TOO_MUCH
    assert Work({}).of(nested(MAX_DEPTH + 1)) == TOO_MUCH
    named = {"properties": {"id": {"type": "string"}, "$ref": {"type": "string"}}}
    assert Work(named).of({"id": 1}) < TOO_MUCH


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"allOf": [{"$ref": "#"}]},
        {"$ref": "#name", "$anchor": "name"},
        {"$dynamicRef": "#name"},
        {"properties": {"c": {"$id": "https://example.com/c"}}},
        {"properties": {"c": {"id": "https://example.com/c"}}},
        {"$ref": "#/$defs/d", "$defs": {"d": {"anyOf": 5}}},
        {"$ref": "#/$defs/d", "$defs": {"d": {"enum": 5}}},
        {"$ref": "#/$defs/d", "$defs": {"d": {"properties": 5}}},
        laughs(2000, 1),
        {"anyOf": [{"const": number} for number in range(MAX_COUNTED + 1)]},
    ],
)
def test_what_cannot_be_counted_is_too_much(schema: dict[str, Any]) -> None:
    assert Work(schema).of(nested(1)) == TOO_MUCH


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"required": ["a"]}, {}),
        ({"required": ["a"]}, {"b": "a"}),
        ({}, nested(QUICK_DEPTH)),
        (laughs(levels=20, times=2), {}),
        ({"properties": {"a": {"enum": [*range(1000)]}}}, {"a": "x" * 1000}),
    ],
)
def test_what_is_wrong_deep_or_may_take_long_is_not_proven_from_its_bytes(
    schema: dict[str, Any], value: object
) -> None:
    assert Validator(schema).proven(msgspec.json.encode(value)) is None


@pytest.mark.parametrize("raw", [b"", b"{", b"{} {}", b'{"a":1e999}', b'{"a":"\\ud800"}', b"\xff", b"{" * 9])
def test_what_is_no_json_is_not_proven(raw: bytes) -> None:
    assert Validator({}).proven(raw) is None


VALUES = st.recursive(
    st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=12,
)


@given(
    VALUES,
    st.sampled_from(
        [
            {"type": "object"},
            {"properties": {"a": {"type": "string", "pattern": "^x*$"}}, "additionalProperties": False},
            {"$defs": {"n": {"properties": {"a": {"$ref": "#/$defs/n"}}}}, "$ref": "#/$defs/n"},
            laughs(levels=9, times=2),
        ]
    ),
    st.sampled_from([0, 2]),
)
def test_what_is_proven_from_its_bytes_took_little_work_and_is_right(
    value: object, schema: dict[str, Any], indent: int
) -> None:
    raw = msgspec.json.format(msgspec.json.encode(value), indent=indent)
    proven = Validator(schema).proven(raw)
    if proven is not None:
        assert proven == value
        assert Work(schema).of(value) <= MAX_WORK
        assert Validator(schema).proves(value)


def test_long_strings_are_work_for_a_verdict_and_none_for_telling_what_is_wrong() -> None:
    work = Work({"properties": {"a": {"type": "string"}}})
    assert work.of({"a": "x" * 4000}) > 100 * work.of_telling({"a": "x" * 4000})
    assert work.of_telling({"a": "x" * 4000}) == work.of_telling({"a": "x"})
