"""What needs ask for and what tools do."""

from __future__ import annotations

import pytest

from daemon.search.language import ANY_ACTION, OPPOSED, OTHERWISE, ToolAction, action_of, actions_of, worth


@pytest.mark.parametrize(
    ("need", "actions"),
    [
        ("schedule a meeting", {ToolAction.MAKE}),
        ("Scheduling meetings", {ToolAction.MAKE}),
        ("what is on my schedule", set()),
        ("show me the list of posts", {ToolAction.READ}),
        ("cancel the booking, then tell Ann", {ToolAction.REMOVE, ToolAction.READ}),
        ("rename it", {ToolAction.CHANGE}),
        ("weather in Oslo", set()),
        ("", set()),
    ],
)
def test_a_need_asks_for_the_verbs_that_are_no_nouns(need: str, actions: set[ToolAction]) -> None:
    assert actions_of(need) == actions


@pytest.mark.parametrize(
    ("name", "action"),
    [
        ("delete-calendar-event", ToolAction.REMOVE),
        ("calendar_events_delete", ToolAction.REMOVE),
        ("createEvent", ToolAction.MAKE),
        ("read_file", ToolAction.READ),
        ("moveFile", ToolAction.CHANGE),
        ("weather", ToolAction.NONE),
        ("文件", ToolAction.NONE),
    ],
)
def test_a_tool_does_what_the_first_verb_of_its_name_says(name: str, action: ToolAction) -> None:
    assert action_of(name) is action


def test_who_asks_for_one_thing_is_led_least_to_remove() -> None:
    assert worth(ANY_ACTION) == (1.0, 1.0, 1.0, 1.0, 1.0)
    assert worth(frozenset({ToolAction.MAKE})) == (1.0, OTHERWISE, 1.0, OTHERWISE, OPPOSED)
    assert worth(frozenset({ToolAction.REMOVE})) == (1.0, OPPOSED, OPPOSED, OPPOSED, 1.0)
    assert worth(frozenset({ToolAction.READ, ToolAction.MAKE})) == (1.0, 1.0, 1.0, 1.0, OPPOSED)
