"""Stubs of tools: each construct of JSON Schema, bounds, and servers that try to break out of their line."""

import ast
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from daemon.catalog.tool_results import Shape
from daemon.safety.escape import hidden_in
from daemon.surfaces.code import MAX_MEMBERS, MAX_PARTS, stub
from tests.unit.cases import cases
from tests.unit.catalog.samples import tool
from tests.unit.json_values import json_values

RECURSIVE = {"type": "object", "properties": {"name": {"type": "string"}, "in": {"$ref": "#/$defs/node"}}}


def told(schema: object, **members: object) -> str:
    """The stub of a tool whose only argument `it` has a schema."""
    arguments = {
        "type": "object",
        "properties": {"it": schema},
        "required": ["it"],
        "$defs": {"node": RECURSIVE, "id": {"type": "integer"}, "alias": {"$ref": "#/$defs/id"}},
    }
    return stub("s/t", tool("s", "t", inputSchema=arguments, **members), "", None)


def type_of(schema: object) -> str:
    found = told(schema)
    head, _, end = found.partition('"it": ')
    assert (
        head.split() == ["result", "=", "await", 'call("s/t",', "{"] or head == 'result = await call("s/t", {'
    )
    return end.removesuffix("})").strip().removesuffix(",")


@cases("schema", "expected")
def test_a_schema_becomes_a_type(schema: object, expected: str) -> None:
    assert type_of(schema) == expected
    ast.parse(told(schema))


def test_required_and_optional_arguments_are_told_apart() -> None:
    schema = {
        "type": "object",
        "properties": {
            "state": {"enum": ["open", "closed"], "description": "Filter"},
            "owner": {"type": "string", "description": "The owner of the repository"},
            "since": {"type": "string", "description": "Only later ones, as ISO 8601"},
        },
        "required": ["owner"],
    }
    listed = tool("github", "list_issues", inputSchema=schema)
    assert stub("github/list_issues", listed, "List issues in a repository. All\nof them.", None) == (
        "# List issues in a repository.\n"
        'result = await call("github/list_issues", {\n'
        '    "owner": str,\n'
        "    # optional:\n"
        '    "state": "open" | "closed",\n'
        '    "since": str,  # Only later ones, as ISO 8601\n'
        "})"
    )


def test_an_output_schema_comes_before_an_observed_shape_which_is_marked() -> None:
    seen, output = Shape(b'[{"id":"int"}]'), {"type": "object", "properties": {"ok": {"type": "boolean"}}}
    assert (
        stub("s/t", tool("s", "t"), "", seen)
        == 'result = await call("s/t", {})\nresult: [{"id": int}]  # observed'
    )
    both = stub("s/t", tool("s", "t", outputSchema=output), "", seen)
    assert both == 'result = await call("s/t", {})\nresult: {"ok": NotRequired[bool]}'


def test_a_large_schema_is_cut() -> None:
    wide = {"type": "object", "properties": {f"p{number}": {"type": "string"} for number in range(60)}}
    found = stub("s/t", tool("s", "t", inputSchema=wide), "", None)
    assert found.count(": str,") == MAX_MEMBERS
    assert found.splitlines()[-2] == '    "...": Any,'
    deep = {"type": "object", "properties": {f"p{number}": wide for number in range(60)}}
    found = stub("s/t", tool("s", "t", inputSchema=deep), "", None)
    assert found.count("NotRequired[str]") < MAX_PARTS
    ast.parse(found)
    looping: dict[str, Any] = {
        "$defs": {"a": {"anyOf": [{"type": "array", "items": {"$ref": "#/$defs/a"}}] * 40}}
    }
    assert len(told({"$ref": "#/$defs/a", **looping})) < 1000


def test_a_long_description_and_a_long_name_are_left_out() -> None:
    members = {"it": {"description": "entirely different words " * 4}, "x" * 200: {"type": "string"}}
    found = stub("s/t", tool("s", "t", inputSchema={"type": "object", "properties": members}), "", None)
    assert [line.strip() for line in found.splitlines()[1:]] == [
        "# optional:",
        '"it": Any,',
        '"...": Any,',
        "})",
    ]


HOSTILE = 'x"\n) ; import os #\u202e\u2028\x0c\r\x85\0\U000e0041'


def test_a_hostile_text_stays_in_its_line_and_hides_nothing() -> None:
    schema = {
        "type": "object",
        "properties": {HOSTILE: {"enum": [HOSTILE], "description": HOSTILE + " words never said"}},
        "required": [HOSTILE],
    }
    found = stub(HOSTILE, tool("s", "t", inputSchema=schema, outputSchema=schema), HOSTILE, None)
    assert found.isascii()
    assert not any(map(hidden_in, found.splitlines()))
    assert len(found.splitlines()) == 5
    call, result = ast.parse(found).body
    assert isinstance(call, ast.Assign)
    assert isinstance(result, ast.AnnAssign)
    written = ast.literal_eval(found.splitlines()[2].strip().split(": ")[0])
    assert written.encode("utf-16", "surrogatepass").decode("utf-16") == HOSTILE


KEYS = st.sampled_from([
    "type", "properties", "items", "prefixItems", "anyOf", "oneOf", "allOf", "enum", "const", "required",
    "$ref", "additionalProperties", "nullable", "description", "$defs", "a",
])  # fmt: skip
NAMES = st.sampled_from(["object", "array", "string", "null", "#", "#/$defs/a", "#/properties/a", "a\n#"])
ODD = json_values(NAMES, keys=KEYS | st.text(max_size=3), leaves=30)


@given(schema=st.dictionaries(KEYS, ODD), output=ODD, text=st.text())
def test_any_schema_gives_one_call_and_at_most_one_type(schema: Any, output: Any, text: str) -> None:
    given_schema = {**schema, "type": "object"}
    odd = tool("s", "t", inputSchema=given_schema, outputSchema=output)
    found = stub(text, odd, text, None)
    assert [type(each) for each in ast.parse(found).body] in ([ast.Assign], [ast.Assign, ast.AnnAssign])
    assert not any(map(hidden_in, found.splitlines()))
