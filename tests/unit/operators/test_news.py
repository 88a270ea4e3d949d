"""What operators are told has changed, and what was meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon.operators.news import COMPARED, changed, difference
from tests.fakes_upstream import Stage, tool

if TYPE_CHECKING:
    from daemon.catalog.entry import ServerEntry


def entry(stage: Stage, server: str = "alpha") -> ServerEntry:
    return stage.catalog.value.servers[server]


def test_a_difference_has_what_came_went_and_changed() -> None:
    stage = Stage()
    before = entry(stage)
    stage.lists("alpha", tool("echo", description="another"), tool("new", description="quite another"))
    told = difference(before, entry(stage))
    assert (told["came"], told["went"], told["changed"]) == (["new"], ["add"], ["echo"])
    assert (told["tools"], told["state"]) == (2, "ready")


def test_an_event_says_what_of_changed_tools_differs_and_compares_only_some() -> None:
    stage = Stage()
    names = [f"tool{number}" for number in range(COMPARED + 5)]
    stage.lists("alpha", *(tool(name) for name in names))
    before = entry(stage)
    stage.lists("alpha", *(tool(name, description="another") for name in names))
    differ = changed(before, entry(stage)).details["toolsDiffer"]
    assert differ == {name: {"members": ["description"]} for name in names[:COMPARED]}
