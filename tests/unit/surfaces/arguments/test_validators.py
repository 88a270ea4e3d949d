"""Compiled schemas: every dialect that servers use, nothing fetched, nothing that takes long."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.surfaces import validators
from tests.unit.cases import cases
from tests.unit.catalog.samples import tool
from tests.unit.json_values import json_values


@cases("schema", "good", "bad")
def test_each_dialect_and_keyword_is_understood(
    schema: dict[str, Any], good: dict[str, Any], bad: dict[str, Any]
) -> None:
    validator = validators.Validator(schema)
    assert validator.accepts(good)
    assert not validator.accepts(bad)
    assert list(validator.errors(bad))


@cases("schema")
def test_a_schema_that_is_broken_or_needs_others_is_none(schema: dict[str, Any]) -> None:
    assert validators.validator_of(tool("s", "t", inputSchema=schema)) is None


def test_a_hostile_pattern_takes_no_time() -> None:
    validator = validators.Validator({"properties": {"a": {"pattern": "^(a+)+$"}}})
    assert not validator.accepts({"a": "a" * 50_000 + "!"})


@pytest.mark.parametrize("value", [{"a": 2**200}, {"a": "\ud800"}, {1: 2}])
def test_a_value_that_the_validator_cannot_take_is_left_to_the_server(value: Any) -> None:
    validator = validators.Validator({"properties": {"a": {"type": ["integer", "number", "string"]}}})
    assert validator.accepts(value)
    assert list(validator.errors(value)) == []


def test_what_was_used_last_is_kept() -> None:
    tools = [tool("s", "t", inputSchema={"title": str(at)}) for at in range(validators.MAX_COMPILED + 1)]
    kept = validators.validator_of(tools[0])
    for each in tools[1:-1]:
        validators.validator_of(each)
    assert validators.validator_of(tools[0]) is kept
    validators.validator_of(tools[-1])
    assert validators.validator_of(tools[0]) is kept
    assert validators._compiled.cache_info().currsize == validators.MAX_COMPILED


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


@cases("schema", "value", "visits")
def test_visits_are_counted(schema: dict[str, Any], value: object, visits: int) -> None:
    assert validators.Work(schema).of(value) == visits


@pytest.mark.parametrize("keyword", ["allOf", "anyOf", "oneOf"])
def test_options_that_refer_to_each_other_twice_are_counted_as_often_as_they_are_tried(keyword: str) -> None:
    assert validators.Work(laughs(3, 2, keyword)).of({}) >= 2**3
    assert validators.Work(laughs(20, 2, keyword)).of({}) >= 2**20
    assert validators.Work(laughs(20, 1, keyword)).of({}) < 200


def test_recursion_costs_what_it_costs_the_validator() -> None:
    twice = validators.Work({"properties": {"c": {"anyOf": [{"$ref": "#"}, {"allOf": [{"$ref": "#"}]}]}}})
    assert twice.of(nested(20)) > 2**20
    assert twice.of(nested(2)) < 200
    plain = {
        "properties": {"and": {"items": {"$ref": "#"}}, "or": {"items": {"$ref": "#"}}, "c": {"$ref": "#"}}
    }
    assert (
        validators.Work(plain).of(nested(validators.MAX_DEPTH))
        < 10 * validators.MAX_DEPTH * validators.MAX_DEPTH
    )
    assert validators.Work({}).of(nested(validators.MAX_DEPTH)) < validators.TOO_MUCH
    assert validators.Work({}).of(nested(validators.MAX_DEPTH + 1)) == validators.TOO_MUCH
    named = {"properties": {"id": {"type": "string"}, "$ref": {"type": "string"}}}
    assert validators.Work(named).of({"id": 1}) < validators.TOO_MUCH


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
        {"anyOf": [{"const": number} for number in range(validators.MAX_COUNTED + 1)]},
    ],
)
def test_what_cannot_be_counted_is_too_much(schema: dict[str, Any]) -> None:
    assert validators.Work(schema).of(nested(1)) == validators.TOO_MUCH


@pytest.mark.parametrize("raw", [b"", b"{", b"{} {}", b'{"a":1e999}', b'{"a":"\\ud800"}', b"\xff", b"{" * 9])
def test_what_is_no_json_is_not_proven(raw: bytes) -> None:
    assert validators.Validator({}).proven(raw) is None


VALUES = json_values(keys=st.sampled_from("abc"), leaves=12)


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
    proven = validators.Validator(schema).proven(raw)
    if proven is not None:
        assert proven == value
        assert validators.Work(schema).of(value) <= validators.MAX_WORK
        assert validators.Validator(schema).proves(value)


def test_long_strings_are_work_for_a_verdict_and_none_for_telling_what_is_wrong() -> None:
    work = validators.Work({"properties": {"a": {"type": "string"}}})
    assert work.of({"a": "x" * 4000}) > 100 * work.of({"a": "x" * 4000}, telling=True)
    assert work.of({"a": "x" * 4000}, telling=True) == work.of({"a": "x"}, telling=True)
