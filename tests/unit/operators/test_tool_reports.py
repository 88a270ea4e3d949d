"""The shape of `mcpd tools`: other people's programs read it (design.md §6)."""

import json
import re
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import msgspec
import pytest

from daemon.errors import InvalidArguments, UnknownServer, UnknownTool
from daemon.facts import Switched
from daemon.history.event import Event, EventKind
from daemon.operators.base import OperatorContext
from daemon.operators.tool_reports import (
    SearchParams,
    ToolParams,
    ToolsParams,
    explain,
    last_change,
    search,
    tool,
    tool_named,
    tools,
)
from daemon.states import ServerState
from tests.fakes_upstream import Stage
from tests.fakes_upstream import tool as described
from tests.unit.cases import cases, rows_of
from tests.unit.operators.stage import operator_context


async def told(stage: Stage, **params: Any) -> dict[str, Any]:
    """As it goes over the wire."""
    answer: dict[str, Any] = json.loads(
        msgspec.json.encode(await tools(operator_context(stage), ToolsParams(**params)))
    )
    return answer


async def test_tools_tell_what_exists_and_what_a_model_sees() -> None:
    overrides = {"add": {"enabled": False}, "echo": {"description": "Ours."}}
    tools = {"includeNames": ["echo", "add", "ghost"], "overrides": overrides}
    stage = Stage(
        categories={
            "c": {"description": "C", "server": "alpha", "tools": tools},
            "d": {"description": "D", "server": "beta"},
        }
    )
    stage.becomes("beta", ServerState.BACKOFF)
    report = await told(stage)
    assert list(report) == ["categories", "surface"]
    assert report["surface"]["name"] == "category"
    assert [one["name"] for one in report["surface"]["tools"]] == [
        "get-category-tools",
        "call-category-tool",
        "call-read-only-tool",
    ]
    c = report["categories"]["c"]
    assert (c["description"], c["servers"], list(c["tools"])) == ("C", ["alpha"], ["echo", "add", "ghost"])
    known = stage.catalog.value.servers["alpha"].tools
    assert known is not None
    (shape,) = rows_of(Path(__file__), "a_tool_of_a_category")
    assert c["tools"]["echo"] == {**shape, "schemaHash": known["echo"].schema_hash}
    assert (c["tools"]["add"]["enabled"], c["tools"]["add"]["available"]) == (False, False)
    assert (c["tools"]["ghost"]["listed"], c["tools"]["ghost"]["schemaHash"]) == (False, None)
    assert report["categories"]["d"]["tools"]["echo"]["description"] == "Does echo."
    assert report["categories"]["d"]["tools"]["echo"]["available"] is False
    for only, names in (("d", ["d"]), ("nobody", []), (None, ["c", "d"])):
        assert list((await told(stage, category=only))["categories"]) == names
    assert not any(tool["available"] for tool in (await told(stage, server="beta"))["tools"].values())
    beta = await told_tool(stage, "echo", "beta")
    assert (beta["enabled"], beta["available"], beta["state"]) == (True, False, "backoff")
    assert (await told_tool(stage, "add"))["enabled"] is False
    assert (await told(Stage(listed=False), server="beta"))["known"] is False


async def test_tools_that_a_profile_hides_are_told_only_of_another() -> None:
    stage = Stage(profiles={"p": {"excludedTools": ["alpha/add"]}})
    for profile, names in (("p", ["echo"]), ("default", ["add", "echo"])):
        told_of = (await told(stage, profile=profile))["categories"]["alpha"]["tools"]
        assert sorted(told_of) == names


@cases("written", "params", "name")
async def test_what_a_model_sees_is_shown_of_any_profile_and_surface(
    written: dict[str, Any], params: dict[str, Any], name: str
) -> None:
    report = await told(Stage(**written), **params)
    assert report["surface"]["name"] == name
    assert report["surface"]["instructions"]


@cases("params", "message")
async def test_an_unknown_view_is_refused_with_those_that_exist(params: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArguments, match=re.escape(message)):
        await told(Stage(), **params)


async def test_a_servers_tools_are_told_whatever_category_they_are_in() -> None:
    stage = Stage(
        categories={"beta": {"description": "", "server": "beta", "tools": {"includeNames": ["add"]}}}
    )
    stage.learn(Switched(off=frozenset({("beta", "echo")})))
    report = await told(stage, server="beta")
    tools = report.pop("tools")
    assert report == {
        "server": "beta",
        "state": "ready",
        "reason": "",
        "known": True,
        "isCategory": True,
        "held": {},
        "quarantined": {},
    }
    assert {name: (tool["enabled"], tool["available"]) for name, tool in tools.items()} == {
        "echo": (False, False),
        "add": (True, True),
    }
    assert (await told(stage, server="alpha"))["isCategory"] is False
    with pytest.raises(UnknownServer, match="Did you mean beta"):
        await told(stage, server="bta")


async def told_tool(stage: Stage, name: str, server: str = "alpha") -> dict[str, Any]:
    """As it goes over the wire."""
    answer: dict[str, Any] = json.loads(
        msgspec.json.encode(await tool(operator_context(stage), ToolParams(name, server)))
    )
    return answer


async def test_a_tool_is_told_as_its_server_defines_it() -> None:
    stage = Stage()
    answer = await told_tool(stage, "echo")
    known = stage.catalog.value.servers["alpha"].tools
    assert known is not None
    (shape,) = rows_of(Path(__file__), "a_tool_as_its_server_defines_it")
    own = {"schemaHash": known["echo"].schema_hash, "definition": described("echo")}
    assert answer == {**shape, **own}
    stage.observed.know({known["echo"].schema_hash: b'{"id":"int"}'})
    assert (await told_tool(stage, "echo"))["observed"] == '{"id": int}'


@cases("schema", "example")
async def test_an_example_fits_the_schema_or_there_is_none(schema: dict[str, Any], example: object) -> None:
    stage = Stage()
    stage.lists("alpha", described("made", inputSchema={"type": "object", **schema}))
    found = (await told_tool(stage, "made"))["example"]
    if found is None:
        assert example is None
    else:
        assert example is not None
        jsonschema.validate(found, schema)
        assert example.items() <= found.items()  # type: ignore[attr-defined]


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


async def test_an_unknown_name_is_refused_with_the_closest() -> None:
    with pytest.raises(UnknownTool, match=r"server alpha has no tool 'ehco'. Did you mean alpha/echo\?"):
        await told_tool(Stage(), "ehco")
    with pytest.raises(UnknownServer, match=r"Did you mean alpha\?"):
        await told_tool(Stage(), "echo", "alfa")


@cases("argument", "schema", "value")
async def test_an_example_works_on_most_machines(argument: str, schema: dict[str, Any], value: str) -> None:
    stage = Stage()
    whole = {"type": "object", "properties": {argument: schema}, "required": [argument]}
    stage.lists("alpha", described("made", inputSchema=whole))
    assert (await told_tool(stage, "made"))["example"] == {argument: value}
    assert (await told_tool(stage, "made", server=""))["server"] == "alpha"


def changed(at: float, server: str = "alpha", **details: Any) -> Event:
    return Event(kind=EventKind.LISTS_CHANGED, at=at, server=server, details=details)


DIFFERS = {"at": 2.0, "what": "changed (description, argument b added)"}


def night() -> OperatorContext:
    context = operator_context(Stage())
    for event in (
        changed(1.0, tools={"came": ["echo", "gone"]}),
        changed(1.5, tools={"changed": ["echo"]}, toolsDiffer={"echo": {"argumentsCame": ["a"]}}),
        changed(
            2.0,
            tools={"changed": ["echo"]},
            toolsDiffer={"echo": {"members": ["description", "inputSchema"], "argumentsCame": ["b"]}},
        ),
        changed(3.0, tools={"went": ["gone", "old"], "came": ["new"]}, renamed={"old": "new"}),
        changed(4.0, "beta", tools={"went": ["echo"]}),
        changed(5.0, prompts={"changed": ["echo"]}),
        Event(kind=EventKind.EPOCH, at=6.0, server="alpha"),
    ):
        context.history.note(event)
    return context


async def test_the_newest_change_of_a_tool_is_found_with_what_of_it_has_changed() -> None:
    context = night()
    assert await last_change(context, "alpha", "echo") == DIFFERS
    assert await last_change(context, "alpha", "gone") == {"at": 3.0, "what": "removed"}
    assert await last_change(context, "alpha", "old") == {"at": 3.0, "what": "renamed to new"}
    assert await last_change(context, "beta", "echo") == {"at": 4.0, "what": "removed"}
    assert await last_change(context, "alpha", "other") is None
    answer: Any = await tool(context, ToolParams("echo", "alpha"))
    assert answer["changed"] == DIFFERS


async def test_what_a_session_has_lost_is_explained_by_what_happened_after_it_was_loaded() -> None:
    def loaded(name: str, status: str, at: float) -> Any:
        return {"server": "alpha", "name": name, "status": status, "loadedAt": at}

    tools = [
        loaded("echo", "invalid_changed", 1.5),
        loaded("gone", "invalid_deleted", 3.5),
        loaded("new", "valid", 0.0),
        loaded("old", "invalid_disabled", 0.0),
    ]
    await explain(night(), tools)
    assert [tool.get("changed") for tool in tools] == [DIFFERS, *(None, None, None)]


def stage() -> Stage:
    made = Stage()
    made.lists("alpha", "echo", "only_here", "with/slash")
    return made


@cases("name", "key")
def test_a_tool_is_meant_in_every_spelling(name: str, key: list[str]) -> None:
    assert tool_named(stage().catalog.value, name) == tuple(key)


def test_a_name_of_several_servers_is_refused_with_what_to_write() -> None:
    with pytest.raises(
        InvalidArguments, match="2 servers have a tool 'echo': write one of alpha/echo, beta/echo"
    ):
        tool_named(stage().catalog.value, "echo")


@cases("name", "hint")
def test_an_unknown_name_is_answered_with_the_closest_as_it_is_typed(name: str, hint: str) -> None:
    with pytest.raises(UnknownTool, match=hint):
        tool_named(stage().catalog.value, name)


async def found(**params: Any) -> Any:
    return await search(operator_context(Stage()), SearchParams(["echo"], **params))


async def test_tools_are_found_with_scores() -> None:
    report = await found(limit=5)
    first = report["tools"][0]
    assert (first["name"], first["server"], first["category"]) == ("echo", "alpha", "alpha")
    assert first["description"] == "Does echo."
    assert first["score"] > 0
    assert report["total"] == 2
    assert [one["name"] for one in (await found(category="beta"))["tools"]] == ["beta__echo"]
    assert len((await found(limit=-1))["tools"]) == 1, "at least one is shown whatever the limit"
