"""What models send and what they meant: one reading that fits, or a refusal that helps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from daemon.errors import InvalidArguments
from daemon.model import Repair
from daemon.surfaces.wrapped import MAX_CHECKED, Checker, Read
from tests.unit.catalog.samples import tool

if TYPE_CHECKING:
    from daemon.model import Tool

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
    return Checker().read(known, "t", args, raw)


def refused(schema: dict[str, Any] | None, args: bytes | None, **beside: object) -> InvalidArguments:
    with pytest.raises(InvalidArguments) as caught:
        read(schema, args, **beside)
    return caught.value


@pytest.mark.parametrize(
    "args",
    [
        b'{"path":"x"}',
        b'{ "path" : "x",\n "limit": 1.0 }',
        b'{"path":"x","path":"y"}',
        b'{"path":"x","limit":1267650600228229401496703205376}',
        b'{"path":"\\u00e9\\ud83d\\ude00"}',
    ],
)
def test_an_object_that_fits_goes_on_byte_for_byte(args: bytes) -> None:
    taken = read(STRICT, args)
    assert bytes(taken.arguments) == args
    assert taken.repair is None


@pytest.mark.parametrize(
    "args",
    [b'{"path":1e400}', b'{"path":"\\ud800"}', b'{"path":' + b"[" * 3000 + b"]" * 3000 + b"}"],
)
def test_an_object_that_cannot_be_decoded_is_the_servers_to_judge(args: bytes) -> None:
    assert bytes(read(STRICT, args).arguments) == args


@pytest.mark.parametrize("schema", [STRICT, PATH])
@pytest.mark.parametrize(
    ("args", "beside", "repair"),
    [
        (b'"{\\"path\\":\\"x\\"}"', {}, Repair.STRINGIFIED),
        (msgspec.json.encode('"{\\"path\\":\\"x\\"}"'), {}, Repair.STRINGIFIED),
        (msgspec.json.encode('{"args":{"path":"x"}}'), {}, Repair.STRINGIFIED),
        *(
            (b'{"%b":{"path":"x"}}' % key, {}, Repair.UNWRAPPED)
            for key in (b"args", b"arguments", b"parameters")
        ),
        (b'{"args":{"arguments":{"path":"x"}}}', {}, Repair.UNWRAPPED),
        (b'{"args":"{\\"path\\":\\"x\\"}"}', {}, Repair.UNWRAPPED),
        (None, {"path": "x"}, Repair.FLATTENED),
        (b"{}", {"path": "x"}, Repair.FLATTENED),
        (None, {"arguments": {"path": "x"}}, Repair.UNWRAPPED),
        (b"{}", {"parameters": {"path": "x"}}, Repair.UNWRAPPED),
    ],
)
def test_other_readings_are_taken_when_they_are_the_only_one_that_fits(
    schema: dict[str, Any], args: bytes | None, beside: dict[str, object], repair: Repair
) -> None:
    taken = read(schema, args, **beside)
    assert msgspec.json.decode(taken.arguments) == {"path": "x"}
    assert taken.repair is repair


def test_what_stands_beside_is_joined_to_what_stands_inside_and_never_dropped() -> None:
    taken = read(STRICT, b'{"path":"x"}', limit=3)
    assert msgspec.json.decode(taken.arguments) == {"path": "x", "limit": 3}
    assert taken.repair is Repair.FLATTENED
    for stray in ("limits", "path"):
        assert "stands next to the arguments" in refused(STRICT, b'{"path":"x"}', **{stray: 3}).message


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
    with pytest.raises(InvalidArguments, match="'args' stands next to the arguments"):
        Checker().read(tool("s", "t", inputSchema=schema), "t", None, {"args": Raw(b'{"a":1}')})


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


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=10),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["path", "limit", "args", "arguments", "x"]), inner, max_size=3)
    ),
    max_leaves=6,
)


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
        return Checker().read(tool("s", "t", inputSchema=schema), "t", args, beside), None
    except InvalidArguments as refusal:
        return None, refusal


def test_a_schema_is_compiled_once_for_each_hash() -> None:
    checker = Checker()
    known: Tool = tool("s", "t", inputSchema=STRICT)
    first = checker._validators.of(known)
    assert checker._validators.of(tool("s", "t", inputSchema=STRICT)) is first
