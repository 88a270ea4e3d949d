"""Reading what servers list: one bad tool costs itself."""

from __future__ import annotations

import gc

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from daemon.catalog.kinds import BESIDE_TOOLS, LISTS
from daemon.catalog.listing import (
    MAX_DEFINITION_BYTES,
    MAX_DEPTH,
    MAX_LISTED,
    URI_BYTES,
    Parts,
    _held,
    read_definitions,
    read_page,
)
from daemon.model import Kind
from tests.unit.catalog.samples import definition_json, tool_json

GOOD = tool_json("good")


def test_a_page_is_split_without_touching_its_tools() -> None:
    page = read_page(Kind.TOOL, b'{"tools":[{"x" : 1.0},[]],"nextCursor":"c","_meta":{}}')
    assert [bytes(raw) for raw in page.definitions] == [b'{"x" : 1.0}', b"[]"]
    assert page.next_cursor == "c"


@pytest.mark.parametrize(
    "result",
    [
        b"null",
        b"[]",
        b"{}",
        b'{"tools":{}}',
        b'{"tools":[],"nextCursor":5}',
        b"{",
        b"\xff",
        b'{"tools":[],"nextCursor":"\xff"}',
        b'{"tools":' + b"[" * 20_000 + b"]" * 20_000 + b"}",
    ],
)
def test_what_is_no_page_is_refused(result: bytes) -> None:
    with pytest.raises(ValueError, match="tools/list answered something else"):
        read_page(Kind.TOOL, result)


def test_a_tool_keeps_the_bytes_it_came_as() -> None:
    raw = b'{"name":"t", "title":"T","description":"does\\nit","inputSchema":{"type":"object" },"x":[1.0]}'
    (tool,), quarantined = read_definitions(Kind.TOOL, "s", [Raw(raw)])
    assert not quarantined
    assert (tool.server, tool.name, tool.description, tool.raw) == ("s", "t", "does\nit", raw)
    assert tool.parts["inputSchema"] == b'{"type":"object" }'
    assert tool.parts["x"] == b"[1.0]"
    assert len(tool.schema_hash) == 64


def nested(levels: int) -> bytes:
    """A tool of so many levels."""
    schema = b'{"type":"object","x":' + b"[" * (levels - 2) + b"]" * (levels - 2) + b"}"
    return b'{"name":"deep","description":"[[","inputSchema":' + schema + b"}"


def test_a_tool_that_is_nested_too_deeply_is_quarantined_by_name() -> None:
    tools, quarantined = read_definitions(Kind.TOOL, "s", [Raw(nested(MAX_DEPTH + 1)), Raw(GOOD)])
    assert [tool.name for tool in tools] == ["good"]
    assert quarantined == {"deep": "nested too deeply"}


def test_a_tool_that_is_not_can_be_looked_into_from_a_deep_stack() -> None:
    (tool,), quarantined = read_definitions(Kind.TOOL, "s", [Raw(nested(MAX_DEPTH))])
    assert not quarantined

    def look(frames: int) -> bytes:
        return look(frames - 1) if frames else tool.parts["inputSchema"]

    assert look(300) in tool.raw


def test_a_definition_that_is_too_long_is_quarantined_by_name_with_its_size() -> None:
    rest = MAX_DEFINITION_BYTES - len(tool_json("fits", description=""))
    fits = tool_json("fits", description="x" * rest)
    long = tool_json("long", description="x" * (rest + 1))
    assert len(fits) == MAX_DEFINITION_BYTES
    tools, quarantined = read_definitions(Kind.TOOL, "s", [Raw(long), Raw(fits)])
    assert [tool.name for tool in tools] == ["fits"]
    assert quarantined == {"long": "its definition has 262145 bytes, the limit is 262144"}


def test_brackets_in_texts_do_not_count() -> None:
    text = b'"' + b"[" * (MAX_DEPTH * 2) + b'\\"["'
    (tool,), _ = read_definitions(
        Kind.TOOL, "s", [Raw(b'{"name":"t","x":' + text + b',"inputSchema":{"type":"object"}}')]
    )
    assert tool.name == "t"


@pytest.mark.parametrize("members", [{}, {"description": None}, {"description": ""}])
def test_a_tool_may_go_without_a_description(members: dict[str, object]) -> None:
    (tool,), _ = read_definitions(Kind.TOOL, "s", [Raw(tool_json("t", **members))])
    assert tool.description == ""


@pytest.mark.parametrize(
    ("raw", "name", "reason"),
    [
        (b"5", "(tool 2)", "not an object"),
        (b"[]", "(tool 2)", "not an object"),
        (b"null", "(tool 2)", "not an object"),
        (b'{"\xff":1,"name":"bad","inputSchema":{"type":"object"}}', "(tool 2)", "not an object"),
        (b'{"inputSchema":{"type":"object"}}', "(tool 2)", "has no name"),
        (b'{"name":7,"inputSchema":{"type":"object"}}', "(tool 2)", "its name is no string"),
        (b'{"name":"\xff","inputSchema":{"type":"object"}}', "(tool 2)", "its name is no string"),
        (tool_json(""), "''", "1 to 128 printable bytes"),
        (tool_json("a\nb"), "'a\\nb'", "1 to 128 printable bytes"),
        (tool_json("a\u202eb"), "'a\\u202eb'", "1 to 128 printable bytes"),
        (tool_json("a\u200bb"), "'a\\u200bb'", "1 to 128 printable bytes"),
        (tool_json("x" * 129), "'" + "x" * 128 + "'", "1 to 128 printable bytes"),
        (tool_json("é" * 65), ascii("é" * 65), "1 to 128 printable bytes"),
        (b'{"name":"bad"}', "bad", "has no inputSchema"),
        (tool_json("bad", inputSchema=[]), "bad", "its inputSchema is no object"),
        (tool_json("bad", inputSchema=True), "bad", "its inputSchema is no object"),
        (tool_json("bad", inputSchema=None), "bad", "its inputSchema is no object"),
        (tool_json("bad", inputSchema={"type": "string"}), "bad", 'another "type" than "object"'),
        (tool_json("bad", inputSchema={"type": ["object"]}), "bad", 'another "type" than "object"'),
        (tool_json("bad", inputSchema={"type": None}), "bad", 'another "type" than "object"'),
        (tool_json("bad", description=7), "bad", "Expected `str | null`"),
        (b'{"name":"bad","inputSchema":{"type":"object"},"x":"\xff"}', "bad", "not valid UTF-8"),
        (b'{"name":"bad","inputSchema":{"type":"object","x":"\xff"}}', "bad", "not valid UTF-8"),
        (b'{"name":"bad","inputSchema":{"type":"object","maximum":1e999}}', "bad", "out of range"),
        (tool_json("good"), "good", "listed twice; the first one counts"),
    ],
)
def test_an_unusable_tool_costs_itself_and_says_why(raw: bytes, name: str, reason: str) -> None:
    tools, quarantined = read_definitions(Kind.TOOL, "s", [Raw(GOOD), Raw(raw), Raw(tool_json("last"))])
    assert [tool.name for tool in tools] == ["good", "last"]
    assert list(quarantined) == [name]
    assert reason in quarantined[name]


def test_an_endless_list_is_cut_and_says_so() -> None:
    raws = [Raw(tool_json(f"t{number}")) for number in range(MAX_LISTED + 5)]
    tools, quarantined = read_definitions(Kind.TOOL, "s", raws)
    assert len(tools) == MAX_LISTED
    assert quarantined == {"(further tools)": f"more than {MAX_LISTED} tools"}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
SLOPPY = st.fixed_dictionaries(
    {}, optional={"name": JSON | st.text(), "description": JSON, "inputSchema": JSON, "annotations": JSON}
)


@given(st.lists(SLOPPY | JSON, max_size=6))
def test_whatever_is_listed_each_tool_is_usable_or_quarantined(listed: list[object]) -> None:
    raws = [
        Raw(msgspec.json.encode(each))
        for each in [*listed, {"name": "good", "inputSchema": {"type": "object"}}]
    ]
    tools, quarantined = read_definitions(Kind.TOOL, "s", raws)
    assert "good" in {tool.name for tool in tools}
    assert all(quarantined.values())
    assert len(tools) + len(quarantined) <= len(raws)


def test_a_tool_whose_schema_lacks_its_type_alone_is_completed_and_said_to_be() -> None:
    lacking = tool_json("t", inputSchema={"$schema": "http://json-schema.org/draft-07/schema#"})
    (tool, good), quarantined = read_definitions(Kind.TOOL, "s", [Raw(lacking), Raw(GOOD)])
    assert not quarantined
    assert (tool.completed, good.completed) == (True, False)
    assert b'"inputSchema":{"type":"object","$schema":' in tool.raw
    (whole,), _ = read_definitions(Kind.TOOL, "s", [Raw(tool.raw)])
    assert not whole.completed
    assert whole == tool, "what is shown is what is hashed and kept"


def test_a_definition_that_is_too_long_once_it_is_completed_is_too_long() -> None:
    rest = MAX_DEFINITION_BYTES - len(tool_json("t", inputSchema={}, description=""))
    tools, quarantined = read_definitions(
        Kind.TOOL, "s", [Raw(tool_json("t", inputSchema={}, description="x" * rest))]
    )
    assert (tools, list(quarantined)) == ((), ["t"])


# --- lists that are read again -------------------------------------------------------------------------------


def test_a_tool_in_the_same_bytes_is_the_same_object_as_long_as_somebody_holds_it() -> None:
    raws = [GOOD, tool_json("other")]
    first, _ = read_definitions(Kind.TOOL, "s", map(Raw, raws))
    again, _ = read_definitions(Kind.TOOL, "s", map(Raw, [tool_json("new"), *raws]))
    assert again[1] is first[0]
    assert again[2] is first[1]


def test_other_bytes_or_another_server_are_another_tool() -> None:
    (first,), _ = read_definitions(Kind.TOOL, "s", [Raw(GOOD)])
    (spaced,), _ = read_definitions(Kind.TOOL, "s", [Raw(GOOD + b" ")])
    (of_another,), _ = read_definitions(Kind.TOOL, "t", [Raw(GOOD)])
    assert spaced.schema_hash == first.schema_hash == of_another.schema_hash
    assert (spaced.raw, of_another.server) == (GOOD + b" ", "t")


def test_tools_that_nobody_holds_are_forgotten() -> None:
    raw = tool_json("a name that no other test has")
    read_definitions(Kind.TOOL, "s", [Raw(raw)])
    gc.collect()
    assert (Kind.TOOL, "s", raw) not in _held


def test_a_tool_that_was_listed_twice_is_so_again() -> None:
    twice = [Raw(GOOD), Raw(GOOD)]
    tools, quarantined = read_definitions(Kind.TOOL, "s", twice)
    assert (len(tools), list(quarantined)) == (1, ["good"])
    assert read_definitions(Kind.TOOL, "s", twice) == (tools, quarantined)


def test_members_are_found_when_they_are_asked_for() -> None:
    parts = Parts(b'{"name":"t", "x":[1.0], "name":"u"}')
    assert dict(parts) == {"name": b'"u"', "x": b"[1.0]"}
    assert (len(parts), list(parts), "x" in parts, "y" in parts) == (2, ["name", "x"], True, False)
    assert parts.get("y", b"{}") == b"{}"
    with pytest.raises(KeyError):
        parts["y"]


# --- prompts, resources, templates ---------------------------------------------------------------------------


UNNAMED = "its arguments are no list of objects with a name"
LONG = b"n" * MAX_DEFINITION_BYTES


@pytest.mark.parametrize("kind", BESIDE_TOOLS)
def test_a_definition_keeps_the_bytes_it_came_as_and_is_one_object(kind: Kind) -> None:
    raw = b'{"name":"n", "%b": "x:y" ,"_meta":{"a":[1.0]},"icons":[]}' % LISTS[kind].key.encode()
    if kind is Kind.PROMPT:
        raw = b'{"name" : "x:y","arguments":[{"name":"a"}]}'
    (first,), quarantined = read_definitions(kind, "s", [Raw(raw)])
    assert (first.raw, first.name, first.kind, quarantined) == (raw, "x:y", kind, {})
    ((again,), _) = read_definitions(kind, "s", [Raw(raw)])
    assert again is first
    assert read_definitions(kind, "other", [Raw(raw)])[0] != (first,)


@pytest.mark.parametrize(
    ("kind", "raw", "name", "reason"),
    [
        (Kind.PROMPT, b"{}", "(prompt 1)", "has no name"),
        (Kind.PROMPT, b"7", "(prompt 1)", "not an object"),
        (Kind.PROMPT, b'{"name":7}', "(prompt 1)", "its name is no string"),
        (Kind.PROMPT, b'{"name":"p","arguments":{}}', "p", UNNAMED),
        (
            Kind.PROMPT,
            b'{"name":"p","arguments":[{}]}',
            "p",
            "its arguments are no list of objects with a name",
        ),
        (Kind.PROMPT, b'{"name":"p\\u0007"}', "'p\\x07'", "a name has 1 to 128 printable bytes"),
        (Kind.RESOURCE, b'{"name":"n"}', "(resource 1)", "has no uri"),
        (Kind.RESOURCE, b'{"uri":"x:y"}', "x:y", "has no name, which MCP requires"),
        (Kind.RESOURCE, b'{"uri":["x:y"],"name":"n"}', "(resource 1)", "its uri is no string"),
        (Kind.RESOURCE, b'{"uri":"","name":"n"}', "''", f"a uri has 1 to {URI_BYTES} printable bytes"),
        (Kind.TEMPLATE, b'{"uriTemplate":"x:{y}","name":1}', "x:{y}", "has no name, which MCP requires"),
        (Kind.TEMPLATE, b'{"name":"n"}', "(template 1)", "has no uriTemplate"),
        (
            Kind.RESOURCE,
            b'{"uri":"x:y","name":"' + b"n" * MAX_DEFINITION_BYTES + b'"}',
            "x:y",
            "its definition has",
        ),
        (Kind.PROMPT, b'{"name":"p","_meta":' + b"[" * 500 + b"]" * 500 + b"}", "p", "nested too deeply"),
    ],
)
def test_what_is_malformed_costs_itself_alone(kind: Kind, raw: bytes, name: str, reason: str) -> None:
    good = definition_json(kind, "good:one")
    usable, quarantined = read_definitions(kind, "s", [Raw(raw), Raw(good)])
    assert [each.name for each in usable] == ["good:one"]
    ((found, why),) = quarantined.items()
    assert found == name
    assert why.startswith(reason)


def test_the_second_of_two_with_one_uri_and_those_beyond_the_bound_are_left_out() -> None:
    twice = [Raw(definition_json(Kind.RESOURCE, "x:1")), Raw(definition_json(Kind.RESOURCE, "x:1", size=2))]
    usable, quarantined = read_definitions(Kind.RESOURCE, "s", twice)
    assert (len(usable), quarantined) == (1, {"x:1": "listed twice; the first one counts"})
    many = [Raw(definition_json(Kind.RESOURCE, f"x:{number}")) for number in range(MAX_LISTED + 2)]
    usable, quarantined = read_definitions(Kind.RESOURCE, "s", many)
    assert (len(usable), list(quarantined)) == (MAX_LISTED, ["(further resources)"])
