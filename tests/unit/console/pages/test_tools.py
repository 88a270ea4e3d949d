"""The page of all tools: never all at once, and searched as a model searches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from daemon.console.pages.tool_pages import PER_PAGE, SWITCH_TOOL, TOOLS_PAGE, loaded_by
from daemon.errors import InvalidArguments, UnknownCategory, UnknownServer
from daemon.states import ServerState
from tests.fakes_upstream import Stage
from tests.unit.config.reading import config_of
from tests.unit.console.pages.drawing import HOSTILE, drawn, values_of, viewer_of
from tests.unit.operators.running import raw, running
from tests.unit.operators.stage import OperatorStage

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_BYTES = 200_000
"""What a page may have (the console's budget)."""


def many(servers: int, tools: int) -> OperatorStage:
    names = [f"s{number}" for number in range(servers)]
    stage = Stage(config_of({"mcpServers": {name: {"command": name} for name in names}}))
    for name in names:
        stage.lists(name, *(_tool(f"{name}_t{number}") for number in range(tools)))
    return OperatorStage(stage)


def _tool(name: str) -> dict[str, object]:
    return {"name": name, "description": "x" * 500, "inputSchema": {"type": "object"}}


def rows_of(values: Mapping[str, object]) -> list[str]:
    return [each for each in values if each.startswith("tool-")]


async def test_categories_are_shown_with_counts_and_no_tools() -> None:
    values = await values_of(TOOLS_PAGE, viewer_of(OperatorStage().context()))
    counts = {each["name"]: each["tools"] for each in values["category-list"]["categories"]}
    assert counts == {"alpha": 2, "beta": 2}
    assert not rows_of(values)


async def test_what_is_off_or_down_is_counted() -> None:
    async with running() as daemon:
        daemon.list("git", raw("log"), raw("push"))
        await daemon.switch("git/log", off=True)
        values = await values_of(TOOLS_PAGE, viewer_of(daemon.context))
        category = values["category-list"]["categories"][0]
        assert (category["name"], category["tools"], category["off"]) == ("c", 2, 2)
        page = await drawn(TOOLS_PAGE, viewer_of(daemon.context, query="category=c"))
        assert "switched off by an operator" in page.text
        assert "switched off in the configuration" in page.text


async def test_a_category_of_many_tools_has_pages() -> None:
    context = many(1, PER_PAGE + 1).context()
    first = await values_of(TOOLS_PAGE, viewer_of(context, query="category=s0"))
    last = await values_of(TOOLS_PAGE, viewer_of(context, query="category=s0&page=2"))
    assert (len(rows_of(first)), len(rows_of(last))) == (PER_PAGE, 1)
    assert (first["notes"]["before"], first["notes"]["after"]) == ("", "/tools?category=s0&page=2")
    assert (last["notes"]["before"], last["notes"]["after"]) == ("/tools?category=s0&page=1", "")
    for word in ("x", "-1", "9" * 20):
        assert "notes" in await values_of(TOOLS_PAGE, viewer_of(context, query=f"category=s0&page={word}"))


async def test_ten_thousand_tools_of_fifty_servers_stay_within_the_budget() -> None:
    context = many(50, PER_PAGE).context()
    for query in ("", "category=s1", "server=s1", "q=t1"):
        page = await drawn(TOOLS_PAGE, viewer_of(context, query=query))
        assert len(page.html.encode()) < MOST_BYTES


async def test_a_search_finds_what_a_model_finds() -> None:
    page = await drawn(TOOLS_PAGE, viewer_of(OperatorStage().context(), query="q=echo"))
    assert "/ui/tools/alpha/echo" in page.links
    assert "score" in page.text
    none = await drawn(TOOLS_PAGE, viewer_of(OperatorStage().context(), query="q=xyzzy&category=gone"))
    assert "gone" in none.text


async def test_names_and_descriptions_stay_text() -> None:
    stage = OperatorStage()
    stage.stage.lists(
        "alpha", {"name": 'a/b<img src=x>"', "description": HOSTILE, "inputSchema": {"type": "object"}}
    )
    page = await drawn(TOOLS_PAGE, viewer_of(stage.context(), query="server=alpha"))
    assert page.is_harmless()
    assert "/ui/tools/alpha/a%2Fb%3Cimg%20src%3Dx%3E%22" in page.links


async def test_tools_of_a_server_that_is_down_are_unavailable() -> None:
    stage = OperatorStage()
    stage.stage.becomes("alpha", ServerState.BACKOFF)
    values = await values_of(TOOLS_PAGE, viewer_of(stage.context(), query="server=alpha"))
    row = values["tool-alpha-echo"]
    assert (row["state"], row["why"], row["loaded"]) == ("unavailable", "server alpha is backoff", 0)
    assert loaded_by(stage.context()) == {}


@pytest.mark.parametrize(
    ("query", "error"), [("category=gone", UnknownCategory), ("server=gone", UnknownServer)]
)
async def test_what_is_not_there_has_no_page(query: str, error: type[Exception]) -> None:
    with pytest.raises(error, match="gone"):
        await TOOLS_PAGE.fragments(viewer_of(OperatorStage().context(), query=query))


async def test_a_server_that_is_switched_off_is_listed_with_its_tools_as_off() -> None:
    async with running() as daemon:
        await daemon.switch("git", off=True)
        values = await values_of(TOOLS_PAGE, viewer_of(daemon.context))
        rows = {each["servers"][0]: each for each in values["category-list"]["categories"]}
        assert {"git", "off"} <= {*rows}
        assert rows["git"]["off"] == rows["git"]["tools"] > 0
        page = await drawn(TOOLS_PAGE, viewer_of(daemon.context, query="server=git"))
        assert "server git is switched off" in page.text


async def test_a_tool_is_switched_by_the_command() -> None:
    async with running() as daemon:
        viewer = viewer_of(daemon.context)
        told = await SWITCH_TOOL.act(viewer, {"disable": "git/log"})
        assert told.startswith("git/log is switched off.")
        assert ("git", "log") in daemon.switched
        told = await SWITCH_TOOL.act(viewer, {"enable": "git/log"})
        assert told.startswith("git/log is switched on.")
        assert not daemon.switched


async def test_a_form_that_names_no_tool_is_refused() -> None:
    with pytest.raises(InvalidArguments, match="SERVER/TOOL"):
        await SWITCH_TOOL.act(viewer_of(OperatorStage().context()), {"disable": "alpha"})
