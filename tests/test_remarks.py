"""What operators are told besides the outcome."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon.remarks import NAMED, difference, may_have, note, switches
from tests.fakes_upstream import Stage, tool

if TYPE_CHECKING:
    from daemon.catalog.entry import ServerEntry

ECHO = ("alpha", "echo")


def entry(stage: Stage, server: str = "alpha") -> ServerEntry:
    return stage.catalog.value.servers[server]


def test_the_switches_are_told_by_profile_and_not_without_end() -> None:
    surfaces = {"default": "category", "off": "full"}
    assert switches(lazy=True, surfaces=surfaces).endswith("default shows category, off shows full")
    assert switches(lazy=False, surfaces=surfaces) == "lazy loading is off: every profile lists all tools"
    many = {f"p{number}": "load" for number in range(NAMED + 2)}
    assert switches(lazy=True, surfaces=many).endswith("p9 shows load, 2 more")


def test_a_server_that_has_not_listed_anything_may_have_any_tool() -> None:
    assert may_have(entry(Stage()), "echo")
    assert not may_have(entry(Stage()), "ghost")
    assert may_have(entry(Stage(listed=False)), "ghost")


def test_a_word_that_does_all_that_one_expects_needs_no_note() -> None:
    stage = Stage()
    assert note(stage.catalog.value, ECHO, off=True) == ""
    assert note(stage.catalog.value, ECHO, off=False) == ""


def test_what_one_might_not_expect_of_a_word_is_said() -> None:
    unlisted = Stage(listed=False).catalog.value
    assert "is not in the configuration" in note(unlisted, ("gone", ""), off=False)
    assert "are not known yet" in note(unlisted, ECHO, off=True)


def test_a_difference_has_what_came_went_and_changed() -> None:
    stage = Stage()
    before = entry(stage)
    stage.lists("alpha", tool("echo", description="another"), tool("new", description="quite another"))
    told = difference(before, entry(stage))
    assert (told["came"], told["went"], told["changed"]) == (["new"], ["add"], ["echo"])
    assert (told["tools"], told["state"]) == (2, "ready")
