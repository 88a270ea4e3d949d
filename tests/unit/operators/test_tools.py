"""The shape of `mcpd tools`: other people's programs read it (design.md §6)."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec
import pytest

from daemon.errors import InvalidArguments, UnknownServer
from daemon.facts import Switched
from daemon.operators.tool_reports import ToolsParams, tools
from daemon.states import ServerState
from tests.fakes_upstream import Stage
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
    assert c["tools"]["echo"] == {
        "server": "alpha",
        "tool": "echo",
        "description": "Ours.",
        "enabled": True,
        "listed": True,
        "available": True,
        "schemaHash": known["echo"].schema_hash,
    }
    assert (c["tools"]["add"]["enabled"], c["tools"]["add"]["available"]) == (False, False)
    assert (c["tools"]["ghost"]["listed"], c["tools"]["ghost"]["schemaHash"]) == (False, None)
    assert report["categories"]["d"]["tools"]["echo"]["description"] == "Does echo."
    assert report["categories"]["d"]["tools"]["echo"]["available"] is False


@pytest.mark.parametrize(("only", "names"), [("alpha", ["alpha"]), ("nobody", []), (None, ["alpha", "beta"])])
async def test_tools_of_one_category(only: str | None, names: list[str]) -> None:
    assert list((await told(Stage(), category=only))["categories"]) == names


@pytest.mark.parametrize(
    ("written", "params", "name"),
    [
        ({}, {}, "category"),
        ({"profiles": {"default": {"surface": "search"}}}, {}, "search"),
        ({"profiles": {"p": {"surface": "load"}}}, {"profile": "p"}, "load"),
        ({"lazy": False}, {}, "full"),
        ({"lazy": False}, {"surface": "browse"}, "browse"),
    ],
)
async def test_what_a_model_sees_is_shown_of_any_profile_and_surface(
    written: dict[str, Any], params: dict[str, Any], name: str
) -> None:
    report = await told(Stage(**written), **params)
    assert report["surface"]["name"] == name
    assert report["surface"]["instructions"]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"surface": "ful"}, "no surface is named 'ful'. Did you mean full?"),
        ({"profile": "defalt"}, "no profile is named 'defalt'. Did you mean default?"),
    ],
)
async def test_a_view_that_nobody_can_have_is_refused_with_those_that_exist(
    params: dict[str, Any], message: str
) -> None:
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
        "quarantined": {},
    }
    assert {name: (tool["enabled"], tool["available"]) for name, tool in tools.items()} == {
        "echo": (False, False),
        "add": (True, True),
    }
    assert (await told(stage, server="alpha"))["isCategory"] is False
    with pytest.raises(UnknownServer, match="Did you mean beta"):
        await told(stage, server="bta")


async def test_a_server_that_is_down_has_no_tool_that_can_be_called() -> None:
    stage = Stage()
    stage.becomes("beta", ServerState.BACKOFF)
    assert not any(tool["available"] for tool in (await told(stage, server="beta"))["tools"].values())
    assert (await told(Stage(listed=False), server="beta"))["known"] is False
