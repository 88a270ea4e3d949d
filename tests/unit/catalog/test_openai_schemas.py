"""Input schemas for profiles with `"schemas": "openai"`: each rule, and every place where a schema is shown."""

from typing import Any

import msgspec
import pytest

from daemon.catalog.definitions import FORMATS, MAX_BYTES, REFUSED, openai_schema
from tests.unit.cases import cases
from tests.unit.catalog.samples import after, catalog_of, listed, servers, status, tool
from tests.unit.surfaces.samples import READING, answer, view_of

WHOLE = {"type": "number", "multipleOf": 1}
STRING = {"type": "string"}


def shown(schema: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = msgspec.json.decode(openai_schema(msgspec.json.encode(schema)))
    return made


@cases("written", "expected")
def test_each_rule_replaces_what_is_refused(written: dict[str, Any], expected: dict[str, Any]) -> None:
    """In a property, and in a definition that something refers to; a second time changes nothing."""
    for place in ("properties", "$defs"):
        made = shown({"type": "object", "properties": {}, place: {"type": written}})
        assert made[place]["type"] == expected
        assert shown(made) == made
        assert list(refused(made, top=True)) == []


def test_options_and_values_at_the_top_leave_their_properties_side_by_side() -> None:
    options = [
        {"properties": {"a": STRING}, "required": ["a"]},
        {"properties": {"b": STRING}, "required": ["b"]},
    ]
    written = {"type": "object", "properties": {"c": STRING}, "oneOf": options, "enum": [{}]}
    assert shown(written) == {"type": "object", "properties": {"a": STRING, "b": STRING, "c": STRING}}
    assert shown({"type": "object"}) == {"type": "object", "properties": {}}


@pytest.mark.parametrize(
    "raw",
    [
        b'{ "type": "object", "properties": {"a": {"type": "string"}} }',
        b'{"type":"object","properties":{"integer":{"enum":["integer"]}}}',
        b'{"anyOf":5}',
        b'{"anyOf":{"type":"integer"},"allOf":[3]',
        b'{"properties":[1],"allOf":[{"properties":{"a":true}}]}',
        b'{"format":["a"],"type":"integer"}',
        b'{"items":' * 5000 + b"{}" + b"}" * 5000,
        b'{"type":"integer","description":"%b"}' % (b"x" * MAX_BYTES),
    ],
    ids=["fine", "by name only", "number", "cut", "list", "format", "deep", "long"],
)
def test_what_holds_nothing_refused_or_cannot_be_converted_keeps_its_bytes(raw: bytes) -> None:
    assert openai_schema(raw) is raw


SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": ["integer", "null"]}, "u": {"oneOf": [STRING, {"type": "array"}]}},
}
OUTPUT = {"type": "object", "properties": {"n": {"type": ["integer", "null"]}}}


def view(form: str, surface: str = "full") -> Any:
    profile = {"surface": surface, "schemas": form, "autoLoad": True, "coreTools": ["fs/count"]}
    config = {"mcpServers": servers("fs"), "profiles": {"default": {**profile, "readResource": True}}}
    count = tool("fs", "count", inputSchema=SCHEMA, outputSchema=OUTPUT)
    return view_of(after(catalog_of(config), [status("fs"), listed("fs", count)]))


@pytest.mark.parametrize("surface", READING)
def test_no_list_of_any_surface_holds_what_is_refused(surface: str) -> None:
    """Nor do the meta-tools; what clients check results with stays as it is."""
    tools = [msgspec.json.decode(raw) for raw in READING[surface].list_tools(view("openai", surface))]
    assert [list(refused(each["inputSchema"], top=True)) for each in tools] == [[]] * len(tools)
    if surface in {"full", "search"}:
        assert tools[-1]["outputSchema"] == OUTPUT


def test_without_the_key_the_list_holds_the_servers_own_bytes() -> None:
    seen = view("original")
    tools = READING["full"].list_tools(seen)
    assert tools[-1] is next(iter(seen.offer.all)).tool.raw


@cases("surface", "name", "arguments")
def test_a_described_tool_is_shown_so_too_with_the_hash_of_its_servers_definition(
    surface: str, name: str, arguments: dict[str, Any]
) -> None:
    seen = view("openai", surface)
    described = answer(READING[surface], seen, name, arguments)["tools"]["count"]
    assert described["inputSchema"]["properties"]["n"] == WHOLE
    assert next(iter(seen.offer.all)).tool.schema_hash.startswith(described["schemaHash"])


def refused(schema: Any, *, top: bool = False) -> Any:
    """What OpenAI's tool format refuses in a schema."""
    kind, own = str(schema.get("type")), {"anyOf", "enum"} if top else set()
    yield from (REFUSED | {"oneOf", "allOf", "prefixItems"} | own) & set(schema)
    if kind.startswith(("[", "integer")) or (top and kind != "object"):
        yield kind
    if schema.get("format", "date") not in FORMATS:
        yield schema["format"]
    if (kind == "array" and "items" not in schema) or (top and "properties" not in schema):
        yield f"{kind} alone"
    yield from (each for each in schema.get("anyOf", ()) if each.get("type") == "null")
    inner = [*schema.get("anyOf", ()), *([schema["items"]] if "items" in schema else ())]
    for each in (*inner, *schema.get("properties", {}).values(), *schema.get("$defs", {}).values()):
        yield from refused(each)
