"""Searching tools, as an operator asks for it."""

from __future__ import annotations

from typing import Any

from daemon.operators.tool_reports import SearchParams, search
from tests.fakes_upstream import Stage
from tests.unit.operators.stage import operator_context


async def found(**params: Any) -> Any:
    return await search(operator_context(Stage()), SearchParams(["echo"], **params))


async def test_tools_are_found_with_scores() -> None:
    report = await found(limit=5)
    first = report["tools"][0]
    assert (first["name"], first["server"], first["category"]) == ("echo", "alpha", "alpha")
    assert first["description"] == "Does echo."
    assert first["score"] > 0
    assert report["total"] == 2


async def test_a_search_within_a_category_stays_there() -> None:
    assert [one["name"] for one in (await found(category="beta"))["tools"]] == ["beta__echo"]


async def test_at_least_one_tool_is_shown_whatever_the_limit() -> None:
    assert len((await found(limit=-1))["tools"]) == 1
