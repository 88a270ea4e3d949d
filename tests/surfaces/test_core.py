"""Core tools: those that a profile names, else those that were called most."""

from __future__ import annotations

from typing import Any

import pytest

from daemon.surfaces.core import MOST_USUAL, core_names, core_references, core_tools, usual_tools
from daemon.surfaces.search import SearchSurface
from tests.catalog.samples import after, catalog_of, listed, servers, status
from tests.surfaces.samples import listed_names, means_of, view_of

NUMBERED = [f"t{number:02}" for number in range(20)]
CONFIG: dict[str, Any] = {
    "mcpServers": servers("a", "b"),
    "categories": {
        "as": {"server": "a", "tools": {"overrides": {"off": {"enabled": False}}}},
        "bs": {"server": "b"},
    },
    "profiles": {
        "few": {"categories": ["as"], "excludedTools": ["t00"]},
        "none": {"coreTools": []},
        "named": {"coreTools": ["b/only", "t01"]},
    },
}
BEFORE = catalog_of(CONFIG)
UP = after(BEFORE, [status("a"), status("b"), listed("a", *NUMBERED, "off"), listed("b", "only")])


def usual(*called: tuple[str, str], profile: str = "default", catalog: Any = UP) -> list[str]:
    means = means_of(catalog, called=called)
    return [tool for _server, tool in usual_tools(means, catalog, catalog.config.profiles[profile])]


def test_the_seven_tools_called_most_are_chosen_in_the_order_of_their_names() -> None:
    called = [("a", name) for name in reversed(NUMBERED)]
    assert usual(*called) == NUMBERED[-MOST_USUAL:]
    assert MOST_USUAL == 7


def test_where_nothing_was_called_none_is_chosen() -> None:
    assert usual() == []


def test_only_what_the_profile_shows_is_chosen() -> None:
    called = [("a", "off"), ("b", "only"), ("a", "t00"), ("a", "gone"), ("left", "t01"), ("a", "t02")]
    assert usual(*called, profile="few") == ["t02"]
    assert usual(*called) == ["t00", "t02", "only"]


def test_what_a_server_will_list_is_chosen_and_waited_for() -> None:
    assert usual(("b", "only"), ("a", "off"), catalog=BEFORE) == ["only"]
    view = view_of(BEFORE, usual=[("b", "only")])
    assert (list(core_tools(view)), list(core_names(view, ()))) == ([], ["only"])
    assert SearchSurface().awaits(view) == ("b",)


def test_the_core_tools_that_were_chosen_are_listed_and_stand_in_the_instructions() -> None:
    view = view_of(UP, usual=[("a", "t01"), ("a", "gone"), ("b", "only")])
    assert listed_names(SearchSurface(), view) == ["search_tools", "call_tool", "t01", "only"]
    assert "Core tools available: search_tools, call_tool, t01, gone, only" in SearchSurface().instructions(
        view
    )


@pytest.mark.parametrize(("profile", "references"), [("none", []), ("named", ["b/only", "t01"])])
def test_a_profile_that_names_core_tools_has_these_and_no_others(profile: str, references: list[str]) -> None:
    view = view_of(UP, profile, usual=[("a", "t05")])
    assert list(core_references(view)) == references
    assert [each.name for each in core_tools(view)] == [name.removeprefix("b/") for name in references]
