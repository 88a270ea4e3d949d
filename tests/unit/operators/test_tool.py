"""One tool for an operator: its definition, whether it works, and arguments that its own schema accepts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import jsonschema  # type: ignore[import-untyped]
import msgspec
import pytest

from daemon.errors import UnknownServer, UnknownTool
from daemon.facts import Switched
from daemon.history.event import Event, EventKind
from daemon.operators.tool_reports import ToolParams, tool
from daemon.states import ServerState
from tests.fakes_upstream import Stage
from tests.fakes_upstream import tool as described
from tests.unit.operators.stage import operator_context

if TYPE_CHECKING:
    from daemon.history.event import Detail


async def told(stage: Stage, name: str, server: str = "alpha") -> dict[str, Any]:
    """As it goes over the wire."""
    answer: dict[str, Any] = json.loads(
        msgspec.json.encode(await tool(operator_context(stage), ToolParams(name, server)))
    )
    return answer


async def test_a_tool_is_told_as_its_server_defines_it() -> None:
    stage = Stage()
    answer = await told(stage, "echo")
    known = stage.catalog.value.servers["alpha"].tools
    assert known is not None
    assert answer == {
        "server": "alpha",
        "tool": "echo",
        "categories": ["alpha"],
        "enabled": True,
        "available": True,
        "state": "ready",
        "reason": "",
        "schemaHash": known["echo"].schema_hash,
        "changed": None,
        "definition": described("echo"),
        "example": {},
    }


@pytest.mark.parametrize(
    ("schema", "example"),
    [
        (
            {"properties": {"a": {"type": "integer", "minimum": 5}, "b": {"default": 7}}, "required": ["a"]},
            {"a": 5},
        ),
        ({"properties": {"a": {"enum": ["x", "y"]}, "b": {}, "c": {}}}, {"a": "x"}),
        ({"properties": {}}, {}),
        ({"properties": {"a": {"type": "string", "pattern": "^[0-9]{9}$"}}, "required": ["a"]}, None),
        ({"properties": {"a": {"type": "string", "pattern": "^[0-9]{9}$"}}}, {}),
    ],
)
async def test_an_example_fits_the_schema_or_there_is_none(schema: dict[str, Any], example: object) -> None:
    stage = Stage()
    stage.lists("alpha", described("made", inputSchema={"type": "object", **schema}))
    found = (await told(stage, "made"))["example"]
    if found is None:
        assert example is None
    else:
        assert example is not None
        jsonschema.validate(found, schema)
        assert example.items() <= found.items()  # type: ignore[attr-defined]


async def test_what_cannot_be_called_is_marked() -> None:
    stage = Stage()
    stage.learn(Switched(off=frozenset({("alpha", "echo")})))
    stage.becomes("beta", ServerState.BACKOFF)
    assert (await told(stage, "echo"))["enabled"] is False
    beta = await told(stage, "echo", "beta")
    assert (beta["enabled"], beta["available"], beta["state"]) == (True, False, "backoff")


async def test_of_a_tool_that_is_gone_is_told_until_when_there_was_one() -> None:
    context = operator_context(Stage())
    for details in ({"tools": {"went": ["forecast"]}}, {"tools": {}, "renamed": {"old": "new"}}, {"epoch": 3}):
        context.history.note(Event(kind=EventKind.LISTS_CHANGED, server="alpha", details=details))
    with pytest.raises(UnknownTool, match=r"no tool 'forecast'\..* 'forecast' was removed at 2\d{3}-"):
        await tool(context, ToolParams("forecast", "alpha"))
    with pytest.raises(UnknownTool, match="'old' was renamed to new at "):
        await tool(context, ToolParams("old", "alpha"))
    with pytest.raises(UnknownTool) as refused:
        await tool(context, ToolParams("radar", "alpha"))
    assert " was " not in str(refused.value)


async def test_the_change_that_made_a_tool_what_it_is_is_named() -> None:
    context = operator_context(Stage())
    for arguments in (["a"], ["b"]):
        details: dict[str, Detail] = {
            "tools": {"changed": ["echo"]},
            "toolsDiffer": {"echo": {"members": ["description", "inputSchema"], "argumentsCame": arguments}},
        }
        context.history.note(Event(kind=EventKind.LISTS_CHANGED, server="alpha", details=details, at=5.0))
    answer: Any = await tool(context, ToolParams("echo", "alpha"))
    assert answer["changed"] == {"at": 5.0, "what": "changed (description, argument b added)"}


async def test_an_unknown_name_is_refused_with_the_closest() -> None:
    with pytest.raises(UnknownTool, match=r"server alpha has no tool 'ehco'. Did you mean alpha/echo\?"):
        await told(Stage(), "ehco")
    with pytest.raises(UnknownServer, match=r"Did you mean alpha\?"):
        await told(Stage(), "echo", "alfa")


@pytest.mark.parametrize(
    ("argument", "schema", "value"),
    [
        ("repo_path", {"type": "string"}, "."),
        ("timezone", {"type": "string"}, "UTC"),
        ("url", {"type": "string"}, "https://example.com"),
        ("note", {"type": "string"}, "text"),
        ("path", {"type": "string", "examples": ["/etc"]}, "/etc"),
        ("path", {"type": "string", "minLength": 3}, "text"),
    ],
)
async def test_an_example_has_what_works_on_most_machines(
    argument: str, schema: dict[str, Any], value: str
) -> None:
    stage = Stage()
    whole = {"type": "object", "properties": {argument: schema}, "required": [argument]}
    stage.lists("alpha", described("made", inputSchema=whole))
    assert (await told(stage, "made"))["example"] == {argument: value}
    assert (await told(stage, "made", server=""))["server"] == "alpha"
