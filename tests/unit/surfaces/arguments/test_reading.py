"""What models send and what they meant: one reading that fits, or a refusal that helps."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from daemon.errors import InvalidArguments
from daemon.model import Repair
from daemon.surfaces.explaining import MAX_EXAMPLE, MAX_MESSAGE, MAX_SCHEMA, MAX_VALUES, example_of
from daemon.surfaces.validators import MAX_ERRORS, MAX_PATTERNS, Validator, validator_of
from daemon.surfaces.wrapped import MAX_CHECKED, Read, read_arguments
from tests.unit.cases import cases
from tests.unit.catalog.samples import tool
from tests.unit.json_values import json_values

PATH = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "limit": {"type": "integer"}},
    "required": ["path"],
}
STRICT = {**PATH, "additionalProperties": False}
LENIENT = {"type": "object", "properties": {"path": {"type": "string"}}}
WRAPPING = {"type": "object", "properties": {"args": {"type": "object"}}, "additionalProperties": False}
ANYTHING = {"type": "object"}


def read(schema: dict[str, Any] | None, args: bytes | None, **beside: object) -> Read:
    known = None if schema is None else tool("s", "t", inputSchema=schema)
    raw = {key: Raw(msgspec.json.encode(value)) for key, value in beside.items()}
    return read_arguments(known, "t", args, raw)


def refused(schema: dict[str, Any] | None, args: bytes | None, **beside: object) -> InvalidArguments:
    with pytest.raises(InvalidArguments) as caught:
        read(schema, args, **beside)
    return caught.value


@cases("args")
def test_an_object_that_fits_goes_on_byte_for_byte(args: str) -> None:
    taken = read(STRICT, args.encode("latin-1"))
    assert bytes(taken.arguments) == args.encode("latin-1")
    assert taken.repair is None


@pytest.mark.parametrize(
    "args", [b'{"path":1e400}', b'{"path":"\\ud800"}', b'{"path":' + b"[" * 3000 + b"]" * 3000 + b"}"]
)
def test_an_object_that_cannot_be_decoded_is_the_servers_to_judge(args: bytes) -> None:
    assert bytes(read(STRICT, args).arguments) == args


@pytest.mark.parametrize("schema", [STRICT, PATH])
@cases("args", "beside", "repair", raw={"args"})
def test_other_readings_are_taken_when_they_are_the_only_one_that_fits(
    schema: dict[str, Any], args: bytes | None, beside: dict[str, object], repair: str
) -> None:
    taken = read(schema, args, **beside)
    assert msgspec.json.decode(taken.arguments) == {"path": "x"}
    assert taken.repair == repair


def test_what_stands_beside_is_joined_to_what_stands_inside_and_never_dropped() -> None:
    taken = read(STRICT, b'{"path":"x"}', limit=3)
    assert msgspec.json.decode(taken.arguments) == {"path": "x", "limit": 3}
    assert taken.repair is Repair.FLATTENED
    for stray in ("limits", "path"):
        assert "is outside of the arguments" in refused(STRICT, b'{"path":"x"}', **{stray: 3}).message


def test_a_tool_that_really_has_such_a_parameter_is_taken_literally() -> None:
    taken = read(WRAPPING, b'{"args":{"path":"x"}}')
    assert (bytes(taken.arguments), taken.repair) == (b'{"args":{"path":"x"}}', None)
    assert read(ANYTHING, b'{"args":{"path":"x"}}').repair is None


def test_a_lenient_schema_does_not_hide_a_wrapper() -> None:
    taken = read(LENIENT, b'{"args":{"path":"x"}}')
    assert (msgspec.json.decode(taken.arguments), taken.repair) == ({"path": "x"}, Repair.UNWRAPPED)
    # What nobody declares in either reading is left as it is.
    assert bytes(read(LENIENT, b'{"args":{"pth":"x"}}').arguments) == b'{"args":{"pth":"x"}}'


def test_no_arguments_at_all_are_an_empty_object_if_that_fits() -> None:
    assert read(LENIENT, None) == Read(b"{}", None)
    assert '"path" is a required property' in refused(PATH, None).message


def test_two_readings_that_fit_are_one_too_many() -> None:
    schema = {
        "type": "object",
        "properties": {"args": {"type": "object"}, "a": {"type": "integer"}},
        "additionalProperties": False,
    }
    with pytest.raises(InvalidArguments, match="'args' is outside of the arguments"):
        read_arguments(tool("s", "t", inputSchema=schema), "t", None, {"args": Raw(b'{"a":1}')})


@pytest.mark.parametrize("args", [b"[]", b"5", b"true", b'"text"', b'"[1]"', b'{"path":5}', b'{"pth":"x"}'])
def test_what_fits_in_no_reading_is_refused(args: bytes) -> None:
    assert refused(STRICT, args).details["tool"] == "t"


@pytest.mark.parametrize(
    "schema", [None, {"type": "object", "properties": 5}, {"type": "object", "$ref": "https://x.example/y"}]
)
def test_without_a_usable_schema_only_objects_and_strings_that_hold_one_are_taken(
    schema: dict[str, Any] | None,
) -> None:
    assert bytes(read(schema, b'{ "x": 1 }').arguments) == b'{ "x": 1 }'
    assert read(schema, b'"{\\"x\\":1}"') == Read(b'{"x":1}', Repair.STRINGIFIED)
    assert read(schema, None) == Read(b"{}", None)
    refused(schema, None, x=1)
    refused(schema, b"[1]")
    assert read(schema, b'{"args":{"x":1}}').repair is None


def test_arguments_that_are_very_large_are_not_looked_into() -> None:
    large = b'{"path":[' + b"1," * MAX_CHECKED + b"1]}"
    assert bytes(read(STRICT, large).arguments) == large


JSON = json_values(keys=st.sampled_from(["path", "limit", "args", "arguments", "x"]))


@given(
    st.sampled_from([STRICT, PATH, LENIENT, WRAPPING, ANYTHING]),
    st.none() | JSON,
    st.dictionaries(st.text(max_size=5), JSON, max_size=2),
)
def test_whatever_is_sent_is_read_or_refused_and_untouched_if_it_was_not_repaired(
    schema: dict[str, Any], sent: object, beside: dict[str, object]
) -> None:
    args = None if sent is None else msgspec.json.encode(sent)
    raw = {key: Raw(msgspec.json.encode(value)) for key, value in beside.items()}
    taken, refusal = _outcome(schema, args, raw)
    if taken is None:
        assert refusal is not None
        assert "Call it like this: " in refusal.message
        assert msgspec.json.encode(refusal.details)
    else:
        assert isinstance(msgspec.json.decode(taken.arguments), dict)
        assert taken.repair is not None or bytes(taken.arguments) == (args or b"{}")


def _outcome(
    schema: dict[str, Any], args: bytes | None, beside: dict[str, Raw]
) -> tuple[Read | None, InvalidArguments | None]:
    try:
        return read_arguments(tool("s", "t", inputSchema=schema), "t", args, beside), None
    except InvalidArguments as refusal:
        return None, refusal


# --- hostile schemas and arguments ---------------------------------------------------------------------------


CANARY = "canary-of-a-client-77aa"

HOSTILE_PATH = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}

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


def read_hostile(schema: Mapping[str, Any], args: bytes | None, **beside: bytes) -> Read:
    known = tool("s", "t", inputSchema=schema)
    return read_arguments(known, "t", args, {key: Raw(value) for key, value in beside.items()})


def refused_hostile(schema: Mapping[str, Any], args: object) -> InvalidArguments:
    with pytest.raises(InvalidArguments) as caught:
        read_hostile(schema, msgspec.json.encode(args))
    return caught.value


def test_null_beside_is_a_value_and_null_in_the_slot_is_nothing() -> None:
    nullable = {"type": "object", "properties": {"path": {"type": ["string", "null"]}}, "required": ["path"]}
    assert read_hostile(nullable, b"null", path=b"null") == Read(b'{"path":null}', Repair.FLATTENED)
    assert read_hostile({"type": "object"}, b"null") == Read(b"{}", None)


def test_what_is_large_is_neither_looked_into_nor_joined() -> None:
    large = msgspec.json.encode({"path": 5, "text": "x" * MAX_CHECKED})
    assert read_hostile(HOSTILE_PATH, large) == Read(large, None)
    assert read_hostile(HOSTILE_PATH, msgspec.json.encode(large.decode())) == Read(large, Repair.STRINGIFIED)
    with pytest.raises(InvalidArguments, match='"path" is a required property'):
        read_hostile(HOSTILE_PATH, None, path=msgspec.json.encode("x" * MAX_CHECKED))


def test_another_schema_is_not_fetched_from_a_file_that_exists(tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_text('{"required":["v"]}')
    for schema in ({"$ref": other.as_uri()}, {"$id": other.as_uri(), "$ref": "other.json#/required"}):
        assert validator_of(tool("s", "t", inputSchema={"type": "object", **schema})) is None


def test_a_schema_that_makes_the_validator_panic_is_broken() -> None:
    assert validator_of(tool("s", "t", inputSchema=PANIC)) is None
    assert read_hostile(PANIC, b'{"any":1}') == Read(b'{"any":1}', None)


def test_what_would_take_the_validator_minutes_is_passed_on_unvalidated() -> None:
    args = msgspec.json.encode(nested(24))
    assert read_hostile(TWICE, args) == Read(args, None)
    assert '"v" is a required property' in refused_hostile(TWICE, nested(3)).message


def test_no_repair_is_made_that_cannot_be_validated() -> None:
    validator = Validator(TWICE)
    assert validator.accepts(nested(24))
    assert not validator.proves(nested(24))
    with pytest.raises(InvalidArguments):
        read_hostile(TWICE, None, c=msgspec.json.encode(nested(24)), v=b"1")


def test_definitions_that_multiply_each_other_are_not_followed() -> None:
    chain = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)}
    schema = {"type": "object", "$defs": {**chain, "d40": {"required": ["v"]}}, "$ref": "#/$defs/d0"}
    assert read_hostile(schema, b'{"a":1}') == Read(b'{"a":1}', None)


def test_errors_are_looked_for_in_the_first_elements_of_a_long_list() -> None:
    validator = Validator({"properties": {"a": {"items": {"type": "string"}, "minItems": 100}}})
    errors = validator.errors({"a": [1] * 30_000})
    assert len(errors) == MAX_ERRORS
    assert {error.kind.name for error in errors} == {"type"}


def test_a_value_of_which_nothing_can_be_told_soon_is_still_refused() -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {"a": {"enum": [f"v{n}" for n in range(20_000)]}}}
    assert "at $: this does not fit the schema" in refused_hostile(schema, {"a": CANARY}).message
    schema["required"] = ["b"]
    assert 'at $: "b" is a required property' in refused_hostile(schema, {"a": CANARY}).message


@pytest.mark.parametrize("patterns", [MAX_PATTERNS, MAX_PATTERNS + 1])
def test_only_so_many_patterns_are_compiled(patterns: int) -> None:
    properties = {f"p{n}": {"pattern": "^a"} for n in range(patterns)}
    compiled = validator_of(tool("s", "t", inputSchema={"type": "object", "properties": properties}))
    assert (compiled is not None) is (patterns <= MAX_PATTERNS)


def test_a_pattern_that_repeats_repetitions_is_not_compiled() -> None:
    schema = {"type": "object", "properties": {"a": {"pattern": "(a{1,100}){1,40}"}}}
    assert validator_of(tool("s", "t", inputSchema=schema)) is None


@cases("schema", "value")
def test_no_keyword_repeats_a_value(schema: object, value: object) -> None:
    error = refused_hostile({"type": "object", "properties": {"a": schema}}, {"a": value})
    assert CANARY not in error.message
    assert CANARY not in msgspec.json.encode(error.details).decode()
    assert "at $.a" in error.message


@cases("options", "value", "message")
def test_of_options_the_one_is_told_that_was_meant(options: list[object], value: object, message: str) -> None:
    assert (
        message
        in refused_hostile({"type": "object", "properties": {"a": {"anyOf": options}}}, {"a": value}).message
    )


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
    error = refused_hostile({"type": "object", **schema}, {"a" * 89_999 + "c": 1})
    assert len(error.message) < 5 * (MAX_MESSAGE + 50) + MAX_EXAMPLE + 500
    assert len(msgspec.json.encode(error.details)) < MAX_SCHEMA * 2 + MAX_EXAMPLE + 2500


def test_an_example_of_a_schema_that_wants_itself_many_times_ends_soon() -> None:
    itself = {f"p{n}": {"$ref": "#"} for n in range(50)}
    made = example_of({"properties": itself, "required": list(itself)})
    assert msgspec.json.encode(made).count(b"{") <= MAX_VALUES


@cases("schema")
def test_an_example_fits_what_several_keywords_ask_together(schema: dict[str, Any]) -> None:
    whole = {"type": "object", **schema, "$defs": {"x": {"required": ["a"], "properties": {"a": {"const": 1}}}}}
    assert Validator(whole).proves(example_of(whole)), example_of(whole)
