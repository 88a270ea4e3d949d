"""What operators are told has changed, and what was meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon.operators.news import COMPARED, NAMED, changed, difference, switches
from tests.fakes_upstream import Stage, tool

if TYPE_CHECKING:
    from daemon.catalog.entry import ServerEntry


def entry(stage: Stage, server: str = "alpha") -> ServerEntry:
    return stage.catalog.value.servers[server]


def test_the_switches_are_told_by_profile_and_not_without_end() -> None:
    surfaces = {"default": "category", "off": "full"}
    assert switches(lazy=True, surfaces=surfaces).endswith("default shows category, off shows full")
    assert switches(lazy=False, surfaces=surfaces) == "lazy loading is off: every profile lists all tools"
    many = {f"p{number}": "load" for number in range(NAMED + 2)}
    assert switches(lazy=True, surfaces=many).endswith("p9 shows load, 2 more")


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
