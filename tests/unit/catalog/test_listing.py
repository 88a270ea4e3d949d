"""Reading what servers list: one bad tool costs itself."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from daemon.catalog.listing import MAX_DEPTH, MAX_LISTED, read_definitions, read_page
from daemon.model import Kind
from tests.unit.cases import cases
from tests.unit.catalog.samples import definition_json, tool_json
from tests.unit.json_values import json_values

GOOD = tool_json("good")


def test_a_page_is_split_without_touching_its_tools() -> None:
    page = read_page(Kind.TOOL, b'{"tools":[{"x" : 1.0},[]],"nextCursor":"c","_meta":{}}')
    assert [bytes(raw) for raw in page.definitions] == [b'{"x" : 1.0}', b"[]"]
    assert page.next_cursor == "c"


@pytest.mark.parametrize(
    "result", [b"[]", b"{}", b'{"tools":[],"nextCursor":5}', b"{", b"\xff", b'{"tools":' + b"[" * 20_000 + b"}"]
)
def test_what_is_no_page_is_refused(result: bytes) -> None:
    with pytest.raises(ValueError, match="the answer to tools/list"):
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


def test_brackets_in_texts_do_not_count() -> None:
    text = b'"' + b"[" * (MAX_DEPTH * 2) + b'\\"["'
    (tool,), _ = read_definitions(
        Kind.TOOL, "s", [Raw(b'{"name":"t","x":' + text + b',"inputSchema":{"type":"object"}}')]
    )
    assert tool.name == "t"


@cases("raw", "name", "reason")
def test_an_unusable_tool_costs_itself_and_says_why(raw: str, name: str, reason: str) -> None:
    tools, quarantined = read_definitions(
        Kind.TOOL, "s", [Raw(GOOD), Raw(raw.encode("latin-1")), Raw(tool_json("last"))]
    )
    assert [tool.name for tool in tools] == ["good", "last"]
    assert list(quarantined) == [name]
    assert reason in quarantined[name]


def test_an_endless_list_is_cut_and_says_so() -> None:
    raws = [Raw(tool_json(f"t{number}")) for number in range(MAX_LISTED + 5)]
    tools, quarantined = read_definitions(Kind.TOOL, "s", raws)
    assert len(tools) == MAX_LISTED
    assert quarantined == {"(further tools)": f"more than {MAX_LISTED} tools"}


JSON = json_values()
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


# --- lists that are read again -------------------------------------------------------------------------------


def test_a_tool_in_the_same_bytes_is_the_same_object_as_long_as_somebody_holds_it() -> None:
    raws = [GOOD, tool_json("other")]
    first, _ = read_definitions(Kind.TOOL, "s", map(Raw, raws))
    again, _ = read_definitions(Kind.TOOL, "s", map(Raw, [tool_json("new"), *raws]))
    assert again[1] is first[0]
    assert again[2] is first[1]


# --- prompts, resources, templates ---------------------------------------------------------------------------


@cases("kind", "raw", "name", "reason")
def test_what_is_malformed_costs_itself_alone(kind: str, raw: str, name: str, reason: str) -> None:
    good = definition_json(Kind(kind), "good:one")
    usable, quarantined = read_definitions(Kind(kind), "s", [Raw(raw.encode("latin-1")), Raw(good)])
    assert [each.name for each in usable] == ["good:one"]
    ((found, why),) = quarantined.items()
    assert found == name
    assert why.startswith(reason)
