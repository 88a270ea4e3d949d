"""How much work a validation is, known before it is begun."""

from __future__ import annotations

from typing import Any

import pytest

from daemon.arguments.work import MAX_COUNTED, MAX_DEPTH, PATTERN_VISITS, TOO_MUCH, Extent, Work, extent


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


def test_a_recursive_option_that_is_offered_twice_doubles_with_each_level_of_the_value() -> None:
    node = {"properties": {"c": {"anyOf": [{"$ref": "#"}, {"allOf": [{"$ref": "#"}]}]}}}
    work = Work(node)
    assert work.of(nested(20)) > 2**20
    assert work.of(nested(2)) < 200


def test_plain_recursion_costs_as_much_as_the_value_is_deep() -> None:
    node = {"properties": {"and": {"items": {"$ref": "#"}}, "or": {"items": {"$ref": "#"}}, "c": {"$ref": "#"}}}
    assert Work(node).of(nested(MAX_DEPTH)) < 10 * MAX_DEPTH * MAX_DEPTH


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


def test_a_value_nested_very_deeply_is_too_much() -> None:
    assert Work({}).of(nested(MAX_DEPTH)) < TOO_MUCH
    assert Work({}).of(nested(MAX_DEPTH + 1)) == TOO_MUCH


def test_a_property_called_like_a_keyword_is_a_property() -> None:
    assert Work({"properties": {"id": {"type": "string"}, "$ref": {"type": "string"}}}).of({"id": 1}) < TOO_MUCH


def test_long_strings_are_work_for_a_verdict_and_none_for_telling_what_is_wrong() -> None:
    work = Work({"properties": {"a": {"type": "string"}}})
    assert work.of({"a": "x" * 4000}) > 100 * work.of_telling({"a": "x" * 4000})
    assert work.of_telling({"a": "x" * 4000}) == work.of_telling({"a": "x"})
