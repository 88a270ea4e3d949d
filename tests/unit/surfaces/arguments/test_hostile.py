"""What a server or a client could send to stop the daemon, to end it, or to learn what it should not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from msgspec import Raw

from daemon.errors import InvalidArguments
from daemon.model import Repair
from daemon.surfaces.explaining import MAX_EXAMPLE, MAX_KEPT, MAX_MESSAGE, MAX_SCHEMA, MAX_VALUES, example_of
from daemon.surfaces.validators import MAX_ERRORS, MAX_PATTERNS, Validator, Validators
from daemon.surfaces.wrapped import MAX_CHECKED, Checker, Read
from tests.unit.catalog.samples import tool

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

CANARY = "canary-of-a-client-77aa"

PATH = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}

PANIC = {
    "type": "object",
    "patternProperties": {"^a": {"$anchor": "x", "$id": "http://h/x"}},
    "propertyNames": {"patternProperties": {"^a": {"$id": "http://h/x", "$ref": "#x"}}},
}
"""Two documents of one name, and an anchor in one of them: jsonschema-rs 0.60 panics."""

TWICE: dict[str, Any] = {
    "type": "object",
    "required": ["v"],
    "properties": {"v": {}, "c": {"anyOf": [{"$ref": "#"}, {"allOf": [{"$ref": "#"}]}]}},
}
"""Each level of a value is tried twice: 24 levels would take the validator minutes."""


def nested(levels: int) -> dict[str, Any]:
    """Objects in objects, none of which `TWICE` accepts."""
    value: dict[str, Any] = {"x": 1}
    for _ in range(levels):
        value = {"c": value}
    return value


def read(schema: Mapping[str, Any], args: bytes | None, **beside: bytes) -> Read:
    known = tool("s", "t", inputSchema=schema)
    return Checker().read(known, "t", args, {key: Raw(value) for key, value in beside.items()})


def refused(schema: Mapping[str, Any], args: object) -> InvalidArguments:
    with pytest.raises(InvalidArguments) as caught:
        read(schema, msgspec.json.encode(args))
    return caught.value


@pytest.mark.parametrize(
    "value", [b"1e400", b'"\\ud800"', b"[" * 5000 + b"]" * 5000], ids=["number", "surrogate", "depth"]
)
def test_what_stands_beside_and_cannot_be_decoded_is_refused(value: bytes) -> None:
    with pytest.raises(InvalidArguments, match="'path' stands next to"):
        read(PATH, None, path=value)


@pytest.mark.parametrize("args", [b'"{\\"path\\":1e400}"', b'"\\ud800"', b'"' + b"[" * 9000 + b'"'])
def test_a_string_that_cannot_be_opened_is_refused(args: bytes) -> None:
    with pytest.raises(InvalidArguments):
        read(PATH, args)


def test_null_beside_is_a_value_and_null_in_the_slot_is_nothing() -> None:
    nullable = {"type": "object", "properties": {"path": {"type": ["string", "null"]}}, "required": ["path"]}
    assert read(nullable, b"null", path=b"null") == Read(b'{"path":null}', Repair.FLATTENED)
    assert read({"type": "object"}, b"null") == Read(b"{}", None)


def test_white_space_around_arguments_is_left_where_it_is() -> None:
    for args in (b' {"path":"x"}\n', b' {"path":1e400} '):
        assert read(PATH, args) == Read(args, None)


def test_a_string_is_opened_also_where_its_object_holds_what_nobody_declares() -> None:
    assert read(PATH, msgspec.json.encode('{"path":"x","more":1}')).repair is Repair.STRINGIFIED
    assert read({"type": "object"}, msgspec.json.encode('{"args":{"a":1}}')).arguments == b'{"args":{"a":1}}'


def test_a_string_that_holds_an_empty_object_is_joined_with_what_stands_beside() -> None:
    assert read(PATH, b'"{}"', path=b'"x"') == Read(b'{"path":"x"}', Repair.FLATTENED)


def test_the_faults_of_a_string_are_those_of_its_object() -> None:
    assert "at $.path: " in refused(PATH, '{"path":5}').message


def test_a_member_that_stands_both_inside_and_beside_is_refused() -> None:
    with pytest.raises(InvalidArguments, match="'path' stands next to the arguments"):
        read(PATH, b'{"path":"x"}', path=b'"y"')


def test_what_is_large_is_neither_looked_into_nor_joined() -> None:
    large = msgspec.json.encode({"path": 5, "text": "x" * MAX_CHECKED})
    assert read(PATH, large) == Read(large, None)
    assert read(PATH, msgspec.json.encode(large.decode())) == Read(large, Repair.STRINGIFIED)
    with pytest.raises(InvalidArguments, match='"path" is a required property'):
        read(PATH, None, path=msgspec.json.encode("x" * MAX_CHECKED))


def test_another_schema_is_not_fetched_from_a_file_that_exists(tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_text('{"required":["v"]}')
    for schema in ({"$ref": other.as_uri()}, {"$id": other.as_uri(), "$ref": "other.json#/required"}):
        assert Validators().of(tool("s", "t", inputSchema={"type": "object", **schema})) is None


def test_a_schema_that_makes_the_validator_panic_is_broken() -> None:
    assert Validators().of(tool("s", "t", inputSchema=PANIC)) is None
    assert read(PANIC, b'{"any":1}') == Read(b'{"any":1}', None)


def test_what_would_take_the_validator_minutes_is_passed_on_unvalidated() -> None:
    args = msgspec.json.encode(nested(24))
    assert read(TWICE, args) == Read(args, None)
    assert '"v" is a required property' in refused(TWICE, nested(3)).message


def test_no_repair_is_made_that_cannot_be_validated() -> None:
    validator = Validator(TWICE)
    assert validator.accepts(nested(24))
    assert not validator.proves(nested(24))
    with pytest.raises(InvalidArguments):
        read(TWICE, None, c=msgspec.json.encode(nested(24)), v=b"1")


def test_definitions_that_multiply_each_other_are_not_followed() -> None:
    chain = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)}
    schema = {"type": "object", "$defs": {**chain, "d40": {"required": ["v"]}}, "$ref": "#/$defs/d0"}
    assert read(schema, b'{"a":1}') == Read(b'{"a":1}', None)


def test_errors_are_looked_for_in_the_first_elements_of_a_long_list() -> None:
    validator = Validator({"properties": {"a": {"items": {"type": "string"}, "minItems": 100}}})
    errors = validator.errors({"a": [1] * 30_000})
    assert len(errors) == MAX_ERRORS
    assert {error.kind.name for error in errors} == {"type"}


def test_a_value_of_which_nothing_can_be_told_soon_is_still_refused() -> None:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {"a": {"enum": [f"v{n}" for n in range(20_000)]}},
    }
    assert "at $: this does not fit the schema" in refused(schema, {"a": CANARY}).message
    schema["required"] = ["b"]
    assert 'at $: "b" is a required property' in refused(schema, {"a": CANARY}).message


@pytest.mark.parametrize("patterns", [MAX_PATTERNS, MAX_PATTERNS + 1])
def test_only_so_many_patterns_are_compiled(patterns: int) -> None:
    properties = {f"p{n}": {"pattern": "^a"} for n in range(patterns)}
    compiled = Validators().of(tool("s", "t", inputSchema={"type": "object", "properties": properties}))
    assert (compiled is not None) is (patterns <= MAX_PATTERNS)


def test_a_pattern_that_repeats_repetitions_is_not_compiled() -> None:
    schema = {"type": "object", "properties": {"a": {"pattern": "(a{1,100}){1,40}"}}}
    assert Validators().of(tool("s", "t", inputSchema=schema)) is None


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"prefixItems": [True], "unevaluatedItems": False}, [1, CANARY]),
        ({"prefixItems": [True], "items": False}, [1, CANARY]),
        ({"unevaluatedProperties": False}, {"b": CANARY}),
        ({"uniqueItems": True}, [CANARY, CANARY]),
        ({"contains": {"const": 1}}, [CANARY]),
        ({"not": {"type": "string"}}, CANARY),
        ({"maxLength": 3}, CANARY),
        ({"anyOf": [{"type": "integer"}, {"const": "x"}]}, CANARY),
        ({"anyOf": [{"type": "integer"}, {"pattern": "^x"}, {"maxLength": 3}]}, CANARY),
        ({"oneOf": [{"type": "string"}, {"minLength": 2}]}, CANARY),
        (False, CANARY),
    ],
)
def test_no_keyword_repeats_a_value(schema: object, value: object) -> None:
    error = refused({"type": "object", "properties": {"a": schema}}, {"a": value})
    assert CANARY not in error.message
    assert CANARY not in msgspec.json.encode(error.details).decode()
    assert "at $.a" in error.message


@pytest.mark.parametrize(
    ("options", "value", "message"),
    [
        ([{"type": "string"}, {"type": ["null", "array"]}], 5, "at $.a: this is not of any of the types "),
        ([{"required": ["k"], "type": "object"}, {"type": "null"}], {}, '"k" is a required property'),
        ([{"properties": {"k": {"type": "string"}}}, {"type": "null"}], {"k": 1}, "at $.a.k: this is not of"),
        ([{"required": ["k"]}, {"required": ["l"]}], {}, '"k" is a required property, or "l" is a required'),
    ],
)
def test_of_options_the_one_is_told_that_was_meant(options: list[object], value: object, message: str) -> None:
    assert message in refused({"type": "object", "properties": {"a": {"anyOf": options}}}, {"a": value}).message


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"default": "x" * 200_000}}, "required": ["a"]},
        {"properties": {f"p{n}": {} for n in range(8000)}, "required": [f"p{n}" for n in range(8000)]},
        {"properties": {f"p{n}": {"$ref": "#"} for n in range(500)}, "required": [f"p{n}" for n in range(500)]},
        {"properties": {"a" * 90_000: {}, "b" * 90_000: {}}, "additionalProperties": False, "minProperties": 2},
    ],
)
def test_a_refusal_stays_short_whatever_the_schema(schema: dict[str, Any]) -> None:
    error = refused({"type": "object", **schema}, {"a" * 89_999 + "c": 1})
    assert len(error.message) < 5 * (MAX_MESSAGE + 50) + MAX_EXAMPLE + 500
    assert len(msgspec.json.encode(error.details)) < MAX_SCHEMA * 2 + MAX_EXAMPLE + 2500


def test_a_long_value_that_was_right_is_not_repeated_and_a_short_one_is() -> None:
    schema = {"type": "object", "properties": {"a": {}, "b": {}, "c": {"type": "string"}}}
    error = refused(schema, {"a": "x" * MAX_KEPT, "b": "short", "c": 5})
    assert error.details["example"] == {"b": "short"}


def test_an_example_of_a_schema_that_wants_itself_many_times_ends_soon() -> None:
    schema = {
        "properties": {f"p{n}": {"$ref": "#"} for n in range(50)},
        "required": [f"p{n}" for n in range(50)],
    }
    made = msgspec.json.encode(example_of(schema)).count(b"{")
    assert made <= MAX_VALUES


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"type": "string"}, "b": {}}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
        {"allOf": [{"$ref": "#/$defs/x"}, {"required": ["b"], "properties": {"b": {"type": "integer"}}}]},
        {"properties": {"a": {"type": "integer", "minimum": 0.5}}, "required": ["a"]},
        {"properties": {"a": {"type": "integer", "exclusiveMaximum": -0.5}}, "required": ["a"]},
        {"properties": {"a": {"type": "integer", "exclusiveMinimum": 0.5}}, "required": ["a"]},
        {"properties": {"a": {"type": "string", "maxLength": 2}}, "required": ["a"]},
    ],
)
def test_an_example_fits_what_several_keywords_ask_together(schema: dict[str, Any]) -> None:
    whole = {"type": "object", **schema, "$defs": {"x": {"required": ["a"], "properties": {"a": {"const": 1}}}}}
    assert Validator(whole).proves(example_of(whole)), example_of(whole)


def test_a_reference_by_anchor_is_not_taken_for_the_whole_schema() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"$ref": "#word"}},
        "required": ["a"],
        "$defs": {"w": {"$anchor": "word", "type": "string"}},
    }
    assert example_of(schema) == {"a": "text"}


def test_two_readings_that_fit_are_named_as_such() -> None:
    schema = {"type": "object", "properties": {"args": {"type": "object"}, "a": {"type": "integer"}}}
    with pytest.raises(InvalidArguments, match="can be read in more than one way"):
        Checker().read(tool("s", "t", inputSchema=schema), "t", None, {"args": Raw(b'{"a":1}')})
